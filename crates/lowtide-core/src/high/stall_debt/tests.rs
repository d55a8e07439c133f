mod closed_loop;

use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const SEC: u64 = 1_000 * MS;
const POLICY: StallDebt = StallDebt { target: 100_000_000, price_max: 255 };

fn refault(level: u64, stall_ns: u64) -> Refault {
    Refault {
        level,
        depth: 1,
        evicted_for: EvictedFor::High,
        working_set: true,
        stall_ns,
        bytes: 4096,
    }
}

/// A level at its limit on which one task stalls for half of the time, and that task, after some
/// seconds.
fn thrashing(seconds: u64) -> (LevelStall, TaskDebt, u64) {
    let (mut level, mut task) = (LevelStall::default(), TaskDebt::default());
    let now = seconds * SEC;
    for at in (0..now).step_by(MS as usize) {
        level.note_usage(100, 100, at);
        book(&POLICY, &mut level, &mut task, &refault(1, MS / 2), at);
    }
    (level, task, now)
}

/// `docs/kernel/memcg.md` §8.1, 8.2, 8.6 (c), 8.9.
#[test]
fn only_working_set_refaults_of_a_limit_make_debt() {
    let (mut level, mut task) = (LevelStall::default(), TaskDebt::default());
    for spared in [
        Refault { evicted_for: EvictedFor::Global, ..refault(1, SEC) },
        Refault { evicted_for: EvictedFor::Proactive, ..refault(1, SEC) },
        Refault { working_set: false, ..refault(1, SEC) },
        refault(1, 0),
    ] {
        assert_eq!(book(&POLICY, &mut level, &mut task, &spared, SEC), 0);
    }
    assert!(task.is_clear(SEC));
    assert_eq!((level.rate(SEC), level.totals()), (0, (0, 0)));
    let max = Refault { evicted_for: EvictedFor::Max, ..refault(1, MS) };
    assert_eq!(book(&POLICY, &mut level, &mut task, &max, SEC), MS, "max is a limit like high");
    assert_eq!((task.unpaid(SEC), level.totals()), (MS, (MS, 4096)));
}

/// `docs/kernel/memcg.md` §8.4: whatever the others do.
#[test]
fn an_innocent_task_never_sleeps_however_dear_the_level_is() {
    let (level, thrasher, now) = thrashing(60);
    let levels = [(1, level.price(&POLICY, now))];
    assert!(
        (254_900..=255_000).contains(&levels[0].1.thousandths()),
        "no task paid: the highest price"
    );
    assert_eq!(thrasher.owed(&levels, now), 2 * SEC);
    assert_eq!(TaskDebt::default().owed(&levels, now), 0);
}

/// `docs/kernel/memcg.md` §8.6 (a).
#[test]
fn a_level_that_was_not_near_its_limit_for_a_tenth_of_a_second_is_not_paid_for() {
    let (mut level, task, now) = thrashing(10);
    let owed = |level: &LevelStall, now| task.owed(&[(1, level.price(&POLICY, now))], now);
    assert!(owed(&level, now + 99 * MS) > 0);
    assert_eq!(owed(&level, now + 101 * MS), 0);
    level.note_usage(35, 100, now + 200 * MS);
    assert_eq!(owed(&level, now + 200 * MS), 0, "65 pages below");
    level.note_usage(36, 100, now + 200 * MS);
    assert!(owed(&level, now + 200 * MS) > 0, "one batch below");
    level.near_limit = None;
    level.note_usage(u64::MAX, crate::hooks::NO_LIMIT, now);
    assert_eq!(owed(&level, now), 0, "no limit");
}

/// `docs/kernel/memcg.md` §8.4: clamp, unpaid rest, decay.
#[test]
fn what_the_clamp_cuts_off_stays_and_decays() {
    let (level, mut task, now) = thrashing(60);
    let levels = [(1, level.price(&POLICY, now))];
    let before = task.unpaid(now);
    task.pay(2 * SEC, &levels, now);
    let paid = before - task.unpaid(now);
    assert!(paid.abs_diff(2 * SEC / 255) <= 10_000, "{paid}");
    let later = task.unpaid(now + 10 * SEC);
    assert!(later.abs_diff(task.unpaid(now) / 2) < MS, "halved in ten seconds");
}

#[test]
fn a_debt_that_is_paid_in_full_is_gone() {
    let (level, _, now) = thrashing(3);
    let mut task = TaskDebt::default();
    task.book(1, 1, 10 * MS, now);
    let levels = [(1, level.price(&POLICY, now))];
    let owed = task.owed(&levels, now);
    assert!(owed > 10 * MS && owed < 2 * SEC, "{owed}");
    task.pay(owed, &levels, now);
    assert!(task.unpaid(now) <= 1);
}

/// Many short sleeps must not cost more than one long one.
#[test]
fn what_a_sleep_pays_is_rounded_up() {
    let price = Price(3 * Price::ONE);
    assert_eq!([0, 1, 3, 4, 6_000].map(|ns| price.paid_by(ns)), [0, 1, 1, 2, 2_000]);
    assert_eq!(price.paid_by(u64::MAX), (u64::MAX >> 16).div_ceil(3));
}

/// However long the level was at the highest price.
#[test]
fn a_price_that_was_highest_falls_at_once() {
    for seconds in [30, 120] {
        let (level, _, now) = thrashing(seconds);
        let after = level.demand_price(&POLICY, now + 3 * SEC).thousandths();
        assert!(after.abs_diff(127_000) < 1_000, "{after} thousandths after a half-life");
    }
}

/// `docs/kernel/memcg.md` §8.4: the dearest level decides, and one sleep pays at all levels.
#[test]
fn a_task_pays_the_dearest_of_its_levels_and_levels_elsewhere_never() {
    let mut task = TaskDebt::default();
    for level in 1..=3 {
        task.book(level, level as u32, 100 * MS, 0);
    }
    let price = |k: u64| Price(k * Price::ONE);
    assert_eq!(task.owed(&[(1, price(2)), (2, price(5))], 0), 500 * MS);
    task.pay(500 * MS, &[(1, price(2)), (2, price(5))], 0);
    assert_eq!(task.unpaid(0), 100 * MS, "the debt at level 3 is of another branch");
    assert_eq!(task.owed(&[(1, price(2)), (2, price(5))], 0), 0);
}

/// `docs/kernel/memcg.md` §8.3.
#[test]
fn debts_beyond_four_levels_go_upward() {
    let mut task = TaskDebt::default();
    for level in 2..=5u64 {
        task.book(level, level as u32, MS, 0);
    }
    task.book(9, 9, MS, 0);
    let at = |task: &TaskDebt, level| task.owed(&[(level, Price(Price::ONE))], 0);
    assert_eq!(
        [2, 3, 4, 5, 9].map(|l| at(&task, l)),
        [2 * MS, MS, MS, MS, 0],
        "a deep one goes to the top"
    );
    task.book(1, 1, MS, 0);
    assert_eq!([1, 2].map(|l| at(&task, l)), [3 * MS, 0], "the top goes to a higher one");
    task.book(7, 7, MS, 1000 * SEC);
    assert_eq!(task.owed(&[(7, Price(Price::ONE))], 1000 * SEC), MS, "old debts have made room");
}

/// `docs/kernel/memcg.md` §8.1: nothing takes a sleep as an input of the price.
#[test]
fn sleeping_and_paying_change_neither_the_stall_nor_the_price() {
    let (level, mut task, now) = thrashing(5);
    let before = (level.rate(now), level.price(&POLICY, now));
    task.pay(SEC, &[(1, before.1)], now);
    assert_eq!((level.rate(now), level.price(&POLICY, now)), before);
    assert!(level.demand_price(&POLICY, now + 2 * SEC) < before.1, "time asleep only lowers it");
}

/// `docs/kernel/memcg.md` §8.6: a sleep would not help against a device that hung.
#[test]
fn one_read_however_slow_makes_no_price() {
    let (mut level, mut task) = (LevelStall::default(), TaskDebt::default());
    level.note_usage(100, 100, SEC);
    assert_eq!(book(&POLICY, &mut level, &mut task, &refault(1, 100 * SEC), SEC), 250 * MS);
    assert_eq!(task.owed(&[(1, level.price(&POLICY, SEC))], SEC), 0);
    book(&POLICY, &mut level, &mut task, &refault(1, 250 * MS), SEC);
    assert!(task.owed(&[(1, level.price(&POLICY, SEC))], SEC) > 0, "two of them do");
}

#[test]
fn the_rate_is_that_of_the_stall() {
    let (level, _, now) = thrashing(120);
    assert!(level.rate(now).abs_diff(500_000_000) < 1_000_000, "{}", level.rate(now));
    assert_eq!(level.rate(now + 2000 * SEC), 0);
}

/// `docs/kernel/memcg.md` §16, 16: the same stalls at the same times, dealt out to 1, 4 or 16
/// tasks. A task is handled when it owes more than 10 ms.
#[test]
fn splitting_the_work_among_tasks_does_not_change_the_delay() {
    let total = |tasks: usize| {
        let mut level = LevelStall::default();
        let mut debts = vec![TaskDebt::default(); tasks];
        let mut slept = 0;
        for (i, at) in (0..60 * SEC).step_by(2 * MS as usize).enumerate() {
            let task = &mut debts[i % tasks];
            level.note_usage(100, 100, at);
            book(&POLICY, &mut level, task, &refault(1, 250_000), at);
            let levels = [(1, level.price(&POLICY, at))];
            let owed = task.owed(&levels, at);
            if owed > 10 * MS {
                task.pay(owed, &levels, at);
                slept += owed;
            }
        }
        slept
    };
    let one = total(1);
    assert!(one > SEC);
    for tasks in [4, 16] {
        let many = total(tasks);
        assert!(many.abs_diff(one) * 20 < one, "{tasks} tasks sleep {many}, one {one}");
    }
}

proptest! {
    /// `docs/kernel/memcg.md` §16, 16: bounded by 2 s a sleep and by the highest price over all;
    /// innocent tasks never sleep; nothing panics.
    #[test]
    fn a_task_never_sleeps_longer_than_the_highest_price_of_its_stall(
        events in prop::collection::vec(
            (0usize..3, 1u64..4, 0u64..3 * SEC, 0u64..2 * SEC, any::<bool>()),
            1..300,
        ),
        target in 0u64..2 * SEC,
        price_max in 0u32..1000,
    ) {
        let policy = StallDebt { target, price_max };
        let mut levels = [LevelStall::default(); 4];
        let mut tasks = [TaskDebt::default(); 3];
        let (mut stalled, mut slept) = ([0u64; 3], [0u64; 3]);
        let mut now = 0;
        for (who, level, stall, pause, working_set) in events {
            now += pause;
            let id = level as usize;
            levels[id].note_usage(100, 100, now);
            let working_set = working_set && who != 2;
            let refault = Refault { depth: level as u32, working_set, ..refault(level, stall) };
            stalled[who] += book(&policy, &mut levels[id], &mut tasks[who], &refault, now);
            let prices: Vec<_> =
                (1..4).map(|l| (l as u64, levels[l].price(&policy, now))).collect();
            let owed = tasks[who].owed(&prices, now);
            prop_assert!(owed <= DELAY_MAX_NS);
            tasks[who].pay(owed, &prices, now);
            slept[who] += owed;
        }
        prop_assert_eq!(slept[2], 0, "innocent");
        for who in 0..2 {
            let most = u128::from(stalled[who]) * u128::from(price_max);
            prop_assert!(u128::from(slept[who]) <= most);
        }
    }
}
