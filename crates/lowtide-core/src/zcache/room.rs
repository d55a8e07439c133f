//! The memory that stored pages take, and how many of them one page of it holds.
//!
//! Blocks lose a little of their bytes, and each page has an entry in tables. How small pages
//! become is known of those that were tried, until enough are stored to be counted.

/// The part of what a group uses that compressed pages may be: three of four.
const SHARE: (u64, u64) = (3, 4);
/// Bytes that tables take for a page.
const TABLES: f64 = 52.0;
/// What blocks lose of their bytes.
const LOST: f64 = 1.03;
/// What an older try counts next to a new one.
const DECAY: f64 = 0.999;
/// Pages that make room for others at a time: at most, and as a part of those that are stored.
pub const DROPPED: usize = 32;
const DROPPED_PART: usize = 64;
/// Rounds of twice [`DROPPED`] in which a store becomes smaller after a decision.
pub const ROUNDS: u32 = 8;
/// A store with more pages than this, that has three quarters of what it may have, is counted.
const COUNTED: u64 = 256;

/// Bytes of memory that a page takes which was compressed to a number of bytes, with what blocks
/// and tables take.
#[must_use]
pub const fn footprint(bytes: f64) -> f64 {
    bytes * LOST + TABLES
}

/// Pages, of those that are stored, that make room for one that finds none.
#[must_use]
pub fn make_room(stored: usize) -> usize {
    (stored / DROPPED_PART).clamp(1, DROPPED)
}

/// Whether compressed pages take more memory than their share of what their group uses.
#[must_use]
pub const fn is_over_share(memory: u64, usage: u64) -> bool {
    memory * SHARE.1 > usage * SHARE.0
}

/// What was tried so far, decayed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tries {
    all: f64,
    kept: f64,
    kept_bytes: f64,
}

impl Tries {
    /// A page was tried, and became this small in bytes, or not small enough.
    pub fn add(&mut self, size: Option<usize>) {
        let add = |sum: &mut f64, value: f64| *sum = *sum * DECAY + value;
        add(&mut self.all, 1.0);
        add(&mut self.kept, f64::from(u8::from(size.is_some())));
        add(&mut self.kept_bytes, size.unwrap_or(0) as f64);
    }

    /// The part of pages that is kept.
    #[must_use]
    pub const fn kept(&self) -> f64 {
        self.kept / self.all.max(1.0)
    }

    /// How many pages a page of memory of `page_bytes` holds: counted where a store has `stored`
    /// pages in `memory` of the `target` pages that it may have, otherwise as tries say.
    #[must_use]
    pub fn ratio(&self, page_bytes: f64, stored: u64, memory: u64, target: u64) -> f64 {
        if stored > COUNTED && memory >= target * 3 / 4 {
            stored as f64 / memory.max(1) as f64
        } else {
            page_bytes / footprint(self.kept_bytes / self.kept.max(1e-9))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_counts_for_more_than_what_was_tried() {
        let mut tries = Tries::default();
        (0..100).for_each(|n| tries.add((n % 4 != 0).then_some(1000)));
        assert!((tries.kept() - 0.75).abs() < 0.01);
        let tried = tries.ratio(4096.0, 0, 0, 100);
        assert!((3.7..3.9).contains(&tried), "{tried}");
        assert_eq!(tries.ratio(4096.0, 300, 100, 100), 3.0);
    }
}
