use super::*;
use crate::hooks::NO_LIMIT;
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const HIGH: u64 = 25_600;

const TASK: TaskFacts =
    TaskFacts { dying: false, hz: 1000, since_refault_ns: u64::MAX, owed_ns: 0 };

fn level(percent: u64) -> LevelView {
    LevelView {
        id: 1,
        usage: HIGH * percent / 100,
        high: HIGH,
        swap_usage: 0,
        swap_high: NO_LIMIT,
        is_auto: false,
    }
}

/// What came of a handling.
#[derive(Debug, Default, PartialEq, Eq)]
struct Run {
    /// Goals of reclaim by level.
    goals: Vec<(usize, u64)>,
    swap_events: Vec<usize>,
    sleeps: Vec<(u64, SleepCause)>,
}

/// Steps a handling to its end. `reclaim` gets the levels, the level and the goal, and may change
/// the levels.
fn run_with(
    policy: HighPolicy,
    mut levels: Vec<LevelView>,
    task: TaskFacts,
    mut reclaim: impl FnMut(&mut Vec<LevelView>, usize, u64) -> u64,
    answer: ThrottleAnswer,
) -> Run {
    let (mut pages, mut run, mut reclaimed) = (64, Run::default(), None);
    let mut over = OverLimit::new(policy, &mut pages);
    assert_eq!(pages, 0, "zeroed at the beginning");
    for _ in 0..10_000 {
        match over.next(&levels, &task, reclaimed.take(), |_| answer) {
            HighStep::Reclaim { level, goal } => {
                run.goals.push((level, goal));
                reclaimed = Some(reclaim(&mut levels, level, goal));
            }
            HighStep::SwapEvent { level } => run.swap_events.push(level),
            HighStep::Sleep { ns, cause } => run.sleeps.push((ns, cause)),
            HighStep::Done => {
                assert_eq!(
                    over.next(&levels, &task, None, |_| answer),
                    HighStep::Done,
                    "done is done"
                );
                return run;
            }
        }
    }
    panic!("the handler does not end");
}

fn run(policy: HighPolicy, levels: Vec<LevelView>, task: TaskFacts) -> Run {
    run_with(policy, levels, task, |_, _, _| 0, ThrottleAnswer::Default)
}

/// `docs/kernel/memcg.md` §16, 12.
#[test]
fn seventeen_fruitless_reclaims_at_each_level_that_is_over_and_then_one_sleep() {
    let below = level(99);
    for policy in [HighPolicy::Overage, HighPolicy::StallDebt] {
        let run = run(policy, vec![level(110), below, level(105)], TASK);
        let at = |level| run.goals.iter().filter(|(l, _)| *l == level).count();
        assert_eq!([0, 1, 2].map(at), [17, 0, 17]);
        assert_eq!(run.sleeps.len(), 1);
        assert_eq!(run.sleeps[0].0 / MS, 639, "the worst level decides");
        assert_eq!(run.sleeps[0].1, SleepCause::Overage);
    }
}

/// `docs/kernel/memcg.md` §6.2.
#[test]
fn the_first_pass_reclaims_what_was_charged_and_later_ones_thirty_two() {
    let run = run(HighPolicy::Overage, vec![level(110)], TASK);
    assert_eq!(run.goals[0], (0, 64));
    assert!(run.goals[1..].iter().all(|g| *g == (0, 32)));
}

/// `docs/kernel/memcg.md` §17: reclaim comes before the overage is computed.
#[test]
fn a_task_that_reclaims_its_group_below_the_limit_does_not_sleep() {
    let reclaim = |levels: &mut Vec<LevelView>, level: usize, goal| {
        levels[level].usage -= goal;
        goal
    };
    let one = LevelView { usage: HIGH + 60, ..level(100) };
    let run = run_with(HighPolicy::Overage, vec![one], TASK, reclaim, ThrottleAnswer::Default);
    assert_eq!(run, Run { goals: vec![(0, 64)], ..Run::default() });
}

#[test]
fn above_a_limit_that_a_controller_sets_a_task_reclaims_once_and_does_not_sleep() {
    let auto = LevelView { is_auto: true, ..level(300) };
    for (policy, _) in HighPolicy::ALL {
        let alone = run(policy, vec![auto], TASK);
        assert_eq!(alone, Run { goals: vec![(0, 64)], ..Run::default() }, "{policy}");
        let beside = run(policy, vec![auto, level(150)], TASK);
        assert_eq!(beside.sleeps.len(), 1, "{policy}: its neighbour above costs what it costs");
    }
}

/// `docs/kernel/memcg.md` §6.2: no limit while there is progress.
#[test]
fn progress_repeats_the_pass_and_costs_no_retry() {
    let mut left = 100;
    let reclaim = |_: &mut Vec<LevelView>, _, _| {
        left -= i32::from(left > 0);
        u64::from(left > 0)
    };
    let run =
        run_with(HighPolicy::Overage, vec![level(110)], TASK, reclaim, ThrottleAnswer::Default);
    assert_eq!(run.goals.len(), 99 + 17);
    assert_eq!(run.sleeps.len(), 1);
}

/// `docs/kernel/memcg.md` §6.4, 17: the test is strict, and is after the clamp of the sum.
#[test]
fn ten_milliseconds_or_less_are_not_slept() {
    let over = |ticks_at_least: u64| {
        (HIGH..)
            .find(|&u| overage::penalty(overage::overage(u, HIGH), 0, 64, 1000) >= ticks_at_least)
            .unwrap()
    };
    let at = |usage| run(HighPolicy::Overage, vec![LevelView { usage, ..level(100) }], TASK);
    assert_eq!(at(over(11) - 1).sleeps, []);
    assert_eq!(at(over(11) - 1).goals, [(0, 64)], "one pass");
    assert_eq!(at(over(11)).sleeps, [(11 * MS, SleepCause::Overage)]);
    let owes =
        |owed_ns| run(HighPolicy::StallDebt, vec![level(90)], TaskFacts { owed_ns, ..TASK }).sleeps;
    assert_eq!(owes(10 * MS), []);
    assert_eq!(owes(10 * MS + 1), [(10 * MS + 1, SleepCause::StallDebt)]);
    assert_eq!(owes(u64::MAX), [(2000 * MS, SleepCause::StallDebt)]);
}

/// `docs/kernel/memcg.md` §16, 11.
#[test]
fn a_dying_task_neither_reclaims_nor_sleeps_nor_calls_a_program() {
    let task = TaskFacts { dying: true, since_refault_ns: 0, owed_ns: 1000 * MS, ..TASK };
    for (policy, _) in HighPolicy::ALL {
        let hook = ThrottleAnswer::Exactly(MS);
        assert_eq!(run_with(policy, vec![level(150)], task, |_, _, _| 0, hook), Run::default());
    }
    let (mut pages, mut over_levels) = (64, [level(150)]);
    let mut over = OverLimit::new(HighPolicy::RefaultRecency, &mut pages);
    let task = TaskFacts { since_refault_ns: 0, ..TASK };
    over_levels[0].id = 7;
    assert!(matches!(
        over.next(&over_levels, &task, None, |_| ThrottleAnswer::Default),
        HighStep::Reclaim { .. }
    ));
    let killed = TaskFacts { dying: true, ..task };
    assert_eq!(
        over.next(&over_levels, &killed, Some(0), |_| ThrottleAnswer::Exactly(MS)),
        HighStep::Done
    );
}

/// `docs/kernel/memcg.md` §7.1: one pass, no rule of 10 ms; and §7.3: it sleeps though reclaim
/// brought the level below.
#[test]
fn the_patch_reclaims_once_and_sleeps_whenever_there_was_a_refault() {
    let task = |ms: u64| TaskFacts { since_refault_ns: ms * MS, ..TASK };
    let cause = SleepCause::RefaultRecency;
    let after = |percent, ms| run(HighPolicy::RefaultRecency, vec![level(percent)], task(ms));
    assert_eq!(after(101, 100).goals, [(0, 64)]);
    assert_eq!(after(101, 100).sleeps, [((6 + 10) * MS, cause)]);
    assert_eq!(after(110, 20).sleeps, [((639 + 50) * MS, SleepCause::Overage)]);
    assert_eq!(after(110, 20).goals, [(0, 64)]);
    assert_eq!(after(90, 500).sleeps, [(2 * MS, cause)], "below the limit, below 10 ms");
    assert_eq!(after(130, 1).sleeps, [(2000 * MS, SleepCause::Overage)], "the sum is clamped");
    assert_eq!(after(110, 1000).goals.len(), 17, "without a penalty it is the kernel's");
}

/// `docs/kernel/memcg.md` §6.3, 17.
#[test]
fn swap_over_its_high_delays_and_counts_an_event_each_pass_and_level() {
    let swap = LevelView { swap_usage: HIGH * 110 / 100, swap_high: HIGH, ..level(90) };
    let run = run(HighPolicy::Overage, vec![level(80), swap], TASK);
    assert_eq!((run.goals.len(), run.swap_events.len()), (0, 17));
    assert!(run.swap_events.iter().all(|l| *l == 1));
    assert_eq!(run.sleeps, [(639 * MS, SleepCause::Overage)]);
}

/// `docs/kernel/memcg.md` §8.5: additive.
#[test]
fn stall_debt_is_added_to_the_overage() {
    let task = TaskFacts { owed_ns: 700 * MS, ..TASK };
    let run = run(HighPolicy::StallDebt, vec![level(110)], task);
    assert_eq!(run.sleeps.len(), 1);
    assert_eq!((run.sleeps[0].0 / MS, run.sleeps[0].1), (639 + 700, SleepCause::StallDebt));
    assert_eq!(run.goals.len(), 17, "reclaim is not given up");
}

/// `docs/kernel/memcg.md` §16, 16.
#[test]
fn the_default_law_does_not_depend_on_ticks() {
    let at = |hz| {
        run(HighPolicy::StallDebt, vec![level(107)], TaskFacts { hz, owed_ns: 33 * MS, ..TASK })
    };
    assert_eq!(at(100), at(1000));
    assert_eq!(at(0), at(300));
}

#[test]
fn a_program_is_asked_once_and_told_both_delays() {
    let mut asked = Vec::new();
    let (mut pages, task) = (64, TaskFacts { owed_ns: 100 * MS, ..TASK });
    let mut over = OverLimit::new(HighPolicy::StallDebt, &mut pages);
    let mut reclaimed = None;
    loop {
        let step = over.next(&[level(110)], &task, reclaimed.take(), |delays| {
            asked.push(delays);
            ThrottleAnswer::Exactly(u64::MAX)
        });
        match step {
            HighStep::Reclaim { .. } => reclaimed = Some(0),
            HighStep::Sleep { ns, cause } => assert_eq!((ns, cause), (2000 * MS, SleepCause::Hook)),
            HighStep::SwapEvent { .. } => unreachable!("no swap"),
            HighStep::Done => break,
        }
    }
    assert_eq!(asked.len(), 1);
    assert_eq!((asked[0].overage_ns / MS, asked[0].default_ns / MS), (639, 739));
}

#[test]
fn answers_are_clamped_and_short_ones_are_slept() {
    use ThrottleAnswer::{AtLeast, Default, Exactly};
    assert_eq!(apply(Default, 5), 5);
    assert_eq!(apply(Exactly(3), 5), 3);
    assert_eq!(apply(AtLeast(3), 5), 5);
    assert_eq!(apply(AtLeast(7), 5), 7);
    assert_eq!(apply(Exactly(u64::MAX), 5), 2_000_000_000);
    assert_eq!(apply(AtLeast(u64::MAX), 5), 2_000_000_000);
    assert_eq!(apply(Default, u64::MAX), 2_000_000_000);
    let with = |percent, answer| {
        run_with(HighPolicy::Overage, vec![level(percent)], TASK, |_, _, _| 0, answer).sleeps
    };
    assert_eq!(with(90, AtLeast(MS)), [(MS, SleepCause::Hook)], "a delay without a breach");
    assert_eq!(with(110, Exactly(0)), []);
    assert_eq!(with(110, AtLeast(MS))[0].1, SleepCause::Overage);
}

#[test]
fn names_are_read_back_and_others_refused() {
    for (policy, _) in HighPolicy::ALL {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    assert_eq!("stall-debt".parse(), Ok(HighPolicy::default()));
    let error = "patch".parse::<HighPolicy>().unwrap_err();
    assert!(error.to_string().contains("`patch`") && error.to_string().contains("refault-recency"));
}

proptest! {
    /// `docs/kernel/memcg.md` §16, 9, 10 and 12: ends; sleeps once, 0 or more than 10 ms and at
    /// most 2 s; an ancestor with a smaller ratio changes no delay.
    #[test]
    fn any_handling_ends_and_sleeps_within_bounds(
        percents in prop::collection::vec(0u64..300, 0..4),
        owed_ns in 0u64..3_000 * MS,
        stall_debt in any::<bool>(),
        fruit in 0u64..40,
    ) {
        let policy = if stall_debt { HighPolicy::StallDebt } else { HighPolicy::Overage };
        let levels: Vec<_> = percents.iter().map(|&p| level(p)).collect();
        let task = TaskFacts { owed_ns, ..TASK };
        let go = |levels: Vec<LevelView>| {
            let mut left = fruit;
            let reclaim = |_: &mut Vec<LevelView>, _, _| {
            let got = u64::from(left > 0);
            left -= got;
            got
        };
            run_with(policy, levels, task, reclaim, ThrottleAnswer::Default)
        };
        let run = go(levels.clone());
        prop_assert!(run.sleeps.len() <= 1);
        prop_assert!(run.sleeps.iter().all(|&(ns, _)| ns > NOT_WORTH_NS && ns <= DELAY_MAX_NS));
        let mut taller = levels;
        taller.push(level(percents.iter().copied().min().unwrap_or(0)));
        prop_assert_eq!(go(taller).sleeps, run.sleeps);
    }
}
