//! Memory without a file beside a model: vectors of bytes. Whatever is drawn, both hold the same,
//! behind guards and behind a pointer, and in the end every page, slot and byte is given back.
//!
//! Swap is small, full, or fails: then an operation is refused, and each page that it was about is
//! as it was before or as it was to be. Behind a pointer the kernel loads and stores, so that a
//! page that cannot be had is an error and no signal.
//!
//! `LOWTIDE_MODEL_CASES` says how many sequences are played.

#![expect(unsafe_code, reason = "another length of memory")]

use crate::common::Dir;
use crate::common::kernel::Kernel;
use lowtide::TenantError;
use lowtide::instruments::Verdict;
use lowtide::instruments::{Inject, InjectOp, Request};
use lowtide::map::{MapError, MapMut, MapOptions, RemapOptions};
use lowtide::{Error, Pager, Region, RegionOptions, Size, SwapOptions, Tenant};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const PAGE: usize = 4096;
/// Bytes that one region may have.
const MOST: usize = 96 * PAGE;
/// Frames that the tenant may have when nothing else is drawn.
const FRAMES: u64 = 48;

/// What is done to one of the regions. Places are in bytes, of what [`MOST`] allows.
#[derive(Clone, Debug)]
enum Op {
    /// Bytes of a seed; of even ones each page is one word, of those that four divides noise.
    Store {
        at: usize,
        len: usize,
        seed: u64,
    },
    Load {
        at: usize,
        len: usize,
    },
    Discard {
        at: usize,
        len: usize,
    },
    Grow {
        by: usize,
    },
    /// Only behind a pointer.
    Shrink {
        to: usize,
    },
    /// All that can goes to swap.
    Evict,
    Limit {
        frames: u64,
    },
    SwapMax {
        pages: Option<u64>,
    },
    Swappiness(u32),
    /// Requests of the swap file fail from now on, or work again (0): one in this number.
    Reads(u64),
    Writes(u64),
    /// The region is dropped and made again, perhaps while another thread uses it.
    Renew {
        len: usize,
        pointer: bool,
        served: bool,
    },
    /// The tenant is removed; its parent pays from now on, and another one for new regions.
    Orphan,
}

fn place() -> impl Strategy<Value = usize> {
    prop_oneof![
        2 => 0..MOST,
        3 => (0..MOST / PAGE).prop_map(|page| page * PAGE),
        1 => (1..MOST / PAGE, 0..9_usize).prop_map(|(page, off)| page * PAGE + off - 4),
    ]
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![2 => 0..PAGE, 2 => Just(PAGE), 2 => 0..8 * PAGE, 1 => 0..MOST]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (place(), length(), 1..u64::from(u32::MAX))
            .prop_map(|(at, len, seed)| Op::Store { at, len, seed }),
        6 => (place(), length()).prop_map(|(at, len)| Op::Load { at, len }),
        3 => (place(), length()).prop_map(|(at, len)| Op::Discard { at, len }),
        3 => length().prop_map(|by| Op::Grow { by }),
        1 => place().prop_map(|to| Op::Shrink { to }),
        5 => Just(Op::Evict),
        2 => (10..FRAMES).prop_map(|frames| Op::Limit { frames }),
        2 => prop::option::of(0..150_u64).prop_map(|pages| Op::SwapMax { pages }),
        1 => prop::sample::select(vec![0, 1, 60, 200, 201]).prop_map(Op::Swappiness),
        2 => prop::sample::select(vec![0, 0, 1, 3]).prop_map(Op::Reads),
        2 => prop::sample::select(vec![0, 0, 1, 3]).prop_map(Op::Writes),
        2 => (place(), any::<bool>(), any::<bool>())
            .prop_map(|(len, pointer, served)| Op::Renew { len, pointer, served }),
        1 => Just(Op::Orphan),
    ]
}

/// The device of the swap file.
#[derive(Debug, Default)]
struct Device {
    reads: AtomicU64,
    writes: AtomicU64,
}

impl Inject for Device {
    fn before(&self, request: &Request<'_>) -> Verdict {
        let every = match request.op {
            InjectOp::Read => self.reads.load(Relaxed),
            InjectOp::Write => self.writes.load(Relaxed),
            _ => 0,
        };
        if every > 0 && request.number.is_multiple_of(every) {
            return Verdict::Fail(io::Error::from_raw_os_error(5));
        }
        Verdict::Pass
    }
}

/// Memory of a program, by one of its two doors.
enum Memory {
    Guards(Region),
    Pointer(MapMut),
}

/// What was refused, and has to be looked at again when there is room and the device is well.
struct Refused;

struct Heap {
    memory: Memory,
    model: Vec<u8>,
    /// Pages behind a pointer that are `SIGBUS` until they are given up, or by chance before.
    poisoned: Vec<bool>,
}

/// Whether errors of swap explain this one.
fn refused(result: Result<(), Error>) -> Result<(), Refused> {
    match result {
        Ok(()) => Ok(()),
        Err(Error::OutOfBudget { .. } | Error::SwapIn { .. }) => Err(Refused),
        Err(other) => panic!("{other}"),
    }
}

impl Heap {
    fn new(pager: &Pager, tenant: &Tenant, len: usize, pointer: bool) -> Option<Self> {
        let memory = if pointer {
            let options = MapOptions::new().tenant(tenant).len(len).growth(MOST as u64);
            match options.map_anon(pager) {
                Ok(map) if map.report().how.contains("EFAULT") => return None,
                Ok(map) => Memory::Pointer(map),
                Err(MapError::Mode { .. } | MapError::Memory(Error::OutOfBudget { .. })) => {
                    return None;
                }
                Err(other) => panic!("{other}"),
            }
        } else {
            match RegionOptions::new().growth(MOST as u64).create(tenant, len as u64) {
                Ok(anon) => Memory::Guards(anon),
                Err(Error::OutOfBudget { .. }) => return None,
                Err(other) => panic!("{other}"),
            }
        };
        Some(Self { memory, model: vec![0; len], poisoned: vec![false; MOST / PAGE] })
    }

    /// A range of the region: as much of this as it has.
    fn range(&self, at: usize, len: usize) -> std::ops::Range<usize> {
        let at = at.min(self.model.len());
        at..(at + len).min(self.model.len())
    }

    /// Loads bytes; behind a pointer page by page. Pages that are `SIGBUS` are left out.
    fn load(&mut self, kernel: &Kernel, range: std::ops::Range<usize>) -> Result<(), Refused> {
        let mut bytes = vec![0xEE; range.len()];
        match &self.memory {
            Memory::Guards(anon) => {
                refused(anon.read_at(range.start as u64, &mut bytes))?;
                self.compare(range, &bytes);
                Ok(())
            }
            Memory::Pointer(map) => {
                let (base, mut all) = (map.as_ptr(), Ok(()));
                for part in pages_of(range.clone()) {
                    let to = &mut bytes[part.start - range.start..part.end - range.start];
                    if kernel.load(base.wrapping_add(part.start), to).is_some() {
                        self.poisoned[part.start / PAGE] = false;
                        let found = to.to_vec();
                        self.compare(part, &found);
                    } else {
                        self.poisoned[part.start / PAGE] = true;
                        all = Err(Refused);
                    }
                }
                all
            }
        }
    }

    fn compare(&self, range: std::ops::Range<usize>, found: &[u8]) {
        let due = &self.model[range.clone()];
        if let Some(wrong) = found.iter().zip(due).position(|(a, b)| a != b) {
            let at = range.start + wrong;
            panic!(
                "byte {at} (page {}) of {} is {}, not {}",
                at / PAGE,
                self.model.len(),
                found[wrong],
                due[wrong]
            );
        }
    }

    fn store(&mut self, kernel: &Kernel, at: usize, bytes: &[u8]) -> Result<(), Refused> {
        match &mut self.memory {
            Memory::Guards(anon) => refused(anon.write_at(at as u64, bytes))?,
            Memory::Pointer(map) => {
                let base = map.as_mut_ptr();
                let mut all = Ok(());
                for part in pages_of(at..at + bytes.len()) {
                    let from = &bytes[part.start - at..part.end - at];
                    if kernel.store(base.wrapping_add(part.start), from).is_none() {
                        self.poisoned[part.start / PAGE] = true;
                        all = Err(Refused);
                    }
                }
                all?;
            }
        }
        self.model[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn discard(&mut self, range: std::ops::Range<usize>) -> Result<(), Refused> {
        match &mut self.memory {
            Memory::Guards(anon) => refused(anon.clear(range.start as u64..range.end as u64))?,
            Memory::Pointer(map) => {
                // A part of a page is zeroed by stores, which must not be a signal.
                let whole = range.start.next_multiple_of(PAGE)..range.end / PAGE * PAGE;
                if whole.is_empty() {
                    return Ok(());
                }
                map.clear(whole.clone()).unwrap();
                self.model[whole.clone()].fill(0);
                self.poisoned[whole.start / PAGE..whole.end / PAGE].fill(false);
                return Ok(());
            }
        }
        self.model[range].fill(0);
        Ok(())
    }

    /// Another length.
    fn resize(&mut self, len: usize) {
        match &mut self.memory {
            Memory::Guards(anon) => {
                assert!(len >= self.model.len());
                anon.grow((len - self.model.len()) as u64).unwrap();
            }
            // What is left of its last page is zeroed by stores, which must not be a signal.
            Memory::Pointer(_) if len < self.model.len() && !len.is_multiple_of(PAGE) => return,
            Memory::Pointer(map) => {
                // SAFETY: no reference into the memory lives.
                unsafe { map.remap(len, RemapOptions::new()) }.unwrap();
            }
        }
        if len < self.model.len() {
            self.poisoned[len / PAGE..].fill(false);
        }
        self.model.resize(len, 0);
    }

    /// After something was refused: each page is as it was, or as it was to be.
    fn settle(&mut self, kernel: &Kernel, at: usize, bytes: &[u8]) {
        for part in pages_of(at..at + bytes.len()) {
            let new = &bytes[part.start - at..part.end - at];
            let old = &self.model[part.clone()];
            let mut found = vec![0xEE; part.len()];
            match &self.memory {
                Memory::Guards(anon) => anon.read_at(part.start as u64, &mut found).unwrap(),
                Memory::Pointer(map) => {
                    let at = map.as_ptr().wrapping_add(part.start);
                    if kernel.load(at, &mut found).is_none() {
                        // Its mark stays until reclaim looks at it, and it was not stored to.
                        continue;
                    }
                }
            }
            // The kernel may have stored a part before the page went and could not come back.
            let pointer = matches!(self.memory, Memory::Pointer(_));
            let each = || found.iter().zip(old.iter().zip(new)).all(|(f, (o, n))| f == o || f == n);
            let is_one = found == old || found == new || pointer && each();
            assert!(is_one, "page {} is neither", part.start / PAGE);
            self.model[part].copy_from_slice(&found);
        }
    }
}

/// A range, cut where pages end.
fn pages_of(range: std::ops::Range<usize>) -> impl Iterator<Item = std::ops::Range<usize>> {
    let pages = range.start / PAGE..range.end.div_ceil(PAGE).max(range.start / PAGE);
    pages.map(move |page| (page * PAGE).max(range.start)..((page + 1) * PAGE).min(range.end))
}

/// The bytes of a store.
fn content(at: usize, len: usize, seed: u64) -> Vec<u8> {
    let byte = |at: usize| {
        let word = (at / 8) as u64;
        let page = (at / PAGE) as u64;
        let of = match seed % 4 {
            0 => (word ^ seed << 20).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29),
            2 => seed ^ page,
            _ => (seed << 16) | (word % 7),
        };
        of.wrapping_mul(0xD6E8_FEB8_6659_FD93).to_le_bytes()[at % 8]
    };
    (at..at + len).map(byte).collect()
}

/// How often something happened, in all sequences together.
#[derive(Debug, Default)]
struct Seen {
    swapped_out: AtomicU64,
    swapped_in: AtomicU64,
    refused: AtomicU64,
    refused_behind_pointers: AtomicU64,
    dropped_while_served: AtomicU64,
}

struct World<'s> {
    seen: &'s Seen,
    pager: Pager,
    tenant: Tenant,
    device: Arc<Device>,
    kernel: Kernel,
    regions: [Option<Heap>; 2],
    turn: usize,
    orphans: u64,
    /// What is drawn now, and ends while something is looked at again.
    limits: (Size, Size),
}

impl World<'_> {
    /// With room and a device that works, and then as before.
    fn well<T>(&mut self, look: impl FnOnce(&mut Self) -> T) -> T {
        let kept = [&self.device.reads, &self.device.writes].map(|every| every.swap(0, Relaxed));
        let root = self.pager.root();
        let _ = root.set_max(size(8 * FRAMES)).unwrap();
        self.tenant.set_swap_max(Size::MAX).unwrap();
        let _ = self.tenant.set_max(Size::MAX).unwrap();
        let found = look(self);
        self.device.reads.store(kept[0], Relaxed);
        self.device.writes.store(kept[1], Relaxed);
        let _ = self.tenant.set_max(self.limits.0).unwrap();
        self.tenant.set_swap_max(self.limits.1).unwrap();
        let _ = root.set_max(size(FRAMES + 24)).unwrap();
        found
    }

    fn play(&mut self, op: &Op) {
        self.turn += 1;
        let which = self.turn % 2;
        match *op {
            Op::Limit { frames } => {
                self.limits.0 = size(frames);
                let _ = self.tenant.set_max(self.limits.0).unwrap();
            }
            Op::SwapMax { pages } => {
                self.limits.1 = pages.map_or(Size::MAX, size);
                self.tenant.set_swap_max(self.limits.1).unwrap();
            }
            Op::Swappiness(swappiness) => self.tenant.set_swappiness(swappiness).unwrap(),
            Op::Reads(every) => self.device.reads.store(every, Relaxed),
            Op::Writes(every) => self.device.writes.store(every, Relaxed),
            Op::Evict => drop(self.tenant.reclaim(size(FRAMES)).unwrap()),
            Op::Orphan => self.orphan(),
            Op::Renew { len, pointer, served } => {
                if let Some(region) = self.regions[which].take() {
                    self.end(region, served);
                }
                self.regions[which] = Heap::new(&self.pager, &self.tenant, len, pointer);
            }
            _ => self.change(which, op),
        }
        self.pager.validate().unwrap();
    }

    fn was_refused(&self, region: &Heap) {
        let pointer = matches!(region.memory, Memory::Pointer(_));
        let count = if pointer { &self.seen.refused_behind_pointers } else { &self.seen.refused };
        count.fetch_add(1, Relaxed);
    }

    fn change(&mut self, which: usize, op: &Op) {
        let Some(mut region) = self.regions[which].take() else { return };
        match *op {
            Op::Store { at, len, seed } => {
                let range = region.range(at, len);
                let bytes = content(range.start, range.len(), seed);
                if region.store(&self.kernel, range.start, &bytes).is_err() {
                    self.was_refused(&region);
                    self.well(|world| region.settle(&world.kernel, range.start, &bytes));
                }
            }
            Op::Load { at, len } => {
                let range = region.range(at, len);
                if region.load(&self.kernel, range).is_err() {
                    self.was_refused(&region);
                }
            }
            Op::Discard { at, len } => {
                let range = region.range(at, len);
                if region.discard(range.clone()).is_err() {
                    let zeroes = vec![0; range.len()];
                    self.well(|world| region.settle(&world.kernel, range.start, &zeroes));
                }
            }
            Op::Grow { by } => region.resize((region.model.len() + by).min(MOST)),
            Op::Shrink { to } if to > 0 && to < region.model.len() => {
                if matches!(region.memory, Memory::Pointer(_)) {
                    region.resize(to);
                }
            }
            _ => {}
        }
        self.regions[which] = Some(region);
    }

    /// Drops a region; if it is served, while a thread makes the kernel load its bytes.
    fn end(&mut self, region: Heap, served: bool) {
        let Memory::Pointer(map) = region.memory else { return };
        if !served || map.is_empty() {
            return;
        }
        self.seen.dropped_while_served.fetch_add(1, Relaxed);
        let (base, len) = (map.as_ptr().expose_provenance(), map.len());
        let (stop, began) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (kernel, mut bytes) = (Kernel::new(), [0; 64]);
                for page in (0..len.div_ceil(PAGE)).cycle() {
                    // Memory that is gone is an error of the kernel.
                    let at = base + page * PAGE;
                    kernel.load(std::ptr::with_exposed_provenance(at), &mut bytes);
                    began.store(true, Relaxed);
                    if stop.load(Relaxed) {
                        break;
                    }
                }
            });
            while !began.load(Relaxed) {
                std::thread::yield_now();
            }
            drop(map);
            stop.store(true, Relaxed);
        });
    }

    /// The tenant goes, and its regions stay: their contents are looked at.
    fn orphan(&mut self) {
        self.orphans += 1;
        self.tenant.remove().unwrap();
        assert!(matches!(self.tenant.set_max(Size::MAX), Err(TenantError::Gone)));
        let tenant = self.pager.tenant(&format!("heap{}", self.orphans)).max(size(FRAMES));
        self.tenant = tenant.create().unwrap();
        self.limits = (size(FRAMES), Size::MAX);
    }

    /// Whether the kernel of this machine has memory behind pointers.
    fn pointers_work() -> bool {
        let pager = Pager::builder().max(size(FRAMES)).build().unwrap();
        Heap::new(&pager, &pager.root(), PAGE, true).is_some()
    }

    /// All that is known is there, and all is given back.
    fn finish(mut self) {
        self.device.reads.store(0, Relaxed);
        self.device.writes.store(0, Relaxed);
        let regions = std::mem::take(&mut self.regions);
        self.well(|world| {
            for mut region in regions.into_iter().flatten() {
                let all = 0..region.model.len();
                let refused = region.load(&world.kernel, all.clone()).is_err();
                assert!(!refused || region.poisoned.contains(&true), "all is well");
                region.discard(all.clone()).unwrap_or_else(|Refused| panic!("it needs no room"));
                let (first, end) = (0, all.end / PAGE * PAGE);
                let zeroes = region.load(&world.kernel, first..end);
                zeroes.unwrap_or_else(|Refused| panic!("zeroes need no room"));
            }
        });
        self.pager.validate().unwrap();
        let _ = self.tenant.set_max(size(0)).unwrap();
        let root = self.pager.root();
        let events = self.pager.stat().memory.events;
        self.seen.swapped_out.fetch_add(events.pswpout, Relaxed);
        self.seen.swapped_in.fetch_add(events.pswpin, Relaxed);
        assert_eq!((root.usage().unwrap(), root.swap_usage().unwrap()), (0, 0));
        assert_eq!(root.stat().unwrap().anon, 0);
        assert_eq!(self.pager.swap_file().map_or(0, |file| file.used), 0, "slots of the file");
    }
}

fn size(pages: u64) -> Size {
    Size::new(pages * PAGE as u64)
}

/// What a sequence is played with.
#[derive(Clone, Debug)]
struct Setting {
    policy: &'static str,
    background: bool,
    /// Frames of compressed pages.
    memory: u64,
    /// All slots together, and those of the file.
    slots: Option<u64>,
    file: Option<u64>,
    /// Whether the regions are behind pointers.
    pointers: [bool; 2],
}

fn setting() -> impl Strategy<Value = Setting> {
    let policy = prop::sample::select(vec!["mglru", "mglru-7.1", "lru"]);
    let memory = prop::sample::select(vec![1, 4, 12, 48]);
    let slots = prop::option::of(8..200_u64);
    let file = prop::option::of(prop::sample::select(vec![16_u64, 64, 400]));
    let pointers = any::<[bool; 2]>();
    (policy, any::<bool>(), memory, slots, file, pointers).prop_map(
        |(policy, background, memory, slots, file, pointers)| Setting {
            policy,
            background,
            memory,
            slots,
            file,
            pointers,
        },
    )
}

fn play(setting: &Setting, ops: &[Op], seen: &Seen) {
    let dir = Dir::new();
    let device = Arc::new(Device::default());
    let swap = SwapOptions::compressed(size(setting.memory));
    let swap = setting.slots.map_or(swap.clone(), |slots| swap.size(size(slots)));
    let swap = setting.file.map_or(swap.clone(), |file| swap.file(dir.path(), size(file)));
    let pager = Pager::builder()
        .max(size(8 * FRAMES))
        .policy(setting.policy.parse().unwrap())
        .background(setting.background)
        .memory_timeout(Duration::from_millis(20))
        .swap(swap)
        .inject(Arc::<Device>::clone(&device))
        .build()
        .unwrap();
    let _ = pager.root().set_max(size(FRAMES + 24)).unwrap();
    let tenant = pager.tenant("heap").max(size(FRAMES)).create().unwrap();
    let regions = setting.pointers.map(|pointer| Heap::new(&pager, &tenant, 40 * PAGE, pointer));
    let (kernel, limits) = (Kernel::new(), (size(FRAMES), Size::MAX));
    let mut world =
        World { seen, pager, tenant, device, kernel, regions, turn: 0, orphans: 0, limits };
    ops.iter().for_each(|op| world.play(op));
    world.finish();
}

#[test]
fn whatever_is_done_to_memory_without_a_file_it_holds_what_a_vector_would() {
    let cases =
        std::env::var("LOWTIDE_MODEL_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    let config =
        Config { cases, failure_persistence: None, max_shrink_time: 30_000, ..Config::default() };
    let strategy = (setting(), prop::collection::vec(op(), 1..120));
    let seen = Seen::default();
    TestRunner::new(config)
        .run(&strategy, |(setting, ops)| -> Result<(), TestCaseError> {
            play(&setting, &ops, &seen);
            Ok(())
        })
        .unwrap();
    let never = format!("{seen:?}");
    let Seen { swapped_out, swapped_in, refused, refused_behind_pointers, dropped_while_served } =
        seen;
    let mut all = vec![swapped_out, swapped_in, refused];
    if cases >= 60 && World::pointers_work() {
        all.extend([refused_behind_pointers, dropped_while_served]);
    }
    assert!(all.into_iter().all(|count| count.into_inner() > 0), "never drawn: {never}");
}
