//! Instructions of eBPF: as few as our program needs, with labels for jumps.
//!
//! Numbers are those of RFC 9669; what the program decides is in [`super::program`].

/// A register: r0 to r9, and r10, the end of the stack.
pub(super) type Register = u8;

/// Width of a load or store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Width {
    /// One byte.
    Byte = 0x10,
    /// Two bytes.
    Half = 0x08,
    /// Four bytes.
    Word = 0x00,
    /// Eight bytes.
    Double = 0x18,
}

/// Arithmetic on 64 bits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Sum {
    /// Add.
    Add = 0x00,
    /// Subtract.
    Less = 0x10,
    /// Multiply.
    Times = 0x20,
    /// Bitwise and.
    And = 0x50,
    /// Shift right.
    Right = 0x70,
    /// Copy.
    Is = 0xb0,
}

/// Comparisons without sign.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Test {
    /// Equal.
    Equal = 0x10,
    /// Not equal.
    Differs = 0x50,
    /// Less.
    Below = 0xa0,
    /// Less or equal.
    AtMost = 0xb0,
}

/// The second operand.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Operand {
    /// A register.
    In(Register),
    /// A number.
    Of(i32),
}

/// A place to jump to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Label(usize);

/// A program in the making.
#[derive(Debug, Default)]
pub(super) struct Code {
    slots: Vec<[u8; 8]>,
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

impl Code {
    /// A label that is put somewhere later.
    pub(super) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Puts a label here.
    pub(super) fn put(&mut self, label: Label) {
        self.labels[label.0] = Some(self.slots.len());
    }

    fn slot(&mut self, code: u8, (to, from): (Register, Register), offset: i16, number: i32) {
        let [o0, o1] = offset.to_le_bytes();
        let [n0, n1, n2, n3] = number.to_le_bytes();
        let registers = to | from << 4;
        self.slots.push([code, registers, o0, o1, n0, n1, n2, n3]);
    }

    /// `to = to (sum) operand`.
    pub(super) fn sum(&mut self, sum: Sum, to: Register, operand: Operand) {
        const ALU64: u8 = 0x07;
        match operand {
            Operand::In(from) => self.slot(ALU64 | 0x08 | sum as u8, (to, from), 0, 0),
            Operand::Of(number) => self.slot(ALU64 | sum as u8, (to, 0), 0, number),
        }
    }

    /// `to = number`, of 64 bits.
    pub(super) fn number(&mut self, to: Register, number: u64) {
        self.wide((to, 0), number);
    }

    /// `to` = the map that a relocation names. Returns the byte at which the instruction is.
    pub(super) fn map(&mut self, to: Register) -> usize {
        let at = self.slots.len() * 8;
        self.wide((to, 0), 0);
        at
    }

    fn wide(&mut self, registers: (Register, Register), number: u64) {
        self.slot(0x18, registers, 0, number as u32 as i32);
        self.slot(0, (0, 0), 0, (number >> 32) as i32);
    }

    /// `to = [from + offset]`.
    pub(super) fn load(&mut self, width: Width, to: Register, (from, offset): (Register, i16)) {
        self.slot(0x61 | width as u8, (to, from), offset, 0);
    }

    /// `[to + offset] = from`.
    pub(super) fn store(&mut self, width: Width, (to, offset): (Register, i16), from: Register) {
        self.slot(0x63 | width as u8, (to, from), offset, 0);
    }

    /// `[to + offset] += 1`, of eight bytes.
    pub(super) fn count(&mut self, (to, offset): (Register, i16)) {
        self.load(Width::Double, 1, (to, offset));
        self.sum(Sum::Add, 1, Operand::Of(1));
        self.store(Width::Double, (to, offset), 1);
    }

    /// The lowest two bytes of a register, from the order of the wire to that of numbers.
    pub(super) fn swap_from_wire(&mut self, register: Register) {
        self.slot(0xdc, (register, 0), 0, 16);
    }

    /// Jumps where a register compares so with an operand.
    pub(super) fn when(&mut self, test: Test, left: Register, right: Operand, label: Label) {
        self.jumps.push((self.slots.len(), label));
        match right {
            Operand::In(right) => self.slot(0x05 | 0x08 | test as u8, (left, right), 0, 0),
            Operand::Of(number) => self.slot(0x05 | test as u8, (left, 0), 0, number),
        }
    }

    /// Jumps.
    pub(super) fn go(&mut self, label: Label) {
        self.jumps.push((self.slots.len(), label));
        self.slot(0x05, (0, 0), 0, 0);
    }

    /// Calls a function of the kernel: arguments in r1 to r5, result in r0.
    pub(super) fn call(&mut self, function: i32) {
        self.slot(0x85, (0, 0), 0, function);
    }

    /// Returns a number.
    pub(super) fn finish(&mut self, number: i32) {
        self.sum(Sum::Is, 0, Operand::Of(number));
        self.slot(0x95, (0, 0), 0, 0);
    }

    /// The instructions, eight bytes each.
    pub(super) fn bytes(mut self) -> Vec<u8> {
        for (at, label) in &self.jumps {
            let to = self.labels[label.0].expect("every label is put somewhere");
            let offset = to as i64 - *at as i64 - 1;
            let offset = i16::try_from(offset).expect("the program is short");
            self.slots[*at][2..4].copy_from_slice(&offset.to_le_bytes());
        }
        self.slots.concat()
    }
}
