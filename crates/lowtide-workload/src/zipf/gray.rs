//! The Zipf draw in closed form, after Gray et al., "Quickly generating billion-record synthetic
//! databases" (SIGMOD 1994).
//!
//! With `zeta(n) = sum of k^-theta over k = 1..n` and a uniform `u`, the first two ranks are drawn
//! exactly: rank 0 when `u * zeta(n) < 1`, rank 1 when `u * zeta(n) < 1 + 2^-theta`. All others
//! come from inverting the *integral* of `x^-theta` instead of the sum:
//!
//! ```text
//! rank = floor(n * (eta * u - eta + 1) ^ alpha)
//! alpha = 1 / (1 - theta)
//! eta = (1 - (2/n)^(1-theta)) / (1 - zeta(2)/zeta(n))
//! ```
//!
//! `eta` stretches the curve so that it meets the exact part at rank 2. One draw is one `powf`, at
//! any `n`.
//!
//! [`zeta`] adds the first terms one by one and the rest by the Euler-Maclaurin formula: the
//! integral, half the end terms and two derivative corrections. From the 1024th term on, the first
//! neglected correction is below 1e-18, so the result is good to a few units in the last place,
//! better than adding 10^10 terms one by one, where rounding errors pile up.

use crate::distribution::DistributionError;
use crate::prng::SplitMix64;

/// How many terms are added one by one before the Euler-Maclaurin formula takes over.
const DIRECT_TERMS: u64 = 1024;

/// The generalised harmonic number `sum of k^-theta over k = 1..=n`. Accurate to 1e-12 relative.
///
/// Meant for `0 <= theta < 1`, correct for any `theta` of moderate size. `zeta(0, _)` is 0. Costs
/// at most 1024 `powf`.
#[must_use]
pub fn zeta(n: u64, theta: f64) -> f64 {
    let term = |k: f64| k.powf(-theta);
    // Small terms first, so that they are not rounded away against a large sum.
    let direct = n.min(DIRECT_TERMS - 1);
    let head: f64 = (1..=direct).rev().map(|k| term(k as f64)).sum();
    if n == direct {
        return head;
    }
    let (a, b) = (DIRECT_TERMS as f64, n as f64);
    let p = 1.0 - theta;
    // The integral of x^-theta from a to b, as a^p * (e^(p ln(b/a)) - 1) / p. Written with `exp_m1`
    // it loses nothing when p is small, and has the logarithm as its limit.
    let log_ratio = (b / a).ln();
    let integral = if p == 0.0 { log_ratio } else { a.powf(p) * (p * log_ratio).exp_m1() / p };
    let first = |x: f64| -theta * x.powf(-theta - 1.0);
    let third = |x: f64| -theta * (theta + 1.0) * (theta + 2.0) * x.powf(-theta - 3.0);
    head + integral + (term(a) + term(b)) / 2.0 + (first(b) - first(a)) / 12.0
        - (third(b) - third(a)) / 720.0
}

/// A Zipf distribution over `0..items`, 0 being the most popular.
///
/// Forty bytes, whatever the number of items; a draw costs one `powf`, about 15 ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Zipfian {
    items: u64,
    alpha: f64,
    eta: f64,
    zeta: f64,
    /// `1 + 2^-theta`: the end of rank 1's interval, in units of `u * zeta`.
    zeta_two: f64,
}

impl Zipfian {
    /// The distribution over `items` ranks with exponent `theta`.
    ///
    /// # Errors
    /// [`DistributionError::NoItems`] when `items` is 0, [`DistributionError::Theta`] unless
    /// `0 <= theta < 1`.
    pub fn new(items: u64, theta: f64) -> Result<Self, DistributionError> {
        Self::with_zeta(items, theta, zeta(items, theta))
    }

    /// As [`new`](Self::new) with `zeta(items, theta)` given, to reproduce a generator that has its
    /// own value for it.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_zeta(items: u64, theta: f64, zeta: f64) -> Result<Self, DistributionError> {
        if items == 0 {
            return Err(DistributionError::NoItems);
        }
        if !(0.0..1.0).contains(&theta) {
            return Err(DistributionError::Theta { theta });
        }
        let zeta_two = 1.0 + 0.5_f64.powf(theta);
        // Up to two items the exact part covers everything, and the formula would divide zero by
        // zero.
        let eta = if items <= 2 {
            0.0
        } else {
            (1.0 - (2.0 / items as f64).powf(1.0 - theta)) / (1.0 - zeta_two / zeta)
        };
        Ok(Self { items, alpha: 1.0 / (1.0 - theta), eta, zeta, zeta_two })
    }

    /// The number of ranks.
    #[must_use]
    pub const fn items(&self) -> u64 {
        self.items
    }

    /// The rank for `u` in `[0, 1)`; grows with `u`.
    #[inline]
    #[must_use]
    pub fn rank(&self, u: f64) -> u64 {
        let scaled = u * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < self.zeta_two {
            return 1.min(self.items - 1);
        }
        let rank = self.items as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        // Rounding can bring the product up to `items` when u is as near to 1 as it gets.
        (rank as u64).min(self.items - 1)
    }

    /// Draws a rank. Consumes one output of `rng`.
    #[inline]
    #[must_use]
    pub fn draw(&self, rng: &mut SplitMix64) -> u64 {
        self.rank(rng.unit_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zeta_by_addition(n: u64, theta: f64) -> f64 {
        (1..=n).rev().map(|k| (k as f64).powf(-theta)).sum()
    }

    #[test]
    fn zeta_agrees_with_plain_addition() {
        for theta in [0.0, 0.3, 0.5, 0.9, 0.99, 1.0, 1.2] {
            for n in [0, 1, 2, 1000, 1023, 1024, 1025, 1_000_000] {
                let (got, want) = (zeta(n, theta), zeta_by_addition(n, theta));
                assert!((got - want).abs() <= 1e-12 * want, "zeta({n}, {theta}): {got} not {want}");
            }
        }
    }

    /// The constants that YCSB gives for its full and its scaled rank domain.
    #[test]
    fn zeta_agrees_with_published_values() {
        assert!((zeta(10_000_000_000, 0.99) - 26.469_028_201_783_02).abs() < 1e-9);
        assert!((zeta(33_000_000, 0.99) - 19.477_386).abs() < 1e-6);
    }

    #[test]
    fn eta_agrees_with_the_published_value() {
        let z = Zipfian::with_zeta(10_000_000_001, 0.99, 26.469_028_201_783_02).unwrap();
        assert!((z.eta - 0.2122).abs() < 1e-7, "{}", z.eta);
    }

    #[test]
    fn shares_follow_the_power_law() {
        let (items, theta) = (1000, 0.99);
        let zipf = Zipfian::new(items, theta).unwrap();
        let mut rng = SplitMix64::new(2);
        let mut counts = vec![0_u32; items as usize];
        let draws = 400_000;
        for _ in 0..draws {
            counts[zipf.draw(&mut rng) as usize] += 1;
        }
        let total = zeta(items, theta);
        // Ranks 0 and 1 are exact; the closed form is a few percent off for the next handful and
        // settles.
        for top in [1, 2, 10, 100, 500, 1000] {
            let got = f64::from(counts[..top].iter().sum::<u32>()) / f64::from(draws);
            let want = zeta(top as u64, theta) / total;
            assert!((got - want).abs() < 0.02, "top {top}: {got} not {want}");
        }
    }

    #[test]
    fn ranks_grow_with_u_and_stay_in_range() {
        for items in [1, 2, 3, 10, 1 << 40, u64::MAX] {
            for theta in [0.0, 0.5, 0.99, 0.999] {
                let zipf = Zipfian::new(items, theta).unwrap();
                let mut last = 0;
                for step in 0..=1000 {
                    let u = (f64::from(step) / 1000.0).min(1.0 - f64::EPSILON / 2.0);
                    let rank = zipf.rank(u);
                    assert!(
                        rank < items && rank >= last,
                        "items {items} theta {theta} u {u}: {rank}"
                    );
                    last = rank;
                }
            }
        }
    }

    #[test]
    fn impossible_parameters_are_refused() {
        assert_eq!(Zipfian::new(0, 0.99), Err(DistributionError::NoItems));
        for theta in [1.0, 2.0, -0.1, f64::INFINITY] {
            assert_eq!(Zipfian::new(10, theta), Err(DistributionError::Theta { theta }));
        }
        assert!(matches!(Zipfian::new(10, f64::NAN), Err(DistributionError::Theta { .. })));
    }
}
