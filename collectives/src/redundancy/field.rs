//! Arithmetic in GF(256), the field of bytes: addition is XOR, multiplication that of polynomials
//! modulo x^8 + x^4 + x^3 + x^2 + 1.
//!
//! The loop over bytes looks up both halves of each byte in tables of 16 products, which fit a
//! vector register: one shuffle per half. (Plank, Greenan, Miller: Screaming Fast Galois Field
//! Arithmetic Using Intel SIMD Instructions, FAST 2013, section 3.)

use std::array;

use pulp::Arch;

/// The modulus, without x^8.
const MODULUS: u8 = 0x1d;

/// Bytes that [`combine`] takes from each input at a time: all fit the second-level cache.
const BLOCK: usize = 16 << 10;

/// The product of two elements.
pub(super) const fn product(a: u8, b: u8) -> u8 {
    let (mut a, mut b, mut sum) = (a, b, 0);
    while b > 0 {
        if b & 1 == 1 {
            sum ^= a;
        }
        let carry = a >> 7;
        a = (a << 1) ^ (carry * MODULUS);
        b >>= 1;
    }
    sum
}

/// The element to a power.
pub(super) fn power(element: u8, exponent: usize) -> u8 {
    (0..exponent).fold(1, |sum, _| product(sum, element))
}

/// The element whose product with `element` is 1.
///
/// # Panics
/// When `element` is zero.
pub(super) fn inverse(element: u8) -> u8 {
    assert_ne!(element, 0, "zero has no inverse");
    power(element, 254)
}

/// Products of one factor with all bytes whose other half is zero.
#[derive(Clone, Copy)]
struct Products {
    low: [u8; 16],
    high: [u8; 16],
}

impl Products {
    fn of(factor: u8) -> Self {
        Self {
            low: array::from_fn(|half| product(factor, half as u8)),
            high: array::from_fn(|half| product(factor, (half as u8) << 4)),
        }
    }

    fn with(&self, byte: u8) -> u8 {
        self.low[usize::from(byte & 15)] ^ self.high[usize::from(byte >> 4)]
    }
}

/// Adds `factor` times `input` to `sum`.
///
/// # Panics
/// When the lengths differ.
pub(super) fn add_product(sum: &mut [u8], factor: u8, input: &[u8]) {
    assert_eq!(sum.len(), input.len(), "both have the same length");
    match factor {
        0 => (),
        1 => Arch::new().dispatch(|| {
            sum.iter_mut()
                .zip(input)
                .for_each(|(sum, byte)| *sum ^= byte);
        }),
        _ => {
            let products = Products::of(factor);
            add_products(sum, &products, input);
        }
    }
}

fn add_products(sum: &mut [u8], products: &Products, input: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(simd) = pulp::x86::V4::try_new() {
            return simd.vectorize(wide::AddV4 {
                simd,
                sum,
                products,
                input,
            });
        }
        if let Some(simd) = pulp::x86::V3::try_new() {
            return simd.vectorize(wide::AddV3 {
                simd,
                sum,
                products,
                input,
            });
        }
    }
    add_each(sum, products, input);
}

fn add_each(sum: &mut [u8], products: &Products, input: &[u8]) {
    for (sum, byte) in sum.iter_mut().zip(input) {
        *sum ^= products.with(*byte);
    }
}

/// The loops for the levels of x86-64's vector units.
#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::{__m256i, __m512i};

    use pulp::x86::{V3, V4};
    use pulp::{NullaryFnOnce, cast};

    use crate::redundancy::field::{Products, add_each};

    /// 32 bytes at a time.
    pub(super) struct AddV3<'a> {
        pub(super) simd: V3,
        pub(super) sum: &'a mut [u8],
        pub(super) products: &'a Products,
        pub(super) input: &'a [u8],
    }

    impl NullaryFnOnce for AddV3<'_> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            let (avx, avx2) = (self.simd.avx, self.simd.avx2);
            let [low, high] = [self.products.low, self.products.high]
                .map(|table| avx2._mm256_broadcastsi128_si256(cast(table)));
            let halves = avx._mm256_set1_epi8(15);
            let (sums, sum_rest) = self.sum.as_chunks_mut::<32>();
            let (inputs, rest) = self.input.as_chunks::<32>();
            for (sum, input) in sums.iter_mut().zip(inputs) {
                let input: __m256i = cast(*input);
                let above = avx2._mm256_srli_epi64::<4>(input);
                let low = avx2._mm256_shuffle_epi8(low, avx2._mm256_and_si256(input, halves));
                let high = avx2._mm256_shuffle_epi8(high, avx2._mm256_and_si256(above, halves));
                let product = avx2._mm256_xor_si256(low, high);
                *sum = cast(avx2._mm256_xor_si256(cast(*sum), product));
            }
            add_each(sum_rest, self.products, rest);
        }
    }

    /// 64 bytes at a time.
    pub(super) struct AddV4<'a> {
        pub(super) simd: V4,
        pub(super) sum: &'a mut [u8],
        pub(super) products: &'a Products,
        pub(super) input: &'a [u8],
    }

    impl NullaryFnOnce for AddV4<'_> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            let (avx512, bytes) = (self.simd.avx512f, self.simd.avx512bw);
            let [low, high] = [self.products.low, self.products.high]
                .map(|table| avx512._mm512_broadcast_i32x4(cast(table)));
            let halves = avx512._mm512_set1_epi8(15);
            let (sums, sum_rest) = self.sum.as_chunks_mut::<64>();
            let (inputs, rest) = self.input.as_chunks::<64>();
            for (sum, input) in sums.iter_mut().zip(inputs) {
                let input: __m512i = cast(*input);
                let above = avx512._mm512_srli_epi64::<4>(input);
                let low = bytes._mm512_shuffle_epi8(low, avx512._mm512_and_si512(input, halves));
                let high = bytes._mm512_shuffle_epi8(high, avx512._mm512_and_si512(above, halves));
                let product = avx512._mm512_xor_si512(low, high);
                *sum = cast(avx512._mm512_xor_si512(cast(*sum), product));
            }
            add_each(sum_rest, self.products, rest);
        }
    }
}

/// Makes each output the sum of all inputs, each times its factor: `factors` has one row per
/// output, one entry per input.
///
/// # Panics
/// When a row has not one entry per input, or lengths differ.
pub(super) fn combine(factors: &[&[u8]], inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
    assert_eq!(factors.len(), outputs.len(), "one row per output");
    let length = outputs.first().map_or(0, |output| output.len());
    for start in (0..length).step_by(BLOCK) {
        let range = start..length.min(start + BLOCK);
        for (row, output) in factors.iter().zip(outputs.iter_mut()) {
            assert_eq!(row.len(), inputs.len(), "one factor per input");
            let output = &mut output[range.clone()];
            let mut terms = row.iter().zip(inputs).filter(|(factor, _)| **factor != 0);
            match terms.next() {
                Some((1, input)) => output.copy_from_slice(&input[range.clone()]),
                Some((factor, input)) => {
                    output.fill(0);
                    add_product(output, *factor, &input[range.clone()]);
                }
                None => output.fill(0),
            }
            for (factor, input) in terms {
                add_product(output, *factor, &input[range.clone()]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_times_its_inverse_is_one() {
        for element in 1..=255 {
            assert_eq!(product(element, inverse(element)), 1, "{element}");
        }
    }

    #[test]
    fn products_distribute_over_sums() {
        for (a, b) in (0..=255).flat_map(|a| (0..=255).map(move |b| (a, b))) {
            let sum = product(a, 0x53) ^ product(b, 0x53);
            assert_eq!(product(a ^ b, 0x53), sum, "{a} {b}");
            assert_eq!(product(a, b), product(b, a), "{a} {b}");
        }
    }

    #[test]
    fn vector_loops_equal_the_product_of_each_byte() {
        let input: Vec<u8> = (0..1000_u32).map(|i| (i * 37 % 251) as u8).collect();
        for factor in 0..=255 {
            for length in [0, 1, 31, 32, 63, 64, 65, 1000] {
                let mut sum: Vec<u8> = (0..length as u32).map(|i| (i * 11) as u8).collect();
                let pairs = sum.iter().zip(&input);
                let expected: Vec<u8> = pairs.map(|(s, i)| s ^ product(factor, *i)).collect();
                add_product(&mut sum, factor, &input[..length]);
                assert_eq!(sum, expected, "factor {factor}, {length} bytes");
            }
        }
    }

    #[test]
    fn a_combination_is_the_sum_of_products() {
        let length = 2 * BLOCK + 17;
        let inputs: Vec<Vec<u8>> = (1..4_usize)
            .map(|seed| (0..length).map(|i| (i * seed % 253) as u8).collect())
            .collect();
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let factors = [[0, 0, 0], [0, 1, 0], [1, 7, 200], [9, 0, 1]];
        let mut outputs = vec![vec![5; length]; factors.len()];
        let mut places: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        let rows: Vec<&[u8]> = factors.iter().map(<[u8; 3]>::as_slice).collect();
        combine(&rows, &inputs, &mut places);
        for (row, output) in factors.iter().zip(&outputs) {
            for (at, byte) in output.iter().enumerate() {
                let terms = row.iter().zip(&inputs).map(|(f, i)| product(*f, i[at]));
                assert_eq!(*byte, terms.fold(0, |sum, term| sum ^ term));
            }
        }
    }
}
