//! The folio-list shrinker: the fate of every folio of an isolated batch, whichever lists it came
//! from.
//!
//! It has two halves, before and after the driver's work. [`Reclaim::judge`] queries the driver's
//! facts (locked? young?) and decides; a folio that may be freed becomes a *victim*, whose
//! translations the driver drops. [`Reclaim::conclude`] takes the outcomes: a victim that is in use
//! after all is activated, one that changed meanwhile is kept, the others are freed. Dirty file
//! folios are never written here and never freed; they are marked so that the end of their
//! writeback moves them to the eviction end.
//!
//! Anonymous folios can only go to swap. Each gets slots first (without free slots it is
//! activated), is unmapped, and is written by the driver unless its slots already have its
//! contents. If the write ends at once it is freed in this batch. Otherwise it is kept in the swap
//! cache, marked like a dirty file folio, and a later batch finds it at the eviction end, clean.
//! Those that were freed lazily are dropped like clean file folios, and leave no shadow.
//! Source: `docs/kernel/reclaim.md` §4.1, 5.5.

use super::invocation::{Reason, Reclaim};
use crate::engine::Engine;
use crate::folio::Flags;
use crate::lruvec::{Facts, Shadow};
use crate::policy::{Lists, Switches};
use crate::units::{FolioId, LruType, Owner};

/// The outcome for a victim's translations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmapped {
    /// They are gone, no thread can reach the folio any more, and nothing had to be written.
    Done,
    /// They are gone, and writing the folio to its slots was begun ([`Engine::start_writeback`]),
    /// or has even ended ([`Engine::end_writeback`]). If it has ended by the next step, the folio
    /// is freed then, or kept after a failure. For anonymous memory only.
    Writing,
    /// The folio is pinned.
    Pinned,
    /// The folio was accessed, dirtied or locked in the meantime; its translations are as before.
    /// A store to one that had been freed lazily is reported first ([`Engine::set_dirty`]).
    Raced,
}

/// A folio that may be freed if its translations can be dropped.
#[derive(Clone, Copy, Debug)]
pub struct Victim {
    /// The folio, by its first frame.
    pub folio: FolioId,
    /// log2 of its base pages.
    pub order: u8,
    /// Where its translations are.
    pub owner: Owner,
    /// It goes to swap: its translations become references to its slots, of which it has one for
    /// each page, new or from before. If it is dirty when they are gone, including stores that
    /// only the translations had recorded ([`Engine::set_dirty`]), then call
    /// [`Engine::start_writeback`], begin the write, and report [`Unmapped::Writing`].
    pub to_swap: bool,
    /// To be set by the driver; [`Unmapped::Raced`] until then.
    pub outcome: Unmapped,
}

/// A folio that is gone.
#[derive(Clone, Copy, Debug)]
pub struct Freed {
    /// Its first frame, free from now on.
    pub folio: FolioId,
    /// log2 of its base pages.
    pub order: u8,
    /// Where it was.
    pub owner: Owner,
    /// The shadow to be stored there, for each of its pages. `None` for memory that was freed
    /// lazily: its contents are zeroes from now on.
    pub shadow: Option<Shadow>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// Put back as it is.
    Keep,
    /// Put back among the young.
    Activate,
    /// A victim: freed if the driver can unmap it.
    Unmap,
    Freed,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(super) folio: FolioId,
    pub(super) fate: Fate,
    pub(super) mapped: bool,
    /// It had been freed lazily when it was judged.
    pub(super) lazy: bool,
}

/// What one pass over a batch counted, in pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShrinkStat {
    pub(super) dirty: u64,
    pub(super) unqueued_dirty: u64,
    pub(super) congested: u64,
    pub(super) writeback: u64,
    pub(super) immediate: u64,
    pub(super) reclaimed: u64,
}

/// The folios that one batch isolated, and what becomes of them.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(super) lru_type: LruType,
    /// Pages scanned to fill it.
    pub(super) scanned: u64,
    /// Pages isolated.
    pub(super) taken: u64,
    /// As they were isolated. Kept for its memory, as the next lists are.
    folios: Vec<FolioId>,
    pub(super) entries: Vec<Entry>,
    pub(super) victims: Vec<Victim>,
    pub(super) freed: Vec<Freed>,
    /// Young neighbours of the folio being judged that are to be activated.
    neighbours: Vec<FolioId>,
    pub(super) stat: ShrinkStat,
    pub(super) reclaimed_in_all: u64,
    /// Pages whose write to swap was begun.
    pub(super) written: u64,
    pub(super) first_pass: bool,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            lru_type: LruType::File,
            scanned: 0,
            taken: 0,
            folios: Vec::new(),
            entries: Vec::new(),
            victims: Vec::new(),
            freed: Vec::new(),
            neighbours: Vec::new(),
            stat: ShrinkStat::default(),
            reclaimed_in_all: 0,
            written: 0,
            first_pass: true,
        }
    }
}

impl Batch {
    /// A batch of these folios, which came from [`memory`](Self::memory).
    pub(super) fn fill(&mut self, lru_type: LruType, scanned: u64, folios: Vec<FolioId>) {
        let entry = |&folio| Entry { folio, fate: Fate::Keep, mapped: false, lazy: false };
        let mut entries = std::mem::take(&mut self.entries);
        entries.clear();
        entries.extend(folios.iter().map(entry));
        *self = Self {
            lru_type,
            scanned,
            folios,
            entries,
            victims: std::mem::take(&mut self.victims),
            freed: std::mem::take(&mut self.freed),
            neighbours: std::mem::take(&mut self.neighbours),
            ..Self::default()
        };
    }

    /// Where to put the folios of the next batch: the memory of the last one's.
    pub(super) fn memory(&mut self) -> Vec<FolioId> {
        let mut folios = std::mem::take(&mut self.folios);
        folios.clear();
        folios
    }

    pub(super) fn isolated(&self) -> bool {
        !self.entries.is_empty()
    }
}

impl Reclaim {
    /// Decides the fate of each folio as far as the driver's facts allow. Returns whether there are
    /// victims.
    pub(super) fn judge<F: Facts>(&mut self, engine: &mut Engine, facts: &mut F) -> bool {
        self.batch.victims.clear();
        self.batch.freed.clear();
        self.batch.stat = ShrinkStat::default();
        let mut entries = std::mem::take(&mut self.batch.entries);
        self.batch.victims.reserve(entries.len());
        if engine.policy.lists() != Lists::Tide {
            facts.gather(entries.iter().map(|entry| &engine.folios[entry.folio]));
        }
        for entry in &mut entries {
            if self.batch.first_pass {
                self.batch.taken += engine.folios[entry.folio].pages();
            }
            let state = facts.state(entry.folio, &engine.folios[entry.folio]);
            entry.mapped = state.mapped;
            entry.lazy = engine.folios[entry.folio].flags.contains(Flags::LAZYFREE);
            entry.fate = if state.locked {
                Fate::Keep
            } else {
                self.judge_one(engine, facts, entry.folio, state.mapped)
            };
            match entry.fate {
                Fate::Unmap => {
                    let f = &engine.folios[entry.folio];
                    self.batch.victims.push(Victim {
                        folio: entry.folio,
                        order: f.order(),
                        owner: f.owner(),
                        to_swap: f.lru_type() == LruType::Anon,
                        outcome: Unmapped::Raced,
                    });
                }
                Fate::Activate => activate(engine, facts, entry.folio),
                Fate::Keep | Fate::Freed => {}
            }
        }
        self.batch.entries = entries;
        !self.batch.victims.is_empty()
    }

    fn judge_one<F: Facts>(
        &mut self,
        engine: &mut Engine,
        facts: &mut F,
        id: FolioId,
        mapped: bool,
    ) -> Fate {
        let f = &engine.folios[id];
        let (flags, pages) = (f.flags, f.pages());
        if flags.contains(Flags::MLOCKED) {
            return Fate::Activate;
        }
        let stat = &mut self.batch.stat;
        let file = f.lru_type() == LruType::File;
        let (dirty, writeback) = (flags.contains(Flags::DIRTY), flags.contains(Flags::WRITEBACK));
        if file && (dirty || writeback) {
            stat.dirty += pages;
            if !writeback {
                stat.unqueued_dirty += pages;
            }
        }
        if writeback {
            if file && flags.contains(Flags::RECLAIM) {
                stat.congested += pages;
            }
            let flood = engine.memcgs[self.target].lruvec.node.writeback;
            if self.reason == Reason::Kswapd && flags.contains(Flags::RECLAIM) && flood {
                stat.immediate += pages;
            } else {
                engine.folios[id].flags.insert(Flags::RECLAIM);
                stat.writeback += pages;
            }
            return Fate::Activate;
        }
        match self.check_references(engine, facts, id) {
            Fate::Unmap => {}
            fate => return fate,
        }
        if !file {
            // What only the translations know to be dirty would have to be written, too.
            let clean = flags.contains(Flags::SWAPCACHE) && !dirty && !mapped;
            if !self.may_io && !clean {
                return Fate::Keep;
            }
            let slot = flags.contains(Flags::SWAPCACHE) || engine.take_slot(id);
            return if slot { Fate::Unmap } else { Fate::Activate };
        }
        if dirty {
            facts.unmap_dirty(id, &engine.folios[id]);
            engine.folios[id].flags.insert(Flags::RECLAIM);
            engine.memcgs[self.group].events.nr_vmscan_immediate_reclaim += pages;
            return Fate::Activate;
        }
        Fate::Unmap
    }

    /// The reference check; [`Fate::Unmap`] means "not referenced". `tide` has made it before it
    /// isolated the folio.
    fn check_references<F: Facts>(
        &mut self,
        engine: &mut Engine,
        facts: &mut F,
        id: FolioId,
    ) -> Fate {
        if engine.policy.lists() == Lists::Tide {
            return Fate::Unmap;
        }
        let refs = facts.references(id, &engine.folios[id]);
        let classical = engine.policy.lists() == Lists::Classical;
        if refs.young == 0 && !classical {
            return Fate::Unmap;
        }
        let neighbours = &mut self.batch.neighbours;
        if !classical {
            let mut lru = engine.locked(self.group);
            lru.look_around(id, refs, self.walking, facts, neighbours);
        }
        if classical || !engine.policy.has(Switches::SIGHTINGS) {
            for neighbour in neighbours.drain(..) {
                engine.batch_activate(self.task.cpu, neighbour);
            }
            let flags = &mut engine.folios[id].flags;
            let was_referenced = flags.contains(Flags::REFERENCED);
            flags.set(Flags::REFERENCED, refs.young > 0);
            return match refs.young {
                0 => Fate::Unmap,
                _ if was_referenced || refs.young > 1 || refs.exec => Fate::Activate,
                _ => Fate::Keep,
            };
        }
        let activate = engine.locked(self.group).set_refs(id, refs.exec);
        let fate = if activate { Fate::Activate } else { Fate::Keep };
        for neighbour in neighbours.drain(..) {
            engine.batch_activate(self.task.cpu, neighbour);
        }
        fate
    }

    /// Frees the victims that the driver could unmap, and that are written. Returns whether there
    /// are any.
    pub(super) fn conclude<F: Facts>(&mut self, engine: &mut Engine, facts: &mut F) -> bool {
        self.batch.freed.reserve(self.batch.victims.len());
        let mut victims = self.batch.victims.iter();
        for entry in self.batch.entries.iter_mut().filter(|e| e.fate == Fate::Unmap) {
            let victim = victims.next().expect("every folio to unmap is a victim");
            let pages = engine.folios[entry.folio].pages();
            // A driver that saw a write too late for its outcome is caught here: a dirty folio is
            // never freed.
            let changed = engine.folios[entry.folio]
                .flags
                .intersects(Flags::DIRTY | Flags::WRITEBACK | Flags::MLOCKED);
            if victim.outcome == Unmapped::Writing {
                assert!(
                    victim.to_swap,
                    "folio {:?} is file memory: reclaim does not write it",
                    entry.folio
                );
                self.batch.written += pages;
            }
            entry.fate = match victim.outcome {
                Unmapped::Writing if changed => {
                    written_to_swap(engine, entry.folio);
                    Fate::Keep
                }
                Unmapped::Done | Unmapped::Writing => {
                    assert!(!changed, "folio {:?} was unmapped after it had changed", entry.folio);
                    let mut lru = engine.locked(self.group);
                    lru.lv.isolated -= pages;
                    let shadow = if entry.lazy {
                        lru.events.pglazyfreed += pages;
                        None
                    } else {
                        Some(lru.workingset_eviction(entry.folio, self.target.slot))
                    };
                    engine.release(entry.folio, true);
                    self.batch.stat.reclaimed += pages;
                    self.batch.freed.push(Freed {
                        folio: victim.folio,
                        order: victim.order,
                        owner: victim.owner,
                        shadow,
                    });
                    Fate::Freed
                }
                Unmapped::Pinned => {
                    activate(engine, facts, entry.folio);
                    Fate::Activate
                }
                // It is swap-backed again, because it was stored to.
                Unmapped::Raced if entry.lazy && changed => {
                    activate(engine, facts, entry.folio);
                    Fate::Activate
                }
                Unmapped::Raced => Fate::Keep,
            };
        }
        if self.batch.stat.reclaimed > 0 {
            engine.memcgs[self.group].high.evicted_by = Some((self.target, self.cause));
        }
        self.reclaimed += self.batch.stat.reclaimed;
        self.batch.reclaimed_in_all += self.batch.stat.reclaimed;
        if self.batch.first_pass {
            self.account_writeback(engine);
        }
        !self.batch.freed.is_empty()
    }
}

/// A folio is unmapped and in the swap cache; its write to swap is under way, or has failed
/// already.
fn written_to_swap(engine: &mut Engine, id: FolioId) {
    engine.set_swapped(id, true);
    let flags = &mut engine.folios[id].flags;
    if flags.contains(Flags::WRITEBACK) {
        flags.insert(Flags::RECLAIM);
    }
}

/// A folio goes back among the young. If slots are short, one that is mapped does not keep its own.
fn activate<F: Facts>(engine: &mut Engine, facts: &mut F, id: FolioId) {
    let flags = engine.folios[id].flags;
    if flags.contains(Flags::SWAPCACHE)
        && (engine.swap_full(id) || flags.contains(Flags::MLOCKED))
        && engine.give_up_slot(id)
    {
        facts.slot_given_up(id, &engine.folios[id]);
    }
    let f = &mut engine.folios[id];
    if !f.flags.contains(Flags::MLOCKED) {
        f.flags.insert(Flags::ACTIVE);
        engine.memcgs[f.memcg].events.pgactivate += f.pages();
    }
}
