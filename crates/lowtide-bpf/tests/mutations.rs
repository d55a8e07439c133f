//! Objects with changed bytes, and bytes that never were an object: nothing panics, and what is
//! loaded can be run.

use crate::common;
use crate::common::Draw;
use lowtide_bpf::{Hook, Programs};
use lowtide_core::hooks::{LimitHooks, LimitSnapshot};

const OBJECTS: [&[u8]; 5] = [
    include_bytes!("../../../examples/bpf/noop.bpf.o"),
    include_bytes!("../../../examples/bpf/priority.bpf.o"),
    include_bytes!("../../../examples/bpf/refault_recency.bpf.o"),
    include_bytes!("programs/features.bpf.o"),
    include_bytes!("programs/proposed.bpf.o"),
];

/// Loads, and runs every hook some times. Returns whether it was loaded.
fn play(bytes: &[u8], draw: &mut Draw) -> bool {
    let Ok(mut programs) = Programs::load(bytes, "mutated") else { return false };
    for _ in 0..4 {
        let snapshot = LimitSnapshot {
            group: draw.below(3),
            usage: draw.next(),
            since_refault_ns: draw.below(2_000_000_000),
            overage_delay_ns: draw.next() >> draw.below(64),
            default_delay_ns: draw.next() >> draw.below(64),
            hz: draw.next() >> draw.below(64),
            ..LimitSnapshot::default()
        };
        programs.online(&snapshot);
        programs.throttle(&snapshot);
        programs.below_low(&snapshot);
        programs.below_min(&snapshot);
        assert!(programs.proactive(&snapshot) <= snapshot.usage);
        programs.offline(&snapshot);
    }
    for hook in Hook::ALL {
        programs.switch_on(hook);
    }
    let _ = (programs.status(), programs.take_requests(), format!("{programs:?}"));
    true
}

#[test]
fn a_good_object_with_a_few_other_bytes_never_panics() {
    let mut draw = Draw(1);
    let (mut loaded, mut refused) = (0, 0);
    for round in 0..30_000 {
        let mut bytes = OBJECTS[round % OBJECTS.len()].to_vec();
        for _ in 0..=draw.below(4) {
            let at = draw.below(bytes.len() as u64) as usize;
            bytes[at] = match draw.below(3) {
                0 => draw.next() as u8,
                1 => bytes[at] ^ 1 << draw.below(8),
                _ => [0, 1, 0x7f, 0x80, 0xff][draw.below(5) as usize],
            };
        }
        if draw.below(16) == 0 {
            bytes.truncate(draw.below(bytes.len() as u64) as usize);
        }
        if play(&bytes, &mut draw) { loaded += 1 } else { refused += 1 }
    }
    assert!(loaded > 1000 && refused > 1000, "both happen: {loaded} loaded, {refused} refused");
}

#[test]
fn every_byte_of_a_good_object_may_be_0_or_255() {
    let mut draw = Draw(2);
    for object in OBJECTS {
        for at in 0..object.len() {
            for byte in [0, 0xff] {
                let mut bytes = object.to_vec();
                bytes[at] = byte;
                play(&bytes, &mut draw);
            }
        }
    }
}

#[test]
fn drawn_instructions_never_panic() {
    let mut draw = Draw(3);
    let mut loaded = 0;
    // Operations that exist, so that some programs are let through.
    let operations: Vec<u8> = (0..=255).filter(|op| op & 7 != 0 || *op == 0x18).collect();
    for _ in 0..60_000 {
        let mut code = vec![common::mov(0, 0), common::copy(6, 1)];
        for _ in 0..draw.below(8) {
            let op = operations[draw.below(operations.len() as u64) as usize];
            let (dst, src) = (draw.below(8) as u8, draw.below(11) as u8);
            let src = if op & 8 == 0 && op & 7 > 3 { 0 } else { src };
            let imm =
                if op & 8 != 0 || op & 7 == 1 { 0 } else { draw.next() as i32 >> draw.below(32) };
            let off = if op & 7 == 5 || op & 7 < 4 { draw.below(5) as i16 - 2 } else { 0 };
            code.push(common::op(op, dst, src, off, imm));
        }
        code.push(common::exit());
        loaded += u32::from(play(&common::Maker::new(code).bytes(), &mut draw));
    }
    assert!(loaded > 1000, "{loaded}");
}

#[test]
fn bytes_that_never_were_an_object_are_refused() {
    let mut draw = Draw(4);
    for _ in 0..20_000 {
        let length = draw.below(400) as usize;
        let mut bytes: Vec<u8> = (0..length).map(|_| draw.next() as u8).collect();
        // Half of them get past the first look.
        if draw.below(2) == 0 && length >= 64 {
            bytes[..20].copy_from_slice(&OBJECTS[0][..20]);
        }
        assert!(!play(&bytes, &mut draw));
    }
}
