//! The verifier: what can be known of a program before it runs.
//!
//! Three checks, each of more than the one before:
//!
//! 1. **Each slot** alone: the operation, its registers and fields exist, jumps and calls end on an
//!    instruction, helpers exist.
//! 2. **The flow**: from each function's beginning, every possible path ends in an exit or can
//!    still reach one; calls are not recursive and not too deep.
//! 3. **Contents of registers** ([`types`]): writes to the context; accesses outside the stack, a
//!    value, or the context; no test for null.
//!
//! It rejects what is certainly wrong. What depends on data (an index, the iterations of a loop) is
//! left to the machine, which checks everything again; so the verifier can be simple, and an error
//! in it is a nuisance but not a hole.

use crate::error::Refusal;
use crate::helpers::Helper;
use crate::isa::*;
use crate::limits::{FRAMES_MAX, FUNCTIONS_MAX, INSTRUCTIONS_MAX};
use crate::types::{self, World};
use std::collections::{BTreeMap, BTreeSet};

/// A refusal and the slot that it is about.
pub(crate) type Refused = (usize, Refusal);

/// Verifies the program that begins at `entry`.
pub(crate) fn verify(code: &[Insn], entry: usize, world: &World<'_>) -> Result<(), Refused> {
    if code.is_empty() {
        return Err((0, Refusal::Empty));
    }
    if code.len() > INSTRUCTIONS_MAX {
        return Err((0, Refusal::TooLong { found: code.len() }));
    }
    let seconds = slots(code)?;
    for (at, insn) in code.iter().enumerate() {
        if !seconds[at] && (insn.is_jump() || insn.is_local_call()) {
            target(code, &seconds, at)?;
        }
    }
    // Functions under way, from the outermost, are walked depth first; `done` has the depth below
    // each.
    let mut done = BTreeMap::new();
    function(code, entry, &mut Vec::new(), &mut done)?;
    for &start in done.keys() {
        types::check(code, start, start == entry, world)?;
    }
    Ok(())
}

/// The first look. Returns which slots are second halves.
fn slots(code: &[Insn]) -> Result<Vec<bool>, Refused> {
    let mut seconds = vec![false; code.len()];
    let mut at = 0;
    while at < code.len() {
        let insn = code[at];
        slot(insn).map_err(|why| (at, why))?;
        if insn.is_wide() {
            match code.get(at + 1) {
                Some(&Insn { op: 0, dst: 0, src: 0, off: 0, .. }) => seconds[at + 1] = true,
                _ => return Err((at, Refusal::HalfConstant)),
            }
            at += 1;
        }
        at += 1;
    }
    Ok(seconds)
}

/// Whether one slot is an instruction.
fn slot(insn: Insn) -> Result<(), Refusal> {
    let Insn { op, dst, src, off, imm } = insn;
    let unknown = Err(Refusal::UnknownOperation { op });
    for register in [dst, src] {
        if register >= REGISTERS {
            return Err(Refusal::Register { register });
        }
    }
    let by_register = op & REG != 0;
    // The operand that is not used must be empty.
    let operand = if by_register { imm == 0 } else { src == 0 };
    let fine = match insn.class() {
        class @ (ALU | ALU64) => match op & OPERATION {
            DIV | MOD => operand && matches!(off, 0 | 1),
            MOV if by_register => {
                operand && (matches!(off, 0 | 8 | 16) || off == 32 && class == ALU64)
            }
            NEG => {
                if by_register {
                    return unknown;
                }
                src == 0 && off == 0 && imm == 0
            }
            END => {
                if by_register && class == ALU64 {
                    return unknown;
                }
                src == 0 && off == 0 && matches!(imm, 16 | 32 | 64)
            }
            ADD | SUB | MUL | OR | AND | LSH | RSH | XOR | MOV | ARSH => operand && off == 0,
            _ => return unknown,
        },
        class @ (JMP | JMP32) => match op & OPERATION {
            JA if by_register => return unknown,
            JA if class == JMP => dst == 0 && src == 0 && imm == 0,
            JA => dst == 0 && src == 0 && off == 0,
            CALL | EXIT if by_register || class == JMP32 => return unknown,
            CALL => {
                callee(src, imm)?;
                dst == 0 && off == 0
            }
            EXIT => dst == 0 && src == 0 && off == 0 && imm == 0,
            JEQ | JGT | JGE | JSET | JNE | JSGT | JSGE | JLT | JLE | JSLT | JSLE => operand,
            _ => return unknown,
        },
        LDX => match op & MODE {
            MEM => imm == 0,
            MEM_SIGNED if op & WIDTH != DOUBLE => imm == 0,
            _ => return unknown,
        },
        ST if op & MODE == MEM => src == 0,
        STX => match op & MODE {
            MEM => imm == 0,
            ATOMIC if matches!(op & WIDTH, WORD | DOUBLE) => {
                matches!(imm & !FETCH, 0x00 | 0x40 | 0x50 | 0xa0)
                    || matches!(imm, EXCHANGE | COMPARE_EXCHANGE)
            }
            _ => return unknown,
        },
        LD if op == LOAD_CONSTANT => {
            if src != 0 {
                return Err(Refusal::ForeignConstant { kind: src });
            }
            off == 0
        }
        _ => return unknown,
    };
    if !fine {
        return Err(Refusal::Field { op });
    }
    if written(insn) == Some(10) {
        return Err(Refusal::FramePointer);
    }
    Ok(())
}

/// Whether a call is of something that can be called.
fn callee(kind: u8, number: i32) -> Result<(), Refusal> {
    match kind {
        CALL_HELPER if Helper::of(number).is_none() => Err(Refusal::UnknownHelper { number }),
        CALL_HELPER | CALL_LOCAL => Ok(()),
        kind => Err(Refusal::ForeignCall { kind }),
    }
}

/// The register that an instruction writes; calls write more.
fn written(insn: Insn) -> Option<u8> {
    match insn.class() {
        ALU | ALU64 | LDX | LD => Some(insn.dst),
        STX if insn.op & MODE == ATOMIC && insn.imm == COMPARE_EXCHANGE => Some(0),
        STX if insn.op & MODE == ATOMIC && insn.imm & FETCH != 0 => Some(insn.src),
        _ => None,
    }
}

/// Where a jump or local call goes.
fn target(code: &[Insn], seconds: &[bool], at: usize) -> Result<usize, Refused> {
    let to = at as i64 + 1 + code[at].distance();
    match usize::try_from(to).ok().filter(|&to| to < code.len()) {
        None => Err((at, Refusal::JumpOutOfRange { target: to })),
        Some(to) if seconds[to] => Err((at, Refusal::JumpIntoConstant { target: to })),
        Some(to) => Ok(to),
    }
}

/// Where control may go from an instruction within its function. All targets have been checked.
pub(crate) fn successors(code: &[Insn], at: usize) -> impl Iterator<Item = usize> + use<> {
    let insn = code[at];
    let next = at + if insn.is_wide() { 2 } else { 1 };
    let falls = !insn.is_exit() && !insn.is_goto();
    let jumps = insn.is_jump().then(|| (at as i64 + 1 + insn.distance()) as usize);
    falls.then_some(next).into_iter().chain(jumps)
}

/// The second look, at the function that begins at `start` and at those it calls. Returns how many
/// functions deep it goes, itself included.
fn function(
    code: &[Insn],
    start: usize,
    under_way: &mut Vec<usize>,
    done: &mut BTreeMap<usize, u32>,
) -> Result<u32, Refused> {
    if let Some(&depth) = done.get(&start) {
        return Ok(depth);
    }
    if done.len() + under_way.len() >= FUNCTIONS_MAX {
        return Err((start, Refusal::TooManyFunctions));
    }
    under_way.push(start);
    let mut seen = BTreeSet::from([start]);
    let mut open = vec![start];
    let mut from: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    while let Some(at) = open.pop() {
        for to in successors(code, at) {
            if to >= code.len() {
                return Err((at, Refusal::NoExit));
            }
            from.entry(to).or_default().push(at);
            if seen.insert(to) {
                open.push(to);
            }
        }
    }
    // Backwards from the exits: what is not met never ends.
    let mut ends: BTreeSet<usize> = seen.iter().copied().filter(|&at| code[at].is_exit()).collect();
    let mut open: Vec<usize> = ends.iter().copied().collect();
    while let Some(at) = open.pop() {
        for &before in from.get(&at).map_or(&[][..], Vec::as_slice) {
            if ends.insert(before) {
                open.push(before);
            }
        }
    }
    // The jump that keeps it going says more than the way to it.
    let mut lost = seen.difference(&ends).copied();
    if let Some(first) = lost.next() {
        let at = if code[first].is_jump() {
            first
        } else {
            lost.find(|&at| code[at].is_jump()).unwrap_or(first)
        };
        return Err((at, Refusal::EndlessLoop));
    }
    let mut below = 0;
    for &at in seen.iter().filter(|&&at| code[at].is_local_call()) {
        let callee = (at as i64 + 1 + code[at].distance()) as usize;
        if under_way.contains(&callee) {
            return Err((at, Refusal::Recursion));
        }
        if under_way.len() >= FRAMES_MAX as usize {
            return Err((at, Refusal::TooDeep));
        }
        below = below.max(function(code, callee, under_way, done)?);
        if under_way.len() as u32 + below > FRAMES_MAX {
            return Err((at, Refusal::TooDeep));
        }
    }
    under_way.pop();
    done.insert(start, below + 1);
    Ok(below + 1)
}
