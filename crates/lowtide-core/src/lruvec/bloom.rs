//! Bloom filters over tables of translations (`docs/kernel/reclaim.md` §2.5).
//!
//! An aging walk records the tables in which it found enough young entries; the next walk visits
//! only those. Look-around at eviction adds what it happens to see. Two filters alternate: walk
//! `seq` tests filter `seq mod 2` and fills the other. A filter that was never created matches
//! everything.

use crate::limits::BLOOM_BITS;
use crate::units::TableKey;

#[derive(Clone, Debug, Default)]
pub(super) struct Filters {
    filters: [Option<Box<[u64]>>; 2],
}

/// Two independent 15-bit indices of a key.
fn bits_of(key: TableKey) -> [usize; 2] {
    // Fibonacci hashing spreads neighbouring tables; the top 30 bits are the best mixed.
    let hash = key.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 34;
    [hash as usize & (BLOOM_BITS - 1), (hash >> 15) as usize & (BLOOM_BITS - 1)]
}

impl Filters {
    pub(super) fn reset(&mut self, seq: u64) {
        match &mut self.filters[(seq % 2) as usize] {
            Some(words) => words.fill(0),
            none => *none = Some(vec![0; BLOOM_BITS / 64].into()),
        }
    }

    pub(super) fn insert(&mut self, seq: u64, key: TableKey) {
        if let Some(words) = &mut self.filters[(seq % 2) as usize] {
            for bit in bits_of(key) {
                words[bit / 64] |= 1 << (bit % 64);
            }
        }
    }

    pub(super) fn may_contain(&self, seq: u64, key: TableKey) -> bool {
        self.filters[(seq % 2) as usize].as_ref().is_none_or(|words| {
            bits_of(key).iter().all(|bit| words[bit / 64] & 1 << (bit % 64) != 0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_filter_matches_everything_and_a_fresh_one_nothing() {
        let mut f = Filters::default();
        f.insert(3, TableKey(7));
        assert!(f.may_contain(3, TableKey(8)), "never created");
        f.reset(3);
        assert!(!f.may_contain(3, TableKey(7)));
        f.insert(5, TableKey(7));
        assert!(f.may_contain(3, TableKey(7)), "seq 3 and 5 share a filter");
        assert!((0..1000).filter(|&k| f.may_contain(5, TableKey(k + 100))).count() < 5);
    }
}
