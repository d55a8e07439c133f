//! What other processes under the same budget have of a watched file.
//!
//! All processes have one page cache. A process that knows of its own charges alone takes pages
//! that another has read ahead, and has not mapped yet, for pages that no tenant pays for, and
//! drops them: four that passed over one file together read it four times. So each says what it
//! *has* of a file and hears what the others have, by a table of its host's (`share_files`):
//!
//! * **Charged pages.** Cached pages are in excess of what all have charged together (`sweep.rs`).
//!   A page that several have is charged several times. There is room for as many pages, so what
//!   one process evicts stays for those that come later, until that room is taken.
//! * **Windows**: the pages between the place that a stream has come to and the end of what is read
//!   ahead of it. No other process drops them. Several windows near each other are one for the
//!   kernel, which reads for the first that comes (`watch.rs`).
//!
//! What is heard may be late by a tick: a page is dropped that another wanted, or stays for longer.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};

/// What processes have of a file: the pages that are charged, and the windows.
type Held = (u64, Vec<Range<u64>>);

/// Says what this process has of a file, which has this number in all processes, and returns what
/// the others have of it together. `None` says that it has nothing any more.
pub type ExchangeFn = dyn Fn(u64, Option<(u64, &[Range<u64>])>) -> Held + Send + Sync;

#[derive(Clone)]
pub(crate) struct Exchange(pub(super) Arc<ExchangeFn>);

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exchange")
    }
}

/// One file, and what was said of it.
#[derive(Debug)]
pub(in crate::map) struct Company {
    file: u64,
    /// That of the pool, once something was said.
    exchange: OnceLock<Exchange>,
    said: Mutex<Said>,
    /// Pages that this process may leave in the page cache before the next look.
    room: AtomicU64,
}

#[derive(Debug, Default)]
struct Said {
    own: Held,
    others: Held,
}

impl Company {
    pub(in crate::map) fn new(file: u64) -> Self {
        let (exchange, said, room) = Default::default();
        Self { file, exchange, said, room }
    }

    fn say(
        &self,
        exchange: Option<&Exchange>,
        change: impl FnOnce(&mut Held),
        hear: impl FnOnce(&Held) -> u64,
    ) -> u64 {
        let Some(exchange) = exchange else { return 0 };
        let Exchange(exchange) = self.exchange.get_or_init(|| exchange.clone());
        let mut said = lowtide_pin::sync::lock(&self.said);
        change(&mut said.own);
        said.others = exchange(self.file, Some((said.own.0, &said.own.1)));
        hear(&said.others)
    }

    /// Says which windows the streams have. Returns how many of others begin no further than
    /// `near` pages from one of them.
    pub(in crate::map) fn say_windows(
        &self,
        exchange: Option<&Exchange>,
        windows: Vec<Range<u64>>,
        near: u64,
    ) -> u64 {
        let starts: Vec<u64> = windows.iter().map(|window| window.start).collect();
        let is_near =
            |other: &&Range<u64>| starts.iter().any(|own| own.abs_diff(other.start) <= near);
        let hear = |others: &Held| others.1.iter().filter(is_near).count() as u64;
        self.say(exchange, |own| own.1 = windows, hear)
    }

    /// Says how many pages are charged. Returns those of the others.
    pub(in crate::map) fn say_pages(&self, exchange: Option<&Exchange>, pages: u64) -> u64 {
        self.say(exchange, |own| own.0 = pages, |others| others.0)
    }

    /// Notes how many pages are cached, and charged by all processes. Of the room that is left each
    /// process has a part, as large as its part of the charge, but `least` pages at the least: many
    /// that leave together cost less than each alone.
    pub(in crate::map) fn note_cached(&self, cached: u64, charged: u64, least: u64) {
        let said = lowtide_pin::sync::lock(&self.said);
        let room = charged.saturating_sub(cached) * said.own.0.min(charged) / charged.max(1);
        // Pages at random places find no reader soon, and what is cached is touched faster than
        // the threads that watch can count it.
        self.room.store(if said.others.1.is_empty() { 0 } else { room.max(least) }, Relaxed);
    }

    /// Whether evicted pages may stay in the page cache, for other processes.
    pub(in crate::map) fn may_leave(&self, pages: &Range<u64>) -> bool {
        let count = pages.end - pages.start;
        self.room.fetch_update(Relaxed, Relaxed, |room| room.checked_sub(count)).is_ok()
    }

    /// What should not be dropped though this process does not pay for it: the windows of others.
    /// With a first try also what is between the last of several readers and the first, if that is
    /// no more than `most` pages.
    pub(in crate::map) fn wanted(&self, most: u64) -> Vec<Range<u64>> {
        let said = lowtide_pin::sync::lock(&self.said);
        let others = &said.others.1;
        let all = || others.iter().chain(&said.own.1);
        let first = all().map(|window| window.start).min();
        let end = all().map(|window| window.end).max();
        match (first, end) {
            (Some(first), Some(end)) if !others.is_empty() && end - first <= most => {
                std::iter::once(first..end).collect()
            }
            _ => others.clone(),
        }
    }

    /// The process has nothing of the file any more. Returns the pages of the others.
    pub(in crate::map) fn end(&self) -> u64 {
        self.exchange.get().map_or(0, |Exchange(exchange)| exchange(self.file, None).0)
    }
}

impl Drop for Company {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges, some of one")]
mod tests {
    use super::*;

    fn heard(own: &[Range<u64>], others: &[Range<u64>]) -> Company {
        let said = Said { own: (1000, own.to_vec()), others: (1000, others.to_vec()) };
        let company = Company::new(1);
        *lowtide_pin::sync::lock(&company.said) = said;
        company
    }

    #[test]
    fn pages_between_readers_that_follow_each_other_are_wanted() {
        let company = heard(&[50..60], &[90..120, 10..15]);
        assert_eq!(company.wanted(110), [10..120]);
        assert_eq!(company.wanted(109), [90..120, 10..15], "they are too far from each other");
        assert_eq!(heard(&[50..60], &[]).wanted(1000), [], "alone");
    }

    #[test]
    fn pages_may_stay_for_readers_in_order_while_there_is_room_of_what_others_pay_for() {
        let company = heard(&[], &[7..8]);
        company.note_cached(1000, 2000, 100);
        // A half of it is for the other.
        assert!(company.may_leave(&(0..400)) && !company.may_leave(&(400..501)));
        assert!(company.may_leave(&(400..500)) && !company.may_leave(&(500..501)));
        company.note_cached(2100, 2000, 100);
        assert!(company.may_leave(&(0..100)) && !company.may_leave(&(100..101)));
        let at_random = heard(&[], &[]);
        at_random.note_cached(0, 2000, 100);
        assert!(!at_random.may_leave(&(0..1)));
    }
}
