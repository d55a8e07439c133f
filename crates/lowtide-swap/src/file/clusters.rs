//! The table of a swap file: which slots are used, for what, and which to take next.
//!
//! ```text
//!            open ◄───────────── free ◄── punched ── being punched
//!             │ all slots given out                        ▲
//!             ▼                                            │
//!   full ◄──► partly used ──── its last slot freed ──► wholly free ──► open
//! ```
//!
//! New pages go into the *open* cluster, slot after slot, so that what is written together lies
//! together. When all its slots were given out, the next wholly free cluster is opened: one that
//! still has its space first, then one that was punched, then one that was never used. Slots that
//! become free in a cluster with others in use are taken only when no cluster is wholly free, from
//! the emptiest clusters first: such writes are as scattered as the holes are.
//!
//! A cluster has its table of slots, 24 bytes each, only while one of them is used.

use super::figures::FileStat;
use super::slot::CLUSTER_SLOTS;

/// Lists of partly used clusters, by how many of their slots are used.
const GROUPS: usize = 8;

/// What is recorded of a page when it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) checksum: u32,
    pub(super) tag: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Free,
    Writing,
    Stored,
}

/// One slot.
#[derive(Debug, Clone, Copy)]
struct SlotState {
    /// Another one for each use.
    serial: u64,
    tag: u64,
    checksum: u32,
    state: Use,
    /// Whether it was read ahead, and not touched since.
    ahead: bool,
}

const UNUSED: SlotState =
    SlotState { serial: 0, tag: 0, checksum: 0, state: Use::Free, ahead: false };

/// A stored page, as it was when it was looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) slot: u32,
    pub(super) contents: Contents,
    pub(super) serial: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    Open,
    Full,
    Partial(usize),
    /// Wholly free, with its space.
    Empty,
    Punching,
    /// Wholly free, without space.
    Punched,
}

#[derive(Debug)]
struct Cluster {
    slots: Option<Box<[SlotState; CLUSTER_SLOTS]>>,
    used: usize,
    /// The next slot to be given out, while it is open.
    next: usize,
    list: List,
    /// Position in its list.
    at: usize,
}

/// All clusters of a file.
#[derive(Debug)]
pub(super) struct Clusters {
    slots: u32,
    used: u32,
    punching: u32,
    serial: u64,
    /// Those that were ever used.
    clusters: Vec<Cluster>,
    open: Option<u32>,
    empty: Vec<u32>,
    punched: Vec<u32>,
    partial: [Vec<u32>; GROUPS],
    /// Slots of writes that have timed out, and may still reach the device.
    pub(super) late: Vec<u32>,
    pub(super) stat: FileStat,
}

impl Clusters {
    pub(super) fn new(slots: u32) -> Clusters {
        Clusters {
            slots,
            used: 0,
            punching: 0,
            serial: 0,
            clusters: Vec::new(),
            open: None,
            empty: Vec::new(),
            punched: Vec::new(),
            partial: Default::default(),
            late: Vec::new(),
            stat: FileStat::default(),
        }
    }

    pub(super) const fn slots(&self) -> u32 {
        self.slots
    }

    pub(super) const fn used(&self) -> u32 {
        self.used
    }

    pub(super) const fn free(&self) -> u32 {
        self.slots - self.used
    }

    /// Free slots, without those that are being punched.
    pub(super) const fn available(&self) -> u32 {
        self.free() - self.punching
    }

    /// Takes slots for pages that are about to be written.
    ///
    /// # Panics
    /// When fewer are available.
    pub(super) fn allocate(&mut self, contents: &[Contents]) -> Vec<u32> {
        assert!(contents.len() <= self.available() as usize);
        let mut taken = Vec::with_capacity(contents.len());
        while taken.len() < contents.len() {
            let number = self.open.or_else(|| self.open_next()).or_else(|| self.emptiest());
            let number = number.expect("available slots are in some cluster");
            let wanted = &contents[taken.len()..];
            self.take_from(number, wanted, &mut taken);
        }
        taken
    }

    /// Takes slots of one cluster in ascending order, as many as there are.
    fn take_from(&mut self, number: u32, contents: &[Contents], taken: &mut Vec<u32>) {
        let len = self.len_of(number);
        let cluster = &mut self.clusters[number as usize];
        let mut slot = if cluster.list == List::Open { cluster.next } else { 0 };
        let slots = cluster.slots.get_or_insert_with(|| Box::new([UNUSED; CLUSTER_SLOTS]));
        let mut left = contents.iter();
        while slot < len && !left.as_slice().is_empty() {
            if slots[slot].state == Use::Free
                && let Some(&Contents { checksum, tag }) = left.next()
            {
                let serial = self.serial;
                self.serial += 1;
                slots[slot] =
                    SlotState { serial, tag, checksum, state: Use::Writing, ahead: false };
                cluster.used += 1;
                self.used += 1;
                taken.push(number * CLUSTER_SLOTS as u32 + slot as u32);
            }
            slot += 1;
        }
        cluster.next = slot;
        if self.open == Some(number) && slot == len {
            self.open = None;
        }
        self.relist(number);
    }

    /// Opens a wholly free cluster.
    fn open_next(&mut self) -> Option<u32> {
        let known = self.empty.pop().or_else(|| self.punched.pop());
        let number = match known {
            Some(number) => number,
            None => {
                let number = u32::try_from(self.clusters.len()).ok()?;
                if u64::from(number) * CLUSTER_SLOTS as u64 >= u64::from(self.slots) {
                    return None;
                }
                let list = List::Open;
                self.clusters.push(Cluster { slots: None, used: 0, next: 0, list, at: 0 });
                number
            }
        };
        let cluster = &mut self.clusters[number as usize];
        cluster.list = List::Open;
        cluster.next = 0;
        self.open = Some(number);
        Some(number)
    }

    fn emptiest(&self) -> Option<u32> {
        self.partial.iter().find_map(|group| group.last().copied())
    }

    /// The page is written.
    pub(super) fn publish(&mut self, slot: u32) {
        if let Some(state) = self.at(slot) {
            debug_assert_eq!(state.state, Use::Writing);
            state.state = Use::Stored;
        }
    }

    /// The page could not be written: its slot is free again.
    pub(super) fn abandon(&mut self, slot: u32) {
        self.release(slot, Use::Writing);
    }

    /// Frees the slot of a stored page. Returns whether there was one.
    pub(super) fn remove(&mut self, slot: u32) -> bool {
        self.release(slot, Use::Stored)
    }

    fn release(&mut self, slot: u32, expected: Use) -> bool {
        let Some(state) = self.at(slot).filter(|state| state.state == expected) else {
            return false;
        };
        let wasted = state.ahead;
        *state = UNUSED;
        self.stat.ahead_unused += u64::from(wasted);
        self.used -= 1;
        let number = slot / CLUSTER_SLOTS as u32;
        self.clusters[number as usize].used -= 1;
        self.relist(number);
        true
    }

    /// The page that is stored in a slot.
    pub(super) fn stored(&self, slot: u32) -> Option<Found> {
        let cluster = self.clusters.get(slot as usize / CLUSTER_SLOTS)?;
        let state = &cluster.slots.as_ref()?[slot as usize % CLUSTER_SLOTS];
        let contents = Contents { checksum: state.checksum, tag: state.tag };
        let found = Found { slot, contents, serial: state.serial };
        (state.state == Use::Stored).then_some(found)
    }

    /// The other stored pages of the aligned window around a slot; at most a cluster.
    pub(super) fn around(&self, slot: u32, window: u32) -> Vec<Found> {
        let first = slot & !(window - 1);
        let others = (first..first + window).filter(|&other| other != slot);
        others.filter_map(|other| self.stored(other)).collect()
    }

    /// Notes that a page was read ahead, if it is the one that was found.
    pub(super) fn mark_ahead(&mut self, found: &Found) -> bool {
        let same = self.stored(found.slot).is_some_and(|now| now.serial == found.serial);
        if same && let Some(state) = self.at(found.slot) {
            // Read ahead again before a touch: the first time was for nothing.
            let again = std::mem::replace(&mut state.ahead, true);
            self.stat.ahead += 1;
            self.stat.ahead_unused += u64::from(again);
        }
        same
    }

    /// A page that was marked was not wanted.
    pub(super) fn unmark_ahead(&mut self, found: &Found) {
        if self.stored(found.slot).is_some_and(|now| now.serial == found.serial)
            && self.take_ahead(found.slot)
        {
            self.stat.ahead -= 1;
        }
    }

    /// Whether a slot was read ahead and not touched; it is forgotten.
    pub(super) fn take_ahead(&mut self, slot: u32) -> bool {
        self.at(slot).is_some_and(|state| std::mem::take(&mut state.ahead))
    }

    /// Takes a wholly free cluster out of use while it is punched. Returns it and its first slot.
    pub(super) fn begin_punch(&mut self) -> Option<(u32, u32)> {
        let number = self.empty.pop()?;
        self.clusters[number as usize].list = List::Punching;
        self.punching += self.len_of(number) as u32;
        Some((number, number * CLUSTER_SLOTS as u32))
    }

    /// The cluster can be used again.
    pub(super) fn end_punch(&mut self, number: u32) {
        self.punching -= self.len_of(number) as u32;
        self.clusters[number as usize].list = List::Punched;
        self.punched.push(number);
    }

    fn at(&mut self, slot: u32) -> Option<&mut SlotState> {
        let cluster = self.clusters.get_mut(slot as usize / CLUSTER_SLOTS)?;
        Some(&mut cluster.slots.as_mut()?[slot as usize % CLUSTER_SLOTS])
    }

    /// Slots of a cluster: the last one may have fewer.
    fn len_of(&self, number: u32) -> usize {
        (self.slots as usize - number as usize * CLUSTER_SLOTS).min(CLUSTER_SLOTS)
    }

    /// Puts a cluster that is not open into the list where it belongs now.
    fn relist(&mut self, number: u32) {
        if self.open == Some(number) {
            return;
        }
        let len = self.len_of(number);
        let cluster = &mut self.clusters[number as usize];
        let list = match cluster.used {
            0 => List::Empty,
            used if used == len => List::Full,
            used => List::Partial(used * GROUPS / len),
        };
        if list == cluster.list {
            return;
        }
        let (before, at) = (cluster.list, cluster.at);
        cluster.list = list;
        match list {
            List::Partial(group) => {
                cluster.at = self.partial[group].len();
                self.partial[group].push(number);
            }
            _ if list == List::Empty => {
                cluster.slots = None;
                self.empty.push(number);
            }
            _ => {}
        }
        if let List::Partial(group) = before {
            self.partial[group].swap_remove(at);
            if let Some(&moved) = self.partial[group].get(at) {
                self.clusters[moved as usize].at = at;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(n: usize) -> Vec<Contents> {
        vec![Contents { checksum: 0, tag: 0 }; n]
    }

    fn write(table: &mut Clusters, n: usize) -> Vec<u32> {
        let slots = table.allocate(&some(n));
        slots.iter().for_each(|&slot| table.publish(slot));
        slots
    }

    #[test]
    fn slots_follow_each_other_while_clusters_are_free() {
        let mut table = Clusters::new(200);
        assert_eq!(write(&mut table, 10), (0..10).collect::<Vec<_>>());
        assert_eq!(write(&mut table, 100), (10..110).collect::<Vec<_>>());
        // A hole of an open or partly used cluster is not filled yet.
        assert!(table.remove(3) && table.remove(70));
        assert_eq!(write(&mut table, 90), (110..200).collect::<Vec<_>>());
        assert_eq!((table.free(), table.used()), (2, 198));
        let mut holes = write(&mut table, 2);
        holes.sort_unstable();
        assert_eq!(holes, [3, 70]);
        assert_eq!(table.free(), 0);
    }

    #[test]
    fn a_cluster_that_is_wholly_free_is_used_again_before_a_new_one() {
        let mut table = Clusters::new(64 * 4);
        let slots = write(&mut table, 65);
        assert!(slots[..64].iter().all(|&slot| table.remove(slot)));
        assert_eq!(write(&mut table, 63).last(), Some(&127), "the open one first");
        assert_eq!(write(&mut table, 2), [0, 1]);
    }

    #[test]
    fn a_cluster_that_is_being_punched_is_not_used() {
        let mut table = Clusters::new(100);
        let slots = write(&mut table, 100);
        assert!(slots[64..].iter().all(|&slot| table.remove(slot)));
        assert_eq!(table.begin_punch(), Some((1, 64)));
        assert_eq!((table.free(), table.available()), (36, 0), "the last cluster has 36 slots");
        assert_eq!(table.begin_punch(), None);
        table.end_punch(1);
        assert_eq!(table.available(), 36);
        assert_eq!(write(&mut table, 36)[0], 64);
    }

    #[test]
    fn the_emptiest_clusters_are_filled_first_and_every_slot_is_found() {
        let mut table = Clusters::new(64 * 3);
        let slots = write(&mut table, 64 * 3);
        let freed: Vec<u32> =
            slots.iter().copied().filter(|slot| slot % 64 < slot / 64 * 20).collect();
        assert!(freed.iter().all(|&slot| table.remove(slot)));
        assert_eq!(write(&mut table, 1)[0] / 64, 2, "40 of its slots are free");
        let mut rest = write(&mut table, freed.len() - 1);
        assert_eq!(table.free(), 0);
        rest.sort_unstable();
        rest.dedup();
        assert_eq!(rest.len(), freed.len() - 1);
        assert!((0..64 * 3).all(|slot| table.remove(slot)) && table.used() == 0);
        assert!(!table.remove(0), "it is free");
    }

    #[test]
    fn a_page_read_ahead_is_touched_or_wasted_once() {
        let mut table = Clusters::new(64);
        write(&mut table, 8);
        let found = table.around(2, 4);
        assert_eq!(found.iter().map(|found| found.slot).collect::<Vec<_>>(), [0, 1, 3]);
        assert!(found.iter().all(|found| table.mark_ahead(found)));
        assert!(table.take_ahead(0) && !table.take_ahead(0), "the second touch is no hit");
        assert!(table.remove(1), "never touched");
        table.unmark_ahead(&found[2]);
        assert!(!table.mark_ahead(&found[1]), "it is gone");
        assert_eq!((table.stat.ahead, table.stat.ahead_unused), (2, 1));
    }
}
