//! BTF, the types by which libbpf knows which map to make, and the kernel how to print it.
//!
//! With BTF, `cat` shows the map's numbers where the map is pinned. The structures are those of the
//! kernel's Documentation/bpf/btf.rst. No crate writes them: those that know BTF only read it.

use object::Endianness::Little;
use object::write::{StringTable, WritableBufferExt};

use super::object::{DEFINITION_BYTES, MAP, MAPS};
use super::program::STATE_NUMBERS;

/// Kinds of types.
#[derive(Clone, Copy)]
enum BtfKind {
    Int = 1,
    Ptr = 2,
    Array = 3,
    Struct = 4,
    Var = 14,
    DataSection = 15,
}

/// Identifier of a type: 1 for the first.
type TypeId = u32;

/// Types one after the other, and their names.
struct TypeTable {
    types: Vec<u8>,
    names: StringTable<'static>,
    count: u32,
}

impl TypeTable {
    /// The offset of a name; 0 is the empty one.
    fn name(&mut self, name: &'static str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let id = self.names.add(name.as_bytes());
        self.names.get_offset(id)
    }

    /// Adds `struct btf_type`: `parts` is the number of members or entries in `rest`, and
    /// `size_or_type` depends on the kind.
    fn add(&mut self, name: &'static str, kind: BtfKind, parts: u32, size_or_type: u32) -> TypeId {
        let name = self.name(name);
        self.words(&[name, (kind as u32) << 24 | parts, size_or_type]);
        self.count += 1;
        self.count
    }

    /// Adds words that belong to the last type.
    fn words(&mut self, words: &[u32]) {
        for word in words {
            self.types.write_u32(Little, *word);
        }
    }

    fn int(&mut self, name: &'static str, bytes: u32) -> TypeId {
        let id = self.add(name, BtfKind::Int, 0, bytes);
        self.words(&[8 * bytes]);
        id
    }

    fn pointer(&mut self, to: TypeId) -> TypeId {
        self.add("", BtfKind::Ptr, 0, to)
    }

    fn array(&mut self, of: TypeId, index: TypeId, length: u32) -> TypeId {
        let id = self.add("", BtfKind::Array, 0, 0);
        self.words(&[of, index, length]);
        id
    }

    /// A structure of pointers.
    fn structure(&mut self, members: &[(&'static str, TypeId)], bytes: u32) -> TypeId {
        let id = self.add("", BtfKind::Struct, members.len() as u32, bytes);
        for (offset_bits, (name, member)) in (0..).step_by(64).zip(members) {
            let name = self.name(name);
            self.words(&[name, *member, offset_bits]);
        }
        id
    }

    /// The header, the types and their names.
    fn bytes(mut self) -> Vec<u8> {
        const MAGIC: u16 = 0xeb9f;
        const VERSION_AND_FLAGS: u16 = 1;
        const HEADER_BYTES: u32 = 24;
        let mut names = vec![0];
        let names_bytes = self.names.write(&mut names, 1);
        let names_bytes = names_bytes.expect("names are short, and have no zeros");
        let types_bytes = self.types.len() as u32;
        let mut bytes = Vec::new();
        bytes.write_u16(Little, MAGIC);
        bytes.write_u16(Little, VERSION_AND_FLAGS);
        // Offsets, which count from the end of the header, and sizes.
        for word in [HEADER_BYTES, 0, types_bytes, types_bytes, names_bytes] {
            bytes.write_u32(Little, word);
        }
        bytes.extend(self.types);
        bytes.extend(names);
        bytes
    }
}

/// The types of the section `.BTF`. libbpf reads numbers of a map's definition as the lengths of
/// arrays to which its members point.
pub(super) fn types() -> Vec<u8> {
    const BPF_MAP_TYPE_ARRAY: u32 = 2;
    /// One element, and `LIBBPF_PIN_BY_NAME`.
    const ONE: u32 = 1;
    const GLOBAL: u32 = 1;
    let mut table = TypeTable {
        types: Vec::new(),
        names: StringTable::new_in_order(1),
        count: 0,
    };
    let definition_bytes = DEFINITION_BYTES as u32;
    let word = table.int("unsigned int", 4);
    let number = table.int("unsigned long", 8);
    let state = table.array(number, word, STATE_NUMBERS as u32);
    let kind = table.array(word, word, BPF_MAP_TYPE_ARRAY);
    let one = table.array(word, word, ONE);
    let [kind, key, value, one] = [kind, word, state, one].map(|to| table.pointer(to));
    let members = [
        ("type", kind),
        ("key", key),
        ("value", value),
        ("max_entries", one),
        ("pinning", one),
    ];
    let definition = table.structure(&members, definition_bytes);
    let map = table.add(MAP, BtfKind::Var, 0, definition);
    table.words(&[GLOBAL]);
    table.add(MAPS, BtfKind::DataSection, 1, definition_bytes);
    table.words(&[map, 0, definition_bytes]);
    table.bytes()
}
