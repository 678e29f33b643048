//! Columns of rows that are printed one by one, as their numbers come.

/// The names of columns behind a `#`, each at the right of its width; `names` has `|` between them.
/// The first width has room for the `#`.
pub fn heads(widths: &[usize], names: &str) -> String {
    let cells = widths.iter().zip(names.split('|').map(str::trim));
    let line: Vec<String> = cells
        .enumerate()
        .map(|(at, (width, name))| {
            let width = width - usize::from(at == 0);
            format!("{name:>width$}")
        })
        .collect();
    format!("#{}", line.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_where_their_columns_end() {
        assert_eq!(heads(&[6, 4], "size | us"), "# size   us");
        assert_eq!(heads(&[6, 4, 5], " | | us"), "#              us");
    }
}
