//! The proposed patch's penalty as a program and as the built-in policy, stepped by the same
//! handler: the same sleeps, to the nanosecond.

use crate::common::Draw;
use lowtide_bpf::Programs;
use lowtide_core::high::handler::{HighPolicy, HighStep, LevelView, OverLimit, TaskFacts};
use lowtide_core::hooks::{LimitHooks, LimitSnapshot, NO_LIMIT, ThrottleAnswer};

/// Sleeps of a handling in which nothing can be reclaimed.
fn sleeps(
    policy: HighPolicy,
    levels: &[LevelView],
    facts: &TaskFacts,
    pages: u64,
    program: Option<&mut Programs>,
) -> Vec<u64> {
    let mut program = program;
    let mut pages_over = pages;
    let mut handler = OverLimit::new(policy, &mut pages_over);
    let mut reclaimed = None;
    let mut sleeps = Vec::new();
    for _ in 0..1000 {
        let step = handler.next(levels, facts, reclaimed.take(), |delays| match &mut program {
            None => ThrottleAnswer::Default,
            Some(program) => program.throttle(&LimitSnapshot {
                nr_over_high: pages,
                hz: facts.hz,
                since_refault_ns: facts.since_refault_ns,
                overage_delay_ns: delays.overage_ns,
                default_delay_ns: delays.default_ns,
                ..LimitSnapshot::default()
            }),
        });
        match step {
            HighStep::Reclaim { .. } => reclaimed = Some(0),
            HighStep::SwapEvent { .. } => {}
            HighStep::Sleep { ns, .. } => sleeps.push(ns),
            HighStep::Done => return sleeps,
        }
    }
    panic!("the handler does not end");
}

#[test]
fn the_program_and_the_built_in_law_sleep_equally_long() {
    let object = include_bytes!("../../../examples/bpf/refault_recency.bpf.o");
    let mut twin = Programs::load(object, "refault_recency").unwrap();
    let mut draw = Draw(11);
    let (mut slept, mut penalised) = (0_u32, 0_u32);
    for _ in 0..20_000 {
        let high = draw.below(100_000) + 1;
        let usage = high + draw.below(high / 4 + 2);
        let level =
            LevelView { id: 1, usage, high, swap_usage: 0, swap_high: NO_LIMIT, is_auto: false };
        let facts = TaskFacts {
            dying: false,
            hz: [100, 250, 1000][draw.below(3) as usize],
            since_refault_ns: if draw.below(3) == 0 { u64::MAX } else { draw.below(1_200_000_000) },
            owed_ns: 0,
        };
        let pages = draw.below(128);
        let built_in = sleeps(HighPolicy::RefaultRecency, &[level], &facts, pages, None);
        let program = sleeps(HighPolicy::Overage, &[level], &facts, pages, Some(&mut twin));
        assert_eq!(built_in, program, "{level:?} {facts:?} for {pages} pages");
        slept += u32::from(!built_in.is_empty());
        penalised += u32::from(facts.since_refault_ns < 1_000_000_000);
    }
    assert!(slept > 10_000 && penalised > 5_000, "{slept} slept, {penalised} had refaulted");
}
