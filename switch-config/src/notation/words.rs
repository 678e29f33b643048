//! Words of a command: the values behind names, as in `minimum-threshold 150 kbytes weight 0`, and
//! powers of two.

/// The word behind a name.
pub(crate) fn behind<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    let at = words.iter().position(|word| *word == name)?;
    words.get(at + 1).copied()
}

/// The size behind a name, in bytes: a number and its unit. Units of time and of memory cells have
/// none, since they differ from port to port.
pub(crate) fn bytes_behind(words: &[&str], name: &str) -> Option<u64> {
    let number = behind(words, name)?;
    let at = words.iter().position(|word| *word == name)?;
    let size = match *words.get(at + 2)? {
        "bytes" => 1,
        "kbytes" => 1_000,
        "mbytes" => 1_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(size)
}

/// The exponent of a power of two from 2^-7 to 2^`most`; `over` begins those below one: `1/8`.
pub(crate) fn exponent(text: &str, over: &str, most: i8) -> Option<i8> {
    let power = |text: &str| -> Option<i8> {
        let number: u32 = text.parse().ok()?;
        let exponent = number.checked_ilog2()? as i8;
        number.is_power_of_two().then_some(exponent)
    };
    let exponent = match text.strip_prefix(over) {
        Some(part) => -power(part)?,
        None => power(text)?,
    };
    (-7..=most).contains(&exponent).then_some(exponent)
}

/// A power of two as [`exponent`] reads it.
pub(crate) fn power_of_two(exponent: i8, over: &str) -> String {
    match exponent {
        0.. => (1_u32 << exponent).to_string(),
        _ => format!("{over}{}", 1_u32 << -exponent),
    }
}
