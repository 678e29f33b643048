//! The notation of values in files and options: `"64KiB"`, `"2ms"`, `"10%"`.
//!
//! A reader returns `None` for a text that is not in the notation. The caller knows which values it
//! allows, and says so in its error. Sizes are written by their `Display`.

use super::values::{AlgorithmChoice, ReduceAlgorithm};
use crate::units::{ByteCount, Rank, Share, Span};

/// Reads a size: bytes (`4096`), or with a unit of powers of 1,024 (`4K`, `64KiB`, `1.5M`, `1G`).
pub fn size(text: &str) -> Option<ByteCount> {
    let (number, unit) = split_unit(text);
    let unit = match unit {
        "" | "B" => 1,
        "K" | "k" | "KiB" => 1 << 10,
        "M" | "m" | "MiB" => 1 << 20,
        "G" | "g" | "GiB" => 1 << 30,
        _ => return None,
    };
    scaled(number, unit).map(ByteCount::new)
}

/// Reads a share: a number from 0 to 1 (`0.1`) or a percentage (`10%`).
pub fn share(text: &str) -> Option<Share> {
    let text = text.trim();
    match text.strip_suffix('%') {
        Some(percent) => Share::new(plain(percent.trim_end())? / 100.0),
        None => Share::new(plain(text)?),
    }
}

/// Writes a share so that [`share`] reads it back, in percent; its `Display` is rounded.
pub fn show_share(share: Share) -> String {
    let text = format!("{:.4}", share.get() * 100.0);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

const SPAN_UNITS: [(&str, u64); 5] = [
    ("s", 1_000_000_000_000),
    ("ms", 1_000_000_000),
    ("us", 1_000_000),
    ("ns", 1_000),
    ("ps", 1),
];

/// Reads a length of time with its unit: `8s`, `1.5ms`, `20us`, `5ns`, `1ps`.
pub fn span(text: &str) -> Option<Span> {
    let (number, unit) = split_unit(text);
    let (_, picos) = SPAN_UNITS.iter().find(|(name, _)| *name == unit)?;
    scaled(number, *picos).map(Span::from_picos)
}

/// Writes a length of time so that [`span`] reads it back, in the largest unit of which it is a
/// whole number.
pub fn show_span(span: Span) -> String {
    let picos = span.as_picos();
    let whole = |(_, unit): &&(&str, u64)| picos != 0 && picos.is_multiple_of(*unit);
    let (name, unit) = SPAN_UNITS.iter().find(whole).unwrap_or(&SPAN_UNITS[0]);
    format!("{}{name}", picos / unit)
}

/// Reads a pair of ranks as `from->to`.
pub fn pair(text: &str) -> Option<(Rank, Rank)> {
    let (from, to) = text.split_once("->")?;
    Some((
        Rank(from.trim().parse().ok()?),
        Rank(to.trim().parse().ok()?),
    ))
}

/// Writes a pair of ranks so that [`pair`] reads it back.
pub fn show_pair((from, to): (Rank, Rank)) -> String {
    format!("{from}->{to}")
}

/// Reads an entry of `collectives.table`: the maximum ranks, the maximum bytes, the algorithm (`4
/// 256KiB direct`).
pub fn choice(text: &str) -> Option<AlgorithmChoice> {
    let mut words = text.split_whitespace();
    let (world, bytes, name) = (words.next()?, words.next()?, words.next()?);
    let choice = AlgorithmChoice {
        world: world.parse().ok()?,
        bytes: size(bytes)?,
        algorithm: name.parse().ok()?,
    };
    let is_one = words.next().is_none() && choice.world >= 2;
    // Neither is an algorithm of the ranks.
    let is_none = matches!(
        choice.algorithm,
        ReduceAlgorithm::Auto | ReduceAlgorithm::InNetwork
    );
    (is_one && !is_none).then_some(choice)
}

/// Writes an entry of `collectives.table` so that [`choice`] reads it back.
pub fn show_choice(choice: AlgorithmChoice) -> String {
    let name: &str = choice.algorithm.into();
    format!("{} {} {name}", choice.world, choice.bytes)
}

fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// Digits with an optional point; nothing else that a float parser would take.
fn plain(number: &str) -> Option<f64> {
    let digits = number
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    digits.then(|| number.parse().ok()).flatten()
}

fn scaled(number: &str, unit: u64) -> Option<u64> {
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit);
    }
    let value = plain(number)? * unit as f64;
    (value < (1_u64 << 53) as f64).then(|| value.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(size("4K"), Some(ByteCount::kib(4)));
        assert_eq!(size("64 MiB"), Some(ByteCount::mib(64)));
        assert_eq!(size("1.5M"), Some(ByteCount::kib(1536)));
        assert_eq!(size("1500"), Some(ByteCount::new(1500)));
        assert_eq!(size("4KB"), None);
        assert_eq!(size("-1"), None);
        assert_eq!(size(""), None);
        assert_eq!(size("99999999999G"), None);
    }

    #[test]
    fn shares_are_numbers_or_percentages() {
        assert_eq!(share("1%"), Share::new(0.01));
        assert_eq!(share("0.25"), Share::new(0.25));
        assert_eq!(share("101%"), None);
        assert_eq!(share("nan"), None);
        assert_eq!(
            show_share(Share::new(0.000_001).expect("a share")),
            "0.0001%"
        );
    }

    #[test]
    fn entries_of_the_table_have_a_world_a_size_and_an_algorithm() {
        let read = choice(" 16  4M ring ").expect("an entry");
        assert_eq!((read.world, read.bytes), (16, ByteCount::mib(4)));
        assert_eq!(show_choice(read), "16 4MiB ring");
        assert_eq!(choice("16 4MiB"), None);
        assert_eq!(choice("70000 4MiB ring"), None);
    }

    #[test]
    fn spans_need_a_unit() {
        assert_eq!(span("2ms"), Some(Span::from_millis(2)));
        assert_eq!(span("0us"), Some(Span::ZERO));
        assert_eq!(span("2"), None);
        assert_eq!(show_span(Span::from_micros(1500)), "1500us");
        assert_eq!(show_span(Span::ZERO), "0s");
    }
}
