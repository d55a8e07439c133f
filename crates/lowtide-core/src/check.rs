//! `validate()`: recounts everything from scratch and compares it with the incremental counters
//! (`docs/kernel/reclaim.md` §10).

use crate::dirty::Figures;
use crate::engine::Engine;
use crate::folio::{Batches, Flags};
use crate::limits::{MAX_NR_GENS, MIN_NR_GENS};
use crate::lruvec::{Queue, slot};
use crate::memcg::CHARGE_BATCH;
use crate::policy::{Lists, Switches};
use crate::units::{LruType, MemcgId, MemcgSlot};

impl Engine {
    /// Checks all structural invariants. Cost: O(frames); for tests and for runs with checks
    /// enabled.
    ///
    /// # Errors
    /// A sentence that names the first invariant that does not hold.
    pub fn validate(&mut self) -> Result<(), String> {
        let groups: Vec<_> = self.memcgs.subtree(MemcgId::ROOT.slot).collect();
        same("groups", groups.len(), self.memcgs.len())?;
        let mut sum = Figures::default();
        for slot in groups {
            self.validate_group(slot).map_err(|e| format!("group {}: {e}", slot.0))?;
            self.validate_counter(slot).map_err(|e| format!("group {}: {e}", slot.0))?;
            sum.add(&self.memcgs[slot].figures());
        }
        same("file pages of all groups", sum.file, self.totals.file)?;
        same("dirty pages of all groups", sum.state.dirty, self.totals.file_dirty)?;
        same("pages under writeback of all groups", sum.state.writeback, self.totals.writeback)?;
        self.validate_devices()?;
        expect(self.stocks.largest() <= CHARGE_BATCH, || {
            format!("a stock holds {}", self.stocks.largest())
        })?;
        self.validate_swap()
    }

    fn validate_swap(&self) -> Result<(), String> {
        let groups = self.memcgs.subtree(MemcgId::ROOT.slot);
        let cached: u64 = groups.map(|slot| self.memcgs[slot].swapcached).sum();
        let swap = &self.swap;
        same("slots of swap", swap.free_pages + cached + swap.swapped_out, swap.total_pages)?;
        same(
            "charged slots of swap",
            cached + swap.swapped_out,
            self.memcgs[MemcgId::ROOT].swap.usage,
        )
    }

    /// Usage is what children use plus what is charged here; what children claim of protection is
    /// what they publish (`docs/kernel/memcg.md` §16, 1 and 3).
    fn validate_counter(&self, slot: MemcgSlot) -> Result<(), String> {
        let group = &self.memcgs[slot];
        let root = group.parent.is_none();
        let mut below = self.stocks.held(slot);
        let mut claims = [0; 2];
        for child in self.memcgs.children(slot) {
            let child_group = &self.memcgs[child];
            expect(child_group.parent == Some(slot), || {
                format!("child {} has another parent", child.0)
            })?;
            expect(child_group.depth == group.depth + 1, || {
                format!("child {} has a wrong depth", child.0)
            })?;
            below += child_group.memory.usage;
            if root {
                // The root has not seen what is stocked below it.
                below -= self.memcgs.subtree(child).map(|at| self.stocks.held(at)).sum::<u64>();
            }
            for (sum, claim) in claims.iter_mut().zip(&child_group.memory.claims) {
                *sum += child_group.memory.usage.min(claim.setting);
            }
        }
        let resident: u64 = group.resident.iter().sum();
        let own = group.memory.usage.checked_sub(below);
        expect(own.is_some_and(|own| own >= resident + group.reserved), || {
            format!(
                "usage {} is less than {resident} resident, {} reserved and {below} below",
                group.memory.usage, group.reserved
            )
        })?;
        same("claimed protection", claims, group.memory.claims.map(|claim| claim.children))?;
        expect(group.memory.watermark >= group.memory.usage, || {
            "usage is above its watermark".to_owned()
        })
    }

    fn validate_group(&mut self, memcg: MemcgSlot) -> Result<(), String> {
        let group = &self.memcgs[memcg];
        let mut resident = [0; 2];
        let (mut dirty, mut writeback, mut unevictable, mut off_list) = (0, 0, 0, 0);
        let (mut swapcached, mut swap_only) = (0, 0);
        let mut by_gen = [[0; 2]; MAX_NR_GENS as usize];
        let mut by_activity = [[0; 2]; 2];
        let mut by_queue = [[0; 4]; 2];
        let tide = self.policy.lists() == Lists::Tide;
        for (id, f) in self.folios.iter().filter(|(_, f)| f.memcg == memcg) {
            let (flags, pages, t) = (f.flags, f.pages(), f.lru_type());
            resident[f.kind() as usize] += pages;
            if flags.contains(Flags::LAZYFREE) {
                let void = Flags::DIRTY | Flags::WRITEBACK | Flags::SWAPCACHE;
                expect(f.is_anon() && !flags.intersects(void), || {
                    format!("{id:?} was freed lazily, with flags {flags:?}")
                })?;
            }
            if flags.contains(Flags::DIRTY) && !f.is_anon() {
                dirty += pages;
            }
            if flags.contains(Flags::WRITEBACK) {
                writeback += pages;
            }
            if flags.contains(Flags::SWAPCACHE) {
                swapcached += pages;
                expect(t == LruType::Anon, || {
                    format!("{id:?} is file memory with a slot in swap")
                })?;
            }
            if flags.contains(Flags::SWAPPED) {
                swap_only += pages;
                let slot = flags.contains(Flags::SWAPCACHE);
                expect(slot, || format!("{id:?} is swapped and has no slot"))?;
            }
            if flags.contains(Flags::CULLED) {
                unevictable += pages;
            } else if !flags.intersects(Flags::LRU | Flags::ADD_BATCH) {
                off_list += pages;
            }
            if let Some(gen_slot) = flags.generation() {
                expect(flags.contains(Flags::LRU), || {
                    format!("{id:?} has a generation but is isolated")
                })?;
                expect(!flags.contains(Flags::ACTIVE), || {
                    format!("{id:?} is active on a generation list")
                })?;
                let gens = &group.lruvec.gens;
                let known = gens.is_stray(t, gen_slot) || gens.window(t).any(|s| s == gen_slot);
                expect(known, || format!("{id:?} is in a generation that is gone"))?;
                by_gen[gen_slot][t as usize] += pages;
            } else if flags.contains(Flags::LRU) && tide {
                by_queue[t as usize][Queue::of(flags) as usize] += pages;
            } else if flags.contains(Flags::LRU) {
                by_activity[t as usize][usize::from(flags.contains(Flags::ACTIVE))] += pages;
            }
        }
        same("resident pages", resident, group.resident)?;
        same("dirty pages", dirty, group.file_dirty)?;
        same("pages under writeback", writeback, group.file_writeback)?;
        same("pages in the swap cache", swapcached, group.swapcached)?;
        same("pages nowhere but in the swap cache", swap_only, group.swap_only)?;
        same("unevictable pages", unevictable, group.lruvec.unevictable)?;
        same("isolated pages", off_list, group.lruvec.isolated)?;
        let most = group.memory.ceiling;
        expect(group.memory.usage <= most, || {
            format!("usage {} is above {most}, max is {}", group.memory.usage, group.memory.max)
        })?;
        same("generation sizes", by_gen, group.lruvec.gens.nr_pages)?;
        self.validate_sizes(memcg, by_queue, by_activity)?;
        // Usage that has come down stays down: from here on it is held to what it is now, or to the
        // limit.
        let memory = &mut self.memcgs[memcg].memory;
        memory.ceiling = memory.max.max(memory.usage);
        self.validate_refaults(memcg)?;
        self.validate_births(memcg)?;
        self.validate_lists(memcg)
    }

    /// Generations, queues and lists against what the folios say.
    fn validate_sizes(
        &self,
        memcg: MemcgSlot,
        by_queue: [[u64; 4]; 2],
        by_activity: [[u64; 2]; 2],
    ) -> Result<(), String> {
        let group = &self.memcgs[memcg];
        for t in LruType::ALL {
            let n = group.lruvec.gens.count(t);
            expect((MIN_NR_GENS..=MAX_NR_GENS).contains(&n), || {
                format!("{t:?} has {n} generations")
            })?;
            let queues = &group.lruvec.tide[t as usize];
            for queue in Queue::ALL {
                let size = queues.size(queue);
                same("a queue's size", by_queue[t as usize][queue as usize], size)?;
            }
            if let Some(wrong) = queues.wrong() {
                return Err(format!("the queues of {t:?} are wrong: {wrong}"));
            }
            for active in [false, true] {
                let size = group.lruvec.classical.size(t, active);
                same(
                    "a classical list's size",
                    by_activity[t as usize][usize::from(active)],
                    size,
                )?;
            }
        }
        Ok(())
    }

    /// Counters that bound each other: I34, and what a policy adds to it.
    fn validate_refaults(&self, memcg: MemcgSlot) -> Result<(), String> {
        let e = &self.memcgs[memcg].events;
        same("pgscan", e.pgscan_direct + e.pgscan_kswapd + e.pgscan_proactive, e.pgscan)?;
        same("pgsteal", e.pgsteal_direct + e.pgsteal_kswapd + e.pgsteal_proactive, e.pgsteal)?;
        expect(e.pgsteal <= e.pgscan, || {
            format!("pgsteal {} is above pgscan {}", e.pgsteal, e.pgscan)
        })?;
        let by_type = [
            (e.workingset_refault_anon, e.workingset_activate_anon, e.workingset_restore_anon),
            (e.workingset_refault_file, e.workingset_activate_file, e.workingset_restore_file),
        ];
        let bounded = Switches::ACTIVATE | Switches::RECENCY;
        for (refault, activate, restore) in by_type {
            let classical = self.policy.lists() != Lists::MultiGen;
            let holds = activate <= refault
                && restore <= refault
                && (!classical || restore <= activate)
                && (classical || !self.policy.has(bounded) || activate <= restore);
            expect(holds, || {
                format!("{refault} refaults, {activate} activated, {restore} restored")
            })?;
        }
        Ok(())
    }

    /// Slots are opened in the order of their sequence numbers (I2).
    fn validate_births(&self, memcg: MemcgSlot) -> Result<(), String> {
        let gens = &self.memcgs[memcg].lruvec.gens;
        let oldest = gens.min_seq[0].min(gens.min_seq[1]);
        let born: Vec<_> = (oldest..=gens.max_seq).map(|seq| gens.born[slot(seq)]).collect();
        expect(born.is_sorted(), || format!("generations from {oldest} on were opened at {born:?}"))
    }

    fn validate_lists(&mut self, memcg: MemcgSlot) -> Result<(), String> {
        let lists = self.policy.lists();
        let lru = self.locked(memcg);
        let mut linked = 0;
        for t in LruType::ALL {
            // Slots outside of the window must be empty: no scan would ever look there.
            let heads: Vec<_> = match lists {
                Lists::MultiGen => {
                    lru.lv.gens.window(t).map(|slot| lru.lv.gens.lists[slot][t as usize]).collect()
                }
                Lists::Classical => [false, true].map(|a| lru.lv.classical.list(t, a)).to_vec(),
                Lists::Tide => Queue::ALL.map(|q| lru.lv.tide[t as usize].list(q)).to_vec(),
            };
            for (n, head) in heads.into_iter().enumerate() {
                expect(lru.folios.trail_is_right(head), || {
                    format!("a folio of list {n} of {t:?} has a mark that its trail lacks")
                })?;
                for id in lru.folios.walk(head) {
                    let f = &lru.folios[id];
                    let fits = f.lru_type() == t
                        && f.flags.contains(Flags::LRU | Flags::HEAD)
                        && f.memcg == memcg;
                    let in_gen = f.flags.generation().is_some() == (lists == Lists::MultiGen);
                    expect(in_gen, || format!("{id:?} has the flags of the other kind of lists"))?;
                    expect(fits, || {
                        format!("{id:?} is on a list of {t:?} with flags {:?}", f.flags)
                    })?;
                    let queue = lists != Lists::Tide || Queue::of(f.flags) as usize == n;
                    expect(queue, || format!("{id:?} is on another queue than it names"))?;
                    linked += 1;
                }
            }
        }
        let on_lists = self
            .folios
            .iter()
            .filter(|(_, f)| f.memcg == memcg && f.flags.contains(Flags::LRU))
            .count();
        same("folios on lists", linked, on_lists)?;
        self.validate_batches()
    }

    fn validate_batches(&self) -> Result<(), String> {
        for cpu in &self.cpus {
            for (flag, batch) in cpu.by_flag() {
                for &id in batch {
                    let flagged = self.folios.get(id).is_some_and(|f| f.flags.contains(flag));
                    expect(flagged, || format!("{id:?} waits in a batch without {flag:?}"))?;
                }
            }
        }
        for flag in [Flags::ADD_BATCH, Flags::ACT_BATCH, Flags::ROT_BATCH] {
            let waiting: usize = self
                .cpus
                .iter()
                .flat_map(Batches::by_flag)
                .filter(|b| b.0 == flag)
                .map(|b| b.1.len())
                .sum();
            let flagged = self.folios.iter().filter(|(_, f)| f.flags.contains(flag)).count();
            same("folios in batches", waiting, flagged)?;
        }
        Ok(())
    }
}

fn expect(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

#[expect(clippy::needless_pass_by_value, reason = "the callers have values")]
fn same<T: PartialEq + std::fmt::Debug>(what: &str, recounted: T, kept: T) -> Result<(), String> {
    expect(recounted == kept, || format!("{what}: recounted {recounted:?}, kept {kept:?}"))
}
