//! Element types of tensors, and the reductions that are defined for them.
//!
//! The numbers are those of the C interface. Which pairs of type and reduction exist is decided
//! here; the loops that compute them are in [`crate::kernels`].

use std::fmt;

/// The type of a tensor's elements, little-endian in memory and on the wire.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(u32)]
pub enum DType {
    /// Unsigned, 1 byte.
    U8 = 0,
    /// Signed, 1 byte.
    I8 = 1,
    /// Signed, 2 bytes.
    I16 = 2,
    /// Signed, 4 bytes.
    I32 = 3,
    /// Signed, 8 bytes.
    I64 = 4,
    /// IEEE half precision, 2 bytes.
    F16 = 5,
    /// The upper half of a single precision number, 2 bytes.
    BF16 = 6,
    /// IEEE single precision, 4 bytes.
    F32 = 7,
    /// IEEE double precision, 8 bytes.
    F64 = 8,
    /// Unsigned, 2 bytes.
    U16 = 9,
    /// Unsigned, 4 bytes.
    U32 = 10,
    /// Unsigned, 8 bytes.
    U64 = 11,
}

impl DType {
    /// Every type, in the order of its number.
    pub const ALL: [Self; 12] = [
        Self::U8,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F16,
        Self::BF16,
        Self::F32,
        Self::F64,
        Self::U16,
        Self::U32,
        Self::U64,
    ];

    /// The type with this number, if there is one.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::BF16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Whether elements are floating-point numbers.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::BF16 | Self::F32 | Self::F64)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
        })
    }
}

/// How the values of several ranks become one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(u32)]
pub enum ReduceOp {
    /// Their sum; integers wrap around.
    Sum = 0,
    /// Their sum divided by how many there are; floats only.
    Avg = 1,
    /// Their product; integers wrap around.
    Product = 2,
    /// The smallest; NaN if any is NaN.
    Min = 3,
    /// The largest; NaN if any is NaN.
    Max = 4,
    /// Bits set in all; integers only.
    BitAnd = 5,
    /// Bits set in any; integers only.
    BitOr = 6,
    /// Bits set in an odd number of them; integers only.
    BitXor = 7,
}

impl ReduceOp {
    /// Every reduction, in the order of its number.
    pub const ALL: [Self; 8] = [
        Self::Sum,
        Self::Avg,
        Self::Product,
        Self::Min,
        Self::Max,
        Self::BitAnd,
        Self::BitOr,
        Self::BitXor,
    ];

    /// The reduction with this number, if there is one.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// Whether elements of `dtype` can be reduced this way.
    pub const fn is_defined_for(self, dtype: DType) -> bool {
        match self {
            Self::Sum | Self::Product | Self::Min | Self::Max => true,
            Self::Avg => dtype.is_float(),
            Self::BitAnd | Self::BitOr | Self::BitXor => !dtype.is_float(),
        }
    }

    /// What a caller does who needs it for another type.
    pub(crate) const fn remedy(self) -> &'static str {
        match self {
            Self::Avg => {
                "avg needs a float type; for integers take sum, and divide the result by the \
                 number of ranks with the rounding you want"
            }
            Self::BitAnd | Self::BitOr | Self::BitXor => "band, bor and bxor need an integer type",
            _ => "it is defined for every type",
        }
    }

    /// Whether a missing contribution leaves a result that is still an estimate of the whole.
    pub const fn can_miss_contributions(self) -> bool {
        matches!(self, Self::Sum | Self::Avg)
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::Product => "product",
            Self::Min => "min",
            Self::Max => "max",
            Self::BitAnd => "band",
            Self::BitOr => "bor",
            Self::BitXor => "bxor",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_c_interface() {
        for (number, dtype) in DType::ALL.into_iter().enumerate() {
            assert_eq!(dtype as usize, number);
        }
        for (number, op) in ReduceOp::ALL.into_iter().enumerate() {
            assert_eq!(op as usize, number);
        }
        assert_eq!(DType::from_number(12), None);
        assert_eq!(ReduceOp::from_number(8), None);
    }

    #[test]
    fn bit_operations_and_averages_need_their_types() {
        for dtype in DType::ALL {
            assert_ne!(ReduceOp::BitAnd.is_defined_for(dtype), dtype.is_float());
            assert_eq!(ReduceOp::Avg.is_defined_for(dtype), dtype.is_float());
        }
    }
}
