//! How often pages are used again, and after how many others: miss-ratio curves of a running
//! program, from a sample of its pages.
//!
//! **Theory.** Under strict LRU an access hits exactly if fewer different pages than memory has
//! were accessed since the last access to the same page: its *reuse distance* (Mattson et al.,
//! "Evaluation techniques for storage hierarchies", 1970). So the histogram of reuse distances
//! gives the misses at every size. A sample of the pages, chosen by a hash, has the same histogram
//! with distances that are shorter by the rate (Waldspurger et al., "Efficient MRC Construction
//! with SHARDS", FAST 2015). Here the rate is of each file, and halved whenever more pages are in
//! the sample than it may have; a page of a sample at rate 1/8 stands for 8.
//!
//! **Intervals.** Most accesses leave no trace but a bit: no order is known of those within one
//! interval, and several to one page are one. A page that was last accessed in interval `e` and is
//! accessed in the current one has a distance of
//!
//! ```text
//!   pages last accessed after e                      all of them came between
//!   + 1/2 of those last accessed in e                half of them came after it
//!   + 1/2 of those accessed now, last before e       half of them came before it
//!   + 1/4 of those accessed now, last in e
//! ```
//!
//! so a distance is known to within what one interval accesses. Reuses within an interval are hits
//! at any size that has room for what an interval accesses; below that size the curve is a lower
//! bound of the misses.
//!
//! **Stacks.** Each file and each group has a histogram of its own (`stack`), over the same
//! sample. A page counts for the group that pays for it, and for those above.
//!
//! | cost | |
//! |---|---|
//! | [`Reuse::samples`] | a multiplication and a lookup of the file |
//! | [`Reuse::note`] | O(log samples) |
//! | [`Reuse::end_interval`] | O(n log n) for n pages accessed, in each stack that has some |

mod curve;
mod divide;
mod stack;
#[cfg(test)]
mod tests;

use crate::units::{MemcgId, SpaceId};
pub use curve::{Point, ReuseCurve};
pub use divide::divide;
use stack::{Again, Stack};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

/// What looking at the sample of one file may cost, in looks at one page.
const FILE_MOST: usize = 4096;
/// The same of all files.
const MOST: usize = 8192;
/// What a look at a page costs where looks are dear.
const DEAR: usize = 4;
/// Accesses that wait to be taken from the log at most; later ones are not recorded.
const LOG_MOST: usize = 1 << 20;
/// Intervals whose ends are remembered.
const ENDS: usize = 1024;
/// log2 of the neighbours that are in the sample together, if the first file is a dear one: behind
/// a pointer a look at a run of pages costs what one at a page does. A sample of single pages is
/// the better one where it costs the same.
const TOGETHER: u8 = 3;
/// The rate of a file is at least one in two to this power.
const SHIFT_MAX: u8 = 24;
/// An odd number without pattern: multiplying by it scatters neighbours.
const SCATTER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A page in the sample.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// The interval of the last access that is in the stacks.
    last: Option<u32>,
    /// Who paid for it then.
    group: MemcgId,
    /// It was accessed in the current interval.
    noted: bool,
    /// That access had to read.
    missed: bool,
    /// Who pays now.
    payer: MemcgId,
    /// Accesses so far, and those that were far from the one before, or the first.
    accesses: u32,
    far: u32,
}

/// The sample of one file.
#[derive(Clone, Debug, Default)]
struct File {
    rate: Rate,
    kind: Kind,
    pages: BTreeMap<u64, Sample>,
    stack: Stack,
    /// Of the last interval: what [`Stack::settle`] has returned.
    far: u32,
}

/// What the pages of a file are like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    /// log2 of the pages in a folio.
    pub order: u8,
    /// To see whether a page was accessed costs much, as behind a pointer: there are fewer of them
    /// in the sample, and looks come more often for it.
    pub dear: bool,
}

impl File {
    /// What a look at its sample costs.
    fn cost(&self) -> usize {
        self.pages.len() * self.kind.cost()
    }

    /// Pages for which a page in the sample stands.
    fn weight(&self) -> f64 {
        (1_u64 << (self.rate.shift + self.kind.order)) as f64
    }

    /// The squares by which groups of neighbours deviate from a share of far accesses, summed over
    /// some of its pages. Each group is in the sample with the same probability, and independent of
    /// the others. So with a share of 0 this is the variance of the number of far accesses (Horvitz
    /// and Thompson, 1952), and with the share that the sample has it is that of the share, but for
    /// the square of all accesses (Cochran, "Sampling Techniques", on ratio estimates).
    fn variance<'a>(&self, share: f64, pages: impl Iterator<Item = (&'a u64, &'a Sample)>) -> f64 {
        let missing = 1.0 - 1.0 / (1_u64 << self.rate.shift) as f64;
        let (mut sum, mut of, mut deviates) = (0.0, u64::MAX, 0.0_f64);
        for (page, sample) in pages {
            if page >> self.rate.together != of {
                sum += deviates.powi(2);
                (of, deviates) = (page >> self.rate.together, 0.0);
            }
            deviates += f64::from(sample.far) - share * f64::from(sample.accesses);
        }
        (sum + deviates.powi(2)) * self.weight().powi(2) * missing
    }
}

impl Kind {
    const fn cost(self) -> usize {
        if self.dear { DEAR } else { 1 }
    }
}

/// How a sample is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// One page in two to this power is in it.
    pub shift: u8,
    /// log2 of the neighbours that are in it together.
    pub together: u8,
}

impl Rate {
    /// Whether a page is in it. Smaller samples are parts of larger ones.
    #[inline]
    #[must_use]
    pub const fn has(self, page: u64) -> bool {
        let group = page >> self.together;
        let scattered = (group ^ group >> 29).wrapping_mul(SCATTER);
        scattered >> (64 - SHIFT_MAX as u32) < 1 << (SHIFT_MAX - self.shift)
    }
}

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub struct Reuse {
    interval: u32,
    /// When the last intervals ended, the newest last.
    ends: VecDeque<u64>,
    files: BTreeMap<SpaceId, File>,
    groups: BTreeMap<MemcgId, Stack>,
    /// Groups and those above them, as the stacks have their pages.
    chains: BTreeMap<MemcgId, Vec<MemcgId>>,
    /// Pages noted in the current interval.
    noted: Vec<(SpaceId, u64)>,
    /// What a look at all pages costs.
    cost: usize,
    /// What was noted since the log was taken, if there is one.
    log: Option<Vec<Noted>>,
    /// The lowest rate of a file so far.
    shift: u8,
    /// Of all files, once there is one.
    together: Option<u8>,
}

/// An access to a page of the sample, as it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    /// The file.
    pub space: SpaceId,
    /// The page, or the first of its folio.
    pub page: u64,
    /// Pages of the folio.
    pub pages: u64,
    /// The end of the interval.
    pub time_ns: u64,
}

impl Reuse {
    /// Whether accesses to a page are to be noted.
    #[inline]
    #[must_use]
    pub fn samples(&self, space: SpaceId, page: u64) -> bool {
        self.files.get(&space).is_none_or(|file| file.rate.has(page))
    }

    /// Notes an access to a page of the sample, which `payer` pays for; `missed`: it had to read.
    /// Where folios are larger, `page` is the first of its folio, and stands for all of it.
    ///
    /// Returns whether it was noted. A page that was accessed in this interval, and evicted, and
    /// misses, is noted when [the interval has ended](Self::end_interval).
    #[must_use = "an access that was not noted is lost"]
    pub fn note(
        &mut self,
        (space, page): (SpaceId, u64),
        kind: Kind,
        payer: MemcgId,
        missed: bool,
    ) -> bool {
        let Some(sample) = self.sample((space, page), kind, payer) else { return true };
        if sample.noted {
            return !missed;
        }
        (sample.noted, sample.missed, sample.payer) = (true, missed, payer);
        self.noted.push((space, page));
        true
    }

    /// Adds a page to those that are looked at, if it belongs to the sample: it came in, and was
    /// not accessed yet.
    pub fn expect(&mut self, page: (SpaceId, u64), kind: Kind, payer: MemcgId) {
        let _ = self.sample(page, kind, payer);
    }

    /// A page, if it belongs to the sample.
    fn sample(
        &mut self,
        (space, page): (SpaceId, u64),
        kind: Kind,
        payer: MemcgId,
    ) -> Option<&mut Sample> {
        let together = *self.together.get_or_insert(if kind.dear { TOGETHER } else { 0 });
        let rate = Rate { shift: 0, together };
        let file =
            self.files.entry(space).or_insert_with(|| File { kind, rate, ..File::default() });
        let has = file.pages.contains_key(&page);
        if !has && file.rate.has(page) {
            let new = Sample {
                last: None,
                group: payer,
                noted: false,
                missed: false,
                payer,
                accesses: 0,
                far: 0,
            };
            file.pages.insert(page, new);
            self.cost += file.kind.cost();
            self.make_room(space);
        }
        self.files.get_mut(&space)?.pages.get_mut(&page)
    }

    fn make_room(&mut self, space: SpaceId) {
        if self.files[&space].cost() > FILE_MOST {
            self.halve(space);
        } else if self.cost > MOST {
            let most = self.files.values().map(File::cost).max().unwrap_or_default();
            let large =
                |(space, file): (&SpaceId, &File)| (file.cost() > most / 2).then_some(*space);
            for space in self.files.iter().filter_map(large).collect::<Vec<_>>() {
                self.halve(space);
            }
        }
    }

    /// How many accesses were noted in the current interval.
    #[must_use]
    pub const fn noted(&self) -> usize {
        self.noted.len()
    }

    /// Pages of a group that were accessed in the intervals which ended at `since_ns` or later;
    /// nothing where no interval did. At most the last thousand of intervals count.
    #[must_use]
    pub fn active(&self, group: MemcgId, since_ns: u64) -> Option<u64> {
        let intervals = self.ends.iter().rev().take_while(|end| **end >= since_ns).count();
        if intervals == 0 {
            return None;
        }
        let first = self.interval.saturating_sub(intervals as u32);
        Some(self.groups.get(&group).map_or(0, |stack| stack.since(first)))
    }

    /// Records accesses from now on.
    pub fn begin_log(&mut self) {
        self.log.get_or_insert_default();
    }

    /// Records none any more.
    pub fn end_log(&mut self) {
        self.log = None;
    }

    /// What was recorded since the last time, up to the end of the last interval, and the lowest
    /// rate of a file so far.
    pub fn take_log(&mut self) -> (Vec<Noted>, Rate) {
        let rate = Rate { shift: self.shift, together: self.together.unwrap_or_default() };
        (self.log.as_mut().map(std::mem::take).unwrap_or_default(), rate)
    }

    /// The files that have pages in the sample.
    pub fn spaces(&self) -> impl Iterator<Item = SpaceId> {
        self.files.keys().copied()
    }

    /// The first `most` pages of a file's sample from `from` on.
    pub fn pages(&self, space: SpaceId, from: u64, most: usize) -> impl Iterator<Item = u64> {
        let file = self.files.get(&space);
        file.into_iter().flat_map(move |file| file.pages.range(from..)).take(most).map(|at| *at.0)
    }

    /// Ends the current interval at `now_ns`, and begins the next. `parent` has the group above
    /// each.
    pub fn end_interval(&mut self, now_ns: u64, parent: impl Fn(MemcgId) -> Option<MemcgId>) {
        let noted = std::mem::take(&mut self.noted);
        for &(space, page) in &noted {
            self.move_page(space, page, &parent);
        }
        let (mut spaces, mut groups) = (BTreeSet::new(), BTreeSet::new());
        for &(space, page) in &noted {
            let Some(file) = self.files.get_mut(&space) else { continue };
            let (weight, stack) = (file.weight(), &mut file.stack);
            let Some(sample) = file.pages.get(&page).filter(|sample| sample.noted) else {
                continue;
            };
            let again = Again { last: sample.last, weight, missed: sample.missed };
            stack.push(again);
            spaces.insert(space);
            for group in self.chains.get(&sample.group).into_iter().flatten() {
                if let Some(stack) = self.groups.get_mut(group) {
                    stack.push(again);
                    groups.insert(*group);
                }
            }
        }
        for group in &groups {
            if let Some(stack) = self.groups.get_mut(group) {
                stack.settle(self.interval, now_ns);
            }
        }
        for space in &spaces {
            if let Some(file) = self.files.get_mut(space) {
                file.far = file.stack.settle(self.interval, now_ns);
            }
        }
        for (space, page) in &noted {
            let Some(file) = self.files.get_mut(space) else { continue };
            let Some(sample) = file.pages.get_mut(page).filter(|sample| sample.noted) else {
                continue;
            };
            if let Some(log) = self.log.as_mut().filter(|log| log.len() < LOG_MOST) {
                let pages = 1 << file.kind.order;
                log.push(Noted { space: *space, page: *page, pages, time_ns: now_ns });
            }
            sample.accesses = sample.accesses.saturating_add(1);
            sample.far += u32::from(sample.last.is_none_or(|last| last < file.far));
            (sample.last, sample.noted) = (Some(self.interval), false);
        }
        self.noted = noted;
        self.noted.clear();
        if self.ends.len() == ENDS {
            self.ends.pop_front();
        }
        self.ends.push_back(now_ns);
        self.interval += 1;
    }

    /// Makes the stacks of the group that pays for a page now, and of those above, count it.
    fn move_page(
        &mut self,
        space: SpaceId,
        page: u64,
        parent: &impl Fn(MemcgId) -> Option<MemcgId>,
    ) {
        let Some(file) = self.files.get_mut(&space) else { return };
        let weight = file.weight();
        let Some(sample) = file.pages.get_mut(&page) else { return };
        let (from, to) = (sample.group, sample.payer);
        let chain: Vec<MemcgId> = std::iter::successors(Some(to), |&id| parent(id)).collect();
        if self.chains.get(&to) != Some(&chain) {
            self.rechain(to, chain);
        } else if from == to {
            return;
        }
        let Some(file) = self.files.get_mut(&space) else { return };
        let Some(sample) = file.pages.get_mut(&page) else { return };
        if from != to {
            sample.group = to;
            let Some(last) = sample.last else { return };
            self.count(from, last, -weight);
            self.count(to, last, weight);
        }
    }

    /// A group is elsewhere in the tree, or new.
    fn rechain(&mut self, group: MemcgId, chain: Vec<MemcgId>) {
        let mut counts: BTreeMap<u32, f64> = BTreeMap::new();
        for file in self.files.values() {
            let weight = file.weight();
            for sample in file.pages.values().filter(|sample| sample.group == group) {
                if let Some(last) = sample.last {
                    *counts.entry(last).or_default() += weight;
                }
            }
        }
        for (&last, &weight) in &counts {
            self.count(group, last, -weight);
        }
        for &id in &chain {
            self.groups.entry(id).or_default();
        }
        self.chains.insert(group, chain);
        for (&last, &weight) in &counts {
            self.count(group, last, weight);
        }
    }

    fn count(&mut self, group: MemcgId, last: u32, weight: f64) {
        for id in self.chains.get(&group).into_iter().flatten() {
            if let Some(stack) = self.groups.get_mut(id) {
                stack.count(last, weight);
            }
        }
    }

    /// Halves the rate of a file: half of its pages leave the sample, and the others stand for
    /// twice as many.
    fn halve(&mut self, space: SpaceId) {
        let Some(file) = self.files.get_mut(&space) else { return };
        if file.rate.shift == SHIFT_MAX {
            return;
        }
        let weight = file.weight();
        file.rate.shift += 1;
        let rate = file.rate;
        self.shift = self.shift.max(rate.shift);
        let before = file.pages.len();
        let mut changes: Vec<(MemcgId, u32, f64)> = Vec::with_capacity(before);
        file.pages.retain(|&page, sample| {
            let stays = rate.has(page);
            if let Some(last) = sample.last {
                let by = if stays { weight } else { -weight };
                file.stack.count(last, by);
                changes.push((sample.group, last, by));
            }
            stays
        });
        self.cost -= (before - file.pages.len()) * file.kind.cost();
        for (group, last, by) in changes {
            self.count(group, last, by);
        }
    }

    /// Pages are no more: what comes in their place is new.
    pub fn forget(&mut self, space: SpaceId, pages: Range<u64>) {
        let Some(file) = self.files.get_mut(&space) else { return };
        let weight = file.weight();
        let gone: Vec<u64> = file.pages.range(pages).map(|at| *at.0).collect();
        let mut changes = Vec::with_capacity(gone.len());
        for page in &gone {
            if let Some(Sample { last: Some(last), group, .. }) = file.pages.remove(page) {
                file.stack.count(last, -weight);
                changes.push((group, last));
            }
        }
        self.cost -= gone.len() * file.kind.cost();
        for (group, last) in changes {
            self.count(group, last, -weight);
        }
    }

    /// A file is closed.
    pub fn forget_space(&mut self, space: SpaceId) {
        self.forget(space, 0..u64::MAX);
        self.files.remove(&space);
    }

    /// A group is removed: its pages are those of the group above it.
    pub fn forget_group(&mut self, group: MemcgId) {
        self.groups.remove(&group);
        let Some(chain) = self.chains.remove(&group) else { return };
        let Some(&heir) = chain.get(1) else { return };
        self.chains.entry(heir).or_insert_with(|| chain[1..].to_vec());
        for sample in self.files.values_mut().flat_map(|file| file.pages.values_mut()) {
            for of in [&mut sample.group, &mut sample.payer] {
                if *of == group {
                    *of = heir;
                }
            }
        }
    }

    /// The curve of a file; `None` if no access was noted.
    #[must_use]
    pub fn of_space(&self, space: SpaceId) -> Option<ReuseCurve> {
        let file = self.files.get(&space)?;
        file.stack.curve(spread(&[file].into_iter(), |sample| sample.last.is_some()))
    }

    /// The curve of a group and those below it; `None` if no access was noted.
    #[must_use]
    pub fn of_group(&self, group: MemcgId) -> Option<ReuseCurve> {
        let stack = self.groups.get(&group)?;
        stack.curve(spread(&self.files.values(), |sample| {
            sample.last.is_some()
                && self.chains.get(&sample.group).is_some_and(|chain| chain.contains(&group))
        }))
    }
}

/// What a choice of pages leaves unknown.
#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    samples: u64,
    /// Standard error of the number of far accesses.
    far: f64,
    /// The same of their share of all accesses.
    share: f64,
}

/// Of the pages of some files that count.
fn spread<'a>(
    files: &(impl Iterator<Item = &'a File> + Clone),
    counts: impl Fn(&Sample) -> bool,
) -> Spread {
    let (mut samples, mut far, mut all) = (0, 0.0, 0.0);
    for file in files.clone() {
        for sample in file.pages.values().filter(|sample| counts(sample)) {
            samples += 1;
            far += file.weight() * f64::from(sample.far);
            all += file.weight() * f64::from(sample.accesses);
        }
    }
    if all == 0.0 {
        return Spread { samples, ..Spread::default() };
    }
    let within = |file: &'a File| file.pages.iter().filter(|(_, sample)| counts(sample));
    let error = |share: f64| -> f64 {
        let variances = files.clone().map(|file| file.variance(share, within(file)));
        variances.sum::<f64>().sqrt()
    };
    Spread { samples, far: error(0.0), share: error(far / all) / all }
}
