//! Elements of any float type as single precision, in which codecs compute.

use bytemuck::{cast_slice, cast_slice_mut};

use crate::numbers::dtype::{DType, ReduceOp};
use crate::numbers::kernels::{accumulate, halves, multiply};

/// Reads elements.
#[inline(always)]
pub(in crate::numbers) fn load(dtype: DType, bytes: &[u8], floats: &mut [f32]) {
    match dtype {
        DType::F32 => cast_slice_mut(floats).copy_from_slice(bytes),
        DType::F64 => read(bytes, floats, |value| f64::from_le_bytes(value) as f32),
        DType::F16 => read(bytes, floats, halves::f16_at),
        DType::BF16 => read(bytes, floats, halves::bf16_at),
        _ => unreachable!("a cut has floats"),
    }
}

/// Writes elements, rounded to their type.
#[inline(always)]
pub(in crate::numbers) fn store(dtype: DType, floats: &[f32], bytes: &mut [u8]) {
    match dtype {
        DType::F32 => bytes.copy_from_slice(cast_slice(floats)),
        DType::F64 => write(floats, bytes, |value| f64::from(value).to_le_bytes()),
        DType::F16 => write(floats, bytes, halves::to_f16),
        DType::BF16 => write(floats, bytes, halves::to_bf16),
        _ => unreachable!("a cut has floats"),
    }
}

/// Writes each source element minus the value that a receiver decodes.
pub(super) fn store_difference(dtype: DType, source: &[u8], decoded: &[f32], bytes: &mut [u8]) {
    store(dtype, decoded, bytes);
    multiply(dtype, bytes, -1.0);
    accumulate(dtype, ReduceOp::Sum, bytes, source);
}

#[inline(always)]
fn read<const BYTES: usize>(bytes: &[u8], floats: &mut [f32], form: impl Fn([u8; BYTES]) -> f32) {
    let (elements, _) = bytes.as_chunks::<BYTES>();
    for (float, element) in floats.iter_mut().zip(elements) {
        *float = form(*element);
    }
}

#[inline(always)]
fn write<const BYTES: usize>(floats: &[f32], bytes: &mut [u8], form: impl Fn(f32) -> [u8; BYTES]) {
    let (elements, _) = bytes.as_chunks_mut::<BYTES>();
    for (element, float) in elements.iter_mut().zip(floats) {
        *element = form(*float);
    }
}
