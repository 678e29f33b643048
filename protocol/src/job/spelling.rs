//! Suggestions for misspelt words: keys of files, names of shapes and workloads.

/// Letters of a word that are compared; no known word is longer.
const LETTERS_MAX: usize = 64;

/// The known word with the spelling most similar to `given`; among equally near ones the first in
/// the alphabet. `None` if more than half of its letters would have to change, or more than one
/// plus one for every four letters.
pub fn nearest<'k>(given: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    // A key of a hostile file may be megabytes long, and the distance takes quadratic time.
    let given: String = given.chars().take(LETTERS_MAX).collect();
    known
        .into_iter()
        .map(|known| (strsim::levenshtein(&given, known), known))
        .min()
        .filter(|(distance, known)| {
            let letters = known.chars().count();
            *distance <= (1 + letters / 4).min(letters / 2)
        })
        .map(|(_, known)| known)
}

/// The end of an error that suggests the nearest word; empty without one.
pub fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |word| format!(" (did you mean `{word}`?)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nearly_right_words_are_suggested() {
        let known = ["fat-tree", "leaf-spine", "rail", "single"];
        assert_eq!(nearest("fattree", known), Some("fat-tree"));
        assert_eq!(nearest("rails", known), Some("rail"));
        assert_eq!(nearest("dragonfly", known), None);
        assert_eq!(nearest("x", ["k", "b"]), None);
        assert_eq!(nearest(&"rail".repeat(1 << 20), known), None);
    }
}
