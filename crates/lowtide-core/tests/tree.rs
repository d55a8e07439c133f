//! The tree of groups: charging, protection, fairness, removal; each claim with its section
//! in `docs/kernel/memcg.md`.

use crate::forest::{Forest, ROOT};
use lowtide_core::{GroupError, MemcgId, Policy, Reason, Reclaim, Step, Task};

const POLICIES: [Policy; 3] = [Policy::MGLRU, Policy::MGLRU_7_1, Policy::LRU];
const ON_CPU_1: Task = Task { cpu: 1, in_lru_fault: false };

/// §2.1, §16.4: a walk up the tree for 64 pages.
#[test]
fn single_charges_are_taken_in_batches_of_64() {
    let mut f = Forest::new(Policy::MGLRU, 1024, 1);
    let g = f.group(ROOT, u64::MAX);
    f.fill(g, 1);
    assert_eq!(
        (f.engine.usage(g), f.engine.usage(ROOT)),
        (64, 1),
        "the root counts frames, not batches"
    );
    f.fill(g, 63);
    assert_eq!((f.engine.usage(g), f.engine.usage(ROOT)), (64, 64));
    f.fill(g, 1);
    assert_eq!((f.engine.usage(g), f.engine.usage(ROOT)), (128, 65));
    f.engine.validate().unwrap();
}

/// §2.2 step 4 and 10: a batch that does not fit is no reason to reclaim, and stocks are drained
/// before any charge fails.
#[test]
fn the_last_pages_of_a_budget_are_charged_one_by_one() {
    let mut f = Forest::new(Policy::MGLRU, 1024, 2);
    let g = f.group(ROOT, 100);
    f.fill(g, 100);
    assert_eq!(
        (f.engine.usage(g), f.engine.stat(g).limits.max),
        (100, 0),
        "nothing was reclaimed for it"
    );

    let h = f.group(ROOT, 100);
    let page = f.page(h, ON_CPU_1).unwrap();
    f.engine.set_unevictable(f.pages[&page], true);
    assert_eq!(f.engine.usage(h), 64, "63 are stocked on CPU 1");
    f.engine.try_charge(h, 36).unwrap();
    assert_eq!(f.charge(h, 50, Task::DESCRIPTOR), Ok(()), "the stock of CPU 1 was drained for it");
    assert_eq!((f.engine.usage(h), f.engine.stat(h).limits.oom), (87, 0));
    f.engine.validate().unwrap();
}

/// §1.2: equality is allowed; the full level is named, and it is reclaimed rather than the one that
/// pays.
#[test]
fn the_level_that_is_full_is_the_one_that_is_reclaimed() {
    for policy in POLICIES {
        let mut f = Forest::new(policy, 4096, 1);
        let parent = f.group(ROOT, 512);
        let (a, b) = (f.group(parent, u64::MAX), f.group(parent, u64::MAX));
        f.fill(a, 448);
        f.fill(b, 200);
        assert!(f.engine.usage(parent) <= 512);
        assert!(f.resident(a) < 448, "{policy}: a has to give way to b");
        assert_eq!(f.engine.local_events(b).max, 0, "b is not limited");
        assert!(f.engine.local_events(parent).max > 0);
        assert_eq!(
            f.engine.stat(ROOT).limits.max,
            f.engine.local_events(parent).max,
            "events add up"
        );
        f.engine.validate().unwrap();
    }
}

/// §2.2 step 12: nothing is charged, at no level.
#[test]
fn a_charge_that_fails_leaves_every_level_as_it_was() {
    let mut f = Forest::new(Policy::MGLRU, 1024, 1);
    let parent = f.group(ROOT, 100);
    let child = f.group(parent, u64::MAX);
    f.engine.try_charge(child, 100).unwrap();
    f.engine.reserve(child, 100);
    let before = (f.engine.usage(ROOT), f.engine.usage(parent), f.engine.usage(child));
    assert_eq!(f.charge(child, 1, Task::DESCRIPTOR), Err(Some(parent)));
    assert_eq!((f.engine.usage(ROOT), f.engine.usage(parent), f.engine.usage(child)), before);
    let events = f.engine.local_events(parent);
    assert_eq!((events.oom, events.max), (1, 18), "18 invocations, then one failure");
    assert_eq!(f.engine.local_events(child).oom, 0, "the full group has the event");
    f.engine.release_reserved(child, 100);
    assert_eq!(f.charge(child, 1, Task::DESCRIPTOR), Ok(()));
}

/// §6.1: on every batch, not on pages from the stock; at equality nothing is owed.
#[test]
fn pages_above_high_are_reported_by_batch() {
    let mut f = Forest::new(Policy::MGLRU, 1024, 1);
    let parent = f.group(ROOT, u64::MAX);
    let g = f.group(parent, u64::MAX);
    f.engine.set_high(parent, 128);
    f.fill(g, 128);
    assert_eq!(f.over_high, 0, "usage is high, not above it");
    f.fill(g, 1);
    assert_eq!(f.over_high, 64, "the batch, at the ancestor's limit");
    f.fill(g, 63);
    assert_eq!(f.over_high, 64, "from the stock");
    f.fill(g, 1);
    assert_eq!(f.over_high, 128);
}

/// `docs/kernel/reclaim.md` §3.2: the budget of a small group has no lower bound, so a pass at
/// priority 12 spares it. The second version of the series scanned 32 pages all the same, and so
/// took as many from a group of a hundred pages as from one of thirty thousand.
#[test]
fn a_floor_of_the_scan_budget_empties_tiny_groups() {
    let left = |policy: &str| {
        let mut f = Forest::new(policy.parse().unwrap(), 40_000, 1);
        let parent = f.group(ROOT, u64::MAX);
        let (large, tiny) = (f.group(parent, u64::MAX), f.group(parent, u64::MAX));
        f.fill(large, 32_768);
        f.fill(tiny, 100);
        for _ in 0..40 {
            let taken = f.reclaim(parent, 16);
            assert!(taken >= 16, "{policy}: {taken}");
        }
        f.engine.validate().unwrap();
        (f.resident(large), f.resident(tiny))
    };
    let (large, tiny) = left("mglru-7.1+series");
    assert_eq!(tiny, 100, "nothing of it is its part of a few hundred of 32,868 pages");
    let (large_with_floor, tiny_with_floor) = left("mglru-7.1+series+floor");
    assert!(tiny_with_floor < 40, "of 100 pages {tiny_with_floor} are left");
    assert!(large_with_floor >= large, "which is what the large group did not have to give");
}

/// §5.3: below `min` a group is not touched by others' reclaim, whatever that means for them.
#[test]
fn a_group_below_min_is_never_reclaimed_for_others() {
    for policy in POLICIES {
        let mut f = Forest::new(policy, 4096, 1);
        let parent = f.group(ROOT, 1024);
        let (safe, other) = (f.group(parent, u64::MAX), f.group(parent, u64::MAX));
        f.engine.set_min(safe, 512);
        f.fill(safe, 512);
        f.fill(other, 5000);
        assert_eq!(f.resident(safe), 512, "{policy}");
        assert_eq!(f.engine.own_events(safe).pgscan, 0, "{policy}: not even looked at");
        // Its own limit does not care.
        assert!(f.reclaim(safe, 100) > 0, "{policy}");
    }
}

/// §5.3: `low` holds while there is something else, and is overridden, with an event, when there is
/// not.
#[test]
fn a_group_below_low_is_spared_until_nothing_else_is_left() {
    for policy in POLICIES {
        let mut f = Forest::new(policy, 4096, 1);
        let parent = f.group(ROOT, 1024);
        let (spared, other) = (f.group(parent, u64::MAX), f.group(parent, u64::MAX));
        f.engine.set_low(spared, 1024);
        f.fill(spared, 512);
        f.fill(other, 5000);
        assert_eq!(f.resident(spared), 512, "{policy}");
        assert_eq!(f.engine.local_events(spared).low, 0);
        // Now the other one's memory cannot be evicted.
        let pages: Vec<_> = f.pages.iter().map(|(&page, &id)| (page, id)).collect();
        for (_, id) in pages.into_iter().filter(|&(page, _)| page >= 512) {
            f.engine.set_unevictable(id, true);
        }
        for _ in 0..200 {
            let page = f.page(other, Task::DESCRIPTOR).unwrap();
            f.engine.set_unevictable(f.pages[&page], true);
        }
        assert!(f.resident(spared) < 512, "{policy}: better than to fail");
        assert!(f.engine.local_events(spared).low > 0, "{policy}");
        assert_eq!(f.engine.local_events(parent).low, 0);
        f.engine.validate().unwrap();
    }
}

/// §5.3: pressure is proportional to what is not protected.
#[test]
fn half_protected_groups_are_scanned_less() {
    for policy in POLICIES {
        let mut f = Forest::new(policy, 1 << 16, 1);
        let parent = f.group(ROOT, 1 << 15);
        let (half, bare) = (f.group(parent, u64::MAX), f.group(parent, u64::MAX));
        f.engine.set_low(half, 1 << 13);
        f.fill(half, 1 << 14);
        f.fill(bare, (1 << 14) - 64);
        let third = f.group(parent, u64::MAX);
        f.fill(third, 1 << 12);
        let scanned = |f: &Forest, g| f.engine.own_events(g).pgscan as f64;
        let ratio = scanned(&f, half) / scanned(&f, bare);
        assert!((0.2..0.85).contains(&ratio), "{policy}: {ratio}");
    }
}

/// §10.1: reclaim of a subtree goes round, so equals lose equally.
#[test]
fn equal_groups_are_reclaimed_equally() {
    for policy in POLICIES {
        let mut f = Forest::new(policy, 1 << 15, 1);
        let parent = f.group(ROOT, 1 << 14);
        let groups: Vec<_> = (0..8).map(|_| f.group(parent, u64::MAX)).collect();
        for _ in 0..1 << 12 {
            for &g in &groups {
                f.page(g, Task::DESCRIPTOR).unwrap();
            }
        }
        let sizes: Vec<_> = groups.iter().map(|&g| f.resident(g)).collect();
        let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
        assert!(*most - *least <= 512, "{policy}: {sizes:?}");
        f.engine.validate().unwrap();
    }
}

/// §3: charges stay where they are, folios go to the parent, counts are not lost.
#[test]
fn a_removed_group_leaves_everything_to_its_parent() {
    for policy in POLICIES {
        let mut f = Forest::new(policy, 4096, 2);
        let parent = f.group(ROOT, 1024);
        let child = f.group(parent, 256);
        f.fill(child, 700);
        let (usage, stat) = (f.engine.usage(ROOT), f.engine.stat(parent));
        assert!(matches!(f.engine.remove_group(parent), Err(GroupError::HasChildren)));
        f.engine.remove_group(child).unwrap();
        f.engine.validate().unwrap();
        assert_eq!(
            (f.engine.usage(ROOT), f.engine.usage(parent)),
            (usage, usage),
            "stocks are given back"
        );
        let after = f.engine.stat(parent);
        assert_eq!((after.file, after.events), (stat.file, stat.events), "{policy}");
        assert!(matches!(f.engine.remove_group(child), Err(GroupError::Gone)));
        assert_eq!(f.charge(child, 1, Task::DESCRIPTOR), Err(None), "an old name finds nothing");
        // What it had can be evicted and dropped as before.
        assert!(f.reclaim(parent, 64) >= 64);
        let left: Vec<_> = f.pages.keys().copied().collect();
        left.into_iter().for_each(|page| f.drop_page(page));
        assert_eq!(f.engine.usage(ROOT), 0);
        f.engine.validate().unwrap();
        let next = f.group(parent, 64);
        assert_ne!(next.number(), child.number(), "the place is used again, the name is not");
    }
}

#[test]
fn a_reclaim_survives_the_removal_of_what_it_looks_at() {
    for policy in POLICIES {
        let mut f = Forest::new(policy, 4096, 1);
        let parent = f.group(ROOT, u64::MAX);
        let children: Vec<_> = (0..4).map(|_| f.group(parent, u64::MAX)).collect();
        for &child in &children {
            f.fill(child, 500);
        }
        let mut reclaim = Reclaim::new(parent, 1500, Reason::Proactive, Task::DESCRIPTOR);
        let (mut steps, mut gone) = (0, 0);
        loop {
            match f.step(&mut reclaim) {
                Step::Done => break,
                Step::Yield | Step::Walk if gone < children.len() && steps > 3 => {
                    f.engine.remove_group(children[gone]).unwrap();
                    gone += 1;
                }
                _ => steps += 1,
            }
        }
        f.engine.validate().unwrap();
        for &child in &children[gone..] {
            f.engine.remove_group(child).unwrap();
        }
        let mut reclaim = Reclaim::new(parent, 100, Reason::Proactive, Task::DESCRIPTOR);
        while f.step(&mut reclaim) == Step::Freed {}
        if f.engine.remove_group(parent).is_ok() {
            f.run(&mut reclaim);
        }
        f.engine.validate().unwrap();
    }
}

#[test]
fn a_group_moves_with_its_charges_or_stays() {
    let mut f = Forest::new(Policy::MGLRU, 4096, 1);
    let (from, to) = (f.group(ROOT, 1000), f.group(ROOT, 500));
    let group = f.group(from, u64::MAX);
    let below = f.group(group, u64::MAX);
    f.engine.set_low(group, 300);
    f.fill(below, 400);
    f.fill(to, 200);
    assert!(matches!(f.engine.move_group(group, below), Err(GroupError::Cycle)));
    let refused = f.engine.move_group(group, to);
    assert!(matches!(refused, Err(GroupError::NoRoom { needed: 400, .. })), "{refused:?}");
    f.engine.validate().unwrap();
    f.engine.set_max(to, 700).unwrap();
    f.engine.move_group(group, to).unwrap();
    f.engine.validate().unwrap();
    assert_eq!((f.engine.stat(from).file, f.engine.stat(to).file), (0, 600));
    assert_eq!(f.engine.usage(from), 0);
    assert_eq!(f.engine.parent(group), Some(to));
    f.fill(below, 1000);
    assert!(f.engine.usage(to) <= 700);
    f.engine.validate().unwrap();
}

/// Budgets that contradict each other are allowed, as in the kernel: the limit wins.
#[test]
fn protection_above_the_limit_does_not_raise_the_limit() {
    let mut f = Forest::new(Policy::MGLRU, 4096, 1);
    let parent = f.group(ROOT, u64::MAX);
    let g = f.group(parent, 256);
    f.engine.set_min(g, 1024);
    f.fill(g, 1000);
    assert!(f.engine.usage(g) <= 256, "its own limit reclaims it all the same");
    f.engine.validate().unwrap();
}

#[test]
fn ten_thousand_groups_are_cheap_and_can_be_reclaimed() {
    let mut f = Forest::new(Policy::MGLRU, 1 << 16, 1);
    let parent = f.group(ROOT, 1 << 15);
    let groups: Vec<MemcgId> = (0..10_000).map(|_| f.group(parent, u64::MAX)).collect();
    for &g in groups.iter().step_by(100) {
        f.fill(g, 300);
    }
    assert_eq!(f.engine.usage(parent), f.engine.usage(parent).min(1 << 15));
    f.fill(groups[1], 1 << 13);
    f.engine.validate().unwrap();
    for g in groups {
        f.engine.remove_group(g).unwrap();
    }
    assert_eq!(f.engine.groups(), 2);
    f.engine.validate().unwrap();
}
