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

use super::common::kernel::Kernel;
use super::file::Came;
use super::operations::Hand;
use super::plan::{Plan, Rng};
use super::shadow::{ANY, PACKS, Record, Shadow, Turns, content, describe, version_of};
use super::size;
use lowtide::map::{MapError, MapMut};
use lowtide::{Error, OpenOptions, Pager, Region, RegionOptions, Size, Tenant, TenantFile};
use std::io::ErrorKind;
use std::ops::{Deref, Range};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// Frames that a scene has, beside those of the regions.
const SCENE: u64 = 24;
/// Pages of a region beside a file, where there is swap: some batches of a reclaim.
const BESIDE: u64 = 160;
/// Refusals after which a thread of a scene ends. Where swap is full, each takes seconds: it comes
/// when all pages have been tried.
pub(crate) const REFUSALS: u32 = 4;
/// Reclaims that a read beside a region may need. A charge tries about as often before it fails.
const TRIES: u64 = 16;
/// Bytes of the pages that can be had behind a pointer.
const PAGE: usize = 4096;

/// The regions of a storm, and what limits them.
#[derive(Debug)]
pub(crate) struct Regions {
    tenant: Tenant,
    regions: Vec<StormRegion>,
    /// A scene is played.
    pub(crate) scene: Mutex<()>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct StormRegion {
    shadow: Shadow,
    heap: Region,
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
        plan.heap + SCENE + Self::beside(plan)
    }

    /// Of these, frames of a region beside a file.
    const fn beside(plan: &Plan) -> u64 {
        if plan.swap.is_some() { BESIDE + BESIDE / 4 } else { SCENE }
    }

    pub(crate) fn new(plan: &Plan, pager: &Pager) -> Self {
        let frames = size((plan.heap + SCENE) * plan.page as u64);
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

    /// Whether the device explains an error of a scene; fails if not.
    pub(crate) fn refused(&self, error: &Error, how: &str) -> Came {
        self.regions[0].refused(error, how)
    }

    /// For the end, when the device is well again: all that is known is there, and all is given
    /// back.
    pub(crate) fn finish(self, pager: &Pager, plan: &Plan) {
        // Pages that no swap takes may fill all that the tenant had: the files give some of theirs.
        let all = size((plan.budget + Self::frames(plan)) * plan.page as u64);
        let _ = pager.root().set_max(all).expect("it is what the pager was built with");
        let _ = self.tenant.set_max(Size::MAX).expect("the tenant is there");
        self.tenant.set_swap_max(Size::MAX).expect("the tenant is there");
        self.regions.iter().for_each(StormRegion::finish);
        drop(self.regions);
        pager.validate().unwrap_or_else(|e| panic!("{e}"));
        // What is charged ahead is given back, too.
        let _ = self.tenant.set_max(size(0)).expect("the tenant is there");
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
        let heap = RegionOptions::new().name(name).create(tenant, begins * page);
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
        let guard = match region.heap.page(page) {
            Ok(guard) => guard,
            Err(error) => return region.refused(&error, "a read"),
        };
        region.check(bytes.start, &guard, &least, "a guard");
        if rng.one_in(8) {
            let seen = guard.to_vec();
            let other = rng.below(region.pages());
            drop(region.heap.page(other));
            let held = region.heap.page_mut(page).map(drop);
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
            let owned = region.heap.page_mut(page);
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
        let done = region.heap.clear(first * region.size..end * region.size);
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
    let frames = plan.heap + SCENE;
    let max = if hand.rng.one_in(2) { frames } else { frames / 4 + hand.rng.below(frames) };
    let _ = regions.tenant.set_max(bytes(max)).expect("the tenant is there");
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
    let heap = match tenant.region(pages * page) {
        Ok(heap) => heap,
        Err(error) => {
            assert!(matches!(error, Error::OutOfBudget { .. }), "{error}");
            tenant.remove().expect("nothing is in its way");
            return Came::Refused;
        }
    };
    let (removed, seed) = (AtomicBool::new(false), hand.rng.next());
    let refused = |error: &Error| {
        storm.regions.refused(error, "a scene");
        1
    };
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (heap, removed) = (&heap, &removed);
            scope.spawn(move || {
                let mut rng = Rng(seed ^ number);
                let mut stored = vec![None; pages as usize];
                let (mut left, mut refusals) = (100, 0);
                while left > 0 && refusals < REFUSALS {
                    left -= u64::from(removed.load(SeqCst) || left > 50);
                    let at = rng.below(pages / 2) * 2 + number;
                    let version = rng.next() as u8;
                    match heap.page(at) {
                        Ok(guard) => {
                            let due = stored[at as usize].unwrap_or(0);
                            let whole = guard.iter().all(|byte| *byte == due);
                            assert!(whole, "page {at} of a scene is not {due} throughout");
                        }
                        Err(error) => refusals += refused(&error),
                    }
                    match heap.page_mut(at) {
                        Ok(mut guard) => {
                            guard.fill(version);
                            stored[at as usize] = Some(version);
                        }
                        Err(error) => refusals += refused(&error),
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

/// Pages of files beside anonymous pages that swap may refuse: they go instead, so each page of the
/// file can be read.
pub(crate) fn beside_a_file(hand: &mut Hand<'_>) -> Came {
    let (storm, page) = (hand.storm, hand.storm.plan.page as u64);
    let Ok(_alone) = storm.regions.scene.try_lock() else { return Came::NotNow };
    let frames = Regions::beside(storm.plan);
    let tenant = storm.pager.tenant("beside").max(size(frames * page)).create();
    let tenant = tenant.expect("a tenant can be made");
    tenant.set_swappiness(hand.rng.pick(&[200, 100, 60])).expect("the tenant is there");
    let came = file_and_region(hand, &tenant);
    tenant.remove().expect("nothing is in its way");
    came
}

fn file_and_region(hand: &mut Hand<'_>, tenant: &Tenant) -> Came {
    let (storm, page) = (hand.storm, hand.storm.plan.page as u64);
    let refused = |error: &Error| storm.regions.refused(error, "a scene");
    let frames = Regions::beside(storm.plan);
    let (stored, read) = (if frames > BESIDE { BESIDE } else { SCENE / 3 }, frames / 2);
    let heap = match tenant.region(stored * page) {
        Ok(heap) => heap,
        Err(error) => return refused(&error),
    };
    let path = storm.dir.join(format!("beside-{}", storm.scenes.fetch_add(1, SeqCst)));
    std::fs::write(&path, vec![8; (read * page) as usize]).expect("the file can be written");
    let ahead = hand.rng.one_in(4);
    let mut options = OpenOptions::new().tenant(tenant);
    if !ahead {
        options = options.read_ahead(size(0));
    }
    let view = options.open(&storm.pager, &path).expect("the file is there");
    // Pages that are read ahead are in memory, and cannot go before they are there. With 7.1 a pass
    // finds nothing while another thread ages the group.
    let all_can_go = !ahead && storm.plan.policy != "mglru-7.1";
    let noise = |at: u64| {
        let mut rng = Rng(at + 1);
        (0..page / 8).flat_map(|_| rng.next().to_le_bytes()).collect::<Vec<_>>()
    };
    let kept: Vec<_> = (0..stored)
        .map(|at| heap.page_mut(at).map(|mut guard| guard.copy_from_slice(&noise(at))).is_ok())
        .collect();
    let mut came = Came::Done;
    for round in 0..3 * read {
        let reclaims = local_reclaims(tenant);
        let guard = match view.page(round % read) {
            Ok(guard) => guard,
            Err(error) => {
                // There are pages of the file to go, so there is room.
                let explained = matches!(error, Error::Read { .. } | Error::Timeout { .. });
                let fair = storm.plan.behaviour.is_fair();
                assert!(explained && !fair, "a read beside a region: {error}");
                came = Came::Refused;
                continue;
            }
        };
        assert!(guard.iter().all(|byte| *byte == 8), "a page of a scene's file has other bytes");
        let tries = local_reclaims(tenant) - reclaims;
        assert!(tries <= TRIES || !all_can_go, "{tries} reclaims left pages of a file alone");
    }
    let mut refusals = 0;
    for at in (0..stored).filter(|at| kept[*at as usize]) {
        match heap.page(at) {
            Ok(guard) => assert!(guard[..] == noise(at), "page {at} of a scene has other bytes"),
            Err(error) => (came, refusals) = (refused(&error), refusals + 1),
        }
        if refusals == REFUSALS {
            break;
        }
    }
    came
}

/// Memory behind a pointer, of a tenant whose limit shrinks: two threads have the kernel store to
/// it and load from it, so that a page without room is an error. It is dropped while one loads.
pub(crate) fn behind_a_pointer(hand: &mut Hand<'_>) -> Came {
    let (storm, page) = (hand.storm, hand.storm.plan.page);
    if page != PAGE {
        return Came::NotNow;
    }
    let Ok(_alone) = storm.regions.scene.try_lock() else { return Came::NotNow };
    let bytes = |frames: u64| size(frames * page as u64);
    let tenant = storm.regions.tenant.child("pointer").max(bytes(SCENE)).create();
    let tenant = tenant.expect("a tenant can be made");
    let pages = 3 * SCENE as usize;
    let came = match tenant.map_anon(pages * page) {
        // Where the kernel has no `userfaultfd` for system calls there is nothing to play.
        Err(MapError::Mode { .. }) => Came::Done,
        Ok(map) if map.report().how.contains("EFAULT") => Came::Done,
        Err(MapError::Memory(error @ Error::OutOfBudget { .. })) => {
            storm.regions.refused(&error, "a scene")
        }
        Err(error) => panic!("{error}"),
        Ok(map) => {
            play_behind(&tenant, map, pages, hand.rng.next());
            Came::Done
        }
    };
    tenant.remove().expect("nothing is in its way");
    came
}

fn play_behind(tenant: &Tenant, mut map: MapMut, pages: usize, seed: u64) {
    let base = map.as_mut_ptr().expose_provenance();
    let at = move |page: usize| std::ptr::with_exposed_provenance_mut::<u8>(base + page * PAGE);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let storing: Vec<_> = (0..2)
            .map(|number| scope.spawn(move || store_behind(at, (number, pages), seed)))
            .collect();
        let mut rng = Rng(seed);
        while storing.iter().any(|thread| !thread.is_finished()) {
            let frames = SCENE / 2 + rng.below(SCENE);
            let _ = tenant.set_max(size(frames * PAGE as u64)).expect("the tenant is there");
        }
        for thread in storing {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        scope.spawn(|| {
            let (kernel, mut bytes) = (Kernel::new(), [0; 8]);
            for page in (0..pages).cycle().take_while(|_| !over.load(SeqCst)) {
                // Memory that is gone is an error.
                kernel.load(at(page), &mut bytes);
            }
        });
        drop(map);
        over.store(true, SeqCst);
    });
}

/// Stores to every second page, and loads what it has stored.
fn store_behind(at: impl Fn(usize) -> *mut u8, (number, pages): (usize, usize), seed: u64) {
    let (kernel, mut rng) = (Kernel::new(), Rng(seed ^ number as u64));
    let mut known = vec![Some(0_u64); pages];
    let content = |version: u64| {
        let word = |i: u64| {
            if version.is_multiple_of(2) { version } else { super::plan::mix(version ^ i) }
        };
        let words = (0..PAGE as u64 / 8).map(|i| if version == 0 { 0 } else { word(i) });
        words.flat_map(u64::to_le_bytes).collect::<Vec<_>>()
    };
    let (mut found, mut refusals) = (vec![0; PAGE], 0);
    for _ in 0..150 {
        if refusals == REFUSALS {
            return;
        }
        let page = rng.below(pages as u64 / 2) as usize * 2 + number;
        if rng.one_in(2) {
            let version = rng.next() >> 1;
            let stored = kernel.store(at(page), &content(version)).is_some();
            // Of a page that went meanwhile, and could not come back, a part may be stored.
            known[page] = stored.then_some(version);
            refusals += u32::from(!stored);
        } else if kernel.load(at(page), &mut found).is_none() {
            refusals += 1;
        } else if let Some(version) = known[page] {
            assert!(found == content(version), "page {page} behind a pointer has other bytes");
        }
    }
}

/// Charges that met the limit of this tenant itself and reclaimed for it.
fn local_reclaims(tenant: &Tenant) -> u64 {
    let text = tenant.text(TenantFile::EventsLocal).expect("the tenant is there");
    let line = text.lines().find_map(|line| line.strip_prefix("max ")).expect("such a line");
    line.parse().expect("a number")
}
