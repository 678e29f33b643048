//! Asks the processor for memory that is used soon.
//!
//! A large tensor lies in no cache. Between two of its segments a driver seals a packet or calls
//! the kernel, so the processor's own prefetchers lose their place, and each segment would begin
//! with a wait.
#![expect(unsafe_code, reason = "the instruction takes a raw pointer")]

/// Bytes that are asked for at a time: prefetchers follow once a segment has begun.
const AHEAD: usize = 2048;
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Asks for the memory behind `used`, at most as much as `used` has: the segment after it. Changes
/// nothing but times.
#[inline]
pub fn prefetch_behind(used: &[u8]) {
    let (end, bytes) = (used.as_ptr_range().end, used.len().min(AHEAD));
    #[cfg(target_arch = "x86_64")]
    for ahead in (0..bytes).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch accesses no memory of the program, and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(end.wrapping_add(ahead).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (end, bytes);
}
