//! YCSB's key chooser: Zipf ranks over a huge domain, folded onto the keys by a hash.
//!
//! Ranks are drawn over 10^10 + 1 values, hashed with FNV-1a (64 bits) and reduced modulo the
//! number of keys. What results is *not* a Zipf distribution over the keys: it is a spiky head
//! (each popular rank keeps its share, wherever it lands) on a nearly uniform floor (the billions
//! of unpopular ranks spread over everything), and keys on which two popular ranks collide are more
//! popular than either. With few keys the floor dominates, so shrinking the key count alone
//! flattens the workload; shrink the domain too (1.25 million keys behave like 20 million with a
//! domain of 33 million).
//!
//! The zeta value of the full domain is the constant that YCSB carries, not a computed one, so that
//! the same uniform draw gives the same rank.

use super::gray::Zipfian;
use crate::distribution::DistributionError;
use crate::prng::SplitMix64;

/// The number of ranks that YCSB draws from.
pub const YCSB_DOMAIN: u64 = 10_000_000_001;
/// YCSB's exponent.
pub const YCSB_THETA: f64 = 0.99;
/// The zeta value that YCSB carries for its domain and exponent.
pub const YCSB_ZETA: f64 = 26.469_028_201_783_02;

/// FNV-1a over the eight bytes of `value`, least significant first, as the absolute value of the
/// signed result.
///
/// Eight dependent multiplications, about 10 ns.
#[inline]
#[must_use]
pub const fn fnv64(value: u64) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    let mut rest = value;
    let mut byte = 0;
    while byte < 8 {
        hash = (hash ^ (rest & 0xFF)).wrapping_mul(1_099_511_628_211);
        rest >>= 8;
        byte += 1;
    }
    hash.cast_signed().unsigned_abs()
}

/// Zipf ranks over `domain`, hashed onto `0..items`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScrambledZipfian {
    items: u64,
    ranks: Zipfian,
}

impl ScrambledZipfian {
    /// Ranks over `domain` with exponent `theta`, folded onto `items` keys.
    ///
    /// # Errors
    /// [`DistributionError::NoItems`] when `items` or `domain` is 0, [`DistributionError::Theta`]
    /// unless `0 <= theta < 1`.
    pub fn new(items: u64, domain: u64, theta: f64) -> Result<Self, DistributionError> {
        Self::over(items, Zipfian::new(domain, theta)?)
    }

    /// YCSB's own domain, exponent and zeta.
    ///
    /// # Errors
    /// [`DistributionError::NoItems`] when `items` is 0.
    pub fn ycsb(items: u64) -> Result<Self, DistributionError> {
        Self::over(items, Zipfian::with_zeta(YCSB_DOMAIN, YCSB_THETA, YCSB_ZETA)?)
    }

    fn over(items: u64, ranks: Zipfian) -> Result<Self, DistributionError> {
        if items == 0 { Err(DistributionError::NoItems) } else { Ok(Self { items, ranks }) }
    }

    /// Draws a key in `0..items`. Consumes one output of `rng`.
    #[inline]
    #[must_use]
    pub fn draw(&self, rng: &mut SplitMix64) -> u64 {
        fnv64(self.ranks.draw(rng)) % self.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv_agrees_with_a_signed_reimplementation() {
        fn reference(value: i64) -> i64 {
            value
                .to_le_bytes()
                .iter()
                .fold(0xCBF2_9CE4_8422_2325_u64.cast_signed(), |hash, &byte| {
                    (hash ^ i64::from(byte)).wrapping_mul(1_099_511_628_211)
                })
                .abs()
        }
        for value in [0, 1, 2, 255, 256, 9_999_999_999] {
            assert_eq!(fnv64(value), reference(value as i64) as u64, "{value}");
        }
    }

    /// The share of requests that the most popular keys get, as measured with 20 million
    /// keys and the full domain.
    #[test]
    fn head_shares_agree_with_the_published_table() {
        let keys = 20_000_001;
        let chooser = ScrambledZipfian::ycsb(keys).unwrap();
        let mut rng = SplitMix64::new(11);
        let draws = 300_000_u32;
        let mut counts = std::collections::HashMap::new();
        for _ in 0..draws {
            *counts.entry(chooser.draw(&mut rng)).or_insert(0_u32) += 1;
        }
        // Counting how often the true top 200 keys (those of the top 200 ranks) were drawn.
        let top: std::collections::HashSet<u64> = (0..200).map(|rank| fnv64(rank) % keys).collect();
        let hits: u32 = top.iter().filter_map(|key| counts.get(key)).sum();
        let share = f64::from(hits) / f64::from(draws);
        assert!((share - 0.234).abs() < 0.01, "top 1e-5 of the keys got {share}, 0.234 published");
    }

    #[test]
    fn no_keys_is_an_error() {
        assert_eq!(ScrambledZipfian::ycsb(0), Err(DistributionError::NoItems));
        assert_eq!(ScrambledZipfian::new(10, 0, 0.99), Err(DistributionError::NoItems));
    }
}
