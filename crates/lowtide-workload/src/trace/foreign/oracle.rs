//! libCacheSim's oracleGeneral: an access to an object is 24 bytes, little-endian, without padding.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | time in seconds |
//! | 4..12 | the object's identity |
//! | 12..16 | its size in bytes |
//! | 16..24 | the number of its next access; -1 or 2^63 - 1 when there is none |
//!
//! There is no header, magic or end, so a file cut between two records is a shorter trace. An
//! access becomes a `read` of the object's pages, at its time. The next access is not passed on:
//! it can be computed from the operations.

use super::super::error::{TraceError, TraceFault};
use super::super::input::Input;
use super::super::record::{Names, TraceRecord};
use super::objects::Arena;
use crate::op::OpKind;

const RECORD_BYTES: usize = 24;
/// Records by which the format is recognised.
const SAMPLE_RECORDS: usize = 64;
/// No trace has this many accesses, and most bytes that are no trace have a larger number in this
/// place.
const ACCESSES_MAX: i64 = 1 << 44;
const SECOND_NS: u64 = 1_000_000_000;

/// One record.
struct Access {
    seconds: u32,
    object: u64,
    bytes: u32,
    next_access: i64,
}

impl Access {
    #[inline]
    fn of(record: &[u8; RECORD_BYTES]) -> Self {
        let [t0, t1, t2, t3, o0, o1, o2, o3, o4, o5, o6, o7, s0, s1, s2, s3, next @ ..] = *record;
        Self {
            seconds: u32::from_le_bytes([t0, t1, t2, t3]),
            object: u64::from_le_bytes([o0, o1, o2, o3, o4, o5, o6, o7]),
            bytes: u32::from_le_bytes([s0, s1, s2, s3]),
            next_access: i64::from_le_bytes(next),
        }
    }
}

/// Whether content that begins with `sample` can be such a trace.
pub(in super::super) fn is_plausible(sample: &[u8]) -> bool {
    let records = sample.as_chunks::<RECORD_BYTES>().0;
    let mut seconds = 0;
    let plausible = |(number, record): (i64, &[u8; RECORD_BYTES])| {
        let access = Access::of(record);
        let in_order = access.seconds >= seconds;
        seconds = access.seconds;
        // Accesses may be counted from 0 or from 1, so the next one has at least the number after
        // this one's.
        let future = matches!(access.next_access, -1 | i64::MAX)
            || (number < access.next_access && access.next_access < ACCESSES_MAX);
        in_order && access.bytes > 0 && future
    };
    !records.is_empty() && (0..).zip(records).take(SAMPLE_RECORDS).all(plausible)
}

/// A reader of such a trace.
#[derive(Debug)]
pub(in super::super) struct Oracle {
    input: Input,
    names: Names,
    arena: Arena,
}

impl Oracle {
    /// Reads `input` from where it is.
    pub(in super::super) fn new(input: Input) -> Self {
        Self { input, names: Names::default(), arena: Arena::new() }
    }

    /// The next record; `None` at the end.
    #[inline]
    pub(in super::super) fn next(&mut self) -> Result<Option<TraceRecord>, TraceError> {
        let whole =
            self.input.fill(RECORD_BYTES).map_err(|source| self.at(TraceFault::Io { source }))?;
        let Some(record) = self.input.available().first_chunk() else {
            debug_assert!(!whole);
            return match self.input.available().len() {
                0 => Ok(None),
                found => Err(self.at(TraceFault::CutRecord { found, expected: RECORD_BYTES })),
            };
        };
        let Access { seconds, object, bytes, .. } = Access::of(record);
        let op = self
            .arena
            .access(OpKind::Read, object, u64::from(bytes), &mut self.names)
            .map_err(|fault| self.at(fault))?;
        self.input.consume(RECORD_BYTES);
        Ok(Some(TraceRecord { time_ns: Some(u64::from(seconds) * SECOND_NS), ..op.into() }))
    }

    /// The names seen so far.
    pub(in super::super) const fn names(&self) -> &Names {
        &self.names
    }

    /// The offset of the next record.
    pub(in super::super) const fn byte_offset(&self) -> u64 {
        self.input.offset()
    }

    fn at(&self, what: TraceFault) -> TraceError {
        TraceError { line: None, byte_offset: self.input.offset(), what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn bytes(accesses: &[(u32, u64, u32, i64)]) -> Vec<u8> {
        let record = |&(seconds, object, size, next): &(u32, u64, u32, i64)| {
            let (time, object) = (seconds.to_le_bytes(), object.to_le_bytes());
            [time.as_slice(), &object, &size.to_le_bytes(), &next.to_le_bytes()].concat()
        };
        accesses.iter().flat_map(record).collect()
    }

    #[test]
    fn accesses_become_reads_of_page_ranges_at_their_time() {
        let text = bytes(&[(0, 70, 10_000, 2), (0, 71, 1, -1), (5, 70, 10_000, i64::MAX)]);
        assert!(is_plausible(&text));
        let mut reader = Oracle::new(Input::new(Cursor::new(text)).unwrap());
        let mut found = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            assert_eq!(record.op.kind, OpKind::Read);
            found.push((record.time_ns, record.op.page, record.op.pages));
        }
        assert_eq!(found, [(Some(0), 0, 3), (Some(0), 3, 1), (Some(5_000_000_000), 0, 3)]);
        assert_eq!(reader.names().spaces()[0].to_string(), "file:objects");
    }

    #[test]
    fn what_cannot_be_is_not_plausible() {
        assert!(!is_plausible(&bytes(&[(5, 1, 1, -1), (4, 1, 1, -1)])), "time falls");
        assert!(!is_plausible(&bytes(&[(5, 1, 0, -1)])), "an object of no bytes");
        assert!(!is_plausible(&bytes(&[(5, 1, 1, 0)])), "its next access is itself");
        assert!(!is_plausible(&bytes(&[(5, 1, 1, -2)])), "a next access in the past");
        assert!(!is_plausible(&[0; 23]), "less than a record");
        assert!(!is_plausible(&[0; 4096]));
    }

    #[test]
    fn a_partial_record_is_reported_at_its_place() {
        let text = bytes(&[(0, 70, 100, -1), (1, 71, 1, -1)]);
        let mut reader = Oracle::new(Input::new(Cursor::new(text[..40].to_vec())).unwrap());
        assert!(reader.next().unwrap().is_some());
        let error = reader.next().unwrap_err();
        assert_eq!((error.line, error.byte_offset), (None, 24));
        assert!(matches!(error.what, TraceFault::CutRecord { found: 16, expected: 24 }));
    }
}
