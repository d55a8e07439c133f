//! Whether another size was better: what accesses cost with it, next to what they did before.
//!
//! Distances of evicted pages say what a part of another size *would* have saved if pages were
//! evicted in the order of their last use. No policy worth its name does that: it keeps pages that
//! are used often, so that the pages in use lose more than those that have just gone would have
//! been worth. So a size that distances propose is a trial. It is judged by what an access costs on
//! average, misses and hits together, once the part has been filled: that needs no model, only a
//! program that does the same for as long. Misses come by chance, so a difference counts as far as
//! it is larger than what chance makes of as many. Filling the part costs most of a trial that
//! fails, so one that could not pay even with all of the pages that it has yet to get ends before.

use super::governor::Costs;

/// Standard deviations beyond which a difference is no chance: for better, and for worse.
const SURE: (f64, f64) = (3.0, 2.0);
/// Where chance makes less than this of the cost, and a size has not been better, it is not.
const FINE: f64 = 0.01;
/// A size has to save this part of the cost.
const WORTH: f64 = 0.02;
/// Misses by which it is known what accesses cost just now, and misses before that which count.
const BLOCK: f64 = 4096.0;
const MEMORY: f64 = 32768.0;
/// Of a part that has just begun, how much is taken to be full at least.
const FULL: f64 = 0.125;
/// Decisions after which a trial ends.
const LONGEST: u32 = 32;

/// What was done with the pages that may be kept, as a number of each.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Counts {
    /// Accesses to them.
    pub accesses: f64,
    /// How many of them are counted wrong: the standard deviation.
    pub unsure: f64,
    /// Misses: of pages that were not in use, compressed or not.
    pub misses: f64,
    /// Of these, those that found the page compressed.
    pub loads: f64,
    /// Pages that were compressed, small enough or not.
    pub stores: f64,
}

impl Counts {
    /// What was done from one time to another.
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            accesses: self.accesses - before.accesses,
            unsure: self.unsure,
            misses: self.misses - before.misses,
            loads: self.loads - before.loads,
            stores: self.stores - before.stores,
        }
    }

    pub(super) fn add(&mut self, more: &Self) {
        self.accesses += more.accesses;
        self.unsure = more.unsure;
        self.misses += more.misses;
        self.loads += more.loads;
        self.stores += more.stores;
    }

    /// Counts less.
    fn scale(&mut self, by: f64) {
        for count in [&mut self.accesses, &mut self.misses, &mut self.loads, &mut self.stores] {
            *count *= by;
        }
    }

    /// What an access costs, and the variance of that, relative to its square.
    pub(super) fn each(&self, costs: &Costs) -> (f64, f64) {
        let reads = (self.misses - self.loads).max(0.0);
        let sum = reads * costs.read + self.loads * costs.load + self.stores * costs.store;
        let squares = |n: f64, cost: f64| n * cost * cost;
        let chance = squares(reads, costs.read)
            + squares(self.loads, costs.load)
            + squares(self.stores, costs.store);
        let accesses = self.accesses.max(1.0);
        let unsure = self.unsure / accesses;
        (sum / accesses, chance.max(costs.read) / (sum * sum).max(1e-9) + unsure * unsure)
    }

    /// Whether accesses cost as much as others did, as far as chance allows to say.
    fn is_as(&self, other: &Self, costs: &Costs) -> bool {
        let ((now, chance), (then, more)) = (self.each(costs), other.each(costs));
        (now / then.max(1e-9) - 1.0).abs() <= SURE.1 * (chance + more).sqrt()
    }
}

/// What accesses cost with one size: just now, and before that.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Habit {
    before: Counts,
    last: Counts,
    now: Counts,
}

impl Habit {
    /// One of which this is known.
    pub(super) fn new(before: Counts) -> Self {
        Self { before, last: before, ..Self::default() }
    }

    /// Whether accesses cost just now what they did not before: the program does something else.
    pub(super) fn has_changed(&self, costs: &Costs) -> bool {
        let least = self.before.misses.min(self.last.misses);
        least >= BLOCK && !self.last.is_as(&self.before, costs)
    }

    /// What was done just now, if that is enough.
    pub(super) fn last(&self) -> Option<Counts> {
        (self.last.misses >= BLOCK).then_some(self.last)
    }

    pub(super) fn add(&mut self, period: &Counts) {
        self.now.add(period);
        if self.now.misses >= BLOCK {
            let all = self.before.misses + self.last.misses;
            self.before.add(&self.last);
            self.before.scale((MEMORY / all.max(1.0)).min(1.0));
            (self.last, self.now) = (self.now, Counts::default());
        }
    }

    /// What was done, if accesses cost just now what they did before that.
    pub(super) fn known(&self, costs: &Costs) -> Option<Counts> {
        let mut sum = self.before;
        sum.add(&self.last);
        let is_known = self.before.misses >= BLOCK && self.last.is_as(&self.before, costs);
        is_known.then_some(sum)
    }
}

/// What is known of a trial.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Open,
    Better,
    NotBetter,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Trial {
    /// The size before.
    pub(super) from: u64,
    /// The part of what misses cost that a larger one was to save. None for a smaller one.
    pub(super) promised: Option<f64>,
    /// Decisions since.
    took: u32,
    /// What it may have cost so far, in times that decisions take.
    pub(super) regret: f64,
    /// The same without doubt.
    spent: f64,
    before: Counts,
    /// With the new size.
    pub(super) after: Counts,
    /// Pages that are offered until its part is full, counted from when it began.
    size: f64,
    /// The same, counted from now.
    fill: f64,
}

impl Trial {
    /// One that begins.
    pub(super) fn new(from: u64, promised: Option<f64>, before: Counts, fill: f64) -> Self {
        Self {
            from,
            promised,
            took: 0,
            regret: 0.0,
            spent: 0.0,
            before,
            after: Counts::default(),
            size: fill.max(1.0),
            fill,
        }
    }

    /// Whether a period says that it will not be better when its part is full: not even if more of
    /// the misses find their page there in proportion, and no hit is lost to what it still takes.
    fn is_hopeless(&self, period: &Counts, costs: &Costs) -> bool {
        let full = (1.0 - self.fill / self.size).max(FULL);
        let loads = (period.loads / full).min(period.misses);
        let (after, chance) = Counts { loads, ..*period }.each(costs);
        let (before, more) = self.before.each(costs);
        after / before.max(1e-9) - 1.0 > SURE.0 * (chance + more).sqrt()
    }

    /// Whether what it promises is more than chance makes, if as much is known of it as of before.
    pub(super) fn can_be_seen(&self, costs: &Costs) -> bool {
        let chance = (2.0 * self.before.each(costs).1).sqrt();
        self.promised.is_none_or(|promised| promised > SURE.0 * chance)
    }

    /// The part of the cost that it saves, and what an access cost before.
    pub(super) fn gain(&self, costs: &Costs) -> (f64, f64) {
        let (before, after) = (self.before.each(costs).0, self.after.each(costs).0);
        (1.0 - after / before.max(1e-9), before)
    }

    /// What a period says of it, in which a number of pages was offered. A size that is better
    /// before its part is full will be better then.
    pub(super) fn judge(&mut self, period: &Counts, offered: f64, costs: &Costs) -> Verdict {
        self.took += 1;
        let was_full = self.fill <= 0.0;
        self.fill -= offered;
        self.after.add(period);
        let (before, chance) = self.before.each(costs);
        let (after, more) = self.after.each(costs);
        let (gain, chance) = (1.0 - after / before.max(1e-9), (chance + more).sqrt());
        self.spent += 1.0 - before / period.each(costs).0.max(1e-9);
        self.regret = self.spent.max(0.0) + chance * f64::from(self.took);
        if gain > SURE.0 * chance && gain > WORTH {
            return Verdict::Better;
        }
        if self.fill > 0.0 {
            let is_hopeless = self.promised.is_some() && self.is_hopeless(period, costs);
            return if is_hopeless { Verdict::NotBetter } else { Verdict::Open };
        }
        if !was_full {
            self.after = Counts::default();
            return Verdict::Open;
        }
        let is_over = self.took > LONGEST || chance < FINE && gain < WORTH;
        match (gain < -SURE.1 * chance, self.promised.is_some()) {
            (true, _) => Verdict::NotBetter,
            (false, _) if !is_over => Verdict::Open,
            (false, true) => Verdict::NotBetter,
            // Of two that cost the same the smaller one is better.
            (false, false) => Verdict::Better,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Costs = Costs { store: 6_000.0, load: 5_000.0, read: 12_000.0 };
    const SLOW: Costs = Costs { read: 1_000_000.0, ..FAST };
    const BEFORE: Counts =
        Counts { accesses: 100_000.0, unsure: 100.0, misses: 20_000.0, loads: 0.0, stores: 0.0 };

    /// One that promises a tenth, whose part is full after as many misses as there were before.
    fn trial(unsure: f64) -> Trial {
        Trial::new(0, Some(0.1), Counts { unsure, ..BEFORE }, 20_000.0)
    }

    #[test]
    fn one_that_cannot_pay_ends_before_its_part_is_full() {
        let half = Counts { loads: 100.0, stores: 20_000.0, ..BEFORE };
        assert_eq!(trial(100.0).judge(&half, 10_000.0, &FAST), Verdict::NotBetter);
        assert_eq!(trial(100.0).judge(&half, 10_000.0, &SLOW), Verdict::Open, "it may fill");
        let found = Counts { loads: 4_000.0, ..half };
        assert_eq!(trial(100.0).judge(&found, 10_000.0, &SLOW), Verdict::Better);
    }

    #[test]
    fn a_promise_has_to_be_more_than_chance_makes() {
        assert!(trial(100.0).can_be_seen(&SLOW));
        assert!(!trial(4_000.0).can_be_seen(&SLOW), "accesses are known to one in twenty-five");
    }
}
