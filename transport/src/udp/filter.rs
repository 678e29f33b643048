//! The program by which the kernel drops packets of other jobs, before they fill a socket or wake a
//! thread.
//!
//! It is classic BPF (socket(7), SO_ATTACH_FILTER), so it needs no privilege. It compares version,
//! job and epoch of a packet, or of the first of several that the kernel has joined: all of these
//! come from one address. It cannot tell a forged packet; the seal can.

use socket2::SockFilter;

use gradwire_protocol::units::JobId;
use gradwire_protocol::wire::{EPOCH_AT, JOB_AT, VERSION};

/// A filter sees a packet with its UDP header.
const PACKET_AT: usize = 8;
const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const LOAD_HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const JUMP_IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET | libc::BPF_K;

/// A program that passes the packets of this job and epoch only. A load from behind the end of a
/// packet drops it, too.
pub(super) fn of_job(job: JobId, epoch: u16) -> [SockFilter; 8] {
    let load = |code, at: usize| SockFilter::new(code as u16, 0, 0, (PACKET_AT + at) as u32);
    // `left` instructions follow up to the one that drops.
    let expect = |value, left| SockFilter::new(JUMP_IF_EQUAL as u16, 0, left, value);
    let end = |passed| SockFilter::new(RETURN as u16, 0, 0, passed);
    // Loads are big-endian, the wire is little-endian.
    [
        load(LOAD_BYTE, 0),
        expect(u32::from(VERSION), 5),
        load(LOAD_WORD, JOB_AT),
        expect(job.0.swap_bytes(), 3),
        load(LOAD_HALF, EPOCH_AT),
        expect(u32::from(epoch.swap_bytes()), 1),
        end(u32::MAX),
        end(0),
    ]
}
