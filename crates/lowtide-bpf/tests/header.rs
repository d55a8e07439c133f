//! The C header against the Rust structures that it describes.

use lowtide_bpf::limits::{CONTEXT_BYTES, REQUESTS_MAX, RUN_BUDGET};
use lowtide_core::hooks::{DELAY_MAX_NS, LimitReason, LimitSnapshot, NO_LIMIT};
use std::mem::offset_of;

const HEADER: &str = include_str!("../include/lowtide_bpf.h");

/// Name and offset of each field, in order.
macro_rules! fields {
    ($($field:ident)*) => { vec![$((stringify!($field), offset_of!(LimitSnapshot, $field))),*] };
}

fn rust_fields() -> Vec<(&'static str, usize)> {
    // Without `..`: a new field makes this fail to compile.
    let LimitSnapshot {
        size: _,
        reason: _,
        group: _,
        level: _,
        page_bytes: _,
        usage: _,
        max: _,
        high: _,
        low: _,
        min: _,
        elow: _,
        emin: _,
        swap_usage: _,
        swap_max: _,
        stall_rate: _,
        psi_some_us: _,
        psi_full_us: _,
        psi_some_avg10: _,
        psi_full_avg10: _,
        task: _,
        task_debt_ns: _,
        nr_over_high: _,
        since_refault_ns: _,
        overage_delay_ns: _,
        default_delay_ns: _,
        hz: _,
        now_ns: _,
    } = LimitSnapshot::default();
    fields!(
        size reason group level page_bytes usage max high low min elow emin swap_usage swap_max
        stall_rate psi_some_us psi_full_us psi_some_avg10 psi_full_avg10 task task_debt_ns
        nr_over_high since_refault_ns overage_delay_ns default_delay_ns hz now_ns
    )
}

/// Name, offset and bytes of each field of the header's structure, by C's rules, and the bytes of
/// it all.
fn c_fields() -> (Vec<(&'static str, usize, usize)>, usize) {
    let (_, rest) = HEADER.split_once("struct lowtide_limit {").unwrap();
    let (body, _) = rest.split_once("};").unwrap();
    let mut at = 0usize;
    let mut fields = Vec::new();
    for line in body.lines().filter(|line| line.contains(';')) {
        let (declaration, _) = line.split_once(';').unwrap();
        let (kind, name) = declaration.trim().split_once(' ').unwrap();
        let bytes = match kind {
            "__u32" => 4,
            "__u64" => 8,
            other => panic!("the type {other}"),
        };
        at = at.next_multiple_of(bytes);
        fields.push((name, at, bytes));
        at += bytes;
    }
    (fields, at.next_multiple_of(8))
}

fn defined(name: &str) -> u64 {
    let line = HEADER.lines().find(|line| line.split_whitespace().nth(1) == Some(name)).unwrap();
    let text = line.split_whitespace().nth(2).unwrap();
    match text.trim_end_matches(['L', 'U', ')']).trim_start_matches('(') {
        "~0" => u64::MAX,
        number => number.parse().unwrap(),
    }
}

#[test]
fn the_header_has_the_fields_of_the_snapshot_at_their_offsets() {
    let (c, bytes) = c_fields();
    let c: Vec<_> = c.into_iter().map(|(name, at, _)| (name, at)).collect();
    assert_eq!(c, rust_fields());
    assert_eq!(bytes, size_of::<LimitSnapshot>());
}

#[test]
fn a_program_reads_each_field_where_the_header_has_it() {
    use crate::common::*;
    use lowtide_bpf::Programs;
    use lowtide_core::hooks::{LimitHooks, ThrottleAnswer};
    // A different number in each field.
    let mut number = 1000;
    let mut next = || {
        number += 1;
        number
    };
    let snapshot = LimitSnapshot {
        size: next(),
        reason: next(),
        group: next().into(),
        level: next(),
        page_bytes: next(),
        usage: next().into(),
        max: next().into(),
        high: next().into(),
        low: next().into(),
        min: next().into(),
        elow: next().into(),
        emin: next().into(),
        swap_usage: next().into(),
        swap_max: next().into(),
        stall_rate: next().into(),
        psi_some_us: next().into(),
        psi_full_us: next().into(),
        psi_some_avg10: next(),
        psi_full_avg10: next(),
        task: next().into(),
        task_debt_ns: next().into(),
        nr_over_high: next().into(),
        since_refault_ns: next().into(),
        overage_delay_ns: next().into(),
        default_delay_ns: next().into(),
        hz: next().into(),
        now_ns: next().into(),
    };
    for ((name, at, bytes), expected) in c_fields().0.into_iter().zip(1001..) {
        let opcode = if bytes == 8 { 0x79 } else { 0x61 };
        let maker = Maker::new(vec![op(opcode, 0, 1, at as i16, 0), exit()]);
        let mut programs = Programs::load(&maker.bytes(), name).unwrap();
        assert_eq!(programs.throttle(&snapshot), ThrottleAnswer::Exactly(expected), "{name}");
    }
}

#[test]
fn the_headers_constants_are_the_engines() {
    assert_eq!(defined("LOWTIDE_NONE"), NO_LIMIT);
    assert_eq!(defined("LOWTIDE_DELAY_MAX_NS"), DELAY_MAX_NS);
    for (name, reason) in [
        ("LOWTIDE_REASON_HIGH", LimitReason::High),
        ("LOWTIDE_REASON_MAX", LimitReason::Max),
        ("LOWTIDE_REASON_SWAP_HIGH", LimitReason::SwapHigh),
        ("LOWTIDE_REASON_PROTECTION", LimitReason::Protection),
        ("LOWTIDE_REASON_PROACTIVE", LimitReason::Proactive),
        ("LOWTIDE_REASON_CHARGE", LimitReason::Charge),
        ("LOWTIDE_REASON_ONLINE", LimitReason::Online),
        ("LOWTIDE_REASON_OFFLINE", LimitReason::Offline),
    ] {
        assert_eq!(defined(name), reason as u64, "{name}");
    }
}

#[test]
fn the_headers_prose_has_the_limits_that_hold() {
    for text in [
        format!("reads as 0, up to byte {}.", CONTEXT_BYTES - 1),
        format!("costs 1 of the {RUN_BUDGET} of a run"),
        format!("-EAGAIN if {REQUESTS_MAX} groups wait"),
    ] {
        assert!(HEADER.contains(&text), "{text}");
    }
}
