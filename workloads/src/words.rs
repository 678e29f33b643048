//! Shared by all text formats: numbered lines of words, and the most similar known word.

use gradwire_protocol::job::spelling;

/// A line of a text.
#[derive(Clone, Debug)]
pub(super) struct NumberedLine<'a> {
    /// Its number, from 1.
    pub(super) number: usize,
    /// Its words; at least one.
    pub(super) words: Vec<&'a str>,
}

/// Returns the lines of `text` that are neither blank nor a comment (`#`).
pub(super) fn lines(text: &str) -> impl Iterator<Item = NumberedLine<'_>> {
    let all = text.lines().enumerate().map(|(index, line)| NumberedLine {
        number: index + 1,
        words: line.split_whitespace().collect(),
    });
    all.filter(|line| {
        line.words
            .first()
            .is_some_and(|word| !word.starts_with('#'))
    })
}

/// Returns ` (did you mean …?)` with the word of `known` most similar to `given`, if one is close.
pub(crate) fn did_you_mean<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    spelling::did_you_mean(spelling::nearest(given, known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_and_comments_count_but_are_left_out() {
        let found: Vec<usize> = lines("# a\n\nb c\r\n  # d\n e")
            .map(|line| line.number)
            .collect();
        assert_eq!(found, [3, 5]);
    }

    #[test]
    fn only_words_that_are_nearly_right_are_suggested() {
        let known = ["permutation", "incast"];
        assert_eq!(did_you_mean("inkast", known), " (did you mean `incast`?)");
        assert_eq!(did_you_mean("gravity", known), "");
    }
}
