//! `tide`: a small queue in front of a clock, where pages change places only on proof.
//!
//! The proof is that of LIRS (S. Jiang, X. Zhang, SIGMETRICS 2002): a page that comes back after a
//! time `r` without an access deserves a place in the main memory if some page there has not been
//! seen in use for longer than `r`. Then the two change places; otherwise nothing moves. So a loop
//! that is larger than memory keeps a fixed part of itself, a scan displaces nothing, and a phase
//! replaces what has become idle.
//!
//! ```text
//!   miss ---> NEW ---------> OLD ---- young, and a page of MAIN is idle ---> MAIN <--+ young, or
//!           3/8 of SMALL      | not                                    ^      |      | lately so
//!                             v                                       /     hand ----+
//!                          shadow ---- BACK: a page is idle ---------+        | idle
//!                                                                             v
//!                                                                          shadow
//! ```
//!
//! * **An access sets one bit.** It is read and cleared when a page passes from NEW to OLD, when it
//!   leaves OLD, and when the hand meets it in MAIN. A bit set in NEW alone is the echo of the miss
//!   (a page written, then read once) and proves nothing.
//! * **The hand moves only to search** (`tide_hand.rs`). Each page that returns pays for few steps,
//!   fewer the longer it was away, so a turn takes long, and pages differ by frequency: a young one
//!   gets up to three further turns, as in S3-FIFO.
//! * **Pages that were away for more than two memories of misses** are not considered.
//! * **SMALL is as large as it is worth.** A page that would have been a hit, had its queue been an
//!   eighth of memory longer, is a vote for that queue (as in ARC); for SMALL it counts only if a
//!   page of MAIN was idle.
//!
//! An insertion can neither evict nor look at young bits. So a page that comes back waits on a list
//! of its own, BACK, which counts as SMALL, and the next pass that makes room searches for it
//! first: what it finds idle is the first that goes.
//!
//! Each type of each group has such queues, and *memory* is what it had when reclaim last looked,
//! or more, if more came in since. Until reclaim looks for the first time, and while an eighth of
//! memory is free again, new pages fill MAIN, and SMALL as far as its target. Time is counted in
//! memories of misses, so a memory that grows or shrinks changes no time in the past. A page's last
//! known use takes 16 bits and wraps after 256 memories. A shadow has the time in 16ths (it wraps
//! after 128), the number of the eviction in 32nds (after 4), and the queue.
//!
//! The rules and constants are the result of experiments (`docs/decisions/0011-tide.md`).

use super::Locked;
use crate::folio::{Flags, FolioTable, ListHead};
use crate::units::{FolioId, LruType};

/// Units of time in a memory's worth of misses.
pub(super) const MEMORY: u32 = 256;
/// Units of time in one of a shadow's.
const SHADOW_UNIT: u32 = MEMORY / 16;
const SHADOW_TIME: u32 = (1 << 11) - 1;
/// Units of evictions in a memory's worth of them.
const EVICTIONS: u32 = 32;
const SHADOW_EVICTIONS: u32 = (1 << 7) - 1;
/// A page is near if fewer units of evictions from its queue lie between: an eighth of memory.
const NEAR: u32 = EVICTIONS / 8;
/// Pages that were away for longer are not considered.
const LONG: u32 = 2 * MEMORY;
/// Unused steps of the hand, in halves, that are kept.
pub(super) const CREDIT_MAX: u64 = 128;
/// Changes of the target, in quarters of a page.
const GROW: u64 = 8;
const SHRINK: u64 = 6;
/// The least target, one page, in quarters.
const LEAST: u64 = 4;

/// A queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Queue {
    /// The young part of SMALL.
    New,
    /// The old part of SMALL.
    Old,
    /// Pages of SMALL that came back over a shadow, and for which nothing was searched yet.
    Back,
    Main,
}

impl Queue {
    pub(crate) const ALL: [Self; 4] = [Self::New, Self::Old, Self::Back, Self::Main];

    /// The queue that a folio is on, or was isolated from.
    pub(crate) const fn of(flags: Flags) -> Self {
        Self::ALL[flags.queue_field() as usize]
    }
}

/// A count of fractions of memory.
#[derive(Clone, Copy, Debug, Default)]
struct Ticks {
    count: u32,
    /// Pages times units that are no whole unit yet.
    rest: u64,
}

impl Ticks {
    const fn advance(&mut self, pages: u64, units: u32, memory: u64) {
        self.rest += pages * units as u64;
        if self.rest >= memory {
            self.count = self.count.wrapping_add((self.rest / memory) as u32);
            self.rest %= memory;
        }
    }
}

/// The queues of one type.
#[derive(Debug)]
pub(crate) struct TideLists {
    lists: [ListHead; 4],
    size: [u64; 4],
    /// Pages there were when reclaim last looked, or more, if more came in since.
    memory: u64,
    /// Reclaim has looked at it.
    limited: bool,
    /// Size of SMALL to aim at, in quarters of a page; meaningless until reclaim has looked.
    target: u64,
    /// Misses.
    now: Ticks,
    /// Pages evicted from SMALL, and from MAIN.
    gone: [Ticks; 2],
    /// Steps that the hand may make, in halves.
    pub(super) credit: u64,
}

impl TideLists {
    pub(super) fn new(folios: &mut FolioTable) -> Self {
        Self {
            lists: std::array::from_fn(|_| folios.new_list()),
            size: [0; 4],
            memory: 1,
            limited: false,
            target: LEAST,
            now: Ticks::default(),
            gone: [Ticks::default(); 2],
            credit: 0,
        }
    }

    pub(super) fn heads(&self) -> impl Iterator<Item = ListHead> {
        self.lists.iter().copied()
    }

    pub(crate) const fn list(&self, queue: Queue) -> ListHead {
        self.lists[queue as usize]
    }

    pub(crate) const fn size(&self, queue: Queue) -> u64 {
        self.size[queue as usize]
    }

    pub(crate) fn pages(&self) -> u64 {
        self.size.iter().sum()
    }

    /// Pages of SMALL and MAIN.
    pub(crate) fn small_main(&self) -> (u64, u64) {
        let main = self.size(Queue::Main);
        (self.pages() - main, main)
    }

    pub(super) const fn now(&self) -> u16 {
        self.now.count as u16
    }

    /// A twentieth of a memory: the first target.
    fn first_target(&self) -> u64 {
        (self.pages() / 5).max(LEAST)
    }

    fn target(&self) -> u64 {
        if self.limited { self.target } else { self.first_target() }
    }

    /// Whether SMALL, less some pages that cannot go, is larger than it should be.
    pub(super) fn has_surplus(&self, vain: u64) -> bool {
        self.small_main().0.saturating_sub(vain) * 4 > self.target()
    }

    /// Whether MAIN may grow.
    pub(super) fn has_room_in_main(&self) -> bool {
        self.size(Queue::Main) * 4 + self.target() < self.memory * 4
    }

    /// Whether there is room for what comes in without an eviction.
    fn fills(&self) -> bool {
        !self.limited || self.pages() * 8 < self.memory * 7
    }

    /// Reclaim begins to look: what there is now is what the memory holds.
    pub(crate) fn look(&mut self) {
        if !self.limited {
            self.target = self.first_target();
            self.limited = true;
        }
        self.memory = self.pages().max(1);
    }

    pub(super) const fn grow(&mut self) {
        let most = self.memory * 4 * 9 / 10;
        self.target = if self.target + GROW < most { self.target + GROW } else { most };
        self.target = if self.target < LEAST { LEAST } else { self.target };
    }

    fn shrink(&mut self) {
        let least = (self.memory * 4 / 100).max(LEAST);
        self.target = self.target.saturating_sub(SHRINK).max(least);
    }

    /// What a validation finds wrong with the numbers.
    pub(crate) fn wrong(&self) -> Option<String> {
        let least_memory = self.memory >= 1 && self.memory >= self.pages();
        let target = self.target >= LEAST;
        let credit = self.credit <= CREDIT_MAX;
        (!(least_memory && target && credit)).then(|| format!("{self:?}"))
    }
}

impl Locked<'_> {
    pub(super) fn tide_of(&mut self, id: FolioId) -> &mut TideLists {
        &mut self.lv.tide[self.folios[id].lru_type() as usize]
    }

    /// A folio comes in.
    pub(crate) fn enter_tide(&mut self, id: FolioId) {
        let f = &mut self.folios[id];
        let lists = &mut self.lv.tide[f.lru_type() as usize];
        lists.now.advance(f.pages(), MEMORY, lists.memory);
        let back = Queue::of(f.flags) == Queue::Back;
        let (fills, room) = (lists.fills(), lists.has_room_in_main());
        if fills && (back || room) {
            f.flags.set_queue_field(Queue::Main as u32);
            f.flags.set_refs_field(0);
        }
        if !back || fills {
            f.set_used(lists.now());
        }
        self.add(id, false);
    }

    /// Puts a folio on its queue: at the young end of SMALL or MAIN, or at the old end of either.
    pub(crate) fn add_to_tide(&mut self, id: FolioId, tail: bool) {
        let flags = &mut self.folios[id].flags;
        flags.insert(Flags::LRU);
        flags.remove(Flags::ACTIVE);
        let queue = match Queue::of(*flags) {
            Queue::New | Queue::Old if tail => Queue::Old,
            Queue::Old => Queue::New,
            queue => queue,
        };
        self.put(id, queue, tail);
    }

    /// Links a folio that is on no list into a queue.
    fn put(&mut self, id: FolioId, queue: Queue, tail: bool) {
        let f = &mut self.folios[id];
        f.flags.set_queue_field(queue as u32);
        let pages = f.pages();
        let lists = self.tide_of(id);
        lists.size[queue as usize] += pages;
        lists.memory = lists.memory.max(lists.pages());
        let list = lists.list(queue);
        if tail {
            self.folios.push_old(list, id);
        } else {
            self.folios.push_young(list, id);
        }
    }

    /// Moves a folio to the young end of a queue, without a count.
    pub(super) fn move_to(&mut self, id: FolioId, queue: Queue) {
        self.folios.unlink(id);
        self.leave_tide(id);
        self.folios[id].flags.set_refs_field(0);
        self.put(id, queue, false);
    }

    /// Counts a folio out of the queue that it was unlinked from.
    pub(super) fn leave_tide(&mut self, id: FolioId) {
        let f = &self.folios[id];
        let (queue, pages) = (Queue::of(f.flags), f.pages());
        self.tide_of(id).size[queue as usize] -= pages;
    }

    /// For how long a folio has not been seen in use.
    pub(crate) fn idle_for(&mut self, id: FolioId) -> u16 {
        let used = self.folios[id].used();
        self.tide_of(id).now().wrapping_sub(used)
    }

    /// A folio was in use just now.
    pub(super) fn note_use(&mut self, id: FolioId) {
        let now = self.tide_of(id).now();
        self.folios[id].set_used(now);
    }

    /// Takes a folio in that comes from a queue of another lruvec, and was idle there for a time.
    pub(crate) fn adopt_to_tide(&mut self, id: FolioId, queue: Queue, idle: u16) {
        let now = self.tide_of(id).now();
        self.folios[id].set_used(now.wrapping_sub(idle));
        self.folios[id].flags.insert(Flags::LRU);
        let queue = if queue == Queue::Main { queue } else { Queue::New };
        self.folios[id].flags.set_refs_field(0);
        self.put(id, queue, false);
    }

    /// A folio leaves memory: returns the 18 bits to be remembered, and whether it was in MAIN.
    pub(super) fn leave_for_shadow(&mut self, id: FolioId) -> (u64, bool) {
        let f = &self.folios[id];
        let (used, pages, main) = (f.used(), f.pages(), Queue::of(f.flags) == Queue::Main);
        let lists = self.tide_of(id);
        let gone = &mut lists.gone[usize::from(main)];
        gone.advance(pages, EVICTIONS, lists.memory);
        let time = (u32::from(used) / SHADOW_UNIT) & SHADOW_TIME;
        (u64::from(time << 7 | gone.count & SHADOW_EVICTIONS), main)
    }

    /// A folio comes in over a shadow. Votes for the size of SMALL, and marks the folio to be
    /// considered for MAIN if it was not away for too long. Returns whether it was not, and the
    /// pages evicted from its queue since.
    pub(super) fn come_back(&mut self, id: FolioId, token: u64, main: bool) -> (bool, u64) {
        let token = token as u32;
        let lists = self.tide_of(id);
        let now = lists.now.count;
        let away = ((now / SHADOW_UNIT).wrapping_sub(token >> 7) & SHADOW_TIME) * SHADOW_UNIT;
        let rank = lists.gone[usize::from(main)].count.wrapping_sub(token) & SHADOW_EVICTIONS;
        let near = rank < NEAR;
        if near && main {
            lists.shrink();
        }
        let distance = u64::from(rank) * lists.memory / u64::from(EVICTIONS);
        let recent = away <= LONG;
        if recent {
            let f = &mut self.folios[id];
            f.set_used((now as u16).wrapping_sub(away as u16));
            f.flags.set_queue_field(Queue::Back as u32);
            f.flags.set_refs_field(u32::from(near && !main));
        }
        (recent, distance)
    }

    /// Counts a folio that came back into MAIN.
    pub(super) fn count_exchange(&mut self, id: FolioId) {
        let (pages, t) = (self.folios[id].pages(), self.folios[id].lru_type());
        *self.events.activate(t) += pages;
    }

    /// The oldest folio of a queue.
    pub(super) fn oldest_of(&self, t: LruType, queue: Queue) -> Option<FolioId> {
        self.folios.oldest_first(self.lv.tide[t as usize].list(queue)).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::testing::filled;
    use crate::units::MemcgId;

    const F: FolioId = FolioId(0);

    #[test]
    fn shadows_tell_times_within_a_16th_of_memory() {
        let mut engine = filled(Policy::TIDE, 1024, LruType::File);
        let mut lru = engine.locked(MemcgId::ROOT);
        for (used, away) in [(0_u32, 10_u32), (5_000, 256), (40_000, 500)] {
            lru.folios[F].set_used(used as u16);
            lru.tide_of(F).now.count = used;
            let (token, main) = lru.leave_for_shadow(F);
            assert!(token < 1 << 18);
            lru.tide_of(F).now.count = used + away;
            let (recent, distance) = lru.come_back(F, token, main);
            assert!(recent && distance == 0);
            let read = u32::from(lru.idle_for(F));
            assert!(read.abs_diff(away) < SHADOW_UNIT, "{away} was read as {read}");
        }
    }

    #[test]
    fn who_was_away_for_more_than_two_memories_is_new() {
        let mut engine = filled(Policy::TIDE, 1024, LruType::File);
        let mut lru = engine.locked(MemcgId::ROOT);
        lru.folios[F].set_used(0);
        let (token, main) = lru.leave_for_shadow(F);
        lru.tide_of(F).now.count = LONG + SHADOW_UNIT;
        assert!(!lru.come_back(F, token, main).0);
        lru.tide_of(F).now.count = LONG;
        assert!(lru.come_back(F, token, main).0);
    }

    #[test]
    fn a_page_is_near_for_an_eighth_of_memory_of_evictions() {
        let mut engine = filled(Policy::TIDE, 1024, LruType::File);
        let mut lru = engine.locked(MemcgId::ROOT);
        lru.folios[F].flags.set_queue_field(Queue::Main as u32);
        let (token, main) = lru.leave_for_shadow(F);
        lru.tide_of(F).limited = true;
        for (evicted, shrinks) in [(100, true), (160, false)] {
            let lists = lru.tide_of(F);
            (lists.target, lists.gone[1]) = (200, Ticks::default());
            lists.gone[1].advance(evicted, EVICTIONS, 1024);
            lru.come_back(F, token, main);
            assert_eq!(lru.tide_of(F).target < 200, shrinks, "{evicted}");
        }
    }

    #[test]
    fn time_goes_by_memories_whatever_their_size() {
        let mut ticks = Ticks::default();
        (0..1000).for_each(|_| ticks.advance(1, MEMORY, 1000));
        assert_eq!(ticks.count, MEMORY);
        (0..32).for_each(|_| ticks.advance(1, MEMORY, 32));
        assert_eq!(ticks.count, 2 * MEMORY);
    }
}
