//! An assembler for the few eBPF instructions that our program needs.
//!
//! Encodings are those of RFC 9669. A jump names a label, which is bound before or after it; the
//! offsets are filled in when the program is complete. [`super::program`] is the program itself.

/// A register: r0 to r9, and r10, which points to the end of the stack.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Register(pub(super) u8);

pub(super) const R0: Register = Register(0);
pub(super) const R1: Register = Register(1);
pub(super) const R2: Register = Register(2);
pub(super) const R3: Register = Register(3);
pub(super) const R4: Register = Register(4);
pub(super) const R5: Register = Register(5);

impl Register {
    /// Memory at this many bytes from where the register points.
    pub(super) fn at(self, offset: i16) -> MemoryOperand {
        MemoryOperand { base: self, offset }
    }
}

/// A place in memory: a register and an offset in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct MemoryOperand {
    base: Register,
    offset: i16,
}

/// Width of a load or store (RFC 9669, section 5).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum MemoryWidth {
    /// Four bytes.
    Word = 0x00,
    /// Two bytes.
    Half = 0x08,
    /// One byte.
    Byte = 0x10,
    /// Eight bytes.
    Double = 0x18,
}

/// Arithmetic on 64 bits (RFC 9669, section 4.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Alu {
    /// `dst += src`.
    Add = 0x00,
    /// `dst -= src`.
    Sub = 0x10,
    /// `dst *= src`.
    Mul = 0x20,
    /// `dst &= src`.
    And = 0x50,
    /// `dst >>= src`, filling with zeros.
    Rsh = 0x70,
    /// `dst = src`.
    Mov = 0xb0,
}

/// Unsigned comparisons of 64 bits (RFC 9669, section 4.3).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Condition {
    /// Equal.
    Eq = 0x10,
    /// Not equal.
    Ne = 0x50,
    /// Less than.
    Lt = 0xa0,
    /// Less than or equal.
    Le = 0xb0,
}

/// The second operand: a register, or a number that is sign-extended to 64 bits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Operand {
    Reg(Register),
    Imm(i32),
}

impl From<Register> for Operand {
    fn from(register: Register) -> Self {
        Self::Reg(register)
    }
}

impl From<i32> for Operand {
    fn from(number: i32) -> Self {
        Self::Imm(number)
    }
}

impl Operand {
    /// Its bits in an instruction; `BPF_X` says that it is a register.
    fn bits(self) -> u64 {
        const BPF_X: u64 = 0x08;
        match self {
            Self::Reg(register) => BPF_X | src(register),
            Self::Imm(number) => imm(number),
        }
    }
}

/// The target of a jump.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct JumpLabel(usize);

// The fields of an instruction, a little-endian number of eight bytes of which the opcode is the
// lowest (RFC 9669, section 3). A load of 64 bits takes two.

fn dst(register: Register) -> u64 {
    u64::from(register.0) << 8
}

fn src(register: Register) -> u64 {
    u64::from(register.0) << 12
}

/// Bytes from a register, or instructions that a jump skips.
fn distance(distance: i16) -> u64 {
    u64::from(distance as u16) << 16
}

fn imm(number: i32) -> u64 {
    u64::from(number as u32) << 32
}

/// A program in the making.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    instructions: Vec<u64>,
    /// Where each label is bound, as the index of an instruction.
    labels: Vec<Option<usize>>,
    /// Jumps by the index of their instruction.
    jumps: Vec<(usize, JumpLabel)>,
}

impl Assembler {
    /// A new label, which the caller binds once.
    pub(super) fn label(&mut self) -> JumpLabel {
        self.labels.push(None);
        JumpLabel(self.labels.len() - 1)
    }

    /// Binds a label to the next instruction.
    pub(super) fn bind(&mut self, label: JumpLabel) {
        self.labels[label.0] = Some(self.instructions.len());
    }

    /// `to = to (operation) operand`.
    pub(super) fn alu(&mut self, operation: Alu, to: Register, operand: impl Into<Operand>) {
        const BPF_ALU64: u64 = 0x07;
        let operand: Operand = operand.into();
        self.push(BPF_ALU64 | operation as u64 | dst(to) | operand.bits());
    }

    /// `to = number`, of 64 bits.
    pub(super) fn load_imm64(&mut self, to: Register, number: u64) {
        const BPF_LD_IMM_DW: u64 = 0x18;
        self.push(BPF_LD_IMM_DW | dst(to) | imm(number as u32 as i32));
        self.push(imm((number >> 32) as i32));
    }

    /// `to` = the map that a relocation names. Returns the instruction's offset in bytes.
    pub(super) fn load_map(&mut self, to: Register) -> usize {
        let at = self.instructions.len() * 8;
        self.load_imm64(to, 0);
        at
    }

    /// `to = *from`.
    pub(super) fn load(&mut self, width: MemoryWidth, to: Register, from: MemoryOperand) {
        const BPF_LDX_MEM: u64 = 0x61;
        let place = dst(to) | src(from.base) | distance(from.offset);
        self.push(BPF_LDX_MEM | width as u64 | place);
    }

    /// `*to = from`.
    pub(super) fn store(&mut self, width: MemoryWidth, to: MemoryOperand, from: Register) {
        const BPF_STX_MEM: u64 = 0x63;
        let place = dst(to.base) | src(from) | distance(to.offset);
        self.push(BPF_STX_MEM | width as u64 | place);
    }

    /// `*at += 1`, of eight bytes; overwrites r1.
    pub(super) fn increment(&mut self, at: MemoryOperand) {
        self.load(MemoryWidth::Double, R1, at);
        self.alu(Alu::Add, R1, 1);
        self.store(MemoryWidth::Double, at, R1);
    }

    /// Converts the lowest two bytes of a register from network to host byte order, and clears
    /// the others.
    pub(super) fn be16(&mut self, to: Register) {
        const BPF_END_TO_BE: u64 = 0xdc;
        self.push(BPF_END_TO_BE | dst(to) | imm(16));
    }

    /// Jumps if `left (condition) right`.
    pub(super) fn jump_if(
        &mut self,
        condition: Condition,
        left: Register,
        right: impl Into<Operand>,
        label: JumpLabel,
    ) {
        let right: Operand = right.into();
        self.jumps.push((self.instructions.len(), label));
        self.push(BPF_JMP | condition as u64 | dst(left) | right.bits());
    }

    /// Jumps always.
    pub(super) fn jump(&mut self, label: JumpLabel) {
        self.jumps.push((self.instructions.len(), label));
        self.push(BPF_JMP);
    }

    /// Calls a helper function of the kernel: arguments in r1 to r5, result in r0.
    pub(super) fn call(&mut self, function: i32) {
        const BPF_CALL: u64 = 0x85;
        self.push(BPF_CALL | imm(function));
    }

    /// Ends the program with a return value.
    pub(super) fn exit(&mut self, value: i32) {
        const BPF_EXIT: u64 = 0x95;
        self.alu(Alu::Mov, R0, value);
        self.push(BPF_EXIT);
    }

    /// The program: eight bytes per instruction.
    pub(super) fn bytes(mut self) -> Vec<u8> {
        for (at, label) in &self.jumps {
            let to = self.labels[label.0].expect("every label is bound");
            // An offset counts from the instruction after the jump.
            let skipped = i16::try_from(to as i64 - *at as i64 - 1);
            self.instructions[*at] |= distance(skipped.expect("the program is short"));
        }
        let bytes = self.instructions.into_iter().flat_map(u64::to_le_bytes);
        bytes.collect()
    }

    fn push(&mut self, instruction: u64) {
        self.instructions.push(instruction);
    }
}

const BPF_JMP: u64 = 0x05;
