//! Our machine against another one: equal programs, equal results.
//!
//! The other is `rbpf`, an interpreter with the standard's semantics that shares no code with ours.
//! Programs are drawn at random: arithmetic of all kinds on all registers, memory on the stack,
//! jumps forward. Each ends by folding all registers into `r0`. Instructions in which `rbpf`
//! departs from RFC 9669, or which it lacks, are left out here and tested by hand below.

use crate::helpers::Host;
use crate::isa::*;
use crate::memory::{CONTEXT_ADDRESS, Memory};
use crate::ops::Call;
use crate::types::World;
use crate::verify::verify;
use crate::vm::{Program, run};
use proptest::prelude::*;
use std::collections::BTreeMap;

const NONE: Insn = Insn { op: 0, dst: 0, src: 0, off: 0, imm: 0 };

fn ours(code: &[Insn]) -> u64 {
    let call = Call::Snapshot;
    let world = World { constants: &BTreeMap::new(), maps: &[], data: &[], call, answers: true };
    assert_eq!(verify(code, 0, &world), Ok(()));
    let program =
        Program { code: code.to_vec(), entry: 0, context: CONTEXT_ADDRESS, uses_stack: true };
    run(&program, &mut Memory::new(Vec::new(), Vec::new()), &mut Host::new()).unwrap()
}

fn theirs(code: &[Insn]) -> u64 {
    let bytes: Vec<u8> = code.iter().flat_map(|insn| insn.encode()).collect();
    rbpf::EbpfVmNoData::new(Some(&bytes)).unwrap().execute_program().unwrap()
}

/// Numbers at the edges, and any others.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        Just(1 << 63),
        Just(1 << 31),
        Just(0xffff_ffff),
        any::<u64>(),
        0u64..100
    ]
}

fn immediate() -> impl Strategy<Value = i32> {
    prop_oneof![Just(0), Just(1), Just(-1), Just(i32::MIN), Just(i32::MAX), any::<i32>()]
}

/// One instruction of the body; jumps skip up to three instructions.
fn body() -> impl Strategy<Value = Insn> {
    let arithmetic = (
        prop::sample::select(vec![ADD, SUB, MUL, DIV, OR, AND, LSH, RSH, MOD, XOR, MOV, ARSH]),
        prop::sample::select(vec![ALU, ALU64]),
        any::<bool>(),
        0u8..10,
        0u8..10,
        immediate(),
    )
        .prop_map(|(operation, class, reg, dst, src, imm)| {
            let shift = matches!(operation, LSH | RSH | ARSH);
            // A 32-bit remainder by zero keeps the upper half there.
            if reg && !(operation == MOD && class == ALU) {
                Insn { op: class | operation | REG, dst, src, ..NONE }
            } else {
                let imm = if shift { imm & if class == ALU { 31 } else { 63 } } else { imm };
                // A constant divisor of 0 is refused by the other one when it loads.
                let imm = if matches!(operation, DIV | MOD) && imm == 0 { 7 } else { imm };
                Insn { op: class | operation, dst, imm, ..NONE }
            }
        });
    let swap = (
        prop::sample::select(vec![ALU | END, ALU | END | REG]),
        0u8..10,
        prop::sample::select(vec![16, 32, 64]),
    )
        .prop_map(|(op, dst, bits)| Insn {
            op,
            dst,
            imm: if op & OPERATION == END { bits } else { 0 },
            ..NONE
        });
    let jump = (
        prop::sample::select(vec![JEQ, JGT, JGE, JSET, JNE, JSGT, JSGE, JLT, JLE, JSLT, JSLE]),
        prop::sample::select(vec![JMP, JMP32]),
        any::<bool>(),
        (0u8..10, 0u8..10),
        immediate(),
        0i16..4,
    )
        .prop_map(|(operation, class, reg, (dst, src), imm, off)| {
            if reg {
                Insn { op: class | operation | REG, dst, src, off, ..NONE }
            } else {
                // There, 64-bit comparisons extend the constant by zeros.
                let signed = matches!(operation, JSET | JSGT | JSGE | JSLT | JSLE);
                let imm = if class == JMP && !signed { imm & i32::MAX } else { imm };
                Insn { op: class | operation, dst, imm, off, ..NONE }
            }
        });
    let memory = (
        prop::sample::select(vec![LDX, ST, STX]),
        prop::sample::select(vec![WORD, HALF, BYTE, DOUBLE]),
        0u8..10,
        -64i16..-8,
        immediate(),
    )
        .prop_map(|(class, width, register, off, imm)| {
            let op = class | MEM | width;
            match class {
                LDX => Insn { op, dst: register, src: 10, off, ..NONE },
                ST => Insn { op, dst: 10, off, imm, ..NONE },
                _ => Insn { op, dst: 10, src: register, off, ..NONE },
            }
        });
    prop_oneof![4 => arithmetic, 1 => swap, 2 => jump, 2 => memory]
}

/// Constants into all registers and the stack, the body, and the fold.
fn whole(numbers: &[u64], body: Vec<Insn>) -> Vec<Insn> {
    let mut code = Vec::new();
    for (dst, &number) in (0..).zip(numbers) {
        code.push(Insn { op: LOAD_CONSTANT, dst, imm: number as i32, ..NONE });
        code.push(Insn { imm: (number >> 32) as i32, ..NONE });
    }
    for slot in 1..=9 {
        code.push(Insn {
            op: STX | MEM | DOUBLE,
            dst: 10,
            src: slot,
            off: -8 * i16::from(slot),
            ..NONE
        });
    }
    code.extend(body);
    // Jumps may go up to three beyond the end.
    code.extend([Insn { op: ALU64 | ADD, dst: 1, ..NONE }; 3]);
    for src in 1..10 {
        code.push(Insn { op: ALU64 | MUL, dst: 0, imm: 31, ..NONE });
        code.push(Insn { op: ALU64 | XOR | REG, dst: 0, src, ..NONE });
    }
    code.push(Insn { op: JMP | EXIT, ..NONE });
    code
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn drawn_programs_give_what_another_machine_gives(
        numbers in prop::collection::vec(number(), 10),
        body in prop::collection::vec(body(), 1..40),
    ) {
        let code = whole(&numbers, body);
        prop_assert_eq!(ours(&code), theirs(&code));
    }
}

/// `r0 = a; r1 = b; insn; return r0`
fn one(a: u64, b: u64, insn: Insn) -> u64 {
    ours(&[
        Insn { op: LOAD_CONSTANT, dst: 0, imm: a as i32, ..NONE },
        Insn { imm: (a >> 32) as i32, ..NONE },
        Insn { op: LOAD_CONSTANT, dst: 1, imm: b as i32, ..NONE },
        Insn { imm: (b >> 32) as i32, ..NONE },
        Insn { dst: 0, ..insn },
        Insn { op: JMP | EXIT, ..NONE },
    ])
}

#[test]
fn signed_arithmetic_extends_and_truncates_towards_zero() {
    let signed =
        |op, a: i64, b: i64| one(a as u64, b as u64, Insn { op: op | REG, src: 1, off: 1, ..NONE });
    assert_eq!(signed(ALU64 | DIV, -13, 3), -4i64 as u64);
    assert_eq!(signed(ALU64 | MOD, -13, 3), -1i64 as u64);
    assert_eq!(signed(ALU | DIV, -13, 3), u64::from(-4i32 as u32));
    assert_eq!(signed(ALU | MOD, -13, 3), u64::from(-1i32 as u32));
    assert_eq!(signed(ALU64 | DIV, i64::MIN, -1), i64::MIN as u64);
    assert_eq!(signed(ALU64 | MOD, i64::MIN, -1), 0);
    assert_eq!(signed(ALU | DIV, i32::MIN.into(), -1), u64::from(i32::MIN as u32));
    assert_eq!(signed(ALU64 | DIV, -13, 0), 0);
    assert_eq!(signed(ALU64 | MOD, -13, 0), -13i64 as u64);
    assert_eq!(signed(ALU | MOD, -13, 0), u64::from(-13i32 as u32), "the upper half is cleared");
    let by_constant = Insn { op: ALU64 | DIV, off: 1, imm: -3, ..NONE };
    assert_eq!(one(-13i64 as u64, 0, by_constant), 4);
}

#[test]
fn moves_with_sign_extension_extend_from_the_width_they_name() {
    let from = |op, off| one(0, 0x8081_8283_8485_8687, Insn { op: op | REG, src: 1, off, ..NONE });
    assert_eq!(from(ALU64 | MOV, 8), 0xffff_ffff_ffff_ff87);
    assert_eq!(from(ALU64 | MOV, 16), 0xffff_ffff_ffff_8687);
    assert_eq!(from(ALU64 | MOV, 32), 0xffff_ffff_8485_8687);
    assert_eq!(from(ALU | MOV, 8), 0xffff_ff87);
    assert_eq!(from(ALU | MOV, 16), 0xffff_8687);
    assert_eq!(from(ALU | MOV, 0), 0x8485_8687);
}

#[test]
fn comparisons_extend_the_constant_by_its_sign() {
    // Whether the jump on `a OP -1` is taken.
    let taken = |operation: u8, class: u8, a: u64| {
        ours(&[
            Insn { op: LOAD_CONSTANT, dst: 1, imm: a as i32, ..NONE },
            Insn { imm: (a >> 32) as i32, ..NONE },
            Insn { op: ALU64 | MOV, imm: 1, ..NONE },
            Insn { op: class | operation, dst: 1, off: 1, imm: -1, ..NONE },
            Insn { op: ALU64 | MOV, ..NONE },
            Insn { op: JMP | EXIT, ..NONE },
        ]) == 1
    };
    assert!(taken(JEQ, JMP, u64::MAX) && !taken(JEQ, JMP, 0xffff_ffff));
    assert!(taken(JEQ, JMP32, u64::MAX) && taken(JEQ, JMP32, 0xffff_ffff));
    assert!(!taken(JGT, JMP, 1 << 40) && taken(JLT, JMP, 1 << 40));
    assert!(taken(JSGT, JMP, 1 << 40) && !taken(JSGT, JMP, 1 << 63));
    assert!(taken(JSLT, JMP32, 1 << 31) && !taken(JSLT, JMP, 1 << 31));
    assert!(taken(JSET, JMP, 1 << 40) && !taken(JSET, JMP32, 1 << 40));
}

#[test]
fn negation_wraps() {
    let negate = |op, a| one(a, 0, Insn { op: op | NEG, ..NONE });
    assert_eq!(negate(ALU64, 5), -5i64 as u64);
    assert_eq!(negate(ALU64, 1 << 63), 1 << 63);
    assert_eq!(negate(ALU, 5), u64::from(-5i32 as u32));
    assert_eq!(negate(ALU, 1 << 31), 1 << 31);
}

#[test]
fn byte_swaps_swap_whatever_the_machine() {
    let swap = |bits| one(0x0102_0304_0506_0708, 0, Insn { op: ALU64 | END, imm: bits, ..NONE });
    assert_eq!(swap(16), 0x0807);
    assert_eq!(swap(32), 0x0807_0605);
    assert_eq!(swap(64), 0x0807_0605_0403_0201);
}

#[test]
fn shifts_take_the_low_bits_of_the_distance() {
    let shift = |op, by| one(u64::MAX, by, Insn { op: op | REG, src: 1, ..NONE });
    assert_eq!(shift(ALU64 | LSH, 64 + 4), u64::MAX << 4);
    assert_eq!(shift(ALU | RSH, 32 + 4), 0x0fff_ffff);
    assert_eq!(shift(ALU64 | ARSH, 1 << 40), u64::MAX);
}

#[test]
fn loads_with_sign_extension_extend_from_the_width_they_name() {
    let load = |width| {
        ours(&[
            Insn { op: ST | MEM | DOUBLE, dst: 10, off: -8, imm: -2, ..NONE },
            Insn { op: LDX | MEM_SIGNED | width, src: 10, off: -8, ..NONE },
            Insn { op: JMP | EXIT, ..NONE },
        ])
    };
    for width in [BYTE, HALF, WORD] {
        assert_eq!(load(width), -2i64 as u64);
    }
}

#[test]
fn atomic_operations_change_memory_and_fetch_the_old_value() {
    // r0 = 5; r1 = 3; slot = 5; atomic(slot, r1); return r0, r1 or the slot, folded: slot * 100 +
    // r0 * 10 + r1.
    let atomic = |width, imm| {
        ours(&[
            Insn { op: ALU64 | MOV, dst: 0, imm: 5, ..NONE },
            Insn { op: ALU64 | MOV, dst: 1, imm: 3, ..NONE },
            Insn { op: ST | MEM | DOUBLE, dst: 10, off: -8, imm: 5, ..NONE },
            Insn { op: STX | ATOMIC | width, dst: 10, src: 1, off: -8, imm },
            Insn { op: LDX | MEM | DOUBLE, dst: 2, src: 10, off: -8, ..NONE },
            Insn { op: ALU64 | MUL, dst: 2, imm: 100, ..NONE },
            Insn { op: ALU64 | MUL, dst: 0, imm: 10, ..NONE },
            Insn { op: ALU64 | ADD | REG, dst: 0, src: 1, ..NONE },
            Insn { op: ALU64 | ADD | REG, dst: 0, src: 2, ..NONE },
            Insn { op: JMP | EXIT, ..NONE },
        ])
    };
    for width in [WORD, DOUBLE] {
        assert_eq!(atomic(width, 0x00), 853);
        assert_eq!(atomic(width, 0x01), 855);
        assert_eq!(atomic(width, 0x40), 753);
        assert_eq!(atomic(width, 0x50), 153);
        assert_eq!(atomic(width, 0xa1), 655);
        assert_eq!(atomic(width, EXCHANGE), 355);
        assert_eq!(atomic(width, COMPARE_EXCHANGE), 353, "it was equal to r0");
    }
}
