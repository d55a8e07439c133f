//! The result, and the choice of sizes to measure.

/// Sizes up to this share of the footprint are spread by ratio, those above by difference.
const BEND: f64 = 0.25;
/// The smallest size of a spread, as a share of the footprint.
const SMALLEST: f64 = 0.001;

/// One policy's misses at each size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Curve {
    /// The policy's name.
    pub policy: String,
    /// The measured points, smallest size first.
    pub points: Vec<Point>,
    /// Sizes that the policy rejected, smallest first.
    pub gaps: Vec<Gap>,
    /// Misses of each point that no size avoids.
    pub cold: u64,
}

/// The misses at one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The budget.
    pub pages: u64,
    /// Number of accesses.
    pub accesses: u64,
    /// Accesses whose page was not resident.
    pub misses: u64,
}

impl Point {
    /// Misses as a share of the accesses, 0 if there are none.
    #[must_use]
    pub fn miss_ratio(&self) -> f64 {
        if self.accesses == 0 { 0.0 } else { self.misses as f64 / self.accesses as f64 }
    }
}

/// A size that a policy rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The budget.
    pub pages: u64,
    /// The reason.
    pub reason: String,
}

/// `count` sizes from a thousandth of the footprint to all of it, smallest first, without
/// duplicates.
///
/// Half of them grow by a constant factor up to a quarter of the footprint, where curves are steep;
/// the other half are evenly spaced. The last one is the footprint itself. Sizes are whole pages,
/// so a footprint of few more than `count` pages gives slightly fewer, and an empty one gives none.
#[must_use]
pub fn spread(footprint: u64, count: usize) -> Vec<u64> {
    let wanted = usize::try_from(footprint).unwrap_or(count).min(count);
    // With small footprints several shares fall on one page, so more shares are tried.
    let attempts = (count..=count.saturating_mul(4)).map(|shares| of_shares(footprint, shares));
    let mut best = Vec::new();
    for sizes in attempts {
        if sizes.len() > wanted.max(1) {
            break;
        }
        best = sizes;
    }
    if best.is_empty() && footprint > 0 { vec![footprint] } else { best }
}

fn of_shares(footprint: u64, count: usize) -> Vec<u64> {
    let steep = (count / 2).max(1);
    let even = count - count / 2;
    let factor = (BEND / SMALLEST).powf(1.0 / steep as f64);
    let small = (0..steep).map(|i| SMALLEST * factor.powi(i as i32));
    let large = (0..even).map(|i| BEND + (1.0 - BEND) * i as f64 / (even.max(2) - 1) as f64);
    let mut sizes: Vec<u64> = small
        .chain(large)
        .map(|share| (share * footprint as f64).round() as u64)
        .chain([footprint])
        .filter(|&pages| (1..=footprint).contains(&pages))
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_go_from_a_thousandth_to_everything() {
        let sizes = spread(1_000_000, 24);
        assert_eq!(sizes.len(), 24);
        assert_eq!((sizes[0], sizes[12], sizes[23]), (1000, 250_000, 1_000_000));
        assert!(
            sizes[..12]
                .windows(2)
                .all(|pair| (1.5..1.65).contains(&(pair[1] as f64 / pair[0] as f64)))
        );
    }

    #[test]
    fn small_footprints_still_give_many_sizes() {
        for footprint in [40, 100, 300, 1000, 5000] {
            assert!(spread(footprint, 24).len() >= 20, "{footprint}: {:?}", spread(footprint, 24));
        }
    }

    proptest! {
        #[test]
        fn sizes_ascend_and_end_with_the_footprint(
            footprint in 0_u64..100_000,
            count in 0_usize..50,
        ) {
            let sizes = spread(footprint, count);
            prop_assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(sizes.first() != Some(&0) && sizes.len() <= count.max(1));
            prop_assert_eq!(sizes.last().copied(), (footprint > 0).then_some(footprint));
        }
    }
}
