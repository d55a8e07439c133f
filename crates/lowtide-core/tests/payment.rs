//! What tasks pay for being over a limit, on a real tree: the handler's events and delays to the
//! tick, attribution of stalls, programs. (`docs/kernel/memcg.md` §6, 7, 8, 15; the policies
//! themselves have unit tests.)

use crate::forest::{Forest, ROOT};
use lowtide_core::high::handler::{HighPolicy, SleepCause};
use lowtide_core::high::stall_debt::TaskDebt;
use lowtide_core::high::{HighNext, Payer, Payment, Refaulted};
use lowtide_core::hooks::{LimitHooks, LimitReason, LimitSnapshot, ThrottleAnswer};
use lowtide_core::{Charge, FolioId, LruType, MemcgId, Next, Owner, Policy, SpaceId, Task};
use std::sync::{Arc, Mutex};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// A group that is over its `high` of 100 MiB by memory that cannot be reclaimed.
fn over(percent: u64, policy: HighPolicy) -> (Forest, MemcgId) {
    let mut f = Forest::new(Policy::MGLRU, 1 << 17, 1);
    let group = f.group(ROOT, u64::MAX);
    f.engine.set_high(group, 25_600);
    f.engine.set_high_policy(group, policy);
    let pages = 25_600 * percent / 100;
    f.engine.try_charge(group, pages).unwrap();
    f.engine.reserve(group, pages);
    (f, group)
}

/// Pays for `pages` pages at a time. Returns the sleeps.
fn pay(
    f: &mut Forest,
    group: MemcgId,
    pages: u64,
    hz: u64,
    debt: &mut TaskDebt,
    now: u64,
) -> Vec<(u64, SleepCause)> {
    let mut pages = pages;
    let mut payment = Payment::new(&f.engine, group, &mut pages);
    assert_eq!(pages, 0, "they are answered for now");
    let (mut sleeps, mut reclaimed) = (Vec::new(), None);
    for _ in 0..1000 {
        let mut payer = Payer { task: Task::DESCRIPTOR, debt, number: 7, hz, dying: false };
        match payment.next(&mut f.engine, &mut payer, now, reclaimed.take()) {
            HighNext::Reclaim(mut reclaim) => reclaimed = Some(f.run(&mut reclaim)),
            HighNext::Sleep { ns, cause } => sleeps.push((ns, cause)),
            HighNext::Done => return sleeps,
        }
    }
    panic!("a payment does not end");
}

/// §6.3: the table, with N = 64, through the tree and the handler: ticks, the rule of 10 ms, the
/// clamp.
#[test]
fn the_kernels_delays_come_out_to_the_tick() {
    let table = [
        (100, [0, 0, 0]),
        (101, [0, 1, 6]),
        (102, [2, 6, 25]),
        (103, [5, 14, 57]),
        (105, [15, 39, 159]),
        (110, [63, 159, 639]),
        (115, [143, 359, 1439]),
        (117, [184, 462, 1849]),
        (118, [200, 500, 2000]),
        (300, [200, 500, 2000]),
    ];
    for (percent, ticks) in table {
        for (hz, ticks) in [100, 250, 1000].into_iter().zip(ticks) {
            let (mut f, group) = over(percent, HighPolicy::Overage);
            let ns = ticks * SECOND / hz;
            let expected = if ns > 10 * MS { vec![(ns, SleepCause::Overage)] } else { Vec::new() };
            let sleeps = pay(&mut f, group, 64, hz, &mut TaskDebt::default(), SECOND);
            assert_eq!(sleeps, expected, "{percent} % at {hz} Hz");
        }
    }
}

/// §16.12 and §13: 17 fruitless reclaims of each level that is over, an event each, then one sleep.
#[test]
fn every_pass_over_every_level_that_is_over_is_an_event() {
    let mut f = Forest::new(Policy::MGLRU, 1 << 16, 1);
    let top = f.group(ROOT, u64::MAX);
    let middle = f.group(top, u64::MAX);
    let leaf = f.group(middle, u64::MAX);
    for (group, high) in [(top, 1000), (leaf, 900)] {
        f.engine.set_high(group, high);
        f.engine.set_high_policy(group, HighPolicy::Overage);
    }
    f.engine.try_charge(leaf, 1100).unwrap();
    f.engine.reserve(leaf, 1100);
    let sleeps = pay(&mut f, leaf, 64, 1000, &mut TaskDebt::default(), SECOND);
    assert_eq!(sleeps.len(), 1);
    assert_eq!(f.engine.local_events(leaf).high, 17);
    assert_eq!(f.engine.local_events(middle).high, 0, "it has no high");
    assert_eq!(f.engine.local_events(top).high, 17);
    assert_eq!(f.engine.stat(top).limits.high, 34, "with what is below");
    assert_eq!(f.engine.stat(ROOT).limits.high, 34);
}

/// §6.2: reclaim comes first, and a task that gets below the limit by it does not sleep.
#[test]
fn a_task_that_can_reclaim_does_not_sleep() {
    for policy in [HighPolicy::Overage, HighPolicy::StallDebt] {
        let mut f = Forest::new(Policy::MGLRU, 1 << 14, 1);
        let group = f.group(ROOT, u64::MAX);
        f.engine.set_high(group, 2000);
        f.engine.set_high_policy(group, policy);
        f.fill(group, 2500);
        assert_eq!(pay(&mut f, group, 500, 1000, &mut TaskDebt::default(), SECOND), Vec::new());
        assert!(f.engine.usage(group) <= 2064, "{} is about 2000", f.engine.usage(group));
        assert!(f.engine.local_events(group).high > 0);
    }
}

/// Evicts pages for the limit of `limited`, and brings one of them back into `group`.
fn refault(f: &mut Forest, group: MemcgId, limited: MemcgId, for_high: bool) -> Refaulted {
    f.engine.set_max(limited, u64::MAX).unwrap();
    f.engine.set_high(limited, u64::MAX);
    f.fill(group, 1024);
    let usage = f.engine.usage(limited);
    if for_high {
        f.engine.set_high(limited, usage - 200);
        pay(f, group, 64, 1000, &mut TaskDebt::default(), SECOND);
    } else {
        f.engine.set_max(limited, usage).unwrap();
        f.fill(group, 200);
    }
    let page = f.shadows.keys().copied().max().expect("something was evicted");
    let shadow = f.shadows.remove(&page);
    f.charge(group, 1, Task::FAULT).unwrap();
    let frame = FolioId(f.take_frame());
    let owner = Owner { space: SpaceId(0), page };
    let refaulted = f.engine.insert(frame, owner, 0, LruType::File, group, shadow, Task::FAULT);
    f.pages.insert(page, frame);
    refaulted.expect("it was evicted from this group")
}

/// §8.2, 8.5: a stall is booked with the level whose limit evicted the page, be it `high` or `max`,
/// and the task owes for it there.
#[test]
fn a_stall_is_owed_at_the_level_whose_limit_evicted_the_page() {
    for for_high in [true, false] {
        let mut f = Forest::new(Policy::MGLRU, 1 << 14, 1);
        let parent = f.group(ROOT, u64::MAX);
        let group = f.group(parent, u64::MAX);
        let refaulted = refault(&mut f, group, parent, for_high);
        assert!(refaulted.recent);
        assert!((1..5000).contains(&refaulted.distance), "{refaulted:?}");
        let mut debt = TaskDebt::default();
        let mut now = 10 * SECOND;
        for _ in 0..40 {
            now += 200 * MS;
            f.engine.stalled(group, &refaulted, 100 * MS, 4096, &mut debt, now);
        }
        assert!(
            f.engine.stall_rate(parent, now) > 150 * MS,
            "on the way to half a second a second"
        );
        assert_eq!(f.engine.stall_rate(group, now), 0, "its own limit is not to blame");
        assert!(f.engine.owes(group, &debt, now) > 100 * MS);
        let sleeps = pay(&mut f, group, 0, 1000, &mut debt, now);
        assert_eq!(sleeps.len(), 1, "{for_high}");
        assert_eq!(sleeps[0].1, SleepCause::StallDebt);
        assert!(sleeps[0].0 <= 2 * SECOND);
        assert!(f.engine.advice(parent, now) > f.engine.usage(parent));
        // Another task of the same group owes nothing.
        assert_eq!(f.engine.owes(group, &TaskDebt::default(), now), 0);
    }
}

/// §8.4, 8.6: the policy's own measure of a recent refault is not that of stall debt. What was gone
/// for no more evictions than the level holds pages belongs to the working set.
#[test]
fn a_page_that_left_lately_is_of_the_working_set_whatever_the_policy_makes_of_it() {
    let mut f = Forest::new(Policy::MGLRU, 1 << 14, 1);
    let group = f.group(ROOT, u64::MAX);
    let mut refaulted = refault(&mut f, group, group, true);
    refaulted.recent = false;
    let usage = f.engine.usage(group);
    for (distance, counts) in [(usage, true), (usage + 1, false)] {
        refaulted.distance = distance;
        let mut debt = TaskDebt::default();
        f.engine.stalled(group, &refaulted, 100 * MS, 4096, &mut debt, SECOND);
        assert_eq!(debt.unpaid(SECOND) > 0, counts, "{distance} of {usage}");
    }
}

/// §8.2: what was evicted on request, or for the whole pool, is booked with no task.
#[test]
fn eviction_on_request_makes_no_debt() {
    let mut f = Forest::new(Policy::MGLRU, 1 << 14, 1);
    let group = f.group(ROOT, u64::MAX);
    f.fill(group, 1000);
    f.reclaim(group, 200);
    let page = *f.shadows.keys().next().unwrap();
    let shadow = f.shadows.remove(&page);
    f.charge(group, 1, Task::FAULT).unwrap();
    let frame = FolioId(f.take_frame());
    let owner = Owner { space: SpaceId(0), page };
    let refaulted =
        f.engine.insert(frame, owner, 0, LruType::File, group, shadow, Task::FAULT).unwrap();
    f.pages.insert(page, frame);
    let mut debt = TaskDebt::default();
    f.engine.stalled(group, &refaulted, SECOND, 4096, &mut debt, 2 * SECOND);
    assert_eq!((f.engine.stall_rate(group, 2 * SECOND), debt.unpaid(2 * SECOND)), (0, 0));
}

/// §7.1 through the tree: the stamp is the refault's, and the penalty is what the patch says.
#[test]
fn the_patchs_penalty_depends_on_how_long_ago_the_last_refault_was() {
    let mut f = Forest::new(Policy::MGLRU, 1 << 14, 1);
    let parent = f.group(ROOT, u64::MAX);
    let group = f.group(parent, u64::MAX);
    let refaulted = refault(&mut f, group, group, true);
    f.engine.set_high(group, u64::MAX);
    f.engine.set_high_policy(group, HighPolicy::RefaultRecency);
    let mut debt = TaskDebt::default();
    let then = 5 * SECOND;
    f.engine.stalled(group, &refaulted, MS, 4096, &mut debt, then + MS);
    for (ago_ms, penalty_ms) in
        [(1, 100), (10, 100), (20, 50), (50, 20), (100, 10), (250, 4), (500, 2)]
    {
        let sleeps = pay(&mut f, group, 64, 1000, &mut debt, then + ago_ms * MS);
        assert_eq!(sleeps, [(penalty_ms * MS, SleepCause::RefaultRecency)], "{ago_ms} ms ago");
    }
    assert_eq!(pay(&mut f, group, 64, 1000, &mut debt, then + SECOND), []);
}

/// A program that keeps what it saw, and always says the same.
#[derive(Debug)]
struct Program(Arc<Mutex<Option<LimitSnapshot>>>, ThrottleAnswer, Option<bool>);

impl LimitHooks for Program {
    fn throttle(&mut self, snapshot: &LimitSnapshot) -> ThrottleAnswer {
        *self.0.lock().unwrap() = Some(*snapshot);
        self.1
    }

    fn below_min(&mut self, _: &LimitSnapshot) -> Option<bool> {
        self.2
    }

    fn proactive(&mut self, _: &LimitSnapshot) -> u64 {
        u64::MAX
    }
}

/// §15.4: it sees the level and the task, its answer is clamped, children inherit it, and detaching
/// ends it.
#[test]
fn a_program_decides_how_long_tasks_sleep() {
    let (mut f, group) = over(105, HighPolicy::Overage);
    let child = f.group(group, u64::MAX);
    let seen = Arc::default();
    for (answer, expected) in [
        (ThrottleAnswer::Exactly(5 * MS), Some(5 * MS)),
        (ThrottleAnswer::Exactly(0), None),
        (ThrottleAnswer::Exactly(u64::MAX), Some(2 * SECOND)),
        (ThrottleAnswer::AtLeast(5 * MS), Some(159 * MS)),
        (ThrottleAnswer::AtLeast(500 * MS), Some(500 * MS)),
        (ThrottleAnswer::Default, Some(159 * MS)),
    ] {
        f.engine.set_high_policy(child, HighPolicy::Overage);
        f.engine.set_hooks(group, Some(Box::new(Program(Arc::clone(&seen), answer, None))));
        let sleeps = pay(&mut f, child, 64, 1000, &mut TaskDebt::default(), SECOND);
        assert_eq!(sleeps.first().map(|s| s.0), expected, "{answer:?}");
        let saw = seen.lock().unwrap().take().expect("it was asked");
        assert_eq!(
            (saw.group, saw.level, saw.high, saw.usage),
            (group.number(), 1, 25_600, 26_880)
        );
        assert_eq!((saw.nr_over_high, saw.task, saw.hz, saw.now_ns), (64, 7, 1000, SECOND));
        assert_eq!((saw.overage_delay_ns, saw.default_delay_ns), (159 * MS, 159 * MS));
    }
    assert_eq!(f.engine.ask_proactive(group, SECOND), 26_880, "no more than there is");
    assert!(f.engine.set_hooks(group, None).is_some());
    assert_eq!(pay(&mut f, child, 64, 1000, &mut TaskDebt::default(), SECOND)[0].0, 159 * MS);
}

/// A program that wants to know of charges, and keeps what it saw.
#[derive(Debug)]
struct Counts(Arc<Mutex<Vec<LimitSnapshot>>>);

impl LimitHooks for Counts {
    fn throttle(&mut self, snapshot: &LimitSnapshot) -> ThrottleAnswer {
        self.0.lock().unwrap().push(*snapshot);
        ThrottleAnswer::AtLeast(3 * MS)
    }

    fn wants_charges(&self) -> bool {
        true
    }

    fn online(&mut self, snapshot: &LimitSnapshot) {
        self.0.lock().unwrap().push(*snapshot);
    }

    fn offline(&mut self, snapshot: &LimitSnapshot) {
        self.0.lock().unwrap().push(*snapshot);
    }
}

/// §15: called after each batch, below `high` too, about the group that was charged.
#[test]
fn a_program_may_ask_for_a_delay_of_each_batch() {
    let mut f = Forest::new(Policy::MGLRU, 1 << 14, 1);
    let parent = f.group(ROOT, u64::MAX);
    let group = f.group(parent, u64::MAX);
    let seen = Arc::default();
    let charge =
        |f: &mut Forest| match Charge::new(group, 1).next(&mut f.engine, Task::DESCRIPTOR, None) {
            Next::Charged { over_high } => over_high,
            other => panic!("{other:?}"),
        };
    assert_eq!(charge(&mut f), 0, "there is no program");
    f.engine.set_hooks(parent, Some(Box::new(Counts(Arc::clone(&seen)))));
    let batches: Vec<u64> = (0..64).map(|_| charge(&mut f)).collect();
    assert_eq!(batches.iter().sum::<u64>(), 64, "one batch; the rest is from the stock");
    assert_eq!(f.engine.charge_if_room(ROOT, 1, Task::DESCRIPTOR), Some(0), "the root has none");
    let mut debt = TaskDebt::default();
    assert_eq!(pay(&mut f, group, 64, 1000, &mut debt, SECOND), [(3 * MS, SleepCause::Hook)]);
    assert_eq!(pay(&mut f, group, 0, 1000, &mut debt, SECOND), [], "nothing was charged");
    let [saw] = &seen.lock().unwrap()[..] else { panic!("asked once") };
    assert_eq!((saw.reason, saw.group), (LimitReason::Charge as u32, group.number()));
    assert_eq!((saw.nr_over_high, saw.default_delay_ns), (64, 0));
}

#[test]
fn a_program_is_told_of_groups_that_come_and_go() {
    let mut f = Forest::new(Policy::MGLRU, 1 << 14, 1);
    let parent = f.group(ROOT, u64::MAX);
    let seen: Arc<Mutex<Vec<LimitSnapshot>>> = Arc::default();
    f.engine.set_hooks(parent, Some(Box::new(Counts(Arc::clone(&seen)))));
    let group = f.engine.create_group(parent).unwrap();
    let child = f.engine.create_group(group).unwrap();
    assert!(f.engine.remove_group(group).is_err(), "it has a child");
    f.engine.try_charge(child, 10).unwrap();
    f.engine.remove_group(child).unwrap();
    f.engine.create_group(ROOT).unwrap();
    let seen: Vec<_> =
        seen.lock().unwrap().iter().map(|s| (s.reason, s.group, s.usage, s.level)).collect();
    let (online, offline) = (LimitReason::Online as u32, LimitReason::Offline as u32);
    assert_eq!(
        seen,
        [
            (online, group.number(), 0, 2),
            (online, child.number(), 0, 3),
            (offline, child.number(), 10, 3)
        ]
    );
}

/// A program that calls everything protected delays nothing but its own group's turn: a charge that
/// can succeed does.
#[test]
fn a_program_cannot_make_charges_fail() {
    for policy in [Policy::MGLRU, Policy::MGLRU_7_1, Policy::LRU, Policy::TIDE] {
        let mut f = Forest::new(policy, 4096, 1);
        let parent = f.group(ROOT, 512);
        let group = f.group(parent, u64::MAX);
        let program = Program(Arc::default(), ThrottleAnswer::Default, Some(true));
        f.engine.set_hooks(parent, Some(Box::new(program)));
        f.fill(group, 2000);
        assert!(f.engine.usage(parent) <= 512, "{policy}");
        assert_eq!(f.engine.stat(parent).limits.oom, 0, "{policy}");
        assert!(f.engine.local_events(group).low > 0, "{policy}: it was best effort");
    }
}

/// And one that gives a protected group up is believed.
#[test]
fn a_program_may_give_protection_up() {
    let mut f = Forest::new(Policy::MGLRU, 4096, 1);
    let parent = f.group(ROOT, 512);
    let (group, other) = (f.group(parent, u64::MAX), f.group(parent, u64::MAX));
    f.engine.set_min(group, 400);
    f.fill(group, 256);
    let program = Program(Arc::default(), ThrottleAnswer::Default, Some(false));
    f.engine.set_hooks(group, Some(Box::new(program)));
    f.fill(other, 2000);
    assert!(f.resident(group) < 256);
}

/// `docs/kernel/reclaim.md` §2.11: on a machine, global reclaim goes from group to group.
#[test]
fn a_machine_short_of_memory_takes_from_all_groups() {
    for policy in [Policy::MGLRU, Policy::MGLRU_7_1, Policy::LRU] {
        let mut f = Forest::new(policy, 1 << 14, 1);
        f.engine.set_machine_root();
        let groups: Vec<_> = (0..8).map(|_| f.group(ROOT, u64::MAX)).collect();
        f.engine.set_min(groups[7], 1 << 11);
        for _ in 0..1 << 12 {
            for (n, &group) in groups.iter().enumerate() {
                if n < 7 || f.engine.usage(group) < 1 << 11 {
                    f.page(group, Task::DESCRIPTOR).unwrap();
                }
            }
        }
        let sizes: Vec<_> = groups.iter().map(|&group| f.resident(group)).collect();
        let (least, most) = (sizes[..7].iter().min().unwrap(), sizes[..7].iter().max().unwrap());
        assert!(*most < 2 * *least, "{policy}: {sizes:?}");
        assert!(sizes[7] >= (1 << 11) - 64, "{policy}: {sizes:?}");
        f.engine.validate().unwrap();
        for group in groups {
            f.engine.remove_group(group).unwrap();
        }
        f.fill(ROOT, 1000);
        f.engine.validate().unwrap();
    }
}
