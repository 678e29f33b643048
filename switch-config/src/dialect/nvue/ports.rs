//! Names of interfaces: one key may stand for many, as in `swp1-4`, `swp2,6` or `swp1-swp3`.

/// More ports than any switch has.
const PORTS: u32 = 1024;

/// Whether a key of `interface` stands for a port.
pub(super) fn covers(key: &str, port: &str) -> bool {
    let mut stem = "";
    key.split(',').any(|part| {
        let part = part.trim();
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (name, from) = split(first);
        if !name.is_empty() {
            stem = name;
        }
        if part == port {
            return true;
        }
        let (own, number) = split(port);
        let (_, to) = split(last);
        own == stem && [from, number, to].iter().all(|part| part.is_some()) && {
            from <= number && number <= to
        }
    })
}

/// Whether a key stands for a port, and for others too.
pub(super) fn covers_with_others(key: &str, port: &str) -> bool {
    key != port && covers(key, port)
}

/// The ports that a key of `interface` stands for.
pub(super) fn names(key: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut stem = "";
    for part in key.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let ((name, from), (_, to)) = (split(first), split(last));
        if !name.is_empty() {
            stem = name;
        }
        match from.zip(to) {
            Some((from, to)) if to.saturating_sub(from) < PORTS => {
                names.extend((from..=to).map(|number| format!("{stem}{number}")));
            }
            _ => names.push(part.to_owned()),
        }
    }
    names
}

/// A name and the number at its end: `swp` and 12.
fn split(text: &str) -> (&str, Option<u32>) {
    let stem = text.trim_end_matches(|letter: char| letter.is_ascii_digit());
    (stem, text[stem.len()..].parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_stands_for_ranges_and_lists() {
        for (key, yes, no) in [
            ("swp1", "swp1", "swp10"),
            ("swp1-4", "swp4", "swp5"),
            ("swp1-swp3,swp5", "swp5", "swp4"),
            ("swp2,6", "swp6", "swp3"),
            ("swp1s0-3", "swp1s2", "swp2"),
            ("p0_if,p1_if", "p1_if", "p2_if"),
            ("swp1-", "swp1-", "swp1"),
        ] {
            assert!(covers(key, yes), "{key} {yes}");
            assert!(!covers(key, no), "{key} {no}");
            assert!(names(key).iter().any(|name| name == yes), "{key} {yes}");
            assert!(names(key).iter().all(|name| name != no), "{key} {no}");
        }
    }
}
