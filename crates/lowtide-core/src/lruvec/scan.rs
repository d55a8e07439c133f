//! Scanning: taking folios from the old end, sorting away those that belong elsewhere, isolating
//! the rest.
//!
//! The lists are sorted lazily: promotion changes a folio's generation field and nothing else, and
//! only here, when the scan meets it, does the folio move to the list it belongs on. What is left
//! after sorting is isolated: taken off its list and out of the sizes, so that its fate can be
//! settled without the lock. Source: `docs/kernel/reclaim.md` §2.8 and 1.4.

use super::Locked;
use super::generation::slot;
use crate::folio::{Flags, FolioTable};
use crate::limits::{MIN_LRU_BATCH, MIN_NR_GENS};
use crate::policy::{Lists, Switches};
use crate::units::{FolioId, LruType};

/// What one scan did, in base pages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scan {
    pub(crate) scanned: u64,
    pub(crate) isolated: u64,
    /// Moved without being isolated.
    pub(crate) sorted: u64,
    /// The folio budget was used up.
    pub(crate) exhausted: bool,
    /// Dirty file pages that were sorted away (before S10), and those of them not yet under
    /// writeback.
    pub(crate) dirty_sorted: u64,
    pub(crate) unqueued_dirty: u64,
}

/// Where the sorter sent a folio.
enum Sorted {
    Away,
    NotIsolatable,
    Isolate,
}

impl Locked<'_> {
    /// Scans the oldest generation of a type; appends the isolated folios to `out`, oldest first.
    ///
    /// `folios` is a number of *folios*, everything counted in the answer is pages
    /// (`docs/kernel/reclaim.md` §3.4). `may_io`: the invocation may wait for a device.
    pub(crate) fn scan(
        &mut self,
        t: LruType,
        tier_limit: usize,
        folios: u64,
        may_io: bool,
        out: &mut Vec<FolioId>,
    ) -> Scan {
        let mut scan = Scan::default();
        if self.lv.gens.count(t) == MIN_NR_GENS {
            return scan;
        }
        let mut left = folios;
        let mut skipped = Vec::new();
        let mut skipped_pages = 0;
        let oldest = self.lv.gens.lists[slot(self.lv.gens.min_seq[t as usize])][t as usize];
        let mut fetched = 0;
        while let Some(id) = self.folios.oldest(oldest) {
            if left == 0 {
                break;
            }
            if fetched == 0 {
                fetched = left.min(FolioTable::FETCHED as u64);
                let accesses = self.accesses;
                self.folios.fetch_oldest(oldest, fetched as usize, |id| accesses.look(id));
            }
            fetched -= 1;
            left -= 1;
            let pages = self.folios[id].pages();
            scan.scanned += pages;
            match self.sort(id, t, tier_limit, may_io, &mut scan) {
                Sorted::Away => scan.sorted += pages,
                Sorted::Isolate => {
                    self.isolate(id);
                    if out.capacity() == 0 {
                        // Most scans that isolate a folio isolate a batch.
                        out.reserve(MIN_LRU_BATCH as usize);
                    }
                    out.push(id);
                    scan.isolated += pages;
                }
                Sorted::NotIsolatable => {
                    self.folios.unlink(id);
                    skipped.push(id);
                    skipped_pages += pages;
                }
            }
            if scan.isolated.max(skipped_pages) >= MIN_LRU_BATCH {
                break;
            }
        }
        for id in skipped {
            self.folios.push_young(oldest, id);
        }
        scan.exhausted = left == 0;
        self.events.pgrefill += scan.sorted;
        scan
    }

    fn sort(
        &mut self,
        id: FolioId,
        t: LruType,
        tier_limit: usize,
        may_io: bool,
        scan: &mut Scan,
    ) -> Sorted {
        self.absorb(id);
        let gens = &self.lv.gens;
        let min = gens.min_seq[t as usize];
        let f = &self.folios[id];
        let (flags, pages) = (f.flags, f.pages());
        if flags.contains(Flags::MLOCKED) {
            if self.policy.has(Switches::UNEVICTABLE) {
                return Sorted::Isolate;
            }
            self.cull(id);
            return Sorted::Away;
        }
        if let Some(gen_slot) = flags.generation()
            && gen_slot != slot(min)
        {
            if !gens.is_stray(t, gen_slot) {
                self.move_young(id, gen_slot, t);
                return Sorted::Away;
            }
            // A stray: older than the oldest.
            self.set_generation(id, Some(slot(min)));
        }
        if flags.tier() > tier_limit || flags.saturated() {
            let to = self.inc_gen(id, t);
            self.move_young(id, to, t);
            if !flags.saturated() {
                self.lv.tiers[t as usize].protect(flags.tier(), pages);
                self.events.protected += pages;
            }
            return Sorted::Away;
        }
        let file_dirty = t == LruType::File && flags.contains(Flags::DIRTY);
        if !self.policy.has(Switches::S10) && (flags.contains(Flags::WRITEBACK) || file_dirty) {
            if file_dirty {
                scan.dirty_sorted += pages;
                if !flags.contains(Flags::WRITEBACK) {
                    scan.unqueued_dirty += pages;
                }
            }
            let to = self.inc_gen(id, t);
            self.folios[id].flags.insert(Flags::RECLAIM);
            self.move_young(id, to, t);
            return Sorted::Away;
        }
        let needs_swap = t == LruType::Anon && !flags.contains(Flags::SWAPCACHE);
        let needs_io = flags.contains(Flags::DIRTY) || needs_swap;
        if !may_io && needs_io && !self.policy.has(Switches::S9) {
            return Sorted::NotIsolatable;
        }
        Sorted::Isolate
    }

    fn move_young(&mut self, id: FolioId, gen_slot: usize, t: LruType) {
        self.folios.unlink(id);
        self.folios.push_young(self.lv.gens.lists[gen_slot][t as usize], id);
    }

    /// Takes a folio off its generation for reclaim (`docs/kernel/reclaim.md` §1.4).
    fn isolate(&mut self, id: FolioId) {
        self.folios.unlink(id);
        self.set_generation(id, None);
        let flags = &mut self.folios[id].flags;
        flags.remove(Flags::LRU);
        if !flags.contains(Flags::REFERENCED) {
            flags.set_refs_field(0);
        }
        if !self.policy.has(Switches::S10) {
            flags.remove(Flags::RECLAIM);
        }
        self.lv.isolated += self.folios[id].pages();
    }

    /// Puts a folio that is on no list where it belongs.
    #[inline]
    pub(crate) fn add(&mut self, id: FolioId, tail: bool) {
        if self.folios[id].flags.contains(Flags::MLOCKED) {
            self.cull(id);
            return;
        }
        match self.policy.lists() {
            Lists::MultiGen => self.add_to_generation(id, tail),
            Lists::Classical => self.add_to_classical(id, tail),
            Lists::Tide => self.add_to_tide(id, tail),
        }
    }

    /// Takes an unevictable folio off the lists for as long as it is one.
    pub(crate) fn cull(&mut self, id: FolioId) {
        let pages = self.folios[id].pages();
        if self.folios[id].flags.contains(Flags::LRU) {
            self.take_off_list(id);
        }
        self.folios[id].flags.remove(Flags::ACTIVE);
        self.folios[id].flags.insert(Flags::CULLED);
        self.lv.unevictable += pages;
    }

    /// Takes a folio off whatever list it is on, out of the sizes too.
    #[inline]
    pub(crate) fn take_off_list(&mut self, id: FolioId) {
        self.folios.unlink(id);
        match self.policy.lists() {
            Lists::MultiGen => self.set_generation(id, None),
            Lists::Classical => self.leave_classical(id),
            Lists::Tide => self.leave_tide(id),
        }
        self.folios[id].flags.remove(Flags::LRU);
    }
}
