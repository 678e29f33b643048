//! What all text forms share: numbered lines of words, and the known word spelt most alike.

/// A line of a text.
#[derive(Clone, Debug)]
pub(super) struct Line<'a> {
    /// Its number, from 1.
    pub(super) number: usize,
    /// What stands between blanks; at least one.
    pub(super) words: Vec<&'a str>,
}

/// The lines of `text` that are neither blank nor a comment (`#`).
pub(super) fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let all = text.lines().enumerate().map(|(index, line)| Line {
        number: index + 1,
        words: line.split_whitespace().collect(),
    });
    all.filter(|line| {
        line.words
            .first()
            .is_some_and(|word| !word.starts_with('#'))
    })
}

/// ` (did you mean …?)` with the word of `known` that is spelt most like `given`, or nothing when
/// all of them differ in more than half of their letters.
pub(crate) fn did_you_mean<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let distances = known.into_iter().map(|word| (distance(given, word), word));
    let nearest = distances.min_by_key(|(distance, _)| *distance);
    nearest
        .filter(|(distance, word)| distance * 2 <= word.chars().count())
        .map_or_else(String::new, |(_, word)| {
            format!(" (did you mean `{word}`?)")
        })
}

/// Letters to insert, drop or change to make one word of the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, &of_other) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != of_other);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
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
