//! Tide, a candidate: a small queue in front of a clock, where pages change places only on proof.
//!
//! The proof is that of LIRS (S. Jiang, X. Zhang, SIGMETRICS 2002): a page that comes back after a
//! time `r` without an access deserves a place in the main memory if some page there has not been
//! seen in use for longer than `r`. Then the two change places; otherwise nothing moves. So a loop
//! that is larger than memory keeps a fixed part of itself, a scan displaces nothing, and a phase
//! replaces what has become idle. Time is counted in misses.
//!
//! ```text
//!   miss ---> NEW ---------> OLD ---- young, and a page of MAIN is idle ---> MAIN <--+ young, or
//!           3/8 of SMALL      | not                                    ^      |      | lately so
//!                             v                                       /     hand ----+
//!                          shadow ---- comes back, a page is idle ---+        | idle
//!                                                                             v
//!                                                                          shadow
//! ```
//!
//! * **A hit sets one bit.** It is read and cleared when a page passes from NEW to OLD, when it
//!   leaves OLD, and when the hand meets it in MAIN. A bit set in NEW alone is the echo of the miss
//!   (a page written, then read once) and proves nothing.
//! * **The hand moves only to search.** Each page that returns pays for few steps, fewer the longer
//!   it was away, so a turn takes long, and pages differ by frequency: a young one gets up
//!   to three further turns, as in S3-FIFO.
//! * **Pages that were away for more than two memories of misses** are not considered.
//! * **SMALL is as large as it is worth.** A page that would have been a hit, had its queue been an
//!   eighth of memory longer, is a vote for that queue (as in ARC); for SMALL it counts only if a
//!   page of MAIN was idle.
//!
//! No hit is counted and nothing is configured. The constants are the result of experiments
//! (`docs/decisions/0011-tide.md`).
//!
//! A resident page costs 16 bytes, of which a hit touches one. A shadow has 19 bits: the queue, the
//! last access in 16ths of memory (it wraps after 128 memories), and the eviction in 32nds (after
//! 4). With the ten of the group that is what a shadow of the engine has. A miss moves the hand by
//! eight pages at most on average, and by 64 if it did not move for long; what it moves through
//! SMALL is amortised.

use super::cache::Cache;
use super::list::{List, Lists};
use std::num::NonZeroU32;

const NEW: List = List(0);
const OLD: List = List(1);
const MAIN: List = List(2);

/// Turns of the hand that a page survives after it was young.
const COUNT_MAX: u8 = 3;
/// Steps of the hand, in halves, that a return pays for: this over the time away in memories.
const STEPS: u64 = 3;
const STEPS_MIN: u64 = 2;
const STEPS_MAX: u64 = 16;
/// Unused steps, in halves, that are kept.
const CREDIT_MAX: u64 = 128;
/// Changes of the target, in quarters of a page.
const GROW: u64 = 8;
const SHRINK: u64 = 6;
/// Young pages that are spared before one of MAIN goes for want of any other.
const SPARED_MAX: u32 = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Place {
    /// Not resident, and never seen or forgotten.
    Nowhere,
    /// Not resident; `word` is a shadow.
    Shadow,
    New,
    Old,
    Main,
}

#[derive(Clone, Copy, Debug)]
struct Page {
    /// Of a resident page, the miss at which it was last known to be used; otherwise its shadow.
    word: u32,
    place: Place,
    young: bool,
    count: u8,
}

/// What is remembered of an evicted page, as far as a return needs it.
struct Return {
    /// Misses since its last access.
    away: u32,
    /// It would have been a hit in a queue longer by an eighth of memory.
    near: bool,
    from_main: bool,
}

/// Tide.
#[derive(Clone, Debug)]
pub struct Tide {
    lists: Lists,
    pages: Vec<Page>,
    /// Pages in NEW, OLD and MAIN.
    new: u32,
    old: u32,
    main: u32,
    capacity: u32,
    /// Size of SMALL to aim at, in quarters of a page.
    target: u64,
    /// Misses.
    now: u32,
    /// Pages evicted from SMALL, and from MAIN.
    gone: [u32; 2],
    /// Steps that the hand may make, in halves.
    credit: u64,
}

impl Tide {
    /// An empty cache of `capacity` pages for the pages `0..pages`.
    #[must_use]
    pub fn new(pages: u32, capacity: NonZeroU32) -> Self {
        let page = Page { word: 0, place: Place::Nowhere, young: false, count: 0 };
        let capacity = capacity.get();
        Self {
            lists: Lists::new(pages, 3),
            pages: vec![page; pages as usize],
            new: 0,
            old: 0,
            main: 0,
            capacity,
            target: (u64::from(capacity) / 5).max(4),
            now: 0,
            gone: [0; 2],
            credit: 0,
        }
    }

    const fn small(&self) -> u32 {
        self.new + self.old
    }

    const fn full(&self) -> bool {
        self.small() + self.main >= self.capacity
    }

    /// Misses in one unit of a shadow's time.
    const fn time_unit(&self) -> u32 {
        self.capacity.div_ceil(16)
    }

    /// Evictions in one unit of a shadow's eviction.
    const fn eviction_unit(&self) -> u32 {
        self.capacity.div_ceil(32)
    }

    /// The shadow of a page that is evicted now: 1 bit, 11 and 7.
    const fn shadow(&self, last: u32, from_main: bool) -> u32 {
        let time = (last / self.time_unit()) & 0x7FF;
        let eviction = (self.gone[from_main as usize] / self.eviction_unit()) & 0x7F;
        (from_main as u32) << 18 | time << 7 | eviction
    }

    const fn read(&self, shadow: u32) -> Return {
        let from_main = shadow >> 18 & 1 == 1;
        let away = (self.now / self.time_unit()).wrapping_sub(shadow >> 7) & 0x7FF;
        let rank = (self.gone[from_main as usize] / self.eviction_unit()).wrapping_sub(shadow);
        Return { away: away * self.time_unit(), near: rank & 0x7F < 4, from_main }
    }

    const fn grow(&mut self) {
        let most = self.capacity as u64 * 4 * 9 / 10;
        self.target = if self.target + GROW < most { self.target + GROW } else { most };
        self.target = if self.target < 4 { 4 } else { self.target };
    }

    const fn shrink(&mut self) {
        let least = if self.capacity < 100 { 4 } else { self.capacity as u64 * 4 / 100 };
        self.target = if self.target > least + SHRINK { self.target - SHRINK } else { least };
    }

    fn take(&mut self, page: u32) {
        self.lists.unlink(page);
        match self.pages[page as usize].place {
            Place::New => self.new -= 1,
            Place::Old => self.old -= 1,
            Place::Main => self.main -= 1,
            Place::Nowhere | Place::Shadow => (),
        }
    }

    fn put(&mut self, page: u32, place: Place) {
        let (list, count) = match place {
            Place::Old => (OLD, &mut self.old),
            Place::Main => (MAIN, &mut self.main),
            _ => (NEW, &mut self.new),
        };
        *count += 1;
        self.lists.push_newest(list, page);
        let page = &mut self.pages[page as usize];
        (page.place, page.young, page.count) = (place, false, 0);
    }

    fn evict(&mut self, page: u32) {
        self.take(page);
        let at = self.pages[page as usize];
        let from_main = at.place == Place::Main;
        self.gone[usize::from(from_main)] = self.gone[usize::from(from_main)].wrapping_add(1);
        let word = self.shadow(at.word, from_main);
        self.pages[page as usize] = Page { word, place: Place::Shadow, ..at };
    }

    /// Moves the hand until it meets a page that has not been seen in use for `away` misses.
    fn idle(&mut self, away: u32) -> Option<u32> {
        let steps = STEPS * u64::from(self.capacity) / u64::from(away.max(1));
        self.credit = (self.credit + steps.clamp(STEPS_MIN, STEPS_MAX)).min(CREDIT_MAX);
        while self.credit >= 2 {
            self.credit -= 2;
            let page = self.lists.oldest(MAIN)?;
            let at = &mut self.pages[page as usize];
            if at.young {
                at.young = false;
                at.word = self.now;
                at.count = (at.count + 1).min(COUNT_MAX);
            } else if at.count > 0 {
                at.count -= 1;
            } else if self.now.wrapping_sub(at.word) >= away {
                return Some(page);
            }
            self.lists.renew(MAIN, page);
        }
        None
    }

    /// Where a page that misses goes. Evicts the page with which it changes places.
    fn admit(&mut self, page: u32) -> Place {
        let Page { word, place, .. } = self.pages[page as usize];
        if place != Place::Shadow {
            let room = u64::from(self.main) * 4 + self.target < u64::from(self.capacity) * 4;
            return if room && !self.full() { Place::Main } else { Place::New };
        }
        let back = self.read(word);
        if back.near && back.from_main {
            self.shrink();
        }
        if u64::from(back.away) > 2 * u64::from(self.capacity) {
            return Place::New;
        }
        if !self.full() {
            return Place::Main;
        }
        let Some(idle) = self.idle(back.away) else { return Place::New };
        self.evict(idle);
        if back.near && !back.from_main {
            self.grow();
        }
        Place::Main
    }

    /// The page at the end of OLD, which holds at least five eighths of SMALL.
    fn last_of_small(&mut self) -> Option<u32> {
        while u64::from(self.new) * 8 > u64::from(self.small()) * 3 || self.old == 0 {
            let page = self.lists.oldest(NEW)?;
            if self.pages[page as usize].young {
                self.pages[page as usize].word = self.now;
            }
            self.take(page);
            self.put(page, Place::Old);
        }
        self.lists.oldest(OLD)
    }

    /// Evicts until a page fits.
    fn make_room(&mut self) {
        while self.full() {
            let surplus = u64::from(self.small()) * 4 > self.target || self.main == 0;
            let last = if surplus { self.last_of_small() } else { None };
            match last {
                Some(page) if self.pages[page as usize].young => self.judge(page),
                Some(page) => self.evict(page),
                None => self.evict_from_main(),
            }
        }
    }

    /// A young page at the end of SMALL: it changes places with an idle one, or stays.
    fn judge(&mut self, page: u32) {
        let away = self.now.wrapping_sub(self.pages[page as usize].word);
        self.pages[page as usize].word = self.now;
        let idle = self.idle(away);
        if let Some(idle) = idle {
            self.evict(idle);
        }
        let room = u64::from(self.main) * 4 + self.target < u64::from(self.capacity) * 4;
        self.take(page);
        self.put(page, if idle.is_some() || room { Place::Main } else { Place::New });
    }

    fn evict_from_main(&mut self) {
        for spared in 0.. {
            let Some(page) = self.lists.oldest(MAIN) else { return };
            if !self.pages[page as usize].young || spared == SPARED_MAX {
                return self.evict(page);
            }
            self.pages[page as usize].young = false;
            self.pages[page as usize].word = self.now;
            self.lists.renew(MAIN, page);
        }
    }
}

impl Cache for Tide {
    #[inline]
    fn access(&mut self, page: u32, _next: u64) -> bool {
        let at = &mut self.pages[page as usize];
        if !matches!(at.place, Place::Nowhere | Place::Shadow) {
            at.young = true;
            return true;
        }
        self.now = self.now.wrapping_add(1);
        let place = self.admit(page);
        self.make_room();
        self.pages[page as usize].word = self.now;
        self.put(page, place);
        false
    }

    fn remove(&mut self, page: u32) {
        if self.lists.contains(page) {
            self.take(page);
        }
        self.pages[page as usize].place = Place::Nowhere;
    }

    fn resident(&self) -> u64 {
        u64::from(self.small() + self.main)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::testing::{Model, Stream, agree, streams};
    use proptest::prelude::*;
    use std::collections::{HashMap, VecDeque};

    /// The rules with queues of pages, newest at the back, and exact times.
    #[derive(Default)]
    struct Queues {
        new: VecDeque<u32>,
        old: VecDeque<u32>,
        main: VecDeque<u32>,
        young: HashMap<u32, bool>,
        count: HashMap<u32, u8>,
        used: HashMap<u32, u32>,
        /// Queue, last use and eviction number, of pages that are out.
        out: HashMap<u32, (usize, u32, u32)>,
        gone: [u32; 2],
        now: u32,
        credit: u64,
        target: u64,
        capacity: u32,
    }

    fn queues(capacity: u32) -> Queues {
        Queues { target: u64::from(capacity / 5).max(4), capacity, ..Queues::default() }
    }

    impl Queues {
        fn small(&self) -> usize {
            self.new.len() + self.old.len()
        }

        fn has_room_in_main(&self) -> bool {
            self.main.len() as u64 * 4 + self.target < u64::from(self.capacity) * 4
        }

        fn is_young(&mut self, page: u32) -> bool {
            let young = self.young.insert(page, false) == Some(true);
            if young {
                self.used.insert(page, self.now);
            }
            young
        }

        fn enter_main(&mut self, page: u32) {
            self.count.insert(page, 0);
            self.young.insert(page, false);
            self.main.push_back(page);
        }

        fn leave(&mut self, page: u32, queue: usize) {
            self.gone[queue] += 1;
            self.out.insert(page, (queue, self.used[&page], self.gone[queue]));
        }

        fn replace_idle(&mut self, away: u32) -> bool {
            let steps = 3 * u64::from(self.capacity) / u64::from(away.max(1));
            self.credit = (self.credit + steps.clamp(2, 16)).min(128);
            while self.credit >= 2 {
                self.credit -= 2;
                let Some(page) = self.main.pop_front() else { return false };
                let count = self.count[&page];
                if self.is_young(page) {
                    self.count.insert(page, (count + 1).min(3));
                } else if count > 0 {
                    self.count.insert(page, count - 1);
                } else if self.now - self.used[&page] >= away {
                    self.leave(page, 1);
                    return true;
                }
                self.main.push_back(page);
            }
            false
        }

        fn goes_to_main(&mut self, page: u32) -> bool {
            let full = self.resident() >= self.capacity as usize;
            let Some(&(queue, used, gone)) = self.out.get(&page) else {
                return !full && self.has_room_in_main();
            };
            let time = self.capacity.div_ceil(16);
            let unit = self.capacity.div_ceil(32);
            let rank = (self.gone[queue] / unit).wrapping_sub(gone / unit) & 127;
            let away = (self.now / time - used / time) * time;
            let near = rank < 4;
            if near && queue == 1 {
                let least = 4;
                self.target = if self.target > least + 6 { self.target - 6 } else { least };
            }
            if away > 2 * self.capacity || !full {
                return !full && away <= 2 * self.capacity;
            }
            let replaced = self.replace_idle(away);
            if replaced && near && queue == 0 {
                self.target = (self.target + 8).min(u64::from(self.capacity) * 4 * 9 / 10).max(4);
            }
            replaced
        }

        fn make_room(&mut self) {
            while self.resident() >= self.capacity as usize {
                if self.small() as u64 * 4 <= self.target && !self.main.is_empty() {
                    let mut page = self.main.pop_front().unwrap();
                    for _ in 0..128 {
                        if !self.is_young(page) {
                            break;
                        }
                        self.main.push_back(page);
                        page = self.main.pop_front().unwrap();
                    }
                    self.leave(page, 1);
                    continue;
                }
                while self.new.len() * 8 > self.small() * 3 || self.old.is_empty() {
                    let page = self.new.pop_front().unwrap();
                    self.is_young(page);
                    self.old.push_back(page);
                }
                let page = self.old.pop_front().unwrap();
                let away = self.now - self.used[&page];
                if !self.is_young(page) {
                    self.leave(page, 0);
                    continue;
                }
                // It counts as one of SMALL while it is judged.
                if self.replace_idle(away) || self.has_room_in_main() {
                    self.enter_main(page);
                } else {
                    self.new.push_back(page);
                }
            }
        }
    }

    impl Model for Queues {
        fn access(&mut self, page: u32) -> bool {
            if [&self.new, &self.old, &self.main].iter().any(|queue| queue.contains(&page)) {
                self.young.insert(page, true);
                return true;
            }
            self.now += 1;
            let to_main = self.goes_to_main(page);
            self.make_room();
            self.out.remove(&page);
            self.used.insert(page, self.now);
            self.young.insert(page, false);
            if to_main {
                self.enter_main(page);
            } else {
                self.new.push_back(page);
            }
            false
        }

        fn remove(&mut self, page: u32) -> bool {
            self.out.remove(&page);
            let before = self.resident();
            for queue in [&mut self.new, &mut self.old, &mut self.main] {
                queue.retain(|&other| other != page);
            }
            self.resident() < before
        }

        fn resident(&self) -> usize {
            self.small() + self.main.len()
        }
    }

    proptest! {
        #[test]
        fn behaves_as_the_definition(stream in streams(), capacity in 1_u32..30) {
            let cache = Tide::new(stream.pages, NonZeroU32::new(capacity).unwrap());
            agree(&stream, cache, queues(capacity), capacity)?;
        }
    }

    fn misses(capacity: u32, pages: impl IntoIterator<Item = u32>) -> u64 {
        let steps: Vec<(u32, bool)> = pages.into_iter().map(|page| (page, false)).collect();
        let most = steps.iter().map(|step| step.0).max().unwrap_or(0);
        let mut cache = Tide::new(most + 1, NonZeroU32::new(capacity).unwrap());
        Stream::new(most + 1, steps).misses(&mut cache)
    }

    #[test]
    fn a_loop_a_ninth_larger_than_memory_keeps_most_of_itself() {
        let loops = misses(900, (0..20_000).map(|i| i % 1_000));
        // Of the 19 rounds after the first, OPT misses a tenth.
        assert!(loops < 1_000 + 19 * 1_000 / 5, "{loops}");
    }

    #[test]
    fn a_scan_displaces_nothing() {
        let hot = || (0..5_000).map(|i| i * 7 % 800);
        let scanned = misses(1_000, hot().chain(1_000..9_000).chain(hot()));
        assert!(scanned < 8_000 + 800 + 150, "{scanned}");
    }

    #[test]
    fn a_phase_is_learned_within_few_memories_of_misses() {
        let phase = |from: u32| (0..20_000).map(move |i| from + i * 7 % 800);
        let both = misses(1_000, phase(0).chain(phase(800)));
        assert!(both < 1_600 + 2_000, "{both}");
    }

    #[test]
    fn shadows_tell_times_within_a_16th_of_memory() {
        let mut cache = Tide::new(1, NonZeroU32::new(10_000).unwrap());
        cache.now = 500_000;
        let shadow = cache.shadow(490_000, true);
        assert!(shadow < 1 << 19);
        for (now, away) in [(500_000, 10_000_u32), (510_000, 20_000), (900_000, 410_000)] {
            cache.now = now;
            assert!(cache.read(shadow).away.abs_diff(away) <= 625, "{now}");
        }
        assert!(cache.read(shadow).near && cache.read(shadow).from_main);
        cache.gone[1] += 10_000 / 8 + 313;
        assert!(!cache.read(shadow).near);
    }
}
