//! Command lines as a shell takes them.

/// Words with blanks between them.
pub fn line<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.into_iter().map(word).collect();
    words.join(" ")
}

/// A word, in quotes where it needs them.
pub fn word(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=:.,/@%+".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
