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

/// The target of a jump.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct JumpLabel(usize);

/// One slot of eight bytes (RFC 9669, section 3). A load of 64 bits takes two.
#[derive(Clone, Copy, Debug)]
struct Instruction {
    opcode: u8,
    dst: Register,
    src: Register,
    offset: i16,
    imm: i32,
}

impl Instruction {
    fn new(opcode: u8) -> Self {
        Self {
            opcode,
            dst: R0,
            src: R0,
            offset: 0,
            imm: 0,
        }
    }

    /// An operation on a register and an operand; the bit `BPF_X` says that it is a register.
    fn binary(opcode: u8, dst: Register, operand: Operand) -> Self {
        const BPF_X: u8 = 0x08;
        let base = Self::new(opcode);
        match operand {
            Operand::Reg(src) => Self {
                opcode: opcode | BPF_X,
                dst,
                src,
                ..base
            },
            Operand::Imm(imm) => Self { dst, imm, ..base },
        }
    }

    fn bytes(self) -> [u8; 8] {
        let [o0, o1] = self.offset.to_le_bytes();
        let [i0, i1, i2, i3] = self.imm.to_le_bytes();
        let registers = self.dst.0 | self.src.0 << 4;
        [self.opcode, registers, o0, o1, i0, i1, i2, i3]
    }
}

/// A program in the making.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    instructions: Vec<Instruction>,
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

    /// `dst = dst (operation) operand`.
    pub(super) fn alu(&mut self, operation: Alu, dst: Register, operand: impl Into<Operand>) {
        const BPF_ALU64: u8 = 0x07;
        let opcode = BPF_ALU64 | operation as u8;
        self.push(Instruction::binary(opcode, dst, operand.into()));
    }

    /// `dst = number`, of 64 bits.
    pub(super) fn load_imm64(&mut self, dst: Register, number: u64) {
        const BPF_LD_IMM_DW: u8 = 0x18;
        self.push(Instruction {
            dst,
            imm: number as u32 as i32,
            ..Instruction::new(BPF_LD_IMM_DW)
        });
        self.push(Instruction {
            imm: (number >> 32) as i32,
            ..Instruction::new(0)
        });
    }

    /// `dst` = the map that a relocation names. Returns the instruction's offset in bytes.
    pub(super) fn load_map(&mut self, dst: Register) -> usize {
        let at = self.instructions.len() * 8;
        self.load_imm64(dst, 0);
        at
    }

    /// `dst = *from`.
    pub(super) fn load(&mut self, width: MemoryWidth, dst: Register, from: MemoryOperand) {
        const BPF_LDX_MEM: u8 = 0x61;
        self.push(Instruction {
            dst,
            src: from.base,
            offset: from.offset,
            ..Instruction::new(BPF_LDX_MEM | width as u8)
        });
    }

    /// `*to = src`.
    pub(super) fn store(&mut self, width: MemoryWidth, to: MemoryOperand, src: Register) {
        const BPF_STX_MEM: u8 = 0x63;
        self.push(Instruction {
            dst: to.base,
            src,
            offset: to.offset,
            ..Instruction::new(BPF_STX_MEM | width as u8)
        });
    }

    /// `*at += 1`, of eight bytes; overwrites r1.
    pub(super) fn increment(&mut self, at: MemoryOperand) {
        self.load(MemoryWidth::Double, R1, at);
        self.alu(Alu::Add, R1, 1);
        self.store(MemoryWidth::Double, at, R1);
    }

    /// Converts the lowest two bytes of a register from network to host byte order, and clears
    /// the others.
    pub(super) fn be16(&mut self, dst: Register) {
        const BPF_END_TO_BE: u8 = 0xdc;
        self.push(Instruction {
            dst,
            imm: 16,
            ..Instruction::new(BPF_END_TO_BE)
        });
    }

    /// Jumps if `left (condition) right`.
    pub(super) fn jump_if(
        &mut self,
        condition: Condition,
        left: Register,
        right: impl Into<Operand>,
        label: JumpLabel,
    ) {
        self.jumps.push((self.instructions.len(), label));
        let opcode = BPF_JMP | condition as u8;
        self.push(Instruction::binary(opcode, left, right.into()));
    }

    /// Jumps always.
    pub(super) fn jump(&mut self, label: JumpLabel) {
        self.jumps.push((self.instructions.len(), label));
        self.push(Instruction::new(BPF_JMP));
    }

    /// Calls a helper function of the kernel: arguments in r1 to r5, result in r0.
    pub(super) fn call(&mut self, function: i32) {
        const BPF_CALL: u8 = 0x85;
        self.push(Instruction {
            imm: function,
            ..Instruction::new(BPF_CALL)
        });
    }

    /// Ends the program with a return value.
    pub(super) fn exit(&mut self, value: i32) {
        const BPF_EXIT: u8 = 0x95;
        self.alu(Alu::Mov, R0, value);
        self.push(Instruction::new(BPF_EXIT));
    }

    /// The program: eight bytes per instruction.
    pub(super) fn bytes(mut self) -> Vec<u8> {
        for (at, label) in &self.jumps {
            let to = self.labels[label.0].expect("every label is bound");
            // An offset counts from the instruction after the jump.
            let offset = to as i64 - *at as i64 - 1;
            self.instructions[*at].offset = i16::try_from(offset).expect("the program is short");
        }
        let bytes = self.instructions.into_iter().flat_map(Instruction::bytes);
        bytes.collect()
    }

    fn push(&mut self, instruction: Instruction) {
        self.instructions.push(instruction);
    }
}

const BPF_JMP: u8 = 0x05;
