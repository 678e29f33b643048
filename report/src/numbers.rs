//! Counts and bytes as people read them.

/// A count with its thousands apart.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in a unit of powers of 1,000, three digits.
pub fn bytes(value: u64) -> String {
    match value as f64 {
        value if value >= 1e9 => format!("{:.2} GB", value / 1e9),
        value if value >= 1e6 => format!("{:.2} MB", value / 1e6),
        value if value >= 1e3 => format!("{:.1} kB", value / 1e3),
        value => format!("{value:.0} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_their_thousands_apart() {
        let texts = [0, 999, 1_000, 1_234_567].map(count);
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [999, 1_500, 2_000_000].map(bytes),
            ["999 B", "1.5 kB", "2.00 MB"]
        );
    }
}
