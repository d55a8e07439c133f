//! YCSB's core workloads A, B and C: point reads and updates of 1 KiB records.
//!
//! | workload | reads | updates | stands for |
//! |---|---:|---:|---|
//! | A | 50 % | 50 % | a session store |
//! | B | 95 % | 5 % | tagging of photographs |
//! | C | 100 % | 0 % | a cache of profiles |
//!
//! Every operation is one draw for its kind and one for its key, in that order and for all three
//! letters, so A, B and C of one seed access the same keys in the same order and differ only in the
//! kind of access.
//!
//! Each thread draws from the whole key space with its own sub-stream. What a thread does depends
//! on the seed and its own number, not on how many threads there are.

use crate::distribution::{Distribution, DistributionError, Sampler};
use crate::prng::SplitMix64;

/// Which of the core workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Letter {
    /// Half reads, half updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads only.
    C,
}

impl Letter {
    /// The share of updates in percent.
    #[must_use]
    pub const fn update_percent(self) -> u32 {
        match self {
            Self::A => 50,
            Self::B => 5,
            Self::C => 0,
        }
    }
}

/// What is done to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordOpKind {
    /// Read and verify the whole record.
    Read,
    /// Write the record's next version.
    Update,
}

/// One operation on one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordOp {
    /// What happens.
    pub kind: RecordOpKind,
    /// To which record, counted from 0.
    pub key: u64,
}

/// A YCSB workload over a number of records.
///
/// ```
/// use lowtide_workload::{Distribution, Letter, RecordOpKind, Ycsb};
///
/// let workload = Ycsb::new(Letter::B, 1_000_000, Distribution::default(), 42)?;
/// let mut updates = 0;
/// for op in workload.stream(0, 1).take(1000) {
///     assert!(op.key < workload.records());
///     updates += u32::from(op.kind == RecordOpKind::Update);
/// }
/// assert!(updates < 100, "about 50 expected");
/// # Ok::<(), lowtide_workload::DistributionError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Ycsb {
    letter: Letter,
    update_percent: u32,
    sampler: Sampler,
    root: SplitMix64,
}

impl Ycsb {
    /// The workload `letter` over `records` records whose popularity follows `distribution`.
    ///
    /// # Errors
    /// [`DistributionError::NoItems`] when `records` is 0, [`DistributionError::Theta`] for an
    /// exponent outside `0 <= theta < 1`.
    pub fn new(
        letter: Letter,
        records: u64,
        distribution: Distribution,
        seed: u64,
    ) -> Result<Self, DistributionError> {
        Ok(Self {
            letter,
            update_percent: letter.update_percent(),
            sampler: distribution.sampler(records, seed)?,
            root: SplitMix64::new(seed),
        })
    }

    /// The same workload with another share of updates, in percent. More than 100 is 100.
    #[must_use]
    pub fn with_updates(self, percent: u32) -> Self {
        Self { update_percent: percent.min(100), ..self }
    }

    /// Which workload this is.
    #[must_use]
    pub const fn letter(&self) -> Letter {
        self.letter
    }

    /// The number of records.
    #[must_use]
    pub const fn records(&self) -> u64 {
        self.sampler.items()
    }

    /// The endless stream of thread number `thread` of `threads`.
    ///
    /// # Panics
    /// When `thread` is not below `threads`.
    #[must_use]
    pub fn stream(&self, thread: u32, threads: u32) -> YcsbStream {
        assert!(thread < threads, "thread {thread} of {threads} threads");
        YcsbStream {
            update_percent: self.update_percent,
            sampler: self.sampler.clone(),
            rng: self.root.fork(u64::from(thread)),
        }
    }
}

/// The endless operations of one thread. About 30 ns each.
#[derive(Clone, Debug)]
pub struct YcsbStream {
    update_percent: u32,
    sampler: Sampler,
    rng: SplitMix64,
}

impl YcsbStream {
    /// The next operation; a stream never ends.
    #[inline]
    pub fn next_op(&mut self) -> RecordOp {
        let update = self.rng.percent(self.update_percent);
        let kind = if update { RecordOpKind::Update } else { RecordOpKind::Read };
        RecordOp { kind, key: self.sampler.draw(&mut self.rng) }
    }
}

impl Iterator for YcsbStream {
    type Item = RecordOp;

    #[inline]
    fn next(&mut self) -> Option<RecordOp> {
        Some(self.next_op())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops(letter: Letter, seed: u64, thread: u32, threads: u32) -> Vec<RecordOp> {
        let workload = Ycsb::new(letter, 10_000, Distribution::default(), seed).unwrap();
        workload.stream(thread, threads).take(20_000).collect()
    }

    #[test]
    fn shares_of_updates_are_kept() {
        for letter in [Letter::A, Letter::B, Letter::C] {
            let updates =
                ops(letter, 1, 0, 1).iter().filter(|op| op.kind == RecordOpKind::Update).count()
                    as f64;
            let want = 200.0 * f64::from(letter.update_percent());
            assert!(
                (updates - want).abs() <= 0.1 * want,
                "{letter:?}: {updates} updates, {want} expected"
            );
        }
    }

    #[test]
    fn a_thread_repeats_itself_and_differs_from_others() {
        assert_eq!(ops(Letter::B, 1, 3, 4), ops(Letter::B, 1, 3, 4));
        assert_eq!(
            ops(Letter::B, 1, 3, 4),
            ops(Letter::B, 1, 3, 32),
            "the number of threads does not matter"
        );
        assert_ne!(ops(Letter::B, 1, 3, 4), ops(Letter::B, 1, 2, 4));
        assert_ne!(ops(Letter::B, 1, 3, 4), ops(Letter::B, 2, 3, 4));
    }

    #[test]
    fn another_share_of_updates_asks_for_the_same_keys() {
        let b = Ycsb::new(Letter::B, 10_000, Distribution::default(), 3).unwrap();
        let ops = |ycsb: &Ycsb| ycsb.stream(0, 1).take(20_000).collect::<Vec<_>>();
        let (few, many) = (ops(&b), ops(&b.clone().with_updates(20)));
        assert!(few.iter().zip(&many).all(|(few, many)| few.key == many.key));
        let updates = many.iter().filter(|op| op.kind == RecordOpKind::Update).count();
        assert!((3_800..4_200).contains(&updates), "{updates}");
        let none = ops(&b.with_updates(0));
        assert!(none.iter().all(|op| op.kind == RecordOpKind::Read));
    }

    #[test]
    fn all_letters_ask_for_the_same_keys() {
        let keys = |letter| ops(letter, 4, 0, 1).iter().map(|op| op.key).collect::<Vec<_>>();
        assert_eq!(keys(Letter::A), keys(Letter::B));
        assert_eq!(keys(Letter::B), keys(Letter::C));
        assert!(keys(Letter::C).iter().all(|&key| key < 10_000));
    }

    #[test]
    fn no_records_is_an_error() {
        assert!(matches!(
            Ycsb::new(Letter::A, 0, Distribution::default(), 1),
            Err(DistributionError::NoItems)
        ));
    }
}
