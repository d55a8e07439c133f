//! What a store reports about itself, in the terms of zram's `mm_stat`.
//!
//! Sums are kept under the locks of the shards, where pages come and go, so they are exact and no
//! counter is shared by all threads. Reading them takes the shards one after the other: while other
//! threads work, the figures of one report may be some pages apart.

use crate::codec::Form;
use crate::entries::State;
use crate::source::PAGE_BYTES;
use std::fmt;

/// Figures of one shard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sums {
    same: u64,
    lz4: u64,
    zstd: u64,
    raw: u64,
    compressed_bytes: u64,
    raw_ever: u64,
}

impl Sums {
    pub(crate) const ZERO: Sums =
        Sums { same: 0, lz4: 0, zstd: 0, raw: 0, compressed_bytes: 0, raw_ever: 0 };

    fn of(&mut self, state: &State) -> Option<&mut u64> {
        match state {
            State::Free(_) | State::Reserved => None,
            State::Same(_) => Some(&mut self.same),
            State::Object(object) => Some(match object.form {
                Form::Lz4 => &mut self.lz4,
                Form::Zstd | Form::Common => &mut self.zstd,
                Form::Raw => &mut self.raw,
            }),
        }
    }

    fn bytes(state: &State) -> u64 {
        if let State::Object(object) = state { u64::from(object.len) } else { 0 }
    }

    pub(crate) fn add(&mut self, state: &State) {
        self.compressed_bytes += Sums::bytes(state);
        if matches!(state, State::Object(object) if object.form == Form::Raw) {
            self.raw_ever += 1;
        }
        if let Some(count) = self.of(state) {
            *count += 1;
        }
    }

    pub(crate) fn remove(&mut self, state: &State) {
        self.compressed_bytes -= Sums::bytes(state);
        if let Some(count) = self.of(state) {
            *count -= 1;
        }
    }
}

/// Figures of a compressed store. Counts are of pages unless the name says bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct StoreStat {
    /// Pages that are stored.
    pub stored: u64,
    /// … of which one word repeated: they take no memory.
    pub same: u64,
    /// … of which compressed with lz4.
    pub lz4: u64,
    /// … of which compressed with zstd.
    pub zstd: u64,
    /// … of which kept as they are, because they do not compress; zram calls them huge.
    pub raw: u64,
    /// Pages that were ever kept as they are. One that is moved or tried again counts again.
    pub raw_ever: u64,
    /// Bytes of what is kept of all pages, without what blocks lose.
    pub compressed_bytes: u64,
    /// Pages of memory that the store has now.
    pub memory: u64,
    /// The most pages of memory that it had.
    pub memory_peak: u64,
    /// The most pages of memory that it may have.
    pub memory_limit: u64,
    /// Pages of memory that compaction has given back.
    pub compacted: u64,
    /// Pages that became smaller by recompression.
    pub recompressed: u64,
    /// Pages that were rejected.
    pub rejected: u64,
    /// Loads that found wrong contents.
    pub corrupt: u64,
    /// Bytes of tables, beside the pages of memory: 40 for each entry that was ever needed at once.
    pub table_bytes: u64,
    /// Pages that the source was charged for tables, and for the words of objects in blocks.
    pub table_pages: u64,
}

impl StoreStat {
    pub(crate) fn add(&mut self, sums: &Sums) {
        let Sums { same, lz4, zstd, raw, compressed_bytes, raw_ever } = *sums;
        self.same += same;
        self.lz4 += lz4;
        self.zstd += zstd;
        self.raw += raw;
        self.stored += same + lz4 + zstd + raw;
        self.raw_ever += raw_ever;
        self.compressed_bytes += compressed_bytes;
    }

    /// Bytes of the stored pages before they were compressed.
    #[must_use]
    pub const fn orig_bytes(&self) -> u64 {
        self.stored * PAGE_BYTES as u64
    }

    /// Stored pages for each page of memory, blocks' losses included; `None` without memory.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        (self.memory > 0).then(|| self.stored as f64 / self.memory as f64)
    }

    /// The nine columns of zram's `mm_stat`.
    #[must_use]
    pub const fn mm_stat(&self) -> MmStat<'_> {
        MmStat(self)
    }
}

/// Writes the columns of `mm_stat`: bytes of original data, compressed bytes, memory, its limit
/// and its peak in bytes, then same pages, compacted pages, huge pages, and huge pages ever.
#[derive(Debug, Clone, Copy)]
pub struct MmStat<'a>(&'a StoreStat);

impl fmt::Display for MmStat<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StoreStat { same, raw, raw_ever, compressed_bytes, compacted, .. } = *self.0;
        let bytes = |pages: u64| pages.saturating_mul(PAGE_BYTES as u64);
        let (orig, used) = (self.0.orig_bytes(), bytes(self.0.memory));
        let (limit, peak) = (bytes(self.0.memory_limit), bytes(self.0.memory_peak));
        write!(
            f,
            "{orig:8} {compressed_bytes:8} {used:8} {limit:8} {peak:8} {same:8} {compacted:8} \
             {raw:8} {raw_ever:8}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::Place;
    use crate::entries::Object;

    fn object(form: Form, len: u16) -> State {
        let place = Place { block: 0, index: 0, class: 0 };
        State::Object(Object { checksum: 0, place, len, form, tried: false })
    }

    #[test]
    fn what_comes_and_goes_leaves_nothing_but_history() {
        let states = [
            State::Same(7),
            object(Form::Lz4, 900),
            object(Form::Zstd, 500),
            object(Form::Raw, 4096),
        ];
        let mut sums = Sums::ZERO;
        states.iter().for_each(|state| sums.add(state));
        let mut stat = StoreStat { memory: 2, ..StoreStat::default() };
        stat.add(&sums);
        assert_eq!((stat.stored, stat.same, stat.lz4, stat.zstd, stat.raw), (4, 1, 1, 1, 1));
        assert_eq!((stat.compressed_bytes, stat.ratio()), (900 + 500 + 4096, Some(2.0)));
        let columns: Vec<u64> = stat
            .mm_stat()
            .to_string()
            .split_whitespace()
            .map(|column| column.parse().expect("a number"))
            .collect();
        assert_eq!(columns, [16384, 5496, 8192, 0, 0, 1, 0, 1, 1]);
        states.iter().for_each(|state| sums.remove(state));
        let mut empty = StoreStat::default();
        empty.add(&sums);
        assert_eq!(empty, StoreStat { raw_ever: 1, ..StoreStat::default() });
    }
}
