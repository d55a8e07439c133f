//! The virtual machine: an interpreter that counts.
//!
//! It executes what the [verifier](crate::verify) has accepted and trusts it in nothing that
//! matters for safety: every access is checked ([`memory`](crate::memory)), every slot is fetched
//! with its bounds, every instruction is paid for from a budget. So a program can be wrong, but it
//! can neither run forever, nor reach anything outside, nor bring the process down. Arithmetic is
//! RFC 9669's: division by zero gives 0, a remainder by zero leaves the dividend, shifts take the
//! low bits of the distance, 32-bit results clear the upper half.

use crate::error::{RunError, RunFault};
use crate::helpers::{self, Helper, Host};
use crate::isa::*;
use crate::limits::{FRAME_BYTES, FRAMES_MAX, RUN_BUDGET};
use crate::memory::{Memory, STACK_TOP};

/// A verified program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Program {
    /// Its slots, and those of the functions that it may call.
    pub code: Vec<Insn>,
    /// Where it begins.
    pub entry: usize,
    /// The address of its context.
    pub context: u64,
    /// Whether any instruction names the frame pointer.
    pub uses_stack: bool,
}

/// Registers: 16, so that four bits are always an index.
type Registers = [u64; 16];

/// Where a call returns to, and what it must find there.
#[derive(Clone, Copy, Default)]
struct Frame {
    next: usize,
    saved: [u64; 4],
}

/// The calls of a program's own functions that have not returned.
struct Calls {
    frames: [Frame; FRAMES_MAX as usize - 1],
    depth: usize,
    /// Whether a function has a stack of its own.
    has_stack: bool,
}

impl Calls {
    /// None, at the beginning of a program.
    fn none(has_stack: bool, memory: &mut Memory) -> Self {
        memory.open_frames(1, has_stack);
        Self { frames: [Frame::default(); FRAMES_MAX as usize - 1], depth: 0, has_stack }
    }

    /// Enters a function that returns to `next`: it has registers to save and a frame of the stack.
    #[inline]
    fn enter(
        &mut self,
        next: usize,
        r: &mut Registers,
        memory: &mut Memory,
    ) -> Result<(), RunFault> {
        let frame = self.frames.get_mut(self.depth).ok_or(RunFault::TooDeep)?;
        frame.next = next;
        frame.saved.copy_from_slice(&r[6..10]);
        self.depth += 1;
        r[10] = r[10].wrapping_sub(FRAME_BYTES.into());
        memory.open_frames(self.depth as u32 + 1, self.has_stack);
        Ok(())
    }

    /// Leaves a function. Returns where its caller continues; `None` at the end of the program.
    #[inline]
    fn leave(&mut self, r: &mut Registers, memory: &mut Memory) -> Option<usize> {
        self.depth = self.depth.checked_sub(1)?;
        let frame = &self.frames[self.depth];
        r[6..10].copy_from_slice(&frame.saved);
        r[10] = r[10].wrapping_add(FRAME_BYTES.into());
        memory.open_frames(self.depth as u32 + 1, false);
        Some(frame.next)
    }
}

/// Runs a program on the context that is in `memory`. Returns `r0`.
///
/// # Errors
///
/// If the program does what it must not, or not enough is left of its budget. What it has changed
/// until then stays.
pub(crate) fn run(
    program: &Program,
    memory: &mut Memory,
    host: &mut Host,
) -> Result<u64, RunError> {
    let code = &program.code[..];
    let mut r = Registers::default();
    r[1] = program.context;
    r[10] = STACK_TOP;
    let mut calls = Calls::none(program.uses_stack, memory);
    let mut left = RUN_BUDGET;
    let mut pc = program.entry;

    loop {
        let at = pc;
        let fail = |what| RunError { at, what };
        let Some(&insn) = code.get(pc) else { return Err(fail(RunFault::Illegal)) };
        let Some(rest) = left.checked_sub(1) else { return Err(fail(RunFault::Budget)) };
        left = rest;
        pc += 1;
        let (dst, src) = (usize::from(insn.dst & 0xf), usize::from(insn.src & 0xf));
        match insn.class() {
            ALU64 => {
                let b = if insn.op & REG != 0 { r[src] } else { insn.imm as i64 as u64 };
                r[dst] = alu64(insn, r[dst], b).ok_or(fail(RunFault::Illegal))?;
            }
            ALU => {
                let b = if insn.op & REG != 0 { r[src] as u32 } else { insn.imm as u32 };
                r[dst] = alu32(insn, r[dst], b).ok_or(fail(RunFault::Illegal))?;
            }
            LDX => {
                let address = r[src].wrapping_add(insn.off as i64 as u64);
                r[dst] = load(insn.op, address, memory).map_err(fail)?;
            }
            class @ (ST | STX) => {
                let address = r[dst].wrapping_add(insn.off as i64 as u64);
                if class == STX && insn.op & MODE == ATOMIC {
                    atomic(insn, address, &mut r, memory).map_err(fail)?;
                    continue;
                }
                let value = if class == ST { insn.imm as i64 as u64 } else { r[src] };
                store(insn.op, address, value, memory).map_err(fail)?;
            }
            LD => {
                let Some(high) = code.get(pc) else { return Err(fail(RunFault::Illegal)) };
                r[dst] = u64::from(insn.imm as u32) | (high.imm as u32 as u64) << 32;
                pc += 1;
            }
            _ if insn.is_exit() => match calls.leave(&mut r, memory) {
                Some(next) => pc = next,
                None => return Ok(r[0]),
            },
            _ if insn.is_local_call() => {
                calls.enter(pc, &mut r, memory).map_err(fail)?;
                pc = pc.wrapping_add_signed(insn.imm as isize);
            }
            _ if insn.is_call() => {
                let helper = Helper::of(insn.imm).ok_or(fail(RunFault::Illegal))?;
                let (result, cost) =
                    helpers::call(helper, [r[1], r[2], r[3], r[4]], memory, host).map_err(fail)?;
                r[0] = result;
                left = left.checked_sub(cost).ok_or(fail(RunFault::Budget))?;
            }
            class => {
                let taken = if class == JMP {
                    let b = if insn.op & REG != 0 { r[src] } else { insn.imm as i64 as u64 };
                    holds(insn.op, r[dst], b, (r[dst] as i64).cmp(&(b as i64)))
                } else {
                    let a = r[dst] as u32;
                    let b = if insn.op & REG != 0 { r[src] as u32 } else { insn.imm as u32 };
                    holds(insn.op, a.into(), b.into(), (a as i32).cmp(&(b as i32)))
                };
                if taken {
                    pc = pc.wrapping_add_signed(insn.distance() as isize);
                }
            }
        }
    }
}

/// What a load finds, extended to 64 bits.
#[inline]
fn load(op: u8, address: u64, memory: &Memory) -> Result<u64, RunFault> {
    let signed = op & MODE == MEM_SIGNED;
    match op & WIDTH {
        DOUBLE => memory.load::<8>(address),
        WORD if signed => memory.load::<4>(address).map(|v| v as i32 as i64 as u64),
        HALF if signed => memory.load::<2>(address).map(|v| v as i16 as i64 as u64),
        BYTE if signed => memory.load::<1>(address).map(|v| v as i8 as i64 as u64),
        WORD => memory.load::<4>(address),
        HALF => memory.load::<2>(address),
        _ => memory.load::<1>(address),
    }
}

/// Stores the low bytes of a value.
#[inline]
fn store(op: u8, address: u64, value: u64, memory: &mut Memory) -> Result<(), RunFault> {
    match op & WIDTH {
        DOUBLE => memory.store::<8>(address, value),
        WORD => memory.store::<4>(address, value),
        HALF => memory.store::<2>(address, value),
        _ => memory.store::<1>(address, value),
    }
}

/// Whether a jump is taken, by its unsigned operands and their signed order.
#[inline]
fn holds(op: u8, a: u64, b: u64, signed: std::cmp::Ordering) -> bool {
    match op & OPERATION {
        JEQ => a == b,
        JNE => a != b,
        JGT => a > b,
        JGE => a >= b,
        JLT => a < b,
        JLE => a <= b,
        JSET => a & b != 0,
        JSGT => signed.is_gt(),
        JSGE => signed.is_ge(),
        JSLT => signed.is_lt(),
        JSLE => signed.is_le(),
        _ => true,
    }
}

/// 64-bit arithmetic; `None` for what is none.
#[inline]
fn alu64(insn: Insn, a: u64, b: u64) -> Option<u64> {
    let signed = insn.off == 1;
    Some(match insn.op & OPERATION {
        ADD => a.wrapping_add(b),
        SUB => a.wrapping_sub(b),
        MUL => a.wrapping_mul(b),
        DIV if b == 0 => 0,
        DIV if signed => (a as i64).wrapping_div(b as i64) as u64,
        DIV => a / b,
        MOD if b == 0 => a,
        MOD if signed => (a as i64).wrapping_rem(b as i64) as u64,
        MOD => a % b,
        OR => a | b,
        AND => a & b,
        XOR => a ^ b,
        LSH => a.wrapping_shl(b as u32),
        RSH => a.wrapping_shr(b as u32),
        ARSH => (a as i64).wrapping_shr(b as u32) as u64,
        NEG => a.wrapping_neg(),
        MOV => match insn.off {
            8 => b as i8 as i64 as u64,
            16 => b as i16 as i64 as u64,
            32 => b as i32 as i64 as u64,
            _ => b,
        },
        END => swapped(a, insn.imm),
        _ => return None,
    })
}

/// 32-bit arithmetic: the upper half of the result is 0. `whole` is the destination, of which a
/// byte swap needs more.
#[inline]
fn alu32(insn: Insn, whole: u64, b: u32) -> Option<u64> {
    let a = whole as u32;
    let signed = insn.off == 1;
    let result = match insn.op & OPERATION {
        ADD => a.wrapping_add(b),
        SUB => a.wrapping_sub(b),
        MUL => a.wrapping_mul(b),
        DIV if b == 0 => 0,
        DIV if signed => (a as i32).wrapping_div(b as i32) as u32,
        DIV => a / b,
        MOD if b == 0 => a,
        MOD if signed => (a as i32).wrapping_rem(b as i32) as u32,
        MOD => a % b,
        OR => a | b,
        AND => a & b,
        XOR => a ^ b,
        LSH => a.wrapping_shl(b),
        RSH => a.wrapping_shr(b),
        ARSH => (a as i32).wrapping_shr(b) as u32,
        NEG => a.wrapping_neg(),
        MOV => match insn.off {
            8 => b as i8 as i32 as u32,
            16 => b as i16 as i32 as u32,
            _ => b,
        },
        // The machine is little-endian: to big-endian swaps, to little-endian cuts off.
        END if insn.op & REG != 0 => return Some(swapped(whole, insn.imm)),
        END => {
            return Some(match insn.imm {
                16 => whole & 0xffff,
                32 => whole & 0xffff_ffff,
                _ => whole,
            });
        }
        _ => return None,
    };
    Some(result.into())
}

/// The low 16, 32 or 64 bits with their bytes in the other order.
fn swapped(a: u64, bits: i32) -> u64 {
    match bits {
        16 => (a as u16).swap_bytes().into(),
        32 => (a as u32).swap_bytes().into(),
        _ => a.swap_bytes(),
    }
}

/// A read-modify-write. Only one program of an object runs at a time, so it need not be one.
fn atomic(
    insn: Insn,
    address: u64,
    r: &mut Registers,
    memory: &mut Memory,
) -> Result<(), RunFault> {
    let wide = insn.op & WIDTH == DOUBLE;
    let src = usize::from(insn.src & 0xf);
    let old = if wide { memory.load::<8>(address) } else { memory.load::<4>(address) }?;
    let operand = if wide { r[src] } else { r[src] & 0xffff_ffff };
    let new = match insn.imm & !FETCH {
        0x00 => old.wrapping_add(operand),
        0x40 => old | operand,
        0x50 => old & operand,
        0xa0 => old ^ operand,
        0xe0 => operand,
        0xf0 => {
            let expected = if wide { r[0] } else { r[0] & 0xffff_ffff };
            if old == expected { operand } else { old }
        }
        _ => return Err(RunFault::Illegal),
    };
    if wide { memory.store::<8>(address, new) } else { memory.store::<4>(address, new) }?;
    if insn.imm == COMPARE_EXCHANGE {
        r[0] = old;
    } else if insn.imm & FETCH != 0 {
        r[src] = old;
    }
    Ok(())
}
