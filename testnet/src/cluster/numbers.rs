//! Elements from which one can read whose values were added.
//!
//! A rank's contribution to a sum is a digit of its own: `weight x base^seat`, with weights 1 to 3
//! that depend on the element. A sum is a number whose digits are the weights of those that
//! contributed, so that a check reads the contributors from the result and expects no other digit.

use gradwire_collectives::dtype::DType;

use super::draw::{FNV_START, fold};

/// The weight of a rank's element in one operation: 1, 2 or 3.
pub(crate) fn weight(operation: u64, seat: usize, element: usize) -> u64 {
    let mut hash = fold(FNV_START, &operation.to_le_bytes());
    hash = fold(hash, &[seat as u8]);
    hash = fold(hash, &(element as u64).to_le_bytes());
    1 + (hash >> 32) % 3
}

/// Writes numbers as elements.
pub(crate) fn encode(dtype: DType, values: impl Iterator<Item = f64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in values {
        match dtype {
            DType::U8 => bytes.push(value as u8),
            DType::I32 => bytes.extend_from_slice(&(value as i32).to_le_bytes()),
            DType::I64 => bytes.extend_from_slice(&(value as i64).to_le_bytes()),
            DType::F64 => bytes.extend_from_slice(&value.to_le_bytes()),
            _ => bytes.extend_from_slice(&(value as f32).to_le_bytes()),
        }
    }
    bytes
}

/// Reads elements of the types that [`encode`] writes.
pub(crate) fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let read = |element: &[u8]| match dtype {
        DType::U8 => f64::from(element[0]),
        DType::I32 => f64::from(i32::from_le_bytes(element.try_into().expect("four bytes"))),
        DType::I64 => i64::from_le_bytes(element.try_into().expect("eight bytes")) as f64,
        DType::F64 => f64::from_le_bytes(element.try_into().expect("eight bytes")),
        _ => f64::from(f32::from_le_bytes(element.try_into().expect("four bytes"))),
    };
    bytes.chunks_exact(dtype.bytes()).map(read).collect()
}

/// The contributors of a sum, one bit per seat; `None` if its digits are not those of any
/// contributors. `digits` are the weights that each seat may have contributed.
pub(crate) fn contributors(sum: f64, base: u64, digits: &[u64]) -> Option<u32> {
    let whole = sum.round();
    if (sum - whole).abs() > 0.3 || whole < 0.0 {
        return None;
    }
    let mut rest = whole as u64;
    let mut seats = 0;
    for (seat, &digit) in digits.iter().enumerate() {
        match rest % base {
            0 => {}
            came if came == digit => seats |= 1 << seat,
            _ => return None,
        }
        rest /= base;
    }
    (rest == 0).then_some(seats)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contributors_are_read_from_their_sum() {
        let digits = [3, 1, 2, 2];
        for seats in 0..16_u32 {
            let mut sum = 0;
            for (seat, digit) in digits.iter().enumerate() {
                let came = u64::from(seats >> seat & 1);
                sum += came * digit * 8_u64.pow(seat as u32);
            }
            assert_eq!(contributors(sum as f64, 8, &digits), Some(seats));
        }
        assert_eq!(contributors(6.0, 8, &digits), None, "3 twice");
    }
}
