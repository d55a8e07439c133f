//! Position control: from the position of a domain on its scale to a factor for the rate of its
//! writers.
//!
//! The factor is a fixed-point number in 1/1024. The scale of the domain gives a cubic that is 2 at
//! freerun, 1 and flat at the setpoint, and 0 at the limit: near the setpoint it hardly reacts and
//! leaves the rate to the estimator, and far from it it reacts strongly. A device's share of the
//! domain bends it: linearly down where the device has more than its share, up where it has less
//! than half, so that a device never runs out of pages to write because another one filled the
//! domain. Source: B6.

/// 1.0 as a factor.
pub(super) const ONE: u64 = 1 << SHIFT;
const SHIFT: u32 = 10;

/// Where a domain and a wb in it stand, in pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    /// Dirty or being written in the domain.
    pub(super) unclean: u64,
    pub(super) thresh: u64,
    pub(super) freerun: u64,
    /// At least `thresh`.
    pub(super) limit: u64,
    /// Dirty or being written of the wb.
    pub(super) wb_unclean: u64,
    /// The wb's part of `thresh`, at most all of it.
    pub(super) wb_thresh: u64,
    /// What the wb writes in a second.
    pub(super) bandwidth: u64,
}

impl Position {
    /// Where the domain should be.
    pub(super) const fn setpoint(&self) -> u64 {
        (self.freerun + self.limit) / 2
    }

    /// The factor for the rate of writers; 0 exactly if the limit is reached, but for what rounding
    /// does next to it.
    pub(super) fn ratio(&self) -> u64 {
        if self.unclean >= self.limit {
            return 0;
        }
        let domain = cubic(self.setpoint(), self.unclean, self.limit);
        self.with_reserve(self.on_wb_line(domain))
    }

    /// The line that ends at the point where the wb has far too much.
    fn on_wb_line(&self, ratio: u64) -> u64 {
        let part = (self.wb_thresh << 16) / (self.thresh | 1);
        let setpoint = scale(self.setpoint(), part);
        let span = scale(self.thresh - self.wb_thresh + 8 * self.bandwidth, part);
        let end = setpoint + span;
        if self.wb_unclean < end - span / 4 {
            let scaled = u128::from(ratio) * u128::from(end - self.wb_unclean)
                / u128::from((end - setpoint) | 1);
            scaled as u64
        } else {
            ratio / 4
        }
    }

    /// A device with little to write gets more.
    fn with_reserve(&self, ratio: u64) -> u64 {
        let reserve = self.wb_thresh / 2;
        if self.wb_unclean >= reserve {
            ratio
        } else if self.wb_unclean > self.wb_thresh / 16 {
            (u128::from(ratio) * u128::from(reserve) / u128::from(self.wb_unclean)) as u64
        } else {
            ratio * 8
        }
    }
}

fn scale(pages: u64, part: u64) -> u64 {
    ((u128::from(pages) * u128::from(part)) >> 16) as u64
}

/// 2 at freerun, 1 at the setpoint, 0 at the limit.
fn cubic(setpoint: u64, unclean: u64, limit: u64) -> u64 {
    // Beyond one in either direction the result is clamped anyway.
    let most = 2 * i128::from(ONE);
    let distance = (i128::from(setpoint) - i128::from(unclean)) << SHIFT;
    let x = (distance / i128::from((limit - setpoint) | 1)).clamp(-most, most) as i64;
    let y = (((x * x) >> SHIFT) * x) >> SHIFT;
    (y + ONE as i64).clamp(0, 2 * ONE as i64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The vector of B6: thresh 20000, background 10000.
    #[test]
    fn the_cubic_is_as_published() {
        let at = |unclean| cubic(17_500, unclean, 20_000);
        let vector = [
            (15_000, 2045),
            (16_000, 1244),
            (17_000, 1031),
            (17_500, 1024),
            (18_000, 1016),
            (19_000, 803),
            (19_500, 502),
            (20_000, 2),
        ];
        for (unclean, ratio) in vector {
            assert_eq!(at(unclean), ratio, "at {unclean}");
        }
        let position = Position { unclean: 20_000, ..middle() };
        assert_eq!(position.ratio(), 0, "the limit itself is short-circuited");
        assert_eq!(position.setpoint(), 17_500);
    }

    fn middle() -> Position {
        Position {
            unclean: 17_500,
            thresh: 20_000,
            freerun: 15_000,
            limit: 20_000,
            wb_unclean: 17_500,
            wb_thresh: 20_000,
            bandwidth: 25_600,
        }
    }

    #[test]
    fn a_device_alone_in_its_domain_is_balanced_at_the_setpoint() {
        let ratio = middle().ratio();
        assert!(ratio.abs_diff(ONE) <= 1, "{ratio}");
    }

    #[test]
    fn a_device_with_less_than_half_of_its_part_gets_up_to_eight_times_the_rate() {
        let half = Position { wb_unclean: 10_000, ..middle() }.ratio();
        let quarter = Position { wb_unclean: 5_000, ..middle() }.ratio();
        let nothing = Position { wb_unclean: 0, ..middle() }.ratio();
        assert!(quarter > half * 19 / 10 && nothing > half * 7, "{half} {quarter} {nothing}");
    }

    fn positions() -> impl Strategy<Value = Position> {
        let sizes = (1..1_u64 << 32, 0..=100_u64, 0..=100_u64, 0..=100_u64);
        (sizes, 0..1_u64 << 33, 0..1_u64 << 33, 1..1_u64 << 22).prop_map(
            |((thresh, background, above, part), unclean, wb_unclean, bandwidth)| Position {
                unclean,
                thresh,
                freerun: (thresh + thresh * background / 200) / 2,
                limit: thresh + thresh * above / 100,
                wb_unclean,
                wb_thresh: thresh * part / 100,
                bandwidth,
            },
        )
    }

    proptest! {
        /// Invariant 10.
        #[test]
        fn the_ratio_never_rises_with_what_is_dirty(
            position in positions(),
            more in 0..1_u64 << 32,
        ) {
            let ratio = position.ratio();
            let fuller = Position { unclean: position.unclean + more, ..position }.ratio();
            prop_assert!(fuller <= ratio, "domain: {ratio} rises to {fuller}");
            let fuller = Position { wb_unclean: position.wb_unclean + more, ..position }.ratio();
            // Rounding of the line and of the reserve, each at most one in a thousand and
            // twenty-four.
            prop_assert!(fuller <= ratio + 8, "wb: {ratio} rises to {fuller}");
            prop_assert!(position.unclean < position.limit || ratio == 0);
        }
    }
}
