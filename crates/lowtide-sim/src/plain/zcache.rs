//! Evicted clean pages of files that stay compressed, as in the runtime (`lowtide/zcache`).
//!
//! ```text
//!   reclaim ─► freed, and came back once ─► offered ─► the batch is over: compressed and stored,
//!                                                      or only tried; decided if it is due
//!   miss ─► charged ─► stored? decompressed, and not stored any more; otherwise read
//! ```
//!
//! Which pages are wanted, when it is decided and how much may be compressed is said by the engine
//! ([`lowtide_core::zcache`]), to both drivers. Here is what the runtime has real memory for: pages
//! have no contents, so a page is as small as the configuration says, or does not compress; the
//! memory that stored pages take is that of their bytes, without the holes of real blocks. It is
//! charged to the root, where there is room as things are. Costs are those of the configuration and
//! are not measured; there is one task and one processor, which is idle while the task waits.

use super::config::PlainZcache;
use lowtide_core::zcache::{
    Costs, Counts, DROPPED, Governor, Intake, Measured, ROUNDS, Tries, footprint, hash,
    is_over_share, is_sampled, make_room,
};
use lowtide_core::{Engine, FolioId, MemcgId, Owner, Task, ZswapEvents};
use std::collections::{HashMap, VecDeque};

/// A page that shrinks to more than this part of its bytes is not kept.
const SHRINKS: (u64, u64) = (7, 10);

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Zcache {
    config: PlainZcache,
    page_bytes: u64,
    read_ns: u64,
    governor: Governor,
    intake: Intake,
    tries: Tries,
    /// When each page was stored, as a number.
    stored: HashMap<Owner, u64>,
    /// The coldest first; those that are stored no more included.
    order: VecDeque<(Owner, u64)>,
    number: u64,
    /// Pages of memory that are charged.
    memory: u64,
    /// A bit for each frame.
    came_back: Vec<u64>,
    /// Pages that reclaim has freed and that are wanted.
    leaving: Vec<Owner>,
    counts: Counts,
    /// Misses that were reads, until the last decision.
    reads: f64,
}

impl Zcache {
    /// An empty one for an engine that is empty, too, with pages of `page_bytes`, of which
    /// reading one takes `read_ns`.
    pub(super) fn new(config: PlainZcache, page_bytes: u64, read_ns: u64, engine: &Engine) -> Self {
        Self {
            config,
            page_bytes,
            read_ns,
            governor: Governor::new(engine.max(MemcgId::ROOT)),
            intake: Intake::new(page_bytes.max(1).ilog2(), 0),
            tries: Tries::default(),
            stored: HashMap::new(),
            order: VecDeque::new(),
            number: 0,
            memory: 0,
            came_back: Vec::new(),
            leaving: Vec::new(),
            counts: Counts::default(),
            reads: 0.0,
        }
    }

    /// A page comes into a frame; it was evicted before, or not.
    pub(super) fn placed(&mut self, frame: FolioId, came_back: bool) {
        let (word, bit) = (frame.index() / 64, 1 << (frame.index() % 64));
        if word >= self.came_back.len() {
            self.came_back.resize(word + 1, 0);
        }
        let word = &mut self.came_back[word];
        *word = if came_back { *word | bit } else { *word & !bit };
    }

    /// Reclaim has freed a page of a file.
    pub(super) fn freed(&mut self, frame: FolioId, owner: Owner, now: u64) {
        let word = self.came_back.get(frame.index() / 64).copied().unwrap_or(0);
        if word >> (frame.index() % 64) & 1 == 0 {
            return;
        }
        let (offered, is_wanted) = self.intake.offer(owner, self.is_closed(), false, || now);
        let hash = hash(owner);
        if is_sampled(hash, self.governor.mask()) {
            self.governor.evicted(hash, offered);
        }
        if is_wanted {
            self.leaving.push(owner);
        }
    }

    /// Stores what reclaim has freed, at a time, and decides if it is due. Returns the nanoseconds
    /// that takes.
    pub(super) fn store(&mut self, engine: &mut Engine, now: u64, accesses: u64) -> u64 {
        if self.leaving.is_empty() {
            return 0;
        }
        let mut leaving = std::mem::take(&mut self.leaving);
        self.counts.accesses = accesses as f64;
        let mut took = 0;
        for owner in leaving.drain(..) {
            took += self.store_one(engine, owner);
        }
        self.leaving = leaving;
        self.adapt(engine, now + took);
        took
    }

    fn store_one(&mut self, engine: &mut Engine, owner: Owner) -> u64 {
        let size = self.compresses(owner).then_some(self.config.bytes as usize);
        let closed = self.is_closed();
        let took = self.config.store_ns * if closed { 2 } else { 1 };
        self.counts.stores += f64::from(u8::from(!closed));
        if !closed && size.is_some() {
            if !self.keep(engine, owner) {
                return took;
            }
            engine.count_zswap(MemcgId::ROOT, &ZswapEvents::stored(1));
        }
        self.intake.note(owner, size.is_some());
        if closed || self.intake.is_timed() {
            self.tries.add(size);
        }
        took
    }

    /// Stores a page; the coldest make room. Returns whether there is room.
    fn keep(&mut self, engine: &mut Engine, owner: Owner) -> bool {
        if !self.grow(engine) {
            self.drop_coldest(engine, make_room(self.stored.len()));
            if !self.grow(engine) {
                return false;
            }
        }
        self.number += 1;
        self.stored.insert(owner, self.number);
        self.order.push_back((owner, self.number));
        true
    }

    /// Takes the memory that one page more needs.
    fn grow(&mut self, engine: &mut Engine) -> bool {
        let needed = self.needed(self.stored.len() + 1);
        while self.memory < needed {
            let has_room = self.memory < self.governor.target()
                && !is_over_share(self.memory, engine.usage(MemcgId::ROOT))
                && engine.charge_if_room(MemcgId::ROOT, 1, Task::DESCRIPTOR).is_some();
            if !has_room {
                return false;
            }
            self.memory += 1;
        }
        true
    }

    fn needed(&self, stored: usize) -> u64 {
        let bytes = footprint(self.config.bytes as f64) * stored as f64;
        (bytes / self.page_bytes as f64).ceil() as u64
    }

    /// Drops stored pages. Returns the pages of memory that are free now.
    fn drop_coldest(&mut self, engine: &mut Engine, count: usize) -> u64 {
        for _ in 0..count.min(self.stored.len()) {
            while let Some((owner, number)) = self.order.pop_front() {
                if self.stored.get(&owner) == Some(&number) {
                    self.stored.remove(&owner);
                    break;
                }
            }
        }
        self.give_back(engine)
    }

    fn give_back(&mut self, engine: &mut Engine) -> u64 {
        let free = self.memory - self.needed(self.stored.len()).min(self.memory);
        engine.uncharge(MemcgId::ROOT, free);
        self.memory -= free;
        free
    }

    /// Gives some memory back, where reclaim finds nothing else. Returns how many pages.
    pub(super) fn shrink(&mut self, engine: &mut Engine) -> u64 {
        self.drop_coldest(engine, 2 * DROPPED)
    }

    /// A page of a file has been missed, and has a frame. Returns the nanoseconds that
    /// decompressing it takes if it was stored, and is not any more.
    pub(super) fn take(&mut self, engine: &mut Engine, owner: Owner) -> Option<u64> {
        let hash = hash(owner);
        if is_sampled(hash, self.governor.mask()) {
            self.governor.missed(hash, self.intake.offered());
        }
        self.counts.misses += 1.0;
        if !self.forget(engine, owner) {
            return None;
        }
        self.counts.loads += 1.0;
        engine.count_zswap(MemcgId::ROOT, &ZswapEvents::loaded(1));
        Some(self.config.load_ns)
    }

    /// Drops a page. Returns whether it was stored.
    pub(super) fn forget(&mut self, engine: &mut Engine, owner: Owner) -> bool {
        let was_stored = self.stored.remove(&owner).is_some();
        if was_stored {
            self.give_back(engine);
            if self.order.len() > 2 * self.stored.len() + 64 {
                let stored = &self.stored;
                self.order.retain(|(owner, number)| stored.get(owner) == Some(number));
            }
        }
        was_stored
    }

    fn adapt(&mut self, engine: &mut Engine, now: u64) {
        if let Some(nanos) = self.intake.is_due(now) {
            self.decide(engine.max(MemcgId::ROOT), nanos);
        }
        let mut over = is_over_share(self.memory, engine.usage(MemcgId::ROOT));
        for _ in 0..ROUNDS {
            if !over && self.memory <= self.governor.target() {
                return;
            }
            self.shrink(engine);
            over = false;
        }
    }

    fn decide(&mut self, budget: u64, nanos: u64) {
        let reads = self.counts.misses - self.counts.loads;
        let new_reads = reads - std::mem::replace(&mut self.reads, reads);
        if !self.intake.begin(budget) {
            return;
        }
        let PlainZcache { store_ns, load_ns, .. } = self.config;
        let (stored, target) = (self.stored.len() as u64, self.governor.target());
        self.governor.decide(&Measured {
            budget,
            evicted: self.intake.offered(),
            nanos: nanos as f64,
            waited: new_reads * self.read_ns as f64,
            counts: self.counts,
            costs: Costs {
                store: store_ns as f64,
                load: load_ns as f64,
                read: self.read_ns as f64,
            },
            ratio: self.tries.ratio(self.page_bytes as f64, stored, self.memory, target),
            kept: self.tries.kept(),
        });
    }

    fn is_closed(&self) -> bool {
        self.governor.target() == 0
    }

    /// Whether a page becomes small enough.
    fn compresses(&self, owner: Owner) -> bool {
        // Not the hash by which samples are taken.
        let draw = hash(Owner { page: !owner.page, ..owner }) % 100;
        draw >= u64::from(self.config.incompressible)
            && self.config.bytes * SHRINKS.1 <= self.page_bytes * SHRINKS.0
    }

    /// Whether it has as much memory as its pages need.
    ///
    /// # Errors
    /// Its sizes, if it has not.
    pub(super) fn validate(&self) -> Result<(), String> {
        let (stored, needed) = (self.stored.len(), self.needed(self.stored.len()));
        if self.memory == needed && self.order.len() >= stored {
            return Ok(());
        }
        Err(format!("{stored} compressed pages need {needed} pages of memory, not {}", self.memory))
    }
}
