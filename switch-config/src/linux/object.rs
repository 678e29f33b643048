//! The program as an object file that tc loads through libbpf: ELF, and BTF for the map.
//!
//! With BTF the map's numbers can be read by `cat` where it is pinned. Structures are those of the
//! ELF specification and of the kernel's Documentation/bpf/btf.rst.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::program::{self, Program, STATE_NUMBERS};
use crate::plan::{Plan, Port};

/// The name of the map, by which it is pinned.
const MAP: &str = "queues";
/// The section in which tc looks for the program.
const SECTION: &str = "classifier";
/// Bytes of the map's definition: five pointers.
const DEFINITION_BYTES: usize = 40;

/// Where tc pins the map, below the folder that it is told.
pub(super) const STATE_PATH: &str = "tc/globals/queues";

/// The object file of a port's program.
pub(super) struct Object {
    /// Its name, which tells programs apart: tc shows it.
    pub(super) name: String,
    bytes: Vec<u8>,
}

impl Object {
    /// The object file for a port.
    pub(super) fn of_port(plan: &Plan, port: &Port) -> Self {
        let bytes = elf(&program::of_port(plan, port));
        let name = name_of(&bytes);
        Self { name, bytes }
    }

    /// The file as text, in lines.
    pub(super) fn base64(&self) -> String {
        let text = BASE64_STANDARD.encode(&self.bytes);
        let lines = text.as_bytes().chunks(96).map(String::from_utf8_lossy);
        lines.map(|line| format!("{line}\n")).collect()
    }
}

/// The name of an object file, from its bytes: FNV-1a of 64 bits, which is no proof.
pub(super) fn name_of(bytes: &[u8]) -> String {
    let start = 0xcbf2_9ce4_8422_2325_u64;
    let sum = bytes.iter().fold(start, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("gradwire-{sum:016x}.o")
}

/// One section of the file.
struct Section {
    name: &'static str,
    kind: u32,
    flags: u64,
    link: u32,
    of: u32,
    entry_bytes: u64,
    bytes: Vec<u8>,
}

impl Section {
    fn new(name: &'static str, kind: u32, bytes: Vec<u8>) -> Self {
        let (flags, link, of, entry_bytes) = (0, 0, 0, 0);
        Self {
            name,
            kind,
            flags,
            link,
            of,
            entry_bytes,
            bytes,
        }
    }
}

const PROGBITS: u32 = 1;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const REL: u32 = 9;
const ALLOCATED: u64 = 2;
const EXECUTABLE: u64 = 4;
const WRITABLE: u64 = 1;
/// Numbers of sections, in the order of [`sections`].
const TEXT: u16 = 2;
const MAPS: u16 = 5;
const SYMBOLS: u32 = 7;
const STRINGS: u32 = 1;

/// The object file of a program.
fn elf(program: &Program) -> Vec<u8> {
    const HEADER_BYTES: usize = 64;
    let mut sections = sections(program);
    let mut names = Strings::default();
    let starts: Vec<u32> = sections.iter().map(|one| names.add(one.name)).collect();
    let symbols = symbols(program, &mut names);
    sections[SYMBOLS as usize].bytes = symbols;
    sections[STRINGS as usize].bytes = names.bytes;

    let mut body = Vec::new();
    let mut table = Vec::new();
    for (section, start) in sections.iter().zip(starts) {
        body.resize(body.len().next_multiple_of(8), 0);
        let at = if section.kind == 0 {
            0
        } else {
            HEADER_BYTES + body.len()
        };
        let Section {
            kind,
            flags,
            link,
            of,
            entry_bytes,
            ..
        } = *section;
        put(
            &mut table,
            &[Four(start), Four(kind), Eight(flags), Eight(0)],
        );
        let bytes = section.bytes.len() as u64;
        put(
            &mut table,
            &[Eight(at as u64), Eight(bytes), Four(link), Four(of)],
        );
        put(
            &mut table,
            &[Eight(if kind == 0 { 0 } else { 8 }), Eight(entry_bytes)],
        );
        body.extend(&section.bytes);
    }
    body.resize(body.len().next_multiple_of(8), 0);
    let mut file = header((HEADER_BYTES + body.len()) as u64, sections.len() as u16);
    file.extend(body);
    file.extend(table);
    file
}

/// ELF of 64 bits, little-endian, relocatable, for eBPF.
fn header(table_at: u64, sections: u16) -> Vec<u8> {
    const RELOCATABLE: u16 = 1;
    const BPF: u16 = 247;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    put(
        &mut file,
        &[Two(RELOCATABLE), Two(BPF), Four(1), Eight(0), Eight(0)],
    );
    put(
        &mut file,
        &[Eight(table_at), Four(0), Two(64), Two(0), Two(0), Two(64)],
    );
    put(&mut file, &[Two(sections), Two(STRINGS as u16)]);
    file
}

fn sections(program: &Program) -> Vec<Section> {
    /// A relocation of an instruction that loads 64 bits, against the second symbol, the map.
    const OF_MAP: u64 = 2 << 32 | 1;
    let mut relocations = Vec::new();
    put(
        &mut relocations,
        &[Eight(program.map_at as u64), Eight(OF_MAP)],
    );
    let data = ALLOCATED | WRITABLE;
    vec![
        Section::new("", 0, Vec::new()),
        Section::new(".strtab", STRTAB, Vec::new()),
        Section {
            flags: ALLOCATED | EXECUTABLE,
            ..Section::new(SECTION, PROGBITS, program.bytes.clone())
        },
        Section {
            link: SYMBOLS,
            of: TEXT.into(),
            entry_bytes: 16,
            ..Section::new(".relclassifier", REL, relocations)
        },
        Section {
            flags: data,
            ..Section::new("license", PROGBITS, b"GPL\0".to_vec())
        },
        Section {
            flags: data,
            ..Section::new(".maps", PROGBITS, vec![0; DEFINITION_BYTES])
        },
        Section::new(".BTF", PROGBITS, btf()),
        Section {
            link: STRINGS,
            of: 1,
            entry_bytes: 24,
            ..Section::new(".symtab", SYMTAB, Vec::new())
        },
    ]
}

/// Nothing, the program, the map.
fn symbols(program: &Program, names: &mut Strings) -> Vec<u8> {
    const GLOBAL_FUNCTION: u8 = 0x12;
    const GLOBAL_OBJECT: u8 = 0x11;
    let mut table = vec![0; 24];
    let rows = [
        ("gradwire", GLOBAL_FUNCTION, TEXT, program.bytes.len()),
        (MAP, GLOBAL_OBJECT, MAPS, DEFINITION_BYTES),
    ];
    for (name, kind, section, bytes) in rows {
        put(
            &mut table,
            &[Four(names.add(name)), One(kind), One(0), Two(section)],
        );
        put(&mut table, &[Eight(0), Eight(bytes as u64)]);
    }
    table
}

/// The types by which libbpf knows what map to make, and the kernel how to print it.
fn btf() -> Vec<u8> {
    const INT: u32 = 1 << 24;
    const POINTER: u32 = 2 << 24;
    const ARRAY: u32 = 3 << 24;
    const STRUCT: u32 = 4 << 24;
    const VARIABLE: u32 = 14 << 24;
    const DATA_SECTION: u32 = 15 << 24;
    /// `BPF_MAP_TYPE_ARRAY`, of one element, pinned by name (1 as well).
    const MAP_KIND: u32 = 2;
    const ONE: u32 = 1;
    let mut names = Strings::default();
    let mut types = Vec::new();
    let mut add = |name: u32, rest: &[u32]| {
        put(&mut types, &[Four(name)]);
        rest.iter()
            .for_each(|number| put(&mut types, &[Four(*number)]));
    };
    add(names.add("unsigned int"), &[INT, 4, 32]); // 1
    add(names.add("unsigned long"), &[INT, 8, 64]); // 2
    add(0, &[ARRAY, 0, 2, 1, STATE_NUMBERS as u32]); // 3: the state
    add(0, &[ARRAY, 0, 1, 1, MAP_KIND]); // 4
    add(0, &[ARRAY, 0, 1, 1, ONE]); // 5
    add(0, &[POINTER, 4]); // 6: type
    add(0, &[POINTER, 1]); // 7: key
    add(0, &[POINTER, 3]); // 8: value
    add(0, &[POINTER, 5]); // 9: max_entries, pinning
    add(0, &[STRUCT | 5, DEFINITION_BYTES as u32]); // 10
    let members = [
        ("type", 6),
        ("key", 7),
        ("value", 8),
        ("max_entries", 9),
        ("pinning", 9),
    ];
    for (at, (name, kind)) in (0_u32..).zip(members) {
        add(names.add(name), &[kind, at * 64]);
    }
    add(names.add(MAP), &[VARIABLE, 10, 1]); // 11
    add(
        names.add(".maps"),
        &[DATA_SECTION | 1, DEFINITION_BYTES as u32],
    ); // 12
    add(11, &[0, DEFINITION_BYTES as u32]);

    let (types_bytes, names_bytes) = (types.len() as u32, names.bytes.len() as u32);
    let mut bytes = Vec::new();
    put(&mut bytes, &[Two(0xeb9f), One(1), One(0), Four(24)]);
    put(
        &mut bytes,
        &[
            Four(0),
            Four(types_bytes),
            Four(types_bytes),
            Four(names_bytes),
        ],
    );
    bytes.extend(types);
    bytes.extend(names.bytes);
    bytes
}

/// Strings behind each other, each ended by a zero; the first is empty.
struct Strings {
    bytes: Vec<u8>,
}

impl Default for Strings {
    fn default() -> Self {
        Self { bytes: vec![0] }
    }
}

impl Strings {
    /// Adds one; returns where it begins.
    fn add(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let at = self.bytes.len() as u32;
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
        at
    }
}

/// A number of a structure.
enum Number {
    One(u8),
    Two(u16),
    Four(u32),
    Eight(u64),
}
use Number::{Eight, Four, One, Two};

fn put(bytes: &mut Vec<u8>, numbers: &[Number]) {
    for number in numbers {
        match number {
            One(number) => bytes.push(*number),
            Two(number) => bytes.extend(number.to_le_bytes()),
            Four(number) => bytes.extend(number.to_le_bytes()),
            Eight(number) => bytes.extend(number.to_le_bytes()),
        }
    }
}
