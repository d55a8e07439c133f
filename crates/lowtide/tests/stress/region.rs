//! Regions of the storm: anonymous memory beside the files, with swap where the page size has it.
//!
//! A tenant of their own pays for them, with frames that the files do not count on: what cannot be
//! swapped out stays in memory, and would be in the way of files. For each region a shadow knows
//! what every record may be, as for a file. Turns are taken in ascending order, and pages after the
//! turns.
//!
//! Room may always be missing here, because limits shrink below what is used: an operation that
//! finds none is refused as a whole. What else a device explains is a page that cannot be read from
//! swap; that it has other contents than it had is explained only by a device that lies.

use super::file::Came;
use super::operations::Hand;
use super::plan::{Plan, Rng};
use super::shadow::{ANY, PACKS, Record, Shadow, Turns, content, describe, version_of};
use super::size;
use lowtide::{Anon, AnonOptions, Error, Pager, Size, Tenant};
use std::io::ErrorKind;
use std::ops::{Deref, Range};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// Frames that a scene has, beside those of the regions.
const SCENE: u64 = 24;

/// The regions of a storm, and what limits them.
#[derive(Debug)]
pub(crate) struct Regions {
    tenant: Tenant,
    regions: Vec<StormRegion>,
    /// A scene is played.
    scene: Mutex<()>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct StormRegion {
    shadow: Shadow,
    heap: Anon,
    page: u64,
    /// Pages when the last growth had ended.
    pages: AtomicU64,
    growing: Mutex<()>,
    fair: bool,
    lies: bool,
}

impl Deref for StormRegion {
    type Target = Shadow;

    fn deref(&self) -> &Shadow {
        &self.shadow
    }
}

impl Regions {
    /// Frames that regions and scenes may have.
    pub(crate) const fn frames(plan: &Plan) -> u64 {
        plan.heap + SCENE
    }

    pub(crate) fn new(plan: &Plan, pager: &Pager) -> Self {
        let frames = size(Self::frames(plan) * plan.page as u64);
        let tenant = pager.tenant("heap").max(frames).create().expect("a tenant can be made");
        let region = |number| {
            let of = if plan.swap.is_some() { 3 * plan.heap } else { plan.heap / 3 };
            StormRegion::new(plan, &tenant, number, of)
        };
        let regions = (0..2).map(region).collect();
        Self { tenant, regions, scene: Mutex::new(()) }
    }

    /// The tenant that pays for all of them.
    pub(crate) const fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// For the end, when the device is well again: all that is known is there, and all is given
    /// back.
    pub(crate) fn finish(self, pager: &Pager, plan: &Plan) {
        // Pages that no swap takes may fill all that the tenant had: the files give some of theirs.
        let all = size((plan.budget + Self::frames(plan)) * plan.page as u64);
        pager.root().set_max(all).expect("it is what the pager was built with");
        self.tenant.set_max(Size::MAX).expect("the tenant is there");
        self.tenant.set_swap_max(Size::MAX).expect("the tenant is there");
        self.regions.iter().for_each(StormRegion::finish);
        drop(self.regions);
        pager.validate().unwrap_or_else(|e| panic!("{e}"));
        // What is charged ahead is given back, too.
        self.tenant.set_max(size(0)).expect("the tenant is there");
        let [used, swap] = [self.tenant.usage(), self.tenant.swap_usage()];
        assert_eq!([used.unwrap(), swap.unwrap()], [0, 0], "charges of regions that are closed");
        let slots = pager.swap_file().map_or(0, |file| file.used);
        assert_eq!(slots, 0, "slots of regions that are closed");
    }
}

impl StormRegion {
    fn new(plan: &Plan, tenant: &Tenant, number: u64, most: u64) -> Self {
        let (page, begins) = (plan.page as u64, 1 + most / 2);
        let name = format!("storm{number}");
        let heap = AnonOptions::new().name(name).create(tenant, begins * page);
        let shadow_size = (page / plan.records).max(64);
        let records = (0..most * (page / shadow_size)).map(|_| Record::new(0)).collect();
        Self {
            shadow: Shadow { number: number | PACKS, size: shadow_size, records },
            heap: heap.expect("a region takes no memory"),
            page,
            pages: AtomicU64::new(begins),
            growing: Mutex::new(()),
            fair: plan.behaviour.is_fair(),
            lies: plan.behaviour.lies(),
        }
    }

    fn pages(&self) -> u64 {
        self.pages.load(SeqCst)
    }

    fn bytes(&self, pages: Range<u64>) -> Range<u64> {
        pages.start * self.page..pages.end * self.page
    }

    fn check(&self, at: u64, bytes: &[u8], least: &[u64], how: &str) {
        if let Some((index, what)) = self.wrong(at, bytes, least) {
            let (page, size) = (index * self.size / self.page, self.size);
            panic!("{how} of a region: {what} (page {page}, records of {size} bytes)");
        }
    }

    /// Whether the device explains an error; fails if not.
    fn refused(&self, error: &Error, how: &str) -> Came {
        let explained = match error {
            Error::OutOfBudget { .. } => true,
            Error::SwapIn { source, .. } if source.kind() == ErrorKind::InvalidData => self.lies,
            Error::SwapIn { .. } => !self.fair,
            Error::HeldElsewhere { .. } => !self.fair,
            _ => false,
        };
        assert!(explained, "{how} of a region: {error}");
        Came::Refused
    }

    /// Stores to some records, by copying their bytes.
    fn store(&self, records: Range<u64>) -> Came {
        let Some(mut turns) = self.turns(records.clone(), true) else { return Came::NotNow };
        let bytes = self.begin(&mut turns);
        let stored = self.heap.write_at(records.start * self.size, &bytes);
        self.ended(turns, stored, "a store")
    }

    /// Begins a step of each record. Returns the bytes that they have afterwards.
    fn begin(&self, turns: &mut Turns<'_>) -> Vec<u8> {
        let mut bytes = vec![0; turns.len() * self.size as usize];
        for ((index, turn), to) in turns.iter_mut().zip(bytes.chunks_mut(self.size as usize)) {
            let version = Record::next(turn);
            self.records[*index as usize].begin(turn, version);
            content(self.number, *index, version, to);
        }
        bytes
    }

    /// Ends the steps, or looks which of them were done.
    fn ended(&self, mut turns: Turns<'_>, done: Result<(), Error>, how: &str) -> Came {
        for (index, turn) in &mut turns {
            if done.is_ok() {
                self.records[*index as usize].end(turn);
                continue;
            }
            let mut bytes = vec![0; self.size as usize];
            let read = self.heap.read_at(*index * self.size, &mut bytes).is_ok();
            self.settle(*index, turn, read.then_some(&bytes), how);
        }
        done.map_or_else(|error| self.refused(&error, how), |()| Came::Done)
    }

    fn finish(&self) {
        let mut bytes = vec![0; self.size as usize];
        let known = self.pages() * self.page / self.size;
        for (index, record) in (0..known).zip(&self.records) {
            let turn = record.turn(true).expect("it was waited for");
            self.heap.read_at(index * self.size, &mut bytes).expect("the device is well again");
            if turn.version != ANY && version_of(self.number, index, &bytes) != Some(turn.version) {
                let what = describe(self.number, index, &bytes, &[turn.version]);
                panic!("at the end of a region: {what}");
            }
        }
    }
}

/// Calls `act` with a region and a page of it: half of the time one of few.
fn with(hand: &mut Hand<'_>, act: impl FnOnce(&mut Rng, &StormRegion, u64) -> Came) -> Came {
    let regions = &hand.storm.regions.regions;
    let region = &regions[hand.rng.below(regions.len() as u64) as usize];
    let pages = region.pages();
    let few = if hand.rng.one_in(2) { pages.div_ceil(16) } else { pages };
    let page = hand.rng.below(few);
    hand.post.also(&format!(", region {} page {page} of {pages}", region.number & !PACKS));
    act(&mut hand.rng, region, page)
}

/// Holds a page for reading, and perhaps others meanwhile; its bytes stay what they are.
pub(crate) fn read(hand: &mut Hand<'_>) -> Came {
    with(hand, |rng, region, page| {
        let bytes = region.bytes(page..page + 1);
        let least = region.least(bytes.clone());
        let guard = match region.heap.read(page) {
            Ok(guard) => guard,
            Err(error) => return region.refused(&error, "a read"),
        };
        region.check(bytes.start, &guard, &least, "a guard");
        if rng.one_in(8) {
            let seen = guard.to_vec();
            let other = rng.below(region.pages());
            drop(region.heap.read(other));
            let held = region.heap.write(page).map(drop);
            assert!(
                matches!(held, Err(Error::HeldHere { .. })),
                "a store to what is held: {held:?}"
            );
            assert!(guard[..] == seen[..], "the bytes of a guard have changed");
        }
        Came::Done
    })
}

pub(crate) fn read_at(hand: &mut Hand<'_>) -> Came {
    with(hand, |rng, region, page| {
        let at = page * region.page + rng.below(region.page);
        let pages = rng.pick(&[1, 1, 3, 20]);
        let end = (at + 1 + rng.below(region.page * pages)).min(region.pages() * region.page);
        let least = region.least(at..end);
        let mut bytes = vec![rng.next() as u8; (end - at) as usize];
        match region.heap.read_at(at, &mut bytes) {
            Ok(()) => region.check(at, &bytes, &least, "a copy"),
            Err(error) => return region.refused(&error, "a copy"),
        }
        Came::Done
    })
}

/// Stores a record, or all of a page, through the page itself, or through its elements.
pub(crate) fn store(hand: &mut Hand<'_>) -> Came {
    with(hand, |rng, region, page| {
        let per_page = region.page / region.size;
        let first = page * per_page + rng.below(per_page);
        let end = if rng.one_in(2) { first + 1 } else { (page + 1) * per_page };
        let Some(mut turns) = region.turns(first..end, true) else { return Came::NotNow };
        let bytes = region.begin(&mut turns);
        let at = (first * region.size % region.page) as usize;
        let stored = if rng.one_in(2) {
            let owned = region.heap.write(page);
            owned.map(|mut owned| owned[at..at + bytes.len()].copy_from_slice(&bytes))
        } else {
            let owned = region.heap.elements_mut::<u64>(first * region.size / 8);
            owned.map(|mut words| {
                let stored = &mut words[..bytes.len() / 8];
                bytemuck::cast_slice_mut(stored).copy_from_slice(&bytes);
            })
        };
        region.ended(turns, stored, "a store through a guard")
    })
}

pub(crate) fn store_at(hand: &mut Hand<'_>) -> Came {
    with(hand, |rng, region, page| {
        let per_page = region.page / region.size;
        let whole = rng.one_in(2);
        let first = page * per_page + if whole { 0 } else { rng.below(per_page) };
        let pages = rng.pick(&[1, 1, 2, 9]);
        let count = if whole { pages * per_page } else { 1 + rng.below(pages * per_page) };
        region.store(first..(first + count).min(region.pages() * per_page))
    })
}

pub(crate) fn discard(hand: &mut Hand<'_>) -> Came {
    with(hand, |rng, region, page| {
        let per_page = region.page / region.size;
        let first = page * per_page + rng.pick(&[0, 0, rng.clone().below(per_page)]);
        let count = 1 + rng.below(rng.clone().pick(&[1, 2, 2, 8, 64]) * per_page);
        let end = (first + count).min(region.pages() * per_page);
        let Some(mut turns) = region.turns(first..end, true) else { return Came::NotNow };
        for (index, turn) in &mut turns {
            region.records[*index as usize].begin(turn, 0);
        }
        let done = region.heap.discard(first * region.size..end * region.size);
        region.ended(turns, done, "a discard")
    })
}

pub(crate) fn grow(hand: &mut Hand<'_>) -> Came {
    with(hand, |rng, region, _| {
        let Ok(_growing) = region.growing.try_lock() else { return Came::NotNow };
        let most = region.records.len() as u64 * region.size / region.page;
        let more = (1 + rng.below(8)).min(most - region.pages());
        if more == 0 {
            return Came::NotNow;
        }
        let begins = region.heap.grow(more * region.page).expect("only addresses are taken");
        assert_eq!(begins, region.pages() * region.page);
        region.pages.fetch_add(more, SeqCst);
        Came::Done
    })
}

/// The limits of memory and of swap of the regions' tenant shrink, also below what is used.
pub(crate) fn change_limits(hand: &mut Hand<'_>) -> Came {
    let (plan, regions) = (hand.storm.plan, &hand.storm.regions);
    let bytes = |pages: u64| size(pages * plan.page as u64);
    let frames = Regions::frames(plan);
    let max = if hand.rng.one_in(2) { frames } else { frames / 4 + hand.rng.below(frames) };
    regions.tenant.set_max(bytes(max)).expect("the tenant is there");
    let swap = if hand.rng.one_in(2) { Size::MAX } else { bytes(hand.rng.below(4 * plan.heap)) };
    regions.tenant.set_swap_max(swap).expect("the tenant is there");
    regions.tenant.set_swappiness(hand.rng.pick(&[60, 200, 1, 201])).expect("the tenant is there");
    Came::Done
}

/// A region of a tenant that is removed while threads store to the region, so that pages go to
/// swap and come back meanwhile. It keeps its contents, and gives everything back when it ends.
pub(crate) fn orphaned(hand: &mut Hand<'_>) -> Came {
    let (storm, page) = (hand.storm, hand.storm.plan.page as u64);
    let Ok(_alone) = storm.regions.scene.try_lock() else { return Came::NotNow };
    let max = size((8 + hand.rng.below(SCENE - 8)) * page);
    let tenant = storm.regions.tenant.child("orphan").max(max).create();
    let tenant = tenant.expect("a tenant can be made");
    let pages = 2 * SCENE;
    let heap = match tenant.anon(pages * page) {
        Ok(heap) => heap,
        Err(error) => {
            assert!(matches!(error, Error::OutOfBudget { .. }), "{error}");
            tenant.remove().expect("nothing is in its way");
            return Came::Refused;
        }
    };
    let (removed, seed) = (AtomicBool::new(false), hand.rng.next());
    let refused = |error: &Error| storm.regions.regions[0].refused(error, "a scene");
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (heap, removed) = (&heap, &removed);
            scope.spawn(move || {
                let mut rng = Rng(seed ^ number);
                let mut stored = vec![None; pages as usize];
                let mut left = 100;
                while left > 0 {
                    left -= u64::from(removed.load(SeqCst) || left > 50);
                    let at = rng.below(pages / 2) * 2 + number;
                    let version = rng.next() as u8;
                    match heap.read(at) {
                        Ok(guard) => {
                            let due = stored[at as usize].unwrap_or(0);
                            let whole = guard.iter().all(|byte| *byte == due);
                            assert!(whole, "page {at} of a scene is not {due} throughout");
                        }
                        Err(error) => drop(refused(&error)),
                    }
                    match heap.write(at) {
                        Ok(mut guard) => {
                            guard.fill(version);
                            stored[at as usize] = Some(version);
                        }
                        Err(error) => drop(refused(&error)),
                    }
                }
            });
        }
        std::thread::yield_now();
        tenant.remove().expect("a tenant with regions can be removed");
        removed.store(true, SeqCst);
    });
    Came::Done
}
