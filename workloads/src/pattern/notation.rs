//! The notation of sizes, repetitions and lists of hosts in a one-line workload.

use gradwire_protocol::job::notation;
use gradwire_protocol::units::ByteCount;

/// The error for a text that is no size in these units.
pub(super) fn not_a_size(text: &str, units: &str) -> String {
    match text.trim() {
        "" => format!("it has no size ({units})"),
        _ => format!("`{text}` is not a size ({units})"),
    }
}

/// Reads a size of at least one byte: plain bytes, `KB`, `MB` and `GB` (powers of 1,000), `KiB`,
/// `MiB` and `GiB` (powers of 1,024).
pub(super) fn size(text: &str) -> Option<ByteCount> {
    let text = text.trim();
    let decimal = [("KB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000)];
    let unit = decimal
        .into_iter()
        .find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, bytes)));
    let size = match unit {
        Some((number, unit)) => scaled(number.trim_end(), unit)?,
        None => notation::size(text)?,
    };
    (size.get() > 0).then_some(size)
}

fn scaled(number: &str, unit: u64) -> Option<ByteCount> {
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit).map(ByteCount::new);
    }
    let digits = number
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let value = digits.then(|| number.parse::<f64>().ok()).flatten()? * unit as f64;
    (value < (1_u64 << 53) as f64).then(|| ByteCount::new(value.round() as u64))
}

/// Reads a size followed by a number of repetitions: `64MiB` or `64MiB x10`.
pub(super) fn repeated(text: &str) -> Option<(ByteCount, u32)> {
    match text.rsplit_once('x') {
        None => Some((size(text)?, 1)),
        Some((text, times)) => {
            let times = times.trim().parse().ok().filter(|&times| times > 0)?;
            Some((size(text)?, times))
        }
    }
}

/// Reads a list of hosts: `0-63` or `0,4,8-11`.
pub(super) fn hosts(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last - first >= MOST_LISTED {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

/// More hosts than any fabric that fits into memory; a longer range is a typing error.
const MOST_LISTED: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_decimal_or_binary_as_their_unit_says() {
        assert_eq!(size("64KB"), Some(ByteCount::new(64_000)));
        assert_eq!(size("64KiB"), Some(ByteCount::new(65_536)));
        assert_eq!(size("1.5MB"), Some(ByteCount::new(1_500_000)));
        assert_eq!(size("2 GB"), Some(ByteCount::new(2_000_000_000)));
        assert_eq!(size("4096"), Some(ByteCount::new(4096)));
        for wrong in ["0", "KB", "-1KB", "1e3KB", "99999999999GB", "1TB"] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn repetitions_stand_behind_the_size() {
        assert_eq!(repeated("1KB x10"), Some((ByteCount::new(1000), 10)));
        assert_eq!(repeated("1KBx2"), Some((ByteCount::new(1000), 2)));
        assert_eq!(repeated("1KBx0"), None);
    }

    #[test]
    fn hosts_are_ranges_and_numbers() {
        assert_eq!(hosts("0-2,7"), Some(vec![0, 1, 2, 7]));
        assert_eq!(hosts("2-1"), None);
        assert_eq!(hosts("0-4294967295"), None);
        assert_eq!(hosts(""), None);
    }
}
