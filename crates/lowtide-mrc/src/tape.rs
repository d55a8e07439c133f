//! The tape: a stream of operations, packed into 4-byte records.
//!
//! ```text
//!   31   29 28                          0
//!  +-------+-----------------------------+
//!  | kind  | dense number of the page    |   one record a page that an operation touches
//!  +-------+-----------------------------+
//! ```
//!
//! Pages are numbered in the order of their first access, and a table maps the number back to space
//! and page. So a policy that needs only the number (the baselines) never hashes; one that needs
//! space and page (the engine, for look-around and for file and anonymous memory) looks them up.
//!
//! `sync` and `free` of pages without content (never accessed, or freed since) have no effect and
//! are omitted. So there are exactly as many dense numbers as distinct pages accessed.

use super::numbering::Numbering;
use super::words::{Chunk, SpillError, Storage, Words, WordsWriter};
use lowtide_workload::{OpKind, PageOp, SpaceId};
use std::fmt::Display;
use thiserror::Error;

/// The largest number of distinct pages of a tape: 2^29, 2 TiB in pages of 4 KiB.
pub const PAGES_MAX: u32 = 1 << PAGE_BITS;
const PAGE_BITS: u32 = 29;

/// The reason why a stream cannot be packed into a tape.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordError<E: Display> {
    /// The stream itself failed.
    #[error("{0}")]
    Source(E),
    /// The tape's temporary file failed.
    #[error(transparent)]
    Spill(#[from] SpillError),
    /// The stream touches more pages than 29 bits can number.
    #[error(
        "operation {op} touches a page beyond the {PAGES_MAX} different ones that a curve can \
         cover; use larger \
         pages, or a part of the trace"
    )]
    TooManyPages {
        /// The operation, counted from 0.
        op: u64,
    },
}

/// One record: what happens to one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record(u32);

impl Record {
    /// `page` must be below [`PAGES_MAX`].
    const fn new(kind: OpKind, page: u32) -> Self {
        Self((kind as u32) << PAGE_BITS | page)
    }

    #[inline]
    pub(super) const fn from_word(word: u32) -> Self {
        Self(word)
    }

    /// The operation.
    #[inline]
    #[must_use]
    pub const fn kind(self) -> OpKind {
        OpKind::ALL[(self.0 >> PAGE_BITS) as usize]
    }

    /// The page's dense number.
    #[inline]
    #[must_use]
    pub const fn page(self) -> u32 {
        self.0 & (PAGES_MAX - 1)
    }

    /// The record's effect on a cache without dirty pages.
    #[inline]
    pub(super) const fn effect(self) -> Effect {
        match self.kind() {
            OpKind::Read | OpKind::Write | OpKind::Load | OpKind::Store => Effect::Access,
            OpKind::Free => Effect::Remove,
            OpKind::Sync => Effect::Nothing,
        }
    }
}

/// The effect of a record on a cache without dirty pages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Access,
    Remove,
    Nothing,
}

/// A packed stream that can be replayed any number of times, by any number of threads at once.
#[derive(Debug)]
pub struct Tape {
    words: Words,
    spaces: Vec<SpaceId>,
    pages: Vec<u64>,
    accesses: u64,
    cold: u64,
}

impl Tape {
    /// Packs a stream. Costs some 10 ns per touched page, 12 bytes per distinct page, and during
    /// packing less than 10 further bytes per distinct page (more for scattered pages).
    ///
    /// # Errors
    /// The stream's first error, a failing temporary file, or more than [`PAGES_MAX`] distinct
    /// pages.
    pub fn record<E: Display>(
        ops: impl IntoIterator<Item = Result<PageOp, E>>,
        storage: &Storage,
    ) -> Result<Self, RecordError<E>> {
        let mut recorder = Recorder {
            words: WordsWriter::new(storage),
            numbering: Numbering::default(),
            has_content: Vec::new(),
            in_range: Vec::new(),
            accesses: 0,
            cold: 0,
        };
        for (index, op) in (0..).zip(ops) {
            recorder.op(index, op.map_err(RecordError::Source)?)?;
        }
        let words = recorder.words.finish()?;
        let (spaces, pages) = recorder.numbering.into_origins();
        Ok(Self { words, spaces, pages, accesses: recorder.accesses, cold: recorder.cold })
    }

    /// Number of records.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "what matters is whether there are accesses")]
    pub const fn len(&self) -> u64 {
        self.words.len()
    }

    /// Number of records that are accesses.
    #[must_use]
    pub const fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Number of accesses that miss at any size: the first of each page, and the first after each
    /// `free`.
    #[must_use]
    pub const fn cold(&self) -> u64 {
        self.cold
    }

    /// Number of distinct pages accessed: the *footprint*. Dense numbers are below it.
    #[must_use]
    pub fn distinct(&self) -> u32 {
        self.pages.len() as u32
    }

    /// Whether the tape is in a temporary file.
    #[must_use]
    pub const fn spilled(&self) -> bool {
        self.words.spilled()
    }

    /// The space and the page behind a dense number.
    ///
    /// # Panics
    /// When `number` is not below [`distinct`](Self::distinct).
    #[inline]
    #[must_use]
    pub fn origin(&self, number: u32) -> (SpaceId, u64) {
        (self.spaces[number as usize], self.pages[number as usize])
    }

    /// Number of chunks.
    #[must_use]
    pub const fn chunks(&self) -> u64 {
        self.words.chunks()
    }

    /// The records of chunk `index`, which can be iterated in either direction. Reads the file if
    /// the tape is in one.
    ///
    /// # Errors
    /// The temporary file cannot be read.
    ///
    /// # Panics
    /// When `index` is not below [`chunks`](Self::chunks).
    pub fn chunk<'a>(
        &'a self,
        index: u64,
        room: &'a mut Chunk,
    ) -> Result<impl DoubleEndedIterator<Item = Record> + ExactSizeIterator + 'a, SpillError> {
        Ok(self.words.chunk(index, room)?.iter().map(|&word| Record::from_word(word)))
    }

    pub(super) const fn words(&self) -> &Words {
        &self.words
    }
}

struct Recorder {
    words: WordsWriter,
    numbering: Numbering,
    /// By dense number: accessed, and not freed since.
    has_content: Vec<bool>,
    /// Room for the numbers that one `sync` or `free` covers.
    in_range: Vec<u32>,
    accesses: u64,
    cold: u64,
}

impl Recorder {
    fn op<E: Display>(&mut self, index: u64, op: PageOp) -> Result<(), RecordError<E>> {
        if op.pages == 0 {
            return Ok(());
        }
        if matches!(op.kind, OpKind::Sync | OpKind::Free) {
            return Ok(self.sync_or_free(op)?);
        }
        for page in op.page..=op.last_page() {
            let number = self.numbering.get_or_add(op.space, page, PAGES_MAX);
            let number = number.ok_or(RecordError::TooManyPages { op: index })?;
            if number as usize == self.has_content.len() {
                self.has_content.push(false);
            }
            let had_content = std::mem::replace(&mut self.has_content[number as usize], true);
            self.cold += u64::from(!had_content);
            self.accesses += 1;
            self.words.push(Record::new(op.kind, number).0)?;
        }
        Ok(())
    }

    fn sync_or_free(&mut self, op: PageOp) -> Result<(), SpillError> {
        self.in_range.clear();
        self.numbering.in_range(op.space, op.page, op.last_page(), &mut self.in_range);
        for &number in &self.in_range {
            let has_content = &mut self.has_content[number as usize];
            if *has_content {
                *has_content = op.kind != OpKind::Free;
                self.words.push(Record::new(op.kind, number).0)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{op, tape};

    fn records(tape: &Tape) -> Vec<(OpKind, u64)> {
        let mut room = Chunk::default();
        let mut all = Vec::new();
        for index in 0..tape.chunks() {
            let records = tape.chunk(index, &mut room).unwrap();
            all.extend(records.map(|record| (record.kind(), tape.origin(record.page()).1)));
        }
        all
    }

    #[test]
    fn an_operation_becomes_a_record_for_each_page() {
        use OpKind::{Load, Read, Store};
        let tape = tape(&[op(Read, 0, 5, 2), op(Store, 1, 5, 1), op(Load, 0, 4, 2)]);
        assert_eq!(records(&tape), [(Read, 5), (Read, 6), (Store, 5), (Load, 4), (Load, 5)]);
        assert_eq!((tape.len(), tape.accesses(), tape.distinct(), tape.cold()), (5, 5, 4, 4));
        assert_eq!(tape.origin(2), (SpaceId(1), 5));
    }

    #[test]
    fn sync_and_free_concern_pages_with_content_only() {
        use OpKind::{Free, Sync, Write};
        let tape = tape(&[
            op(Free, 0, 0, u32::MAX),
            op(Write, 0, 7, 1),
            op(Sync, 0, 0, u32::MAX),
            op(Free, 0, 0, 10),
            op(Free, 0, 0, 10),
            op(Sync, 0, 7, 1),
            op(Write, 0, 7, 1),
        ]);
        assert_eq!(records(&tape), [(Write, 7), (Sync, 7), (Free, 7), (Write, 7)]);
        assert_eq!((tape.accesses(), tape.distinct(), tape.cold()), (2, 1, 2));
    }

    #[test]
    fn the_last_page_of_all_can_be_accessed() {
        let tape = tape(&[op(OpKind::Read, 3, u64::MAX, 1), op(OpKind::Read, 3, u64::MAX - 1, 2)]);
        assert_eq!((tape.accesses(), tape.distinct()), (3, 2));
    }

    #[test]
    fn the_streams_error_comes_through() {
        let ops = [Ok(op(OpKind::Read, 0, 0, 1)), Err("line 3: no number")];
        let error = Tape::record(ops, &Storage::default()).unwrap_err();
        assert_eq!(error.to_string(), "line 3: no number");
    }
}
