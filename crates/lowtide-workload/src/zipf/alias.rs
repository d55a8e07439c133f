//! The fast Zipf draw: one random number and one look into a table of 8 bytes an item, whatever the
//! skew.
//!
//! The alias method (Walker 1974, Vose 1991): `n` slots of equal width, each split between at most
//! two items, so that every item has its share in the sum of its parts. A draw takes a slot and a
//! height; below the split it is the slot's own item, above it the other. The weights are those of
//! [`ZipfTable`](super::ZipfTable), integers, and so is the construction: the widths add up
//! exactly, and only `powf` stands between two machines.
//!
//! Items are scattered when the table is built, by a seeded [`permutation`](super::permutation), so
//! a draw gives the item itself.

use super::table::permutation;
use crate::distribution::DistributionError;
use crate::prng::SplitMix64;

/// Zipf over `0..items`, scattered. See the module documentation.
#[derive(Clone, Debug)]
pub struct ZipfAlias {
    slots: Vec<Slot>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The slot's own item is drawn below this height, in 2^32ths of the slot.
    split: u32,
    /// The item above. A slot's own item is its number: tables are built over items, not ranks.
    other: u32,
}

impl ZipfAlias {
    /// A table for `items` items with this exponent; `seed` selects which are the popular ones.
    /// Cost: one `powf` and 24 bytes an item while it is built.
    ///
    /// # Errors
    /// [`DistributionError::NoItems`] when `items` is 0, [`DistributionError::Theta`] for an
    /// exponent that is negative or no number.
    pub fn new(items: u32, exponent: f64, seed: u64) -> Result<Self, DistributionError> {
        if items == 0 {
            return Err(DistributionError::NoItems);
        }
        if !(exponent.is_finite() && exponent >= 0.0) {
            return Err(DistributionError::Theta { theta: exponent });
        }
        let place = permutation(items, SplitMix64::new(seed));
        // Weights times the number of items: a slot is then as wide as the sum of the weights.
        let n = u128::from(items);
        let mut weights = vec![0_u128; items as usize];
        for (rank, &item) in place.iter().enumerate() {
            weights[item as usize] =
                (4_294_967_296.0 * (rank as f64 + 1.0).powf(-exponent)) as u128 * n;
        }
        let width = weights.iter().sum::<u128>() / n;
        let (mut small, mut large): (Vec<u32>, Vec<u32>) =
            (0..items).partition(|&item| weights[item as usize] < width);
        let full = |item| Slot { split: u32::MAX, other: item };
        let mut slots: Vec<Slot> = (0..items).map(full).collect();
        while let (Some(poor), Some(&rich)) = (small.pop(), large.last()) {
            let own = weights[poor as usize];
            slots[poor as usize] = Slot { split: ((own << 32) / width) as u32, other: rich };
            weights[rich as usize] -= width - own;
            if weights[rich as usize] < width {
                large.pop();
                small.push(rich);
            }
        }
        Ok(Self { slots })
    }

    /// The number of items.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Draws an item in `0..items`. Consumes one output of `rng`; about 5 ns while the table is in
    /// cache.
    #[inline]
    #[must_use]
    pub fn draw(&self, rng: &mut SplitMix64) -> u64 {
        let random = rng.next_u64();
        // The upper half chooses the slot (there are at most 2^32), the lower half the height.
        let at = ((random >> 32) * self.slots.len() as u64) >> 32;
        let slot = self.slots[at as usize];
        if (random as u32) < slot.split { at } else { u64::from(slot.other) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws and expectation agree for the popular items, one by one, and for the others together.
    #[test]
    fn items_are_drawn_in_proportion_to_their_weights() {
        const DRAWS: usize = 2_000_000;
        let (items, exponent, seed) = (1000, 0.99, 5);
        let zipf = ZipfAlias::new(items, exponent, seed).unwrap();
        let mut rng = SplitMix64::new(1);
        let mut counts = vec![0_u32; items as usize];
        for _ in 0..DRAWS {
            counts[zipf.draw(&mut rng) as usize] += 1;
        }
        let place = permutation(items, SplitMix64::new(seed));
        let sum: f64 = (1..=items).map(|k| f64::from(k).powf(-exponent)).sum();
        let mut rest = (DRAWS as f64, DRAWS as f64);
        for (rank, &item) in place.iter().enumerate().take(100) {
            let want = DRAWS as f64 * (rank as f64 + 1.0).powf(-exponent) / sum;
            let got = f64::from(counts[item as usize]);
            assert!((got - want).abs() < 5.0 * want.sqrt(), "rank {rank}: {got}, {want} expected");
            rest = (rest.0 - got, rest.1 - want);
        }
        assert!((rest.0 - rest.1).abs() < 5.0 * rest.1.sqrt(), "{rest:?}");
    }

    #[test]
    fn edges() {
        let one = ZipfAlias::new(1, 0.99, 1).unwrap();
        assert_eq!(one.draw(&mut SplitMix64::new(9)), 0);
        assert!(matches!(ZipfAlias::new(0, 0.99, 1), Err(DistributionError::NoItems)));
        assert!(matches!(ZipfAlias::new(2, f64::NAN, 1), Err(DistributionError::Theta { .. })));
        let mut rng = SplitMix64::new(3);
        let flat = ZipfAlias::new(7, 0.0, 1).unwrap();
        let ones = (0..70_000).filter(|_| flat.draw(&mut rng) == 3).count();
        assert!((9_500..10_500).contains(&ones), "{ones}");
    }
}
