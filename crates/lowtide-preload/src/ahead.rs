//! Whether a mapping is read ahead: as it is used.
//!
//! Reading around every fault wastes device and budget where accesses are random, so an adopted
//! mapping begins with `MADV_RANDOM`: one page a fault. Where it is read in order, that is one
//! small read after the other. So now and then the page tables are scanned, and the pages that were
//! not there at the last look tell which it is:
//!
//! ```text
//!   new pages a run ≥ 32   ──► MADV_SEQUENTIAL: the kernel reads ahead, and nothing behind
//!   new pages a run < 24   ──► MADV_RANDOM
//! ```
//!
//! A fault maps up to 16 cached neighbours, so what was read at random can look like runs of 16,
//! and not of 24. A mapping for which the program itself gives advice is left alone from then on.
//!
//! Reading ahead can bring in more than the watcher evicts meanwhile. While the mappings of a
//! budget have an eighth more in memory than it allows, none of them is read ahead: single reads
//! are slow enough for the watcher to catch up.
//!
//! A scan costs about 17 ns a page that is present. It is done at most for a twentieth of the time.

use lowtide_sys::page_cache::{self, Advice};
use lowtide_sys::pagemap::{Categories, Pagemap, Query, Region};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

/// New pages a run from which a mapping is read in order.
const IN_ORDER: usize = 32;
/// New pages a run below which it is not.
const AT_RANDOM: usize = 24;
/// Fewer new pages than this tell nothing.
const ENOUGH: usize = 128;
/// The part of a budget by which it may be exceeded while mappings are read ahead.
const EXCESS: usize = 8;
/// Between two looks; the time that a look takes, times `SELDOM`, is waited at least.
const LEAST: Duration = Duration::from_millis(20);
const MOST: Duration = Duration::from_millis(500);
const SELDOM: u32 = 20;

/// What was seen of one mapping.
#[derive(Debug, Default)]
struct Seen {
    present: Vec<Range<usize>>,
    /// It is read in order.
    in_order: bool,
    /// The kernel reads ahead.
    ahead: bool,
}

/// A mapping, as it is looked at.
#[derive(Clone, Debug)]
pub(crate) struct Looked {
    /// Its addresses.
    pub(crate) range: Range<usize>,
    /// Which budget it has.
    pub(crate) budget: usize,
    /// The bytes of that.
    pub(crate) max: u64,
}

/// How the mappings of this process are used.
#[derive(Debug)]
pub(crate) struct Ahead {
    pagemap: Option<Pagemap>,
    seen: BTreeMap<usize, Seen>,
    /// Addresses for which the program gave advice.
    advised: Vec<Range<usize>>,
    due: Instant,
    pause: Duration,
    switches: u64,
}

impl Ahead {
    /// Nothing was seen yet. Without `adapt` nothing ever is.
    pub(crate) fn new(adapt: bool) -> Self {
        let pagemap = if adapt { Pagemap::open().ok() } else { None };
        let (seen, advised) = Default::default();
        Self { pagemap, seen, advised, due: Instant::now(), pause: LEAST, switches: 0 }
    }

    /// The program gave advice for these addresses.
    pub(crate) fn leave(&mut self, range: Range<usize>) {
        self.advised.push(range);
    }

    /// These addresses are not adopted any more.
    pub(crate) fn forget(&mut self, range: &Range<usize>) {
        let touches = |other: &Range<usize>| other.start < range.end && other.end > range.start;
        self.advised.retain(|advised| !touches(advised));
        self.seen.retain(|start, _| !range.contains(start));
    }

    /// How often a mapping changed between the two.
    pub(crate) const fn switches(&self) -> u64 {
        self.switches
    }

    /// Looks at mappings, if it is time; the time until the next look, if there is one.
    pub(crate) fn tick(&mut self, mappings: impl Iterator<Item = Looked>) -> Option<Duration> {
        self.pagemap.as_ref()?;
        let begin = Instant::now();
        if begin >= self.due {
            let news = self.look(mappings);
            let took = begin.elapsed() * SELDOM;
            self.pause = if news { LEAST } else { (self.pause * 2).min(MOST) };
            self.due = Instant::now() + self.pause.max(took);
        }
        Some(self.due.saturating_duration_since(Instant::now()))
    }

    /// Looks at them; whether anything was new.
    fn look(&mut self, mappings: impl Iterator<Item = Looked>) -> bool {
        let (mut news, mut all) = (false, Vec::new());
        let mut excess: BTreeMap<usize, u64> = BTreeMap::new();
        for mapping in mappings {
            let Some(present) = self.present(&mapping.range) else { continue };
            let bytes: usize = present.iter().map(ExactSizeIterator::len).sum();
            *excess.entry(mapping.budget).or_default() += bytes as u64;
            news |= self.judge(mapping.range.start, present);
            all.push(mapping);
        }
        for Looked { range, budget, max } in all {
            let Some(seen) = self.seen.get_mut(&range.start) else { continue };
            let is_over = excess[&budget] > max + max / EXCESS as u64;
            let ahead = seen.in_order && !is_over;
            if ahead != seen.ahead {
                seen.ahead = ahead;
                self.switches += 1;
                news = true;
                let advice = if ahead { Advice::Sequential } else { Advice::Random };
                // It is only advice: a mapping that does not take it works as before.
                drop(page_cache::advise(range, advice));
            }
        }
        news
    }

    /// Runs of pages that are present; none of a mapping that is not to be looked at.
    fn present(&self, range: &Range<usize>) -> Option<Vec<Range<usize>>> {
        let touches = |other: &Range<usize>| other.start < range.end && other.end > range.start;
        if self.advised.iter().any(touches) {
            return None;
        }
        let required = Categories::PRESENT | Categories::FILE;
        let query = Query { required, ..Query::default() };
        let mut found = Vec::new();
        self.pagemap.as_ref()?.scan(range.clone(), &query, &mut found).ok()?;
        Some(found.iter().map(Region::range).collect())
    }

    /// Decides whether a mapping is read in order; whether enough was new to tell.
    fn judge(&mut self, mapping: usize, present: Vec<Range<usize>>) -> bool {
        let seen = self.seen.entry(mapping).or_default();
        let (bytes, runs) = fresh(&seen.present, &present);
        let pages = bytes / rustix::param::page_size();
        if pages < ENOUGH {
            return false;
        }
        seen.present = present;
        let run = pages / runs.max(1);
        seen.in_order = if seen.in_order { run >= AT_RANDOM } else { run >= IN_ORDER };
        true
    }
}

/// Bytes that are in the second list and not in the first, and the number of runs that they make.
/// Both lists are in order.
fn fresh(before: &[Range<usize>], now: &[Range<usize>]) -> (usize, usize) {
    let (mut bytes, mut runs, mut old) = (0, 0, 0);
    for region in now {
        let mut at = region.start;
        while at < region.end {
            while before.get(old).is_some_and(|known| known.end <= at) {
                old += 1;
            }
            let next = before.get(old).filter(|known| known.start < region.end);
            let end = next.map_or(region.end, |known| known.start);
            if end > at {
                bytes += end - at;
                runs += 1;
            }
            at = next.map_or(region.end, |known| known.end);
        }
    }
    (bytes, runs)
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges, of which some are short")]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_is_counted_in_runs() {
        assert_eq!(fresh(&[], &[0..10, 20..30]), (20, 2));
        assert_eq!(fresh(&[0..10], &[0..40]), (30, 1), "in order, behind what was there");
        assert_eq!(fresh(&[5..6, 8..9], &[0..10]), (8, 3));
        assert_eq!(fresh(&[0..100], &[10..20, 30..40]), (0, 0));
        assert_eq!(fresh(&[0..5, 50..60], &[3..55]), (45, 1));
        assert_eq!(fresh(&[0..5], &[7..9, 9..12, 40..41]), (6, 3));
    }

    #[test]
    fn it_agrees_with_lists_of_pages() {
        let mut seed = 3_u64;
        let mut list = || {
            let (mut at, mut all) = (0, Vec::new());
            while at < 200 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let (gap, len) = ((seed >> 40) as usize % 9 + 1, (seed >> 50) as usize % 7 + 1);
                all.push(at + gap..at + gap + len);
                at += gap + len;
            }
            all
        };
        for _ in 0..300 {
            let (before, now): (Vec<_>, Vec<_>) = (list(), list());
            let has = |list: &[Range<usize>], at| list.iter().any(|run| run.contains(&at));
            let new: Vec<bool> = (0..300).map(|at| has(&now, at) && !has(&before, at)).collect();
            let bytes = new.iter().filter(|is_new| **is_new).count();
            let runs = (0..300).filter(|at| new[*at] && !(*at > 0 && new[*at - 1])).count();
            assert_eq!(fresh(&before, &now), (bytes, runs), "{before:?} {now:?}");
        }
    }
}
