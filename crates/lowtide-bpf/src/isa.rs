//! The instruction set: the meaning of eight bytes.
//!
//! An instruction is eight bytes: an operation, two registers (destination in the low half of the
//! byte), a signed 16-bit offset and a signed 32-bit immediate, little-endian. One operation, the
//! load of a 64-bit constant, takes two such slots. The low three bits of the operation are its
//! class; the rest depends on it:
//!
//! | class | bits 3 | bits 4-7 | |
//! |---|---|---|---|
//! | `ALU`, `ALU64` | immediate or register | the operation | arithmetic in 32 or 64 bits |
//! | `JMP`, `JMP32` | immediate or register | the comparison | offset from the next slot |
//! | `LD`, `LDX`, `ST`, `STX` | bits 3-4: the width | bits 5-7: the mode | memory |
//!
//! Source: RFC 9669, the BPF instruction set architecture, with all its conformance groups but the
//! legacy packet loads.

/// Bytes of a slot.
pub(crate) const SLOT: usize = 8;

/// Registers that a program can name: `r0` to `r10`.
pub(crate) const REGISTERS: u8 = 11;

/// Classes: `op & CLASS`.
pub(crate) const CLASS: u8 = 0x07;
pub(crate) const LD: u8 = 0x00;
pub(crate) const LDX: u8 = 0x01;
pub(crate) const ST: u8 = 0x02;
pub(crate) const STX: u8 = 0x03;
pub(crate) const ALU: u8 = 0x04;
pub(crate) const JMP: u8 = 0x05;
pub(crate) const JMP32: u8 = 0x06;
pub(crate) const ALU64: u8 = 0x07;

/// The second operand is a register.
pub(crate) const REG: u8 = 0x08;

/// Arithmetic: `op & OPERATION`.
pub(crate) const OPERATION: u8 = 0xf0;
pub(crate) const ADD: u8 = 0x00;
pub(crate) const SUB: u8 = 0x10;
pub(crate) const MUL: u8 = 0x20;
pub(crate) const DIV: u8 = 0x30;
pub(crate) const OR: u8 = 0x40;
pub(crate) const AND: u8 = 0x50;
pub(crate) const LSH: u8 = 0x60;
pub(crate) const RSH: u8 = 0x70;
pub(crate) const NEG: u8 = 0x80;
pub(crate) const MOD: u8 = 0x90;
pub(crate) const XOR: u8 = 0xa0;
pub(crate) const MOV: u8 = 0xb0;
pub(crate) const ARSH: u8 = 0xc0;
pub(crate) const END: u8 = 0xd0;

/// Jumps: `op & OPERATION`.
pub(crate) const JA: u8 = 0x00;
pub(crate) const JEQ: u8 = 0x10;
pub(crate) const JGT: u8 = 0x20;
pub(crate) const JGE: u8 = 0x30;
pub(crate) const JSET: u8 = 0x40;
pub(crate) const JNE: u8 = 0x50;
pub(crate) const JSGT: u8 = 0x60;
pub(crate) const JSGE: u8 = 0x70;
pub(crate) const CALL: u8 = 0x80;
pub(crate) const EXIT: u8 = 0x90;
pub(crate) const JLT: u8 = 0xa0;
pub(crate) const JLE: u8 = 0xb0;
pub(crate) const JSLT: u8 = 0xc0;
pub(crate) const JSLE: u8 = 0xd0;

/// Memory: `op & MODE`.
pub(crate) const MODE: u8 = 0xe0;
pub(crate) const MEM: u8 = 0x60;
pub(crate) const MEM_SIGNED: u8 = 0x80;
pub(crate) const ATOMIC: u8 = 0xc0;

/// Widths: `op & WIDTH`.
pub(crate) const WIDTH: u8 = 0x18;
pub(crate) const WORD: u8 = 0x00;
pub(crate) const HALF: u8 = 0x08;
pub(crate) const BYTE: u8 = 0x10;
pub(crate) const DOUBLE: u8 = 0x18;

/// The load of a 64-bit constant: the only operation of two slots.
pub(crate) const LOAD_CONSTANT: u8 = 0x18;

/// Atomic operations are named by the immediate.
pub(crate) const FETCH: i32 = 0x01;
pub(crate) const EXCHANGE: i32 = 0xe1;
pub(crate) const COMPARE_EXCHANGE: i32 = 0xf1;

/// `src` of a call: the immediate is a helper's number, or a distance in slots.
pub(crate) const CALL_HELPER: u8 = 0;
pub(crate) const CALL_LOCAL: u8 = 1;

/// One decoded slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Insn {
    /// The operation.
    pub op: u8,
    /// Destination register; below [`REGISTERS`] once verified.
    pub dst: u8,
    /// Source register; below [`REGISTERS`] once verified.
    pub src: u8,
    /// Offset, in bytes for memory and in slots for jumps.
    pub off: i16,
    /// Immediate.
    pub imm: i32,
}

impl Insn {
    /// The meaning of a slot's bytes. Any bytes have one; whether it is allowed is for the verifier
    /// to say.
    pub(crate) fn decode(bytes: [u8; SLOT]) -> Self {
        Self {
            op: bytes[0],
            dst: bytes[1] & 0xf,
            src: bytes[1] >> 4,
            off: i16::from_le_bytes([bytes[2], bytes[3]]),
            imm: i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
        }
    }

    /// The bytes of a slot.
    #[cfg(test)]
    pub(crate) fn encode(self) -> [u8; SLOT] {
        let [o0, o1] = self.off.to_le_bytes();
        let [i0, i1, i2, i3] = self.imm.to_le_bytes();
        [self.op, self.dst | self.src << 4, o0, o1, i0, i1, i2, i3]
    }

    pub(crate) const fn class(self) -> u8 {
        self.op & CLASS
    }

    /// Whether the next slot belongs to this instruction.
    pub(crate) const fn is_wide(self) -> bool {
        self.op == LOAD_CONSTANT
    }

    /// Bytes that an instruction of a memory class moves.
    pub(crate) const fn width(self) -> u64 {
        match self.op & WIDTH {
            WORD => 4,
            HALF => 2,
            BYTE => 1,
            _ => 8,
        }
    }

    pub(crate) const fn is_exit(self) -> bool {
        self.op == JMP | EXIT
    }

    pub(crate) const fn is_call(self) -> bool {
        self.op == JMP | CALL
    }

    /// A call of a function of the same object.
    pub(crate) const fn is_local_call(self) -> bool {
        self.is_call() && self.src == CALL_LOCAL
    }

    /// Whether control may go elsewhere than to the next instruction, other than by a call or an
    /// exit.
    pub(crate) const fn is_jump(self) -> bool {
        matches!(self.class(), JMP | JMP32) && !self.is_exit() && !self.is_call()
    }

    /// A jump without a condition.
    pub(crate) const fn is_goto(self) -> bool {
        self.op == JMP | JA || self.op == JMP32 | JA
    }

    /// Distance of a jump's or local call's target from the next slot.
    pub(crate) const fn distance(self) -> i64 {
        if self.op == JMP32 | JA || self.is_call() { self.imm as i64 } else { self.off as i64 }
    }
}
