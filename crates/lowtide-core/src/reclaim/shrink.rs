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

use super::batch::{Fate, Freed, ShrinkStat, Unmapped, Victim};
use super::invocation::{Reason, Reclaim};
use crate::engine::Engine;
use crate::folio::Flags;
use crate::lruvec::Facts;
use crate::policy::{Lists, Switches};
use crate::units::{FolioId, LruType};

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
            engine.note_evicted(self.group, self.target, self.cause, self.batch.stat.reclaimed);
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
