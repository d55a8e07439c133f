//! How `tide` makes room: searches for those that came back, SMALL's old end, and MAIN's hand.
//!
//! A [`Hand`] looks at the queues of one type on behalf of one batch, and isolates what is to go.
//! The order is: first a search for each page of BACK, oldest first; then, while SMALL is larger
//! than its target, its oldest page; else the first page of MAIN that the hand finds not young. A
//! young page at the end of SMALL searches, too: it changes places with an idle one, or stays.

use super::tide::{CREDIT_MAX, MEMORY};
use super::{Facts, Locked, Queue};
use crate::folio::Flags;
use crate::units::{FolioId, LruType};

/// Turns of the hand that a page survives after it was young.
const COUNT_MAX: u32 = 3;
/// Steps of the hand, in halves, that a return pays for: this over the time away in memories.
const STEPS: u32 = 3;
const STEPS_MIN: u32 = 2;
const STEPS_MAX: u32 = 16;
/// Young pages that are spared before one of MAIN goes for want of any other.
const SPARED_MAX: u32 = 128;
/// Pages that a batch passes from NEW to OLD at most. After a time without reclaim more may be due:
/// later batches pass the rest, so that the driver's lock is never held for all of them.
const PASSED_MAX: u64 = 1024;
/// Folios of a queue that a driver is given at once to look at: at most, and at least.
const AHEAD: usize = 16;
const AHEAD_LEAST: usize = 2;

/// How much a batch may do, in pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quota {
    /// Pages to isolate.
    pub(crate) isolate: u64,
    /// Pages to decide about.
    pub(crate) decide: u64,
    /// Pages of SMALL and of MAIN that this pass has met in vain.
    pub(crate) vain: [u64; 2],
}

/// What a batch has done, in pages, and what it has isolated.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Pages decided about: isolated, moved to another queue, or left.
    pub(crate) decided: u64,
    pub(crate) isolated: u64,
    /// Pages looked at and not isolated.
    pub(crate) sorted: u64,
    /// More pages have to pass from NEW to OLD before SMALL has an end to look at.
    pub(crate) unfinished: bool,
    pub(crate) folios: Vec<FolioId>,
}

/// A pass over the queues of one type. See the module documentation.
pub(crate) struct Hand<'l, 'a, F> {
    lru: &'l mut Locked<'a>,
    t: LruType,
    facts: &'l mut F,
    /// Folios at the old end of each queue that the driver was given to look at.
    gathered: [usize; 4],
    /// Folios of a queue that it is given at once.
    ahead: usize,
    /// Pages that passed from NEW to OLD.
    passed: u64,
    found: Found,
}

impl<'l, 'a, F: Facts> Hand<'l, 'a, F> {
    pub(crate) fn new(lru: &'l mut Locked<'a>, t: LruType, facts: &'l mut F) -> Self {
        Self { lru, t, facts, gathered: [0; 4], ahead: AHEAD, passed: 0, found: Found::default() }
    }

    /// Isolates what is to go.
    pub(crate) fn take(mut self, quota: Quota) -> Found {
        self.ahead = (quota.isolate as usize).clamp(AHEAD_LEAST, AHEAD);
        while self.found.isolated < quota.isolate && self.found.decided < quota.decide {
            if let Some(id) = self.oldest(Queue::Back) {
                self.search_for(id);
                continue;
            }
            let lists = &self.lru.lv.tide[self.t as usize];
            let [vain_small, vain_main] = quota.vain;
            let main = lists.size(Queue::Main) > vain_main;
            let small = lists.has_surplus(vain_small) || !main;
            let last = if small { self.last_of_small() } else { None };
            match last {
                Some(id) if self.is_young(id, Queue::Old) => self.judge(id),
                Some(id) => self.isolate(id),
                None if self.found.unfinished => break,
                None if self.take_from_main() => {}
                None => break,
            }
        }
        self.lru.events.pgrefill += self.found.sorted;
        self.found
    }

    /// The oldest folio of a queue. Those that may not be evicted leave it.
    fn oldest(&mut self, queue: Queue) -> Option<FolioId> {
        loop {
            let id = self.lru.oldest_of(self.t, queue)?;
            if !self.lru.folios[id].flags.contains(Flags::MLOCKED) {
                return Some(id);
            }
            self.gathered[queue as usize] = self.gathered[queue as usize].saturating_sub(1);
            self.lru.cull(id);
        }
    }

    /// Whether the oldest folio of a queue was used since it was last asked. It leaves the old end
    /// after that.
    fn is_young(&mut self, id: FolioId, queue: Queue) -> bool {
        if self.gathered[queue as usize] == 0 {
            self.gather();
        }
        self.gathered[queue as usize] -= 1;
        self.lru.absorb(id);
        let f = &mut self.lru.folios[id];
        let marked = f.flags.contains(Flags::REFERENCED);
        f.flags.remove(Flags::REFERENCED);
        let young = self.facts.references(id, f).young > 0;
        marked || young
    }

    /// Gives the driver the folios that are looked at next. The three queues are followed side by
    /// side: each link is read from a record that is in no cache, and so three are on their way
    /// at a time.
    fn gather(&mut self) {
        const QUEUES: [Queue; 3] = [Queue::New, Queue::Old, Queue::Main];
        let lists = QUEUES.map(|queue| self.lru.lv.tide[self.t as usize].list(queue));
        let folios = &*self.lru.folios;
        let mut ends = lists.map(|list| folios.oldest_first(list));
        let mut next = [FolioId(0); QUEUES.len() * AHEAD];
        let mut len = 0;
        let mut count = [0; QUEUES.len()];
        for _ in 0..self.ahead {
            for (end, count) in ends.iter_mut().zip(&mut count) {
                if let Some(id) = end.next() {
                    next[len] = id;
                    len += 1;
                    *count += 1;
                }
            }
        }
        for (queue, count) in QUEUES.into_iter().zip(count) {
            self.gathered[queue as usize] = count;
        }
        let next = &next[..len];
        self.lru.accesses.look_at(next.iter().copied());
        self.facts.gather(next.iter().map(|id| &folios[*id]));
    }

    fn isolate(&mut self, id: FolioId) {
        let pages = self.lru.folios[id].pages();
        self.lru.take_off_list(id);
        self.lru.lv.isolated += pages;
        self.found.isolated += pages;
        self.found.decided += pages;
        self.found.folios.push(id);
    }

    fn sorted(&mut self, id: FolioId) -> u64 {
        let pages = self.lru.folios[id].pages();
        self.found.sorted += pages;
        pages
    }

    /// Moves the hand until it meets a page that has not been seen in use for `away`.
    fn idle(&mut self, away: u16) -> Option<FolioId> {
        let steps = STEPS * MEMORY / u32::from(away.max(1));
        let credit = &mut self.lru.lv.tide[self.t as usize].credit;
        *credit = (*credit + u64::from(steps.clamp(STEPS_MIN, STEPS_MAX))).min(CREDIT_MAX);
        while self.lru.lv.tide[self.t as usize].credit >= 2 {
            self.lru.lv.tide[self.t as usize].credit -= 2;
            let id = self.oldest(Queue::Main)?;
            let young = self.is_young(id, Queue::Main);
            let count = self.lru.folios[id].flags.refs_field();
            if young {
                self.lru.note_use(id);
                self.lru.folios[id].flags.set_refs_field((count + 1).min(COUNT_MAX));
            } else if count > 0 {
                self.lru.folios[id].flags.set_refs_field(count - 1);
            } else if self.lru.idle_for(id) >= away {
                return Some(id);
            }
            self.renew(id);
        }
        None
    }

    /// The hand passes a page of MAIN.
    fn renew(&mut self, id: FolioId) {
        self.sorted(id);
        let list = self.lru.lv.tide[self.t as usize].list(Queue::Main);
        self.lru.folios.unlink(id);
        self.lru.folios.push_young(list, id);
    }

    /// A page that came back changes places with an idle one, or is one of SMALL.
    fn search_for(&mut self, id: FolioId) {
        self.found.decided += self.sorted(id);
        let away = self.lru.idle_for(id);
        let near_small = self.lru.folios[id].flags.refs_field() > 0;
        self.lru.note_use(id);
        let Some(idle) = self.idle(away) else { return self.lru.move_to(id, Queue::New) };
        self.isolate(idle);
        self.lru.move_to(id, Queue::Main);
        self.lru.count_exchange(id);
        if near_small {
            self.lru.lv.tide[self.t as usize].grow();
        }
    }

    /// The page at the end of OLD, which holds at least five eighths of SMALL. None if SMALL is
    /// empty, or if this batch has passed as many to OLD as it may.
    fn last_of_small(&mut self) -> Option<FolioId> {
        loop {
            let lists = &self.lru.lv.tide[self.t as usize];
            let (new, small) = (lists.size(Queue::New), lists.small_main().0);
            if new * 8 <= small * 3 && lists.size(Queue::Old) > 0 {
                return self.oldest(Queue::Old);
            }
            if self.passed >= PASSED_MAX {
                self.found.unfinished = true;
                return None;
            }
            let id = self.oldest(Queue::New)?;
            if self.is_young(id, Queue::New) {
                self.lru.note_use(id);
            }
            self.passed += self.sorted(id);
            self.lru.move_to(id, Queue::Old);
        }
    }

    /// A young page at the end of SMALL: it changes places with an idle one, or stays.
    fn judge(&mut self, id: FolioId) {
        self.found.decided += self.sorted(id);
        let away = self.lru.idle_for(id);
        self.lru.note_use(id);
        let idle = self.idle(away);
        if let Some(idle) = idle {
            self.isolate(idle);
        }
        let main = idle.is_some() || self.lru.lv.tide[self.t as usize].has_room_in_main();
        self.lru.move_to(id, if main { Queue::Main } else { Queue::New });
    }

    /// Isolates the first page of MAIN that is not young. Returns whether there was one. Of a small
    /// memory a batch decides about few pages, often one: young ones are spared all the same.
    fn take_from_main(&mut self) -> bool {
        for spared in 0.. {
            let Some(id) = self.oldest(Queue::Main) else { return false };
            if !self.is_young(id, Queue::Main) || spared == SPARED_MAX {
                self.isolate(id);
                break;
            }
            self.found.decided += self.lru.folios[id].pages();
            self.lru.note_use(id);
            self.renew(id);
        }
        true
    }
}
