//! A region that ends in the middle of a page, and becomes longer while what it had is given up.
//!
//! One thread gives up all that there was, or stores it again: a range that ends where the region
//! does. Another makes the region longer and stores past the old end, in the same page. No byte is
//! in the ranges of both, so each finds what it did.

use super::file::Came;
use super::operations::Hand;
use super::plan::Rng;
use super::region::REFUSALS;
use super::size;
use lowtide::{Error, Region, Tenant};
use std::sync::Barrier;

/// Frames of the scene: fewer than `region.rs` has for scenes.
const FRAMES: u64 = 20;
/// Pages of a region, at most.
const PAGES: u64 = 16;
/// Regions of a scene.
const ROUNDS: u64 = 24;

/// What becomes of the bytes before the old end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Discarded,
    FreedLazily,
    Replaced,
}

/// What the region holds at first.
const BEFORE: u8 = 1;
/// What it is replaced by.
const REPLACED: u8 = 2;
/// What is stored past the old end.
const PAST: u8 = 3;

/// Regions one after the other, with two threads for each.
pub(crate) fn moved(hand: &mut Hand<'_>) -> Came {
    let (storm, page) = (hand.storm, hand.storm.plan.page as u64);
    let regions = &storm.regions;
    let Ok(_alone) = regions.scene.try_lock() else { return Came::NotNow };
    let tenant = regions.tenant().child("ends").max(size(FRAMES * page)).create();
    let tenant = tenant.expect("a tenant can be made");
    let (mut came, mut refusals) = (Came::Done, 0);
    for _ in 0..ROUNDS {
        if let Err(error) = round(&tenant, page, &mut hand.rng) {
            (came, refusals) = (regions.refused(&error, "a scene"), refusals + 1);
        }
        if refusals == REFUSALS {
            break;
        }
    }
    tenant.remove().expect("nothing is in its way");
    came
}

fn round(tenant: &Tenant, page: u64, rng: &mut Rng) -> Result<(), Error> {
    let end = (1 + rng.below(PAGES)) * page + 1 + rng.below(page - 1);
    let more = 1 + rng.below(2 * page);
    let how = rng.pick(&[How::Discarded, How::FreedLazily, How::Replaced]);
    let heap = tenant.region(end)?;
    heap.write_at(0, &vec![BEFORE; end as usize])?;
    if how == How::Replaced || rng.one_in(4) {
        // Into swap, if there is any.
        tenant.reclaim(size(FRAMES * page)).expect("the tenant is there");
    }
    // One of the two is late, by about the time that a page takes.
    let spins = [rng.below(2), rng.below(40_000)];
    let both = Barrier::new(2);
    let begin = |late: bool| {
        both.wait();
        (0..if late { spins[1] } else { 0 }).for_each(|_| std::hint::spin_loop());
    };
    let (given_up, stored) = std::thread::scope(|scope| {
        let giver = scope.spawn(|| {
            begin(spins[0] == 0);
            match how {
                How::Discarded => heap.clear(0..end),
                How::FreedLazily => heap.advise_free(0..end),
                How::Replaced => heap.write_at(0, &vec![REPLACED; end as usize]),
            }
        });
        begin(spins[0] == 1);
        let at = heap.grow(more).expect("only addresses are taken");
        assert_eq!(at, end, "the region is made longer by one thread");
        let stored = heap.write_at(end, &vec![PAST; more as usize]);
        (giver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), stored)
    });
    if rng.one_in(2) {
        // What may be dropped is.
        tenant.reclaim(size(FRAMES * page)).expect("the tenant is there");
    }
    let outcome = given_up.and(stored);
    if outcome.is_ok() {
        check(&heap, end, more, how)?;
    }
    outcome
}

fn check(heap: &Region, end: u64, more: u64, how: How) -> Result<(), Error> {
    let mut found = vec![0; (end + more) as usize];
    heap.read_at(0, &mut found)?;
    let (before, past) = found.split_at(end as usize);
    let lost = past.iter().position(|byte| *byte != PAST);
    assert!(lost.is_none(), "byte {lost:?} past the end of what was {how:?} is lost");
    let right = |byte: &u8| match how {
        How::Discarded => *byte == 0,
        How::FreedLazily => [0, BEFORE].contains(byte),
        How::Replaced => *byte == REPLACED,
    };
    let wrong = before.iter().position(|byte| !right(byte));
    assert!(wrong.is_none(), "byte {wrong:?} of what was {how:?} is none that it may be");
    Ok(())
}
