//! A group that is removed leaves what it holds to its parent.
//!
//! Charges need no change: they are in the parent's counter already. Folios move one by one,
//! from the oldest to the youngest, and keep their distance from the young end, so that the parent
//! does not take them for new ones. Source: `docs/kernel/memcg.md` §3.

use crate::counters::Numbers;
use crate::engine::Engine;
use crate::folio::Flags;
use crate::lruvec::{Queue, slot as ring_slot};
use crate::policy::Lists;
use crate::units::{FolioId, LruType, MemcgSlot};

impl Engine {
    /// Gives everything of a group to its parent. Nothing of it waits in a batch or is isolated.
    pub(super) fn reparent(&mut self, child: MemcgSlot, parent: MemcgSlot) {
        match self.policy().lists() {
            Lists::MultiGen => self.reparent_generations(child, parent),
            Lists::Classical => self.reparent_lists(child, parent),
            Lists::Tide => self.reparent_tide(child, parent),
        }
        if self.memcgs[child].lruvec.unevictable > 0 {
            // Unevictable folios are on no list.
            for index in 0..self.folios.frames() {
                let id = FolioId(index);
                if self.folios.get(id).is_some_and(|f| f.memcg == child) {
                    self.folios[id].memcg = parent;
                }
            }
        }
        for space in self.spaces_of(child) {
            self.give_space(space, child, parent);
        }
        let gone = &mut self.memcgs[child];
        let (events, resident, lists) = (gone.events, gone.resident, gone.lruvec.take_lists());
        let zswap = gone.zswap_events;
        let sums =
            [gone.file_dirty, gone.file_writeback, gone.swapcached, gone.swap_only, gone.reserved];
        let unevictable = gone.lruvec.unevictable;
        let cost = std::mem::take(&mut gone.lruvec.cost);
        for list in lists {
            self.folios.drop_list(list);
        }
        let heir = &mut self.memcgs[parent];
        heir.events.add(&events);
        heir.zswap_events.add(&zswap);
        for t in LruType::ALL {
            heir.resident[t as usize] += resident[t as usize];
        }
        let theirs = [
            &mut heir.file_dirty,
            &mut heir.file_writeback,
            &mut heir.swapcached,
            &mut heir.swap_only,
            &mut heir.reserved,
        ];
        for (theirs, sum) in theirs.into_iter().zip(sums) {
            *theirs += sum;
        }
        heir.lruvec.unevictable += unevictable;
        heir.lruvec.cost.inherit(&cost);
        self.reparent_dirty(child, parent);
    }

    fn reparent_generations(&mut self, child: MemcgSlot, parent: MemcgSlot) {
        for t in LruType::ALL {
            let gens = &self.memcgs[child].lruvec.gens;
            let max = gens.max_seq;
            let lists: Vec<_> = (gens.min_seq[t as usize]..=max)
                .map(|seq| gens.lists[ring_slot(seq)][t as usize])
                .collect();
            for list in lists {
                for id in self.folios.walk(list) {
                    // The field is right, not the list; a stray counts as one of the oldest.
                    let of = self.folios[id].flags.generation();
                    let mut lru = self.locked(child);
                    let seqs = lru.lv.gens.min_seq[t as usize]..=max;
                    let depth = max
                        - seqs
                            .clone()
                            .find(|&seq| Some(ring_slot(seq)) == of)
                            .unwrap_or(*seqs.start());
                    lru.absorb(id);
                    lru.take_off_list(id);
                    self.folios[id].memcg = parent;
                    self.locked(parent).adopt(id, depth);
                }
            }
        }
    }

    fn reparent_lists(&mut self, child: MemcgSlot, parent: MemcgSlot) {
        for t in LruType::ALL {
            for active in [false, true] {
                let list = self.memcgs[child].lruvec.classical.list(t, active);
                for id in self.folios.walk(list) {
                    self.locked(child).take_off_list(id);
                    self.folios[id].memcg = parent;
                    self.folios[id].flags.set(Flags::ACTIVE, active);
                    self.locked(parent).add_to_classical(id, false);
                }
            }
        }
    }

    fn reparent_tide(&mut self, child: MemcgSlot, parent: MemcgSlot) {
        for t in LruType::ALL {
            for queue in Queue::ALL {
                let list = self.memcgs[child].lruvec.tide[t as usize].list(queue);
                for id in self.folios.walk(list) {
                    let mut lru = self.locked(child);
                    let idle = lru.idle_for(id);
                    lru.take_off_list(id);
                    self.folios[id].memcg = parent;
                    self.locked(parent).adopt_to_tide(id, queue, idle);
                }
            }
        }
    }
}
