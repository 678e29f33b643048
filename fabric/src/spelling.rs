//! Which known word a wrong one was meant to be.

/// The known word that is spelt most like `given`, if any is near.
pub(crate) fn nearest<'k>(given: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    known
        .map(|known| (distance(given, known), known))
        .min()
        .filter(|(distance, known)| *distance <= 1 + known.chars().count() / 4)
        .map(|(_, known)| known)
}

/// The end of a message that names the nearest word.
pub(crate) fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |word| format!(" (did you mean `{word}`?)"))
}

/// Levenshtein's distance between two words. Of a long word only the beginning is looked at: it
/// is like none that is known.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_word_is_found_and_a_far_one_is_not() {
        let known = ["fat-tree", "leaf-spine", "rail", "single"];
        assert_eq!(nearest("fattree", known.into_iter()), Some("fat-tree"));
        assert_eq!(nearest("rails", known.into_iter()), Some("rail"));
        assert_eq!(nearest("dragonfly", known.into_iter()), None);
    }
}
