//! The choice of the next item.
//!
//! | distribution | popularity of the items | use |
//! |---|---|---|
//! | [`Uniform`] | all equal | checks of capacity and device speed: no policy can help |
//! | [`Zipfian`] | exactly Zipf, scattered over the items | the default; the same at every scale |
//! | [`YcsbScrambled`] | that of YCSB's client | comparison with published YCSB results |
//! | [`YcsbRanks`] | the same with fewer ranks | the same at a smaller scale |
//!
//! The two skewed distributions differ: see
//! [`ScrambledZipfian`]. Popular items are scattered in both, so that they share pages only by
//! chance.
//!
//! Draws use floating point, so streams are equal wherever `powf` rounds equally: on one machine
//! always, and between machines up to a rare difference of one rank.
//!
//! [`Uniform`]: Distribution::Uniform
//! [`Zipfian`]: Distribution::Zipfian
//! [`YcsbScrambled`]: Distribution::YcsbScrambled
//! [`YcsbRanks`]: Distribution::YcsbRanks

use crate::prng::SplitMix64;
use crate::zipf::{Bijection, ScrambledZipfian, Zipfian};
use std::fmt;
use thiserror::Error;

/// The exponent used when nothing else is said, YCSB's.
pub const DEFAULT_THETA: f64 = crate::zipf::YCSB_THETA;

/// Why a distribution cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum DistributionError {
    /// There is nothing to draw from.
    #[error("a distribution has at least one item; use one record or page, or more")]
    NoItems,
    /// The closed form needs `0 <= theta < 1`.
    #[error(
        "zipf exponent {theta} is outside 0 <= theta < 1; use 0.99 for the usual skew, 0 for none"
    )]
    Theta {
        /// The requested exponent.
        theta: f64,
    },
}

/// How popularity is spread over the items.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Distribution {
    /// All items are equally popular.
    Uniform,
    /// Zipf with this exponent over the items themselves, ranks scattered by a [`Bijection`], so
    /// that no two ranks meet on one item and no item is left out.
    Zipfian(f64),
    /// YCSB's chooser as its client has it: key space one larger than the record count, and a draw
    /// of the key one past the end repeated.
    YcsbScrambled,
    /// The same over this many ranks instead of YCSB's, for a key space that was scaled down: with
    /// all of YCSB's ranks the nearly uniform floor would hide the head.
    YcsbRanks(u64),
}

impl Default for Distribution {
    /// Zipf over the items with YCSB's exponent.
    fn default() -> Self {
        Self::Zipfian(DEFAULT_THETA)
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipfian(theta) => write!(f, "zipfian({theta})"),
            Self::YcsbScrambled => f.write_str("ycsb-scrambled"),
            Self::YcsbRanks(ranks) => write!(f, "ycsb-scrambled({ranks} ranks)"),
        }
    }
}

impl Distribution {
    /// A sampler over `0..items`. `seed` selects which items are the popular ones
    /// (YCSB's chooser has fixed ones and ignores it).
    ///
    /// # Errors
    /// [`DistributionError::NoItems`] when `items` is 0, [`DistributionError::Theta`] unless
    /// `0 <= theta < 1`.
    pub fn sampler(self, items: u64, seed: u64) -> Result<Sampler, DistributionError> {
        if items == 0 {
            return Err(DistributionError::NoItems);
        }
        Ok(Sampler(match self {
            Self::Uniform => Choice::Uniform { items },
            Self::Zipfian(theta) => Choice::Zipfian {
                ranks: Zipfian::new(items, theta)?,
                place: Bijection::new(items, seed),
            },
            Self::YcsbScrambled => {
                Choice::Ycsb { items, keys: ScrambledZipfian::ycsb(items.saturating_add(1))? }
            }
            Self::YcsbRanks(ranks) => {
                let keys =
                    ScrambledZipfian::new(items.saturating_add(1), ranks, crate::zipf::YCSB_THETA)?;
                Choice::Ycsb { items, keys }
            }
        }))
    }
}

/// Draws items in constant memory. Cheap to clone: one per thread, no sharing.
#[derive(Clone, Debug)]
pub struct Sampler(Choice);

#[derive(Clone, Debug)]
enum Choice {
    Uniform { items: u64 },
    Zipfian { ranks: Zipfian, place: Bijection },
    Ycsb { items: u64, keys: ScrambledZipfian },
}

impl Sampler {
    /// The number of items.
    #[must_use]
    pub const fn items(&self) -> u64 {
        match &self.0 {
            Choice::Uniform { items } | Choice::Ycsb { items, .. } => *items,
            Choice::Zipfian { ranks, .. } => ranks.items(),
        }
    }

    /// Draws an item in `0..items`, with `rng` as the only state.
    #[inline]
    #[must_use]
    pub fn draw(&self, rng: &mut SplitMix64) -> u64 {
        match &self.0 {
            Choice::Uniform { items } => rng.below(*items),
            Choice::Zipfian { ranks, place } => place.apply(ranks.draw(rng)),
            Choice::Ycsb { items, keys } => loop {
                let key = keys.draw(rng);
                if key < *items {
                    return key;
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const ALL: [Distribution; 4] = [
        Distribution::Uniform,
        Distribution::Zipfian(0.99),
        Distribution::YcsbScrambled,
        Distribution::YcsbRanks(1_000_000),
    ];

    #[test]
    fn draws_stay_in_range_and_repeat_for_a_seed() {
        for distribution in ALL {
            for items in [1, 2, 3, 1000, 4 << 20] {
                let sampler = distribution.sampler(items, 1).unwrap();
                assert_eq!(sampler.items(), items);
                let draw = |seed| {
                    let mut rng = SplitMix64::new(seed);
                    (0..200).map(|_| sampler.draw(&mut rng)).collect::<Vec<_>>()
                };
                assert!(draw(1).iter().all(|&item| item < items), "{distribution} over {items}");
                assert_eq!(draw(1), draw(1));
            }
        }
    }

    #[test]
    fn zipfian_keeps_the_shares_of_its_ranks_apart() {
        let sampler = Distribution::default().sampler(1000, 5).unwrap();
        let mut rng = SplitMix64::new(1);
        let mut counts: HashMap<u64, u32> = HashMap::new();
        for _ in 0..200_000 {
            *counts.entry(sampler.draw(&mut rng)).or_default() += 1;
        }
        assert_eq!(counts.len(), 1000, "every item is drawn");
        let mut shares: Vec<u32> = counts.values().copied().collect();
        shares.sort_unstable_by_key(|&count| std::cmp::Reverse(count));
        let zeta = crate::zipf::zeta(1000, 0.99);
        assert!((f64::from(shares[0]) / 200_000.0 - 1.0 / zeta).abs() < 0.005);
    }

    #[test]
    fn the_seed_moves_the_popular_items() {
        let hottest = |seed| {
            let sampler = Distribution::default().sampler(1 << 20, seed).unwrap();
            let Choice::Zipfian { place, .. } = sampler.0 else { panic!("zipfian expected") };
            place.apply(0)
        };
        assert_ne!(hottest(1), hottest(2));
    }

    #[test]
    fn impossible_distributions_are_refused() {
        for distribution in ALL {
            assert_eq!(distribution.sampler(0, 1).err(), Some(DistributionError::NoItems));
        }
        assert!(matches!(
            Distribution::Zipfian(1.5).sampler(10, 1),
            Err(DistributionError::Theta { theta: 1.5 })
        ));
    }
}
