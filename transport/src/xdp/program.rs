//! The program that the kernel runs for each frame of the interface: it hands this rank's packets
//! to the AF_XDP socket of the queue on which they came, and all others to the kernel.
//!
//! This rank's packets are whole UDP packets over IPv4 to its MAC, address and ports. Where the
//! queue has no socket, they go to the kernel, too, and so to the rank's UDP sockets.
//!
//! The link between program and interface is a descriptor (`BPF_LINK_CREATE`): when the process
//! ends in whatever way, the kernel takes the program away. Forked children let go of it.
#![expect(unsafe_code, reason = "bpf(2) takes structures by address")]

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use super::frame::{
    DESTINATION_AT, ETHER_TYPE_AT, FRAGMENT_AT, FRAGMENT_BITS, HEADERS_BYTES, IPV4, Mac, PORT_AT,
    PROTOCOL_AT, UDP, VERSION_4, VERSION_AT,
};
use crate::process::ReleasedInChildren;

/// Commands, types and numbers of linux/bpf.h and linux/if_link.h.
const MAP_CREATE: u32 = 0;
const MAP_UPDATE_ELEM: u32 = 2;
const PROG_LOAD: u32 = 5;
const LINK_CREATE: u32 = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
const FUNC_REDIRECT_MAP: i32 = 51;
const PSEUDO_MAP_FD: u8 = 1;
const FLAGS_SKB_MODE: u32 = 1 << 1;
const FLAGS_DRV_MODE: u32 = 1 << 2;
/// What the program answers for a frame that is the kernel's.
const PASS: i32 = 2;

/// Where `struct xdp_md` has the frame's first byte, its end, and the number of its queue.
const FRAME_START: i16 = 0;
const FRAME_END: i16 = 4;
const FRAME_QUEUE: i16 = 16;

/// An instruction of the kernel's machine (linux/bpf.h, `struct bpf_insn`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
struct Instruction {
    code: u8,
    /// The destination in the lower four bits, the source in the upper ones.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// How a program sits at its interface.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum XdpMode {
    /// In the driver.
    Native,
    /// Behind the driver, in the kernel's common code; slower.
    Generic,
}

/// The program at its interface. Dropping it takes it away.
#[derive(Debug)]
pub(super) struct XdpProgram {
    /// Before the link: a forked child would keep the program at its interface.
    _released: ReleasedInChildren,
    _link: OwnedFd,
    pub(super) mode: XdpMode,
}

/// The packets that the program hands over: those to this address and these ports.
#[derive(Clone, Copy, Debug)]
pub(super) struct WantedPackets<'a> {
    pub(super) mac: Mac,
    pub(super) address: Ipv4Addr,
    pub(super) ports: &'a [u16],
}

impl XdpProgram {
    /// Puts the program at interface `index`. `sockets` are those of its queues, in order.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn attach(
        index: u32,
        sockets: &[RawFd],
        wanted: WantedPackets<'_>,
    ) -> io::Result<Self> {
        let map = socket_map(sockets)?;
        let program = load(&program(map.as_raw_fd(), wanted))?;
        let (link, mode) = match link(&program, index, FLAGS_DRV_MODE) {
            // The kernel's common code would be refused, too.
            Err(error) if is_final(&error) => return Err(error),
            Err(error) => {
                log::warn!(
                    "the NIC's driver refuses an XDP program ({error}; its MTU may be too large): \
                     the kernel's common code runs it, which is slower"
                );
                (link(&program, index, FLAGS_SKB_MODE)?, XdpMode::Generic)
            }
            Ok(link) => (link, XdpMode::Native),
        };
        Ok(Self {
            _released: ReleasedInChildren::new(link.as_raw_fd()),
            _link: link,
            mode,
        })
    }
}

/// Whether another program is at the interface, or this user may put none there.
fn is_final(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EBUSY | libc::EEXIST | libc::EPERM)
    )
}

/// The program for one address and its ports.
fn program(map: RawFd, wanted: WantedPackets<'_>) -> Vec<Instruction> {
    let WantedPackets {
        mac,
        address,
        ports,
    } = wanted;
    let (given, data, end, value) = (1, 2, 3, 5);
    let as_loaded = |bytes: [u8; 2]| i32::from(u16::from_ne_bytes(bytes));
    let [a, b, c, d, e, f] = mac;
    let comparisons = [
        (WORD, 0, i32::from_ne_bytes([a, b, c, d])),
        (HALF, 4, as_loaded([e, f])),
        (HALF, ETHER_TYPE_AT, as_loaded(IPV4)),
        (BYTE, VERSION_AT, i32::from(VERSION_4)),
        (BYTE, PROTOCOL_AT, i32::from(UDP)),
        (WORD, DESTINATION_AT, i32::from_ne_bytes(address.octets())),
    ];
    let mut code = vec![
        load_from(WORD, data, (given, FRAME_START)),
        load_from(WORD, end, (given, FRAME_END)),
        copy(4, data),
        add(4, HEADERS_BYTES as i32),
        jump(JUMP_GREATER, (4, end), PASS_LATER),
    ];
    for (width, at, wanted) in comparisons {
        code.push(load_from(width, value, (data, at as i16)));
        code.push(jump_to(JUMP_NOT_EQUAL, (value, wanted), PASS_LATER));
    }
    code.push(load_from(HALF, value, (data, FRAGMENT_AT as i16)));
    code.push(and(value, as_loaded(FRAGMENT_BITS)));
    code.push(jump_to(JUMP_NOT_EQUAL, (value, 0), PASS_LATER));
    code.push(load_from(HALF, value, (data, PORT_AT as i16)));
    for (before, port) in (1..).zip(ports) {
        // The comparisons with later ports follow, and the two instructions of the way out.
        let others = (ports.len() - before) as i16;
        code.push(jump_to(
            JUMP_EQUAL,
            (value, as_loaded(port.to_be_bytes())),
            others + 2,
        ));
    }
    let pass = code.len();
    code.extend([set(0, PASS), EXIT]);
    code.push(load_from(WORD, 2, (given, FRAME_QUEUE)));
    code.extend(load_map(1, map));
    code.extend([set(3, PASS), call(FUNC_REDIRECT_MAP), EXIT]);
    for (at, instruction) in code.iter_mut().enumerate() {
        if instruction.offset == PASS_LATER {
            instruction.offset = (pass - at - 1) as i16;
        }
    }
    code
}

/// Stands for the way out until its place is known.
const PASS_LATER: i16 = i16::MAX;
/// Widths of loads.
const BYTE: u8 = 0x10;
const HALF: u8 = 0x08;
const WORD: u8 = 0x00;
/// Jumps that compare the lower 32 bits.
const JUMP_EQUAL: u8 = 0x10;
const JUMP_NOT_EQUAL: u8 = 0x50;
/// A jump that compares whole registers.
const JUMP_GREATER: u8 = 0x20;
const EXIT: Instruction = instruction(0x95, (0, 0), 0, 0);

const fn instruction(code: u8, (to, from): (u8, u8), offset: i16, immediate: i32) -> Instruction {
    Instruction {
        code,
        registers: from << 4 | to,
        offset,
        immediate,
    }
}

/// `to = *(from + at)`.
const fn load_from(width: u8, to: u8, (from, at): (u8, i16)) -> Instruction {
    instruction(0x61 | width, (to, from), at, 0)
}

const fn copy(to: u8, from: u8) -> Instruction {
    instruction(0xbf, (to, from), 0, 0)
}

const fn set(to: u8, value: i32) -> Instruction {
    instruction(0xb7, (to, 0), 0, value)
}

const fn add(to: u8, value: i32) -> Instruction {
    instruction(0x07, (to, 0), 0, value)
}

const fn and(to: u8, value: i32) -> Instruction {
    instruction(0x57, (to, 0), 0, value)
}

const fn call(function: i32) -> Instruction {
    instruction(0x85, (0, 0), 0, function)
}

/// Jumps on a comparison of two registers.
const fn jump(comparison: u8, registers: (u8, u8), offset: i16) -> Instruction {
    instruction(0x0d | comparison, registers, offset, 0)
}

/// Jumps on a comparison of the lower half of a register with a value.
const fn jump_to(comparison: u8, (register, value): (u8, i32), offset: i16) -> Instruction {
    instruction(0x06 | comparison, (register, 0), offset, value)
}

/// Loads a map's address: one instruction in two places.
const fn load_map(to: u8, map: RawFd) -> [Instruction; 2] {
    [
        instruction(0x18, (to, PSEUDO_MAP_FD), 0, map),
        instruction(0, (0, 0), 0, 0),
    ]
}

/// The beginning of `union bpf_attr` for `BPF_MAP_CREATE`.
#[repr(C)]
struct MapAttributes {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

/// The same for `BPF_MAP_UPDATE_ELEM`.
#[repr(C)]
struct ElementAttributes {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The same for `BPF_PROG_LOAD`, up to `expected_attach_type`.
#[repr(C)]
struct ProgramAttributes {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

/// The same for `BPF_LINK_CREATE`.
#[repr(C)]
struct LinkAttributes {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// A map from the number of a queue to its socket.
fn socket_map(sockets: &[RawFd]) -> io::Result<OwnedFd> {
    let attributes = MapAttributes {
        kind: MAP_TYPE_XSKMAP,
        key_bytes: size_of::<u32>() as u32,
        value_bytes: size_of::<u32>() as u32,
        entries: sockets.len() as u32,
        flags: 0,
    };
    // SAFETY: creating a map reads nothing else.
    let map = unsafe { bpf(MAP_CREATE, &attributes) }?;
    // SAFETY: the kernel has just opened it for this process.
    let map = unsafe { OwnedFd::from_raw_fd(map) };
    for (queue, socket) in (0_u32..).zip(sockets) {
        let attributes = ElementAttributes {
            map: map.as_raw_fd() as u32,
            padding: 0,
            key: &raw const queue as u64,
            value: std::ptr::from_ref(socket) as u64,
            flags: 0,
        };
        // SAFETY: key and value have the map's sizes and live until the call returns.
        unsafe { bpf(MAP_UPDATE_ELEM, &attributes) }?;
    }
    Ok(map)
}

fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    let attributes = ProgramAttributes {
        kind: PROG_TYPE_XDP,
        instructions: program.len() as u32,
        code: program.as_ptr() as u64,
        license: c"MIT OR Apache-2.0".as_ptr() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: *b"gradwire\0\0\0\0\0\0\0\0",
        interface: 0,
        attach_type: ATTACH_TYPE_XDP,
    };
    // SAFETY: program and licence live until the call returns.
    let program = unsafe { bpf(PROG_LOAD, &attributes) }?;
    // SAFETY: the kernel has just opened it for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(program) })
}

fn link(program: &OwnedFd, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    let attributes = LinkAttributes {
        program: program.as_raw_fd() as u32,
        interface,
        attach_type: ATTACH_TYPE_XDP,
        flags,
    };
    // SAFETY: the attributes point nowhere.
    let link = unsafe { bpf(LINK_CREATE, &attributes) }?;
    // SAFETY: the kernel has just opened it for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// Calls bpf(2), which returns a descriptor or 0.
///
/// # Safety
/// What the attributes point to lives until the call returns, and has the sizes that the kernel
/// takes it to have.
unsafe fn bpf<A>(command: u32, attributes: &A) -> io::Result<RawFd> {
    let attributes = std::ptr::from_ref(attributes);
    // SAFETY: the attributes have the length given; for the rest the caller answers.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<A>()) };
    match result {
        -1 => Err(io::Error::last_os_error()),
        descriptor => Ok(descriptor as RawFd),
    }
}
