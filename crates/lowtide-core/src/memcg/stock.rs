//! Stocks: charges taken in advance, per CPU.
//!
//! Walking up the tree for every page would make its upper counters the hottest words of the
//! machine. So a charge takes a batch, and the part that it does not need stays with the CPU that
//! took it: up to 64 pages for each of seven groups. Stocked pages are charged already at every
//! level but the root, whose counter is the number of frames in use; so a stock hides pages from
//! its siblings' limits, never memory. A refill that would make a slot overflow empties it. A
//! charge that fails has all stocks below the full group drained before it gives up. Source:
//! `docs/kernel/memcg.md` §2.1.

use crate::units::MemcgSlot;

/// Pages that a charge takes at once, and that a slot may hold.
pub(crate) const CHARGE_BATCH: u64 = 64;
/// Groups that one CPU has stocks of.
const SLOTS: usize = 7;

/// Pages given back to a group's counters.
pub(super) type Returned = (MemcgSlot, u64);

/// The stock of one CPU.
#[derive(Clone, Debug, Default)]
struct Stock {
    slots: [Option<(MemcgSlot, u64)>; SLOTS],
    /// The next slot to evict.
    evict: usize,
}

/// The stocks of all CPUs.
#[derive(Debug)]
pub(crate) struct Stocks {
    cpus: Vec<Stock>,
}

impl Stocks {
    pub(crate) fn new(cpus: usize) -> Self {
        Self { cpus: vec![Stock::default(); cpus] }
    }

    /// Takes pages of a group's stock. Returns whether there were enough.
    pub(crate) fn consume(&mut self, cpu: u16, group: MemcgSlot, pages: u64) -> bool {
        for slot in &mut self.cpus[usize::from(cpu)].slots {
            if let Some((of, held)) = slot
                && *of == group
            {
                if *held < pages {
                    return false;
                }
                *held -= pages;
                if *held == 0 {
                    *slot = None;
                }
                return true;
            }
        }
        false
    }

    /// Puts charged pages into a group's stock. What comes back has to be given back to the
    /// counters: of a slot that overflows, all of it.
    pub(crate) fn refill(&mut self, cpu: u16, group: MemcgSlot, pages: u64) -> Option<Returned> {
        if pages == 0 {
            return None;
        }
        let stock = &mut self.cpus[usize::from(cpu)];
        if let Some(slot) =
            stock.slots.iter_mut().find(|s| matches!(s, Some((of, _)) if *of == group))
        {
            let held = slot.as_ref().map_or(0, |s| s.1) + pages;
            if held > CHARGE_BATCH {
                *slot = None;
                return Some((group, held));
            }
            *slot = Some((group, held));
            return None;
        }
        if pages > CHARGE_BATCH {
            return Some((group, pages));
        }
        if let Some(empty) = stock.slots.iter_mut().find(|s| s.is_none()) {
            *empty = Some((group, pages));
            return None;
        }
        let at = stock.evict;
        stock.evict = (at + 1) % SLOTS;
        stock.slots[at].replace((group, pages))
    }

    /// Empties the stocks of all groups that `of` names.
    pub(crate) fn drain(&mut self, of: impl Fn(MemcgSlot) -> bool) -> Vec<Returned> {
        let slots = self.cpus.iter_mut().flat_map(|cpu| &mut cpu.slots);
        slots
            .filter_map(
                |slot| if slot.is_some_and(|(group, _)| of(group)) { slot.take() } else { None },
            )
            .collect()
    }

    /// Pages in stocks of a group.
    pub(crate) fn held(&self, group: MemcgSlot) -> u64 {
        let slots = self.cpus.iter().flat_map(|cpu| cpu.slots).flatten();
        slots.filter(|(of, _)| *of == group).map(|(_, held)| held).sum()
    }

    /// The largest slot, for the check of invariants.
    pub(crate) fn largest(&self) -> u64 {
        self.cpus
            .iter()
            .flat_map(|cpu| cpu.slots)
            .flatten()
            .map(|(_, held)| held)
            .max()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: MemcgSlot = MemcgSlot(1);

    #[test]
    fn a_slot_that_overflows_gives_all_of_it_back() {
        let mut stocks = Stocks::new(1);
        assert_eq!(stocks.refill(0, A, 40), None);
        assert_eq!(stocks.refill(0, A, 24), None, "64 fit");
        assert_eq!(stocks.refill(0, A, 1), Some((A, 65)), "not the excess alone");
        assert_eq!(stocks.held(A), 0);
    }

    #[test]
    fn a_stock_serves_whole_requests_or_none() {
        let mut stocks = Stocks::new(2);
        stocks.refill(1, A, 10);
        assert!(!stocks.consume(0, A, 1), "it belongs to the other CPU");
        assert!(!stocks.consume(1, A, 11));
        assert!(stocks.consume(1, A, 10) && !stocks.consume(1, A, 1));
    }

    #[test]
    fn the_eighth_group_evicts_the_others_in_turn() {
        let mut stocks = Stocks::new(1);
        for group in 1..=7 {
            assert_eq!(stocks.refill(0, MemcgSlot(group), 5), None);
        }
        for group in 8..=16 {
            let gone = stocks.refill(0, MemcgSlot(group), 5);
            assert_eq!(gone, Some((MemcgSlot(group - 7), 5)), "round robin");
        }
        assert_eq!(stocks.drain(|group| group.0 >= 12).len(), 5);
        assert_eq!(stocks.largest(), 5);
    }
}
