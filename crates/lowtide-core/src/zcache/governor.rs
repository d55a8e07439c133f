//! How much of a budget clean pages of files may take compressed: decided by what it saves.
//!
//! A page that is evicted may stay in memory, compressed, in a part of the budget that the pages in
//! use lose. Whether that pays depends on how well pages compress, on how soon they come back, and
//! on what a read costs; so each is measured, and no program is asked. The idea, and that it must
//! switch itself off, is from R. S. de Castro, A. Pereira do Lago, D. da Silva, *Adaptive
//! Compressed Caching*, SBAC-PAD 2003.
//!
//! **Distances.** Of a sample of the pages that could have been kept, it is remembered when each
//! was evicted, and so at its next miss how many others were evicted in between. That is a curve
//! of what a compressed part of any size would have served:
//!
//! ```text
//!        in use (B - T)        compressed (T, holds r·T)            nothing
//!   ├──────────────────────┼─────────────────────────────────┼───────────────── distance
//!                          0                                r·T
//! ```
//!
//! A part that grows by d pages moves the first border d to the left: what lies there costs a
//! decompression and a compression from then on. The second moves (r-1)·d to the right: what lies
//! there costs a decompression instead of a read. The density on the left of the first border goes
//! on as it does on its right: the nearer, the denser.
//!
//! **Sizes** are tried in sixteenths of the budget, up to three quarters. One that would save a
//! twentieth of what misses cost, and more the larger it is, is a trial (`trial.rs`) as soon as so
//! much is more than chance makes: it stays if accesses cost less with it than before. The next
//! trial waits for a while after one that failed, longer each time: trying costs, too. A part that
//! stays is compared with a smaller one now and then, since programs change. Where misses cost less
//! than a hundredth of the time nothing is compressed.

use super::trial::{Counts, Habit, Trial, Verdict};
use crate::units::Owner;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;

/// Sizes that are tried: sixteenths of a budget, none to three quarters.
const SIXTEENTHS: std::ops::RangeInclusive<u64> = 0..=12;
/// Buckets of distances for each budget, and budgets that are looked back.
const BUCKETS: u64 = 32;
const LOOK_BACK: u64 = 8;
/// Pages that are remembered, about.
const REMEMBERED: u64 = 8192;
/// A change has to save this part of what misses cost: one that begins, and one that goes on.
const WORTH: (f64, f64) = (0.05, 0.02);
/// And a larger part, as much more for each budget that it takes: the further a size is from the
/// one that is known, the less distances say of it.
const UNKNOWN: f64 = 0.2;
/// The part of what the best size gains for which a smaller change is tried first.
const MOST: f64 = 0.8;
/// Misses that take less of the time than this, if all are read, are left alone.
const NEAR_FIT: f64 = 0.01;
/// Of the time, the part that trials may cost.
const REGRET: f64 = 0.005;
/// Decisions without a trial: after one that changed nothing, twice as many each time, and at most.
const PAUSE: u32 = 16;
const PAUSE_MAX: u32 = 2048;
/// What a doubt is worth a decision later.
const FORGIVEN: f64 = 0.998;
/// Buckets whose mean is the density of accesses before the first.
const NEAREST: usize = 4;
/// Buckets whose means say how accesses become fewer with the distance, and the steepest that is
/// taken for true.
const NEAR: Range<usize> = 0..8;
const FAR: Range<usize> = 16..48;
const STEEPEST: f64 = 2.0;
/// What older periods count next to a new one.
const DECAY: f64 = 0.9;

/// What one page costs, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Costs {
    /// To compress it.
    pub store: f64,
    /// To decompress it.
    pub load: f64,
    /// To read it from its device.
    pub read: f64,
}

/// What was measured since the last decision.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    /// The budget, in pages.
    pub budget: u64,
    /// Pages that were evicted and could be kept, since the beginning.
    pub evicted: u64,
    /// Nanoseconds that have passed.
    pub nanos: f64,
    /// Threads' nanoseconds spent waiting for reads.
    pub waited: f64,
    /// What was done since the beginning.
    pub counts: Counts,
    /// Costs of a page.
    pub costs: Costs,
    /// Pages that a page of memory holds, with what tables and blocks lose.
    pub ratio: f64,
    /// Of the pages that were tried, the part that compresses well enough.
    pub kept: f64,
}

/// Spreads pages, for samples and tables.
#[must_use]
pub const fn hash(page: Owner) -> u64 {
    let word = (page.space.0 as u64) << 40 ^ page.page;
    let mixed = (word ^ word >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// Whether a page with this hash is in a sample.
#[must_use]
pub const fn is_sampled(hash: u64, mask: u64) -> bool {
    (hash >> 32) & mask == 0
}

/// See the module documentation. One for each compressed part.
#[derive(Debug)]
pub struct Governor {
    budget: u64,
    /// Of the hash of a page, these bits are zero in the sample.
    mask: u64,
    /// When pages of the sample were evicted.
    at: HashMap<u64, u64>,
    order: VecDeque<(u64, u64)>,
    /// Misses by distance, each standing for `mask + 1`; decayed.
    distances: Vec<f64>,
    /// Evictions in the same time; decayed.
    evictions: f64,
    evicted_before: u64,
    target: u64,
    counted: Counts,
    /// What accesses cost with this size.
    habit: Habit,
    trial: Option<Trial>,
    /// When the next trial of a larger size may begin, and of a smaller one.
    larger: Pause,
    smaller: Pause,
    /// What accesses cost before a trial that failed, until they do again: it left the policy with
    /// less than it knew.
    owed: Option<f64>,
    /// By which part of what misses cost distances promised too much, for each page of a change.
    doubt: f64,
}

/// Decisions without trials of one kind.
#[derive(Debug, Default)]
struct Pause {
    length: u32,
    left: u32,
}

impl Pause {
    /// It begins, after a trial that has cost as much as `regret` decisions take.
    fn begin(&mut self, regret: f64) {
        let least = (2 * self.length).max(PAUSE);
        self.length = least.max((regret / REGRET) as u32).min(PAUSE_MAX);
        self.left = self.length;
    }
}

impl Governor {
    /// One for a budget in pages, that has nothing compressed yet.
    #[must_use]
    pub fn new(budget: u64) -> Self {
        let pages = budget.max(1) * LOOK_BACK;
        Self {
            budget: budget.max(1),
            mask: (pages / REMEMBERED).next_power_of_two() - 1,
            at: HashMap::new(),
            order: VecDeque::new(),
            distances: vec![0.0; (BUCKETS * LOOK_BACK) as usize],
            evictions: 0.0,
            evicted_before: 0,
            target: 0,
            counted: Counts::default(),
            habit: Habit::default(),
            trial: None,
            larger: Pause::default(),
            smaller: Pause::default(),
            owed: None,
            doubt: 0.0,
        }
    }

    /// Pages of memory that compressed pages may take.
    #[must_use]
    pub const fn target(&self) -> u64 {
        self.target
    }

    /// Which pages are in the sample: for [`is_sampled`].
    #[must_use]
    pub const fn mask(&self) -> u64 {
        self.mask
    }

    /// A page of the sample was evicted and could be kept, as `now` pages before it.
    pub fn evicted(&mut self, hash: u64, now: u64) {
        self.at.insert(hash, now);
        self.order.push_back((hash, now));
        let oldest = now.saturating_sub(self.budget * LOOK_BACK);
        while let Some(&(hash, at)) = self.order.front()
            && (at < oldest || self.order.len() as u64 > 4 * REMEMBERED)
        {
            self.order.pop_front();
            if self.at.get(&hash) == Some(&at) {
                self.at.remove(&hash);
            }
        }
    }

    /// A page of the sample is missed: it is not in use, compressed or not. So far `now` pages were
    /// evicted.
    pub fn missed(&mut self, hash: u64, now: u64) {
        let Some(at) = self.at.remove(&hash) else { return };
        let bucket = now.saturating_sub(at) * BUCKETS / self.budget;
        if let Some(count) = self.distances.get_mut(bucket as usize) {
            *count += (self.mask + 1) as f64;
        }
    }

    /// Decides how much memory compressed pages may take from now on, in pages.
    pub fn decide(&mut self, measured: &Measured) -> u64 {
        if measured.budget != self.budget {
            // Distances were those of another budget.
            self.budget = measured.budget.max(1);
            self.target = self.target.min(self.budget);
            self.distances.fill(0.0);
            (self.trial, self.habit) = (None, Habit::default());
        }
        let offered = (measured.evicted - self.evicted_before) as f64;
        let period = measured.counts.since(&self.counted);
        (self.evicted_before, self.counted) = (measured.evicted, measured.counts);
        self.evictions += offered;
        let before = self.target;
        // What is compressed may be the reason why little is read.
        let waited = measured.waited + period.loads * measured.costs.read;
        if waited < NEAR_FIT * measured.nanos {
            (self.trial, self.habit) = (None, Habit::default());
            self.target = before.saturating_sub(self.budget.div_ceil(8));
        } else if let Some(trial) = self.trial.take() {
            self.go_on(trial, &period, offered, &measured.costs);
        } else {
            self.habit.add(&period);
            self.larger.left = self.larger.left.saturating_sub(1);
            self.smaller.left = self.smaller.left.saturating_sub(1);
            self.doubt *= FORGIVEN;
            self.pay(&period, &measured.costs);
            self.begin(measured);
        }
        self.note_change(before);
        self.evictions *= DECAY;
        self.distances.iter_mut().for_each(|count| *count *= DECAY);
        self.target
    }

    /// Counts what a trial that failed costs after its end.
    fn pay(&mut self, period: &Counts, costs: &Costs) {
        let Some(before) = self.owed.filter(|_| self.habit.known(costs).is_none()) else {
            self.owed = None;
            return;
        };
        let regret = (1.0 - before / period.each(costs).0.max(1e-9)).max(0.0);
        self.larger.left = (self.larger.left + (regret / REGRET) as u32).min(PAUSE_MAX);
    }

    /// Proposes another size, and tries it, if it is known what accesses cost with this one. While
    /// that changes, only a smaller one.
    fn begin(&mut self, measured: &Measured) {
        let from = self.target;
        let larger = self.proposal(measured, true);
        let smaller = self.proposal(measured, false);
        let known = self.habit.known(&measured.costs);
        let half = if from > self.budget / 8 { from / 2 } else { 0 };
        let check = (from > 0).then_some((half, 0.0));
        let larger = larger.filter(|_| self.larger.left == 0 && known.is_some());
        let is_now = smaller.is_some() && self.habit.has_changed(&measured.costs);
        let smaller = smaller.or(check).filter(|_| self.smaller.left == 0 || is_now);
        let both = larger.into_iter().chain(smaller);
        let Some((to, gain)) = both.max_by(|a, b| a.1.total_cmp(&b.1)) else { return };
        let Some(before) = known.or_else(|| self.habit.last()) else { return };
        // All of a larger part is new, for what is stored stays as long as it lets it.
        let fill = match to > from {
            true => to as f64 * measured.ratio / measured.kept.max(0.01),
            false => (from - to) as f64,
        };
        let fill = fill.min((2 * self.budget) as f64);
        let promised = gain / (self.evictions * measured.costs.read).max(1e-9);
        let trial = Trial::new(from, (to > from).then_some(promised), before, fill);
        if trial.can_be_seen(&measured.costs) {
            self.target = to;
            self.trial = Some(trial);
        }
    }

    /// What the last period says of a trial.
    fn go_on(&mut self, mut trial: Trial, period: &Counts, offered: f64, costs: &Costs) {
        let verdict = trial.judge(period, offered, costs);
        let (this, other) = match trial.promised {
            Some(_) => (&mut self.larger, &mut self.smaller),
            None => (&mut self.smaller, &mut self.larger),
        };
        match verdict {
            Verdict::Open => self.trial = Some(trial),
            Verdict::Better => {
                *this = Pause::default();
                other.begin(0.0);
                self.habit = Habit::new(trial.after);
            }
            Verdict::NotBetter => {
                this.begin(trial.regret);
                if let Some(promised) = trial.promised {
                    let gain = trial.gain(costs);
                    let change = (self.target - trial.from).max(1) as f64;
                    self.doubt += ((promised - gain.0) / change).max(0.0);
                    self.owed = Some(gain.1);
                }
                self.target = trial.from;
                self.habit = Habit::default();
            }
        }
    }

    /// The first border moves, and with it the place from which distances are measured.
    fn note_change(&mut self, before: u64) {
        let buckets = |pages: u64| (pages * BUCKETS / self.budget) as usize;
        if self.target > before {
            let density = self.nearest();
            let more = buckets(self.target - before);
            self.distances.rotate_right(more);
            self.distances[..more].fill(density);
        } else {
            let fewer = buckets(before - self.target);
            self.distances.rotate_left(fewer);
            let len = self.distances.len();
            self.distances[len - fewer..].fill(0.0);
        }
    }

    /// Misses in a bucket at the first border.
    fn nearest(&self) -> f64 {
        self.distances[..NEAREST].iter().sum::<f64>() / NEAREST as f64
    }

    /// Pages of the part in use on the left of the first border, as many as it would be if accesses
    /// were as dense there as on the right: they are denser, and how much is taken to go on as it
    /// does there.
    fn left_of(&self, pages: f64) -> f64 {
        let mean = |buckets: Range<usize>| {
            let len = buckets.len() as f64;
            self.distances[buckets].iter().sum::<f64>() / len
        };
        let live = (self.budget - self.target).max(1) as f64;
        let at = |range: &Range<usize>| {
            let middle = (range.start + range.end) as f64 / 2.0;
            live + middle * self.budget as f64 / BUCKETS as f64
        };
        let decline = (mean(NEAR) / mean(FAR).max(1e-9)).max(1e-9).ln();
        let power = (decline / (at(&FAR) / at(&NEAR)).ln()).clamp(0.0, STEEPEST);
        let left = (live - pages).max(live / 16.0);
        let parts = 16.0;
        let part = (live - left) / parts;
        let each = |n: u32| (live / (left + (f64::from(n) + 0.5) * part)).powf(power) * part;
        (0..16).map(each).sum()
    }

    /// A size that is worth a trial, larger or smaller: of those on the way to the best one, the
    /// first that gains nearly as much; and its gain. What a trial costs grows with the square of
    /// the change.
    fn proposal(&self, measured: &Measured, larger: bool) -> Option<(u64, f64)> {
        let now = self.saved(self.target, measured);
        let is_it = |size: &u64| if larger { *size > self.target } else { *size < self.target };
        let sizes = SIXTEENTHS.map(|n| self.budget * n / 16).filter(is_it);
        let doubt = if larger { self.doubt * self.evictions * measured.costs.read } else { 0.0 };
        let doubted = |size: u64| doubt * size.abs_diff(self.target) as f64;
        let gain = |size| self.saved(size, measured) - now - doubted(size);
        let gains = sizes.map(|size| (size, gain(size)));
        let mut gains: Vec<(u64, f64)> = gains.collect();
        let most = gains.iter().map(|&(_, gain)| gain).fold(0.0, f64::max);
        let misses: f64 = self.distances.iter().sum();
        let part = if self.target == 0 { WORTH.0 } else { WORTH.1 };
        let all = misses * measured.costs.read;
        gains.sort_by_key(|(size, _)| size.abs_diff(self.target));
        let change = |size: u64| size.abs_diff(self.target) as f64 / self.budget as f64;
        let unknown = if larger { UNKNOWN } else { 0.0 };
        let enough = |size| ((part + unknown * change(size)) * all).max(MOST * most);
        gains.into_iter().find(|&(size, gain)| gain > enough(size))
    }

    /// Nanoseconds that a size would have saved, next to nothing compressed and as many pages in
    /// use as now.
    fn saved(&self, size: u64, measured: &Measured) -> f64 {
        let Costs { store, load, read } = measured.costs;
        let width = self.budget as f64 / BUCKETS as f64;
        let moved = size as f64 - self.target as f64;
        // What lies between the borders, measured from the first one as it is now.
        let (begin, end) = (-moved, size as f64 * measured.ratio / measured.kept.max(0.01) - moved);
        let (mut live, mut back, mut saved) = (0.0, 0.0, 0.0);
        for &count in &self.distances {
            // Pages that came back are not there any more.
            let there = width * (1.0 - back / self.evictions.max(1.0)).max(0.0);
            let (from, to) = (live, live + there);
            let part = |a: f64, b: f64| {
                ((to.min(b) - from.max(a)) / there.max(1e-9)).clamp(0.0, 1.0) * count
            };
            // In use again, or compressed.
            saved += part(f64::MIN, begin.max(0.0)) * read;
            if size > 0 {
                saved += part(begin.max(0.0), end) * measured.kept * (read - load);
            }
            (live, back) = (to, back + count);
        }
        let lost = self.nearest() / width * self.left_of(moved.max(0.0));
        if size > 0 {
            // One that does not compress is read.
            let again = measured.kept * (load + store) + (1.0 - measured.kept) * read;
            saved -= lost * again + self.evictions * store;
        }
        saved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::SpaceId;

    const BUDGET: u64 = 4096;
    const NONE: Counts =
        Counts { accesses: 0.0, unsure: 0.0, misses: 0.0, loads: 0.0, stores: 0.0 };

    /// A program that accesses pages of all depths of a stack alike, from the top to `reach` below
    /// the budget, and the part of a budget that was compressed on average. Of the accesses that
    /// would be hits without, `lost` times its share of the budget are reads, of pages that went
    /// long before.
    fn play(reach: u64, lost: f64, measured: &Measured, periods: u32) -> f64 {
        let mut governor = Governor::new(BUDGET);
        let mix = |page| hash(Owner { space: SpaceId(0), page });
        let (mut counts, mut next, mut sum) = (Counts::default(), 0_u64, 0);
        for access in 1..=u64::from(periods) * BUDGET {
            let target = governor.target();
            counts.accesses += 1.0;
            let depth = mix(access) % (BUDGET + reach);
            let live = BUDGET - target;
            let share = target as f64 / BUDGET as f64;
            let draw = (mix(!access) % 1000) as f64 / 1000.0;
            let is_lost = depth < BUDGET && draw < lost * share;
            if depth >= live || is_lost {
                counts.misses += 1.0;
                counts.stores += f64::from(u8::from(target > 0));
                let ago = if is_lost { u64::MAX } else { depth - live };
                let is_stored = (ago as f64) < target as f64 * measured.ratio;
                let is_small = mix(depth ^ 77) % 100 < (100.0 * measured.kept) as u64;
                counts.loads += f64::from(u8::from(is_stored && is_small));
                let is_sampled = |page| is_sampled(mix(page), governor.mask());
                let back = next.checked_sub(ago).filter(|&page: &u64| is_sampled(page));
                if is_sampled(next) {
                    governor.evicted(mix(next), next);
                }
                if let Some(page) = back {
                    governor.missed(mix(page), next);
                }
                next += 1;
            }
            if access % BUDGET == 0 {
                sum += governor.decide(&Measured { evicted: next, counts, ..*measured });
            }
        }
        sum as f64 / f64::from(periods) / BUDGET as f64
    }

    const SLOW: Measured = Measured {
        budget: BUDGET,
        evicted: 0,
        nanos: 1e9,
        waited: 0.5e9,
        counts: NONE,
        costs: Costs { store: 6_000.0, load: 1_200.0, read: 65_000.0 },
        ratio: 2.5,
        kept: 1.0,
    };

    #[test]
    fn pages_that_compress_and_come_back_soon_get_their_part() {
        let part = play(2 * BUDGET, 0.0, &SLOW, 200);
        assert!(part >= 0.5, "{part}");
    }

    #[test]
    fn what_does_not_pay_is_not_compressed() {
        let with = |change: &dyn Fn(&mut Measured)| {
            let mut measured = SLOW;
            change(&mut measured);
            play(2 * BUDGET, 0.0, &measured, 200)
        };
        assert_eq!(with(&|m| m.ratio = 1.0), 0.0, "pages that do not become smaller");
        assert_eq!(with(&|m| m.kept = 0.0), 0.0, "pages of which none compresses");
        assert_eq!(with(&|m| m.costs.read = 4_000.0), 0.0, "a read is cheaper than compressing");
        assert_eq!(with(&|m| m.waited = 1e6), 0.0, "nearly everything fits");
        assert_eq!(play(64 * BUDGET, 0.0, &SLOW, 200), 0.0, "pages come back too late");
    }

    #[test]
    fn what_distances_promise_and_accesses_do_not_keep_is_given_up() {
        let part = play(2 * BUDGET, 2.0, &SLOW, 2000);
        assert!((0.0001..0.03).contains(&part), "{part}");
    }

    #[test]
    fn a_part_that_stops_to_pay_goes() {
        let mut governor = Governor::new(BUDGET);
        governor.target = BUDGET / 2;
        let fits = Measured { waited: 0.0, ..SLOW };
        let targets: Vec<u64> = (0..8).map(|_| governor.decide(&fits)).collect();
        assert!(targets.windows(2).all(|pair| pair[1] <= pair[0]), "{targets:?}");
        assert_eq!(targets.last(), Some(&0));
    }
}
