//! A program for the kernel's traffic control that rewrites a DSCP: assembled here, since neither a
//! compiler for it nor the kernel's own actions need be there. `tc` reads it as an ELF object.

/// Byte offsets in an Ethernet frame.
const ETHERTYPE_AT: i32 = 12;
const TOS_AT: i32 = 15;
const CHECKSUM_AT: i32 = 24;
const IPV4: i32 = 0x0800;
/// First byte of an IPv4 header without options.
const VERSION_BYTE: i32 = 0x45;

/// Numbers of the kernel's functions (linux/bpf.h).
const STORE_BYTES: i32 = 9;
const REPLACE_CHECKSUM: i32 = 10;

/// Operation codes (linux/bpf_common.h and linux/bpf.h).
const LOAD_HALF: u8 = 0x28;
const LOAD_BYTE: u8 = 0x30;
const STORE_BYTE: u8 = 0x73;
const MOVE: u8 = 0xbf;
const SET: u8 = 0xb7;
const ADD: u8 = 0x07;
const OR: u8 = 0x47;
const AND: u8 = 0x57;
const SHIFT_LEFT: u8 = 0x67;
const UNLESS_EQUAL: u8 = 0x55;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// An ELF object whose section `tc` lets packets pass, those with DSCP `from` as `to`.
pub(crate) fn rewriting(from: u8, to: u8) -> Vec<u8> {
    object(&program(i32::from(from) << 2, i32::from(to) << 2))
}

fn program(from: i32, to: i32) -> Vec<u8> {
    let body = [
        op(MOVE, 6, 1, 0),
        op(LOAD_HALF, 0, 0, ETHERTYPE_AT),
        op(UNLESS_EQUAL, 0, 0, IPV4),
        op(LOAD_BYTE, 0, 0, TOS_AT),
        op(MOVE, 7, 0, 0),
        op(AND, 0, 0, 0xfc),
        op(UNLESS_EQUAL, 0, 0, from),
        op(MOVE, 8, 7, 0),
        op(AND, 8, 0, 3),
        op(OR, 8, 0, to),
        store_below_stack(8),
        op(MOVE, 1, 6, 0),
        op(SET, 2, 0, CHECKSUM_AT),
        op(MOVE, 3, 7, 0),
        op(SHIFT_LEFT, 3, 0, 8),
        op(OR, 3, 0, VERSION_BYTE),
        op(MOVE, 4, 8, 0),
        op(SHIFT_LEFT, 4, 0, 8),
        op(OR, 4, 0, VERSION_BYTE),
        op(SET, 5, 0, 2),
        op(CALL, 0, 0, REPLACE_CHECKSUM),
        op(MOVE, 1, 6, 0),
        op(SET, 2, 0, TOS_AT),
        op(MOVE, 3, 10, 0),
        op(ADD, 3, 0, -1),
        op(SET, 4, 0, 1),
        op(SET, 5, 0, 0),
        op(CALL, 0, 0, STORE_BYTES),
    ];
    let end = [op(SET, 0, 0, 0), op(EXIT, 0, 0, 0)];
    let mut bytes = body.concat();
    // Other packets jump behind the body.
    let length = body.len();
    for (index, one) in bytes.chunks_exact_mut(8).enumerate() {
        if one[0] == UNLESS_EQUAL {
            one[2] = (length - index - 1) as u8;
        }
    }
    bytes.extend(end.concat());
    bytes
}

fn op(code: u8, to: u8, from: u8, number: i32) -> [u8; 8] {
    let [a, b, c, d] = number.to_le_bytes();
    [code, to | from << 4, 0, 0, a, b, c, d]
}

/// Stores a byte right below the stack's top, register 10.
fn store_below_stack(register: u8) -> [u8; 8] {
    let mut store = op(STORE_BYTE, 10, register, 0);
    [store[2], store[3]] = (-1_i16).to_le_bytes();
    store
}

/// Sections: the empty one, names, the program, its licence, symbols.
fn object(program: &[u8]) -> Vec<u8> {
    const HEADER: usize = 64;
    let names = b"\0.strtab\0tc\0license\0.symtab\0rewrite\0_license\0";
    let name = |word: &str| {
        let word = [b"\0", word.as_bytes(), b"\0"].concat();
        let at = names.windows(word.len()).position(|window| window == word);
        at.expect("it is among the names") as u32 + 1
    };
    let licence = b"GPL\0";
    let function = symbol(name("rewrite"), 0x12, (2, program.len()));
    let licence_symbol = symbol(name("_license"), 0x11, (3, licence.len()));
    let symbols = [[0; 24], function, licence_symbol].concat();
    let parts: [(&str, u32, u64, &[u8]); 4] = [
        (".strtab", 3, 0, names),
        ("tc", 1, 6, program),
        ("license", 1, 3, licence),
        (".symtab", 2, 0, &symbols),
    ];
    let mut data = Vec::new();
    let mut headers = vec![0; 64];
    for (word, kind, flags, bytes) in parts {
        data.resize(data.len().next_multiple_of(8), 0);
        let offset = (HEADER + data.len()) as u64;
        data.extend_from_slice(bytes);
        headers.extend(name(word).to_le_bytes());
        headers.extend(kind.to_le_bytes());
        // Symbols name the section of their names, the first global one, and their size.
        let (link, first_global, entry) = if kind == 2 {
            (1_u32, 1_u32, 24)
        } else {
            (0, 0, 0)
        };
        for long in [flags, 0, offset, bytes.len() as u64] {
            headers.extend(long.to_le_bytes());
        }
        headers.extend(link.to_le_bytes());
        headers.extend(first_global.to_le_bytes());
        headers.extend(8_u64.to_le_bytes());
        headers.extend(u64::to_le_bytes(entry));
    }
    data.resize(data.len().next_multiple_of(8), 0);
    let mut object = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    // Relocatable, for the kernel's machine, version 1.
    object.extend([1, 0, 247, 0, 1, 0, 0, 0]);
    for long in [0, 0, (HEADER + data.len()) as u64] {
        object.extend(long.to_le_bytes());
    }
    object.extend(0_u32.to_le_bytes());
    for short in [HEADER as u16, 0, 0, 64, 5, 1] {
        object.extend(short.to_le_bytes());
    }
    [object, data, headers].concat()
}

fn symbol(name: u32, kind: u8, (section, size): (u16, usize)) -> [u8; 24] {
    let mut symbol = [0; 24];
    symbol[..4].copy_from_slice(&name.to_le_bytes());
    symbol[4] = kind;
    symbol[6..8].copy_from_slice(&section.to_le_bytes());
    symbol[16..24].copy_from_slice(&(size as u64).to_le_bytes());
    symbol
}
