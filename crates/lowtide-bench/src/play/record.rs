//! Operations on records: YCSB's reads and updates.
//!
//! A read checks key and checksum of the whole record. An update reads and checks the record, and
//! writes its next version. A step of several operations requests its reads together, and then does
//! its updates one by one.

use lowtide_report::tally::Tally;
use lowtide_workload::record::{RECORD_BYTES, update, verify};
use lowtide_workload::ycsb::YcsbStream;
use lowtide_workload::{RecordOp, RecordOpKind};

use crate::access::DataAccess;
use crate::thread_pool::Player;

/// One thread of a YCSB workload.
pub struct RecordPlayer<D> {
    access: D,
    stream: YcsbStream,
    /// Keys and offsets of the reads of a step, and keys of its updates.
    reads: Vec<u64>,
    offsets: Vec<u64>,
    updates: Vec<u64>,
    /// Reads of the last step.
    last_reads: u64,
}

impl<D: DataAccess> RecordPlayer<D> {
    /// A player of `stream`.
    pub fn new(access: D, stream: YcsbStream) -> Self {
        Self {
            access,
            stream,
            reads: Vec::new(),
            offsets: Vec::new(),
            updates: Vec::new(),
            last_reads: 0,
        }
    }

    /// Number of reads in the last step.
    pub const fn last_reads(&self) -> u64 {
        self.last_reads
    }

    #[inline]
    fn read(&mut self, key: u64, tally: &mut Tally) {
        tally.asked_bytes += RECORD_BYTES as u64;
        match self.access.load(place(key), RECORD_BYTES, |bytes| verify(key, bytes)) {
            Ok(found) => tally.check(found.map(drop)),
            Err(error) => tally.fail(&format_args!("record {key}: {error}")),
        }
    }

    fn update(&mut self, key: u64, tally: &mut Tally) {
        tally.asked_bytes += RECORD_BYTES as u64;
        let mut slot = [0; RECORD_BYTES];
        let mut found = Ok(0);
        let done = self.access.modify(place(key), &mut slot, |bytes| {
            found = match bytes.first_chunk_mut() {
                Some(slot) => update(key, slot),
                // The slice is the slot above, so this cannot happen; an error of `verify` is
                // better than a panic.
                None => verify(key, bytes),
            };
            found.is_ok()
        });
        match done {
            Ok(()) => tally.check(found.map(drop)),
            Err(error) => tally.fail(&format_args!("update of record {key}: {error}")),
        }
    }

    fn batch(&mut self, ops: u64, tally: &mut Tally) {
        self.reads.clear();
        self.updates.clear();
        for _ in 0..ops {
            let RecordOp { kind, key } = self.stream.next_op();
            match kind {
                RecordOpKind::Read => self.reads.push(key),
                RecordOpKind::Update => self.updates.push(key),
            }
        }
        self.last_reads = self.reads.len() as u64;
        self.offsets.clear();
        self.offsets.extend(self.reads.iter().map(|&key| place(key)));
        tally.asked_bytes += (RECORD_BYTES * self.reads.len()) as u64;
        let reads = &self.reads;
        let done = self.access.load_many(&self.offsets, RECORD_BYTES, |index, bytes| {
            tally.check(verify(reads[index], bytes).map(drop));
        });
        if let Err(error) = done {
            tally.fail(&format_args!("a batch of {} records: {error}", self.reads.len()));
        }
        for key in std::mem::take(&mut self.updates) {
            self.update(key, tally);
        }
    }
}

impl<D: DataAccess> Player for RecordPlayer<D> {
    fn step(&mut self, most: u64, tally: &mut Tally) -> u64 {
        if most > 1 {
            self.batch(most, tally);
            return most;
        }
        let RecordOp { kind, key } = self.stream.next_op();
        self.last_reads = u64::from(kind == RecordOpKind::Read);
        match kind {
            RecordOpKind::Read => self.read(key, tally),
            RecordOpKind::Update => self.update(key, tally),
        }
        1
    }
}

#[inline]
const fn place(key: u64) -> u64 {
    key * RECORD_BYTES as u64
}
