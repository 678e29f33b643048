//! Asks the processor for memory that is used soon.
//!
//! A large tensor lies in no cache. Between two of its segments a driver seals a packet or calls
//! the kernel, so the processor's own prefetchers lose their place, and each segment would begin
//! with a wait.

/// Bytes that are asked for at a time: prefetchers follow once a segment has begun.
const AHEAD: usize = 2048;
const LINE: usize = 64;
/// Lines that are asked for in a row, so that the loop around them costs little.
const LINES: usize = 8;

/// Asks for the memory behind `used`, as much as `used` has, in blocks of some lines: the segment
/// after it. Changes nothing but times.
#[inline]
pub fn prefetch_behind(used: &[u8]) {
    let end = used.as_ptr_range().end;
    let blocks = used.len().min(AHEAD).div_ceil(LINES * LINE);
    for block in 0..blocks {
        let first = end.wrapping_add(block * LINES * LINE);
        for line in 0..LINES {
            prefetch(first.wrapping_add(line * LINE));
        }
    }
}

/// Asks for the memory of a value that fits a cache line. Changes nothing but times.
#[inline]
pub fn prefetch_value<T>(value: &T) {
    prefetch(std::ptr::from_ref(value).cast());
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "the instruction takes a raw pointer")]
#[inline]
fn prefetch(line: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch accesses no memory of the program, and never faults.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn prefetch(_line: *const u8) {}
