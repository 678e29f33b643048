//! The program as an object file that tc loads through libbpf: ELF with one map.
//!
//! The order of sections, symbols and names is fixed, so that equal programs are equal files, and a
//! file can be named by its bytes. [`super::btf`] describes the map to libbpf.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use object::Endianness;
use object::elf::{
    EM_BPF, ET_REL, R_BPF_64_64, SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, SHN_UNDEF, SHT_PROGBITS,
    STB_GLOBAL, STT_FUNC, STT_OBJECT, SectionFlags, SymbolInfo, SymbolOther,
};
use object::write::StringTable;
use object::write::elf::{Encoder, FileHeader, FileHeaderLayout, Rel, SectionHeader, Sym};

use super::btf;
use super::program::{self, BpfProgram};
use crate::plan::{Plan, SwitchPort};

/// The name of the map, by which it is pinned.
pub(super) const MAP: &str = "queues";
/// The section of the map's definition.
pub(super) const MAPS: &str = ".maps";
/// Bytes of the map's definition: five pointers.
pub(super) const DEFINITION_BYTES: usize = 40;
/// The name of the program's function.
const FUNCTION: &str = "gradwire";

/// Where tc pins the map, below the folder that it is told.
pub(super) const STATE_PATH: &str = "tc/globals/queues";

/// The object file of a port's program.
pub(super) struct ObjectFile {
    /// Its name, which tells programs apart: tc shows it.
    pub(super) name: String,
    bytes: Vec<u8>,
}

impl ObjectFile {
    /// The object file for a port.
    pub(super) fn of_port(plan: &Plan, port: &SwitchPort) -> Self {
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

/// The name of an object file, from its bytes. The hash is FNV-1a of 64 bits: it tells programs
/// apart, but does not protect against forgery.
pub(super) fn name_of(bytes: &[u8]) -> String {
    let start = 0xcbf2_9ce4_8422_2325_u64;
    let sum = bytes.iter().fold(start, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("gradwire-{sum:016x}.o")
}

// Indices of sections, in the order of `sections`; 0 is the null section.
const STRINGS_INDEX: u32 = 1;
const PROGRAM_INDEX: u32 = 2;
const MAPS_INDEX: u32 = 5;
const SYMBOLS_INDEX: u32 = 7;
/// Index of the map among the symbols: after the null symbol and the program.
const MAP_SYMBOL: u32 = 2;

/// One section: its header, without name, offset and size, and its bytes.
struct ElfSection {
    name: &'static str,
    header: SectionHeader,
    bytes: Vec<u8>,
}

/// A section of program or data.
fn section(name: &'static str, flags: SectionFlags, bytes: Vec<u8>) -> ElfSection {
    let header = SectionHeader {
        sh_type: SHT_PROGBITS,
        sh_flags: flags,
        ..SectionHeader::default()
    };
    ElfSection {
        name,
        header,
        bytes,
    }
}

/// The sections after the null section, in order. `.strtab` is still empty.
fn sections(encoder: Encoder<Endianness>, program: &BpfProgram) -> Vec<ElfSection> {
    let mut relocation = Vec::new();
    let of_map = Rel {
        r_offset: program.map_at as u64,
        r_sym: MAP_SYMBOL,
        r_type: R_BPF_64_64,
        r_addend: 0,
    };
    encoder.relocation(&mut relocation, false, &of_map);
    let mut relocations = encoder.relocation_section_header(false);
    relocations.sh_flags = SectionFlags(0);
    relocations.sh_link = SYMBOLS_INDEX;
    relocations.sh_info = PROGRAM_INDEX;
    let data = SHF_ALLOC | SHF_WRITE;
    vec![
        ElfSection {
            header: encoder.strtab_section_header(),
            ..section(".strtab", SectionFlags(0), Vec::new())
        },
        section(
            "classifier",
            SHF_ALLOC | SHF_EXECINSTR,
            program.bytes.clone(),
        ),
        ElfSection {
            header: relocations,
            ..section(".relclassifier", SectionFlags(0), relocation)
        },
        section("license", data, b"GPL\0".to_vec()),
        section(MAPS, data, vec![0; DEFINITION_BYTES]),
        section(".BTF", SectionFlags(0), btf::types()),
        ElfSection {
            // Only the null symbol is local.
            header: encoder.symtab_section_header(STRINGS_INDEX, 1),
            ..section(".symtab", SectionFlags(0), Vec::new())
        },
    ]
}

/// The object file of a program: header, sections, table of section headers.
fn elf(program: &BpfProgram) -> Vec<u8> {
    let encoder = Encoder::new(Endianness::Little, true, EM_BPF);
    let mut sections = sections(encoder, program);
    let mut names = StringTable::new_in_order(1);
    let mut headers: Vec<SectionHeader> = Vec::new();
    for section in &sections {
        let name = names.add(section.name.as_bytes());
        headers.push(SectionHeader {
            sh_name: names.get_offset(name),
            sh_addralign: 8,
            ..section.header.clone()
        });
    }
    sections[SYMBOLS_INDEX as usize - 1].bytes = symbols(encoder, program, &mut names);
    let strings = &mut sections[STRINGS_INDEX as usize - 1].bytes;
    strings.push(0);
    names
        .write(strings, 1)
        .expect("names are short, and have no zeros");

    let start = encoder.file_header_size() as usize;
    let mut body = Vec::new();
    for (header, section) in headers.iter_mut().zip(&sections) {
        header.sh_offset = (start + body.len()) as u64;
        header.sh_size = section.bytes.len() as u64;
        body.extend(&section.bytes);
        body.resize(body.len().next_multiple_of(8), 0);
    }
    let header = FileHeader {
        e_type: ET_REL,
        e_machine: EM_BPF,
        ..FileHeader::default()
    };
    let layout = FileHeaderLayout {
        e_shoff: (start + body.len()) as u64,
        section_num: headers.len() as u32 + 1,
        shstrtab_index: STRINGS_INDEX,
        ..FileHeaderLayout::default()
    };
    let mut file = Vec::new();
    encoder
        .file_header(&mut file, &header, &layout)
        .expect("there are few sections");
    file.extend(body);
    encoder.null_section_header(&mut file, &layout);
    for header in &headers {
        encoder.section_header(&mut file, header);
    }
    file
}

/// The null symbol, the program, the map.
fn symbols(
    encoder: Encoder<Endianness>,
    program: &BpfProgram,
    names: &mut StringTable<'_>,
) -> Vec<u8> {
    let mut table = Vec::new();
    encoder.null_symbol(&mut table);
    let mut add = |name: &'static str, st_info, section: u32, bytes: usize| {
        let name = names.add(name.as_bytes());
        let symbol = Sym {
            section: Some(section),
            st_name: names.get_offset(name),
            st_info,
            st_other: SymbolOther(0),
            st_shndx: SHN_UNDEF,
            st_value: 0,
            st_size: bytes as u64,
        };
        encoder.symbol(&mut table, &symbol);
    };
    let [function, object] = [STT_FUNC, STT_OBJECT].map(|kind| SymbolInfo::new(STB_GLOBAL, kind));
    add(FUNCTION, function, PROGRAM_INDEX, program.bytes.len());
    add(MAP, object, MAPS_INDEX, DEFINITION_BYTES);
    table
}
