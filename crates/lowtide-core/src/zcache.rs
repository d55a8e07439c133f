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
//! there costs a decompression instead of a read. The density on the left of the first border is
//! taken to be the one on its right.
//!
//! **Sizes** are tried in sixteenths of the budget, up to three quarters. The best one is
//! approached in steps. A part is begun where it saves a twentieth of what misses cost, and nothing
//! is compressed where they cost less than a hundredth of the time. One that was begun and soon
//! given up is not begun again for a while, longer each time: trying costs, too.

use crate::units::Owner;
use std::collections::{HashMap, VecDeque};

/// Sizes that are tried: sixteenths of a budget, none to three quarters.
const SIXTEENTHS: std::ops::RangeInclusive<u64> = 0..=12;
/// Buckets of distances for each budget, and budgets that are looked back.
const BUCKETS: u64 = 32;
const LOOK_BACK: u64 = 8;
/// Pages that are remembered, about.
const REMEMBERED: u64 = 8192;
/// A change has to save this part of what misses cost: one that begins, and one that goes on.
const WORTH: (f64, f64) = (0.05, 0.02);
/// Misses that take less of the time than this are left alone.
const NEAR_FIT: f64 = 0.01;
/// Decisions for which a part has to last, and for which one that did not is not begun again at
/// most.
const LASTS: u32 = 32;
const PAUSE_MAX: u32 = 512;
/// Buckets whose mean is the density of accesses before the first.
const NEAREST: usize = 4;
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
    /// Decisions since a part was begun, or since it was given up.
    age: u32,
    /// Decisions for which none is begun.
    pause: u32,
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
            age: 0,
            pause: 1,
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
        }
        self.evictions += (measured.evicted - self.evicted_before) as f64;
        self.evicted_before = measured.evicted;
        let (worth, best) = self.best(measured);
        let near_fit = measured.waited < NEAR_FIT * measured.nanos;
        let step = self.budget.div_ceil(8);
        let before = self.target;
        if near_fit {
            self.target = before.saturating_sub(step);
        } else if worth && (before > 0 || self.age >= self.pause) {
            self.target = best.clamp(before.saturating_sub(step), before + step);
        }
        self.note_change(before);
        self.evictions *= DECAY;
        self.distances.iter_mut().for_each(|count| *count *= DECAY);
        self.target
    }

    /// The first border moves, and with it the place from which distances are measured.
    fn note_change(&mut self, before: u64) {
        self.age = self.age.saturating_add(1);
        match (before, self.target) {
            (0, 1..) => self.age = 0,
            (1.., 0) => {
                self.pause = if self.age < LASTS { (2 * self.pause).min(PAUSE_MAX) } else { 1 };
                self.age = 0;
            }
            _ => {}
        }
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

    /// The best size, and whether it is worth a change.
    fn best(&self, measured: &Measured) -> (bool, u64) {
        let sizes = SIXTEENTHS.map(|n| self.budget * n / 16);
        let rated = sizes.map(|size| (self.saved(size, measured), size));
        let (most, best) = rated.fold((0.0, 0), |a, b| if b.0 > a.0 { b } else { a });
        let misses: f64 = self.distances.iter().sum();
        let gain = most - self.saved(self.target, measured);
        let part = if self.target == 0 { WORTH.0 } else { WORTH.1 };
        (gain > part * misses * measured.costs.read, best)
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
        let lost = self.nearest() / width * moved.max(0.0);
        if size > 0 {
            saved -= lost * (load + store) + self.evictions * store;
        }
        saved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::SpaceId;

    const BUDGET: u64 = 4096;

    /// Misses that come back at distances from 0 to `reach`, for some periods.
    fn play(reach: u64, measured: &Measured, periods: u32) -> u64 {
        let mut governor = Governor::new(BUDGET);
        let mix = |page| hash(Owner { space: SpaceId(0), page });
        for next in 0..u64::from(periods) * BUDGET {
            if is_sampled(mix(next), governor.mask()) {
                governor.evicted(mix(next), next);
            }
            // A page that was evicted some time ago, at distances that are spread evenly.
            let ago = mix(next + 1) % reach;
            if let Some(page) = next.checked_sub(ago)
                && is_sampled(mix(page), governor.mask())
            {
                governor.missed(mix(page), next);
            }
            if next % BUDGET == 0 {
                governor.decide(&Measured { evicted: next, ..*measured });
            }
        }
        governor.target()
    }

    const SLOW: Measured = Measured {
        budget: BUDGET,
        evicted: 0,
        nanos: 1e9,
        waited: 0.5e9,
        costs: Costs { store: 6_000.0, load: 1_200.0, read: 65_000.0 },
        ratio: 2.5,
        kept: 1.0,
    };

    #[test]
    fn pages_that_compress_and_come_back_soon_get_their_part() {
        let target = play(2 * BUDGET, &SLOW, 20);
        assert!(target >= BUDGET / 2, "{target} of {BUDGET}");
    }

    #[test]
    fn what_does_not_pay_is_not_compressed() {
        let with = |change: &dyn Fn(&mut Measured)| {
            let mut measured = SLOW;
            change(&mut measured);
            play(2 * BUDGET, &measured, 20)
        };
        assert_eq!(with(&|m| m.ratio = 1.0), 0, "pages that do not become smaller");
        assert_eq!(with(&|m| m.kept = 0.0), 0, "pages of which none compresses");
        assert_eq!(with(&|m| m.costs.read = 4_000.0), 0, "a read is cheaper than compressing");
        assert_eq!(with(&|m| m.waited = 1e6), 0, "nearly everything fits");
        assert_eq!(play(64 * BUDGET, &SLOW, 20), 0, "pages come back too late");
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
