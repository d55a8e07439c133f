//! The operations of each thread of a trace, from one reader.
//!
//! The threads of a simulated machine request their next operations in any order. An operation read
//! for one thread that belongs to another is buffered, up to a limit that all threads share. If a
//! thread is so far ahead of the others that the limit is reached, it gets its own reader, which
//! skips the operations already read and those of other threads: this costs time, but memory is
//! bounded for every trace.
//!
//! Operations without a thread number belong to the first thread.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use lowtide_report::interrupt;
use lowtide_sim::MachineError;
use lowtide_sim::stream::Stream;
use lowtide_workload::PageOp;
use lowtide_workload::trace::TraceRecord;

use super::source::{Records, Source, Survey};
use crate::sim::full::Streams;
use lowtide_bench::sim::error::SimError;

/// The largest number of buffered operations: 24 MiB.
const KEPT_MAX: usize = 1 << 20;
/// Records between two checks for Ctrl-C, for a thread that finds no operation.
const STRIDE: u64 = 4096;

/// The state that the threads share.
struct Deal {
    source: Source,
    trace: Records,
    /// Records read.
    read: u64,
    /// The index of each thread, by its number in the trace.
    places: BTreeMap<u32, usize>,
    /// Buffered operations, by thread.
    queues: Vec<VecDeque<PageOp>>,
    kept: usize,
    kept_max: usize,
    /// Threads with their own readers.
    alone: Vec<bool>,
    failed: Rc<Cell<Option<SimError>>>,
}

/// The operations of one thread.
struct ThreadStream {
    deal: Rc<RefCell<Deal>>,
    place: usize,
    own: Option<Records>,
}

/// A stream for each thread of the trace.
///
/// # Errors
/// [`SimError::Trace`].
pub(crate) fn deal(source: &Source, survey: &Survey) -> Result<Streams, SimError> {
    deal_within(source, survey, KEPT_MAX)
}

fn deal_within(source: &Source, survey: &Survey, kept_max: usize) -> Result<Streams, SimError> {
    let threads = survey.threads.len().max(1);
    let failed = Rc::new(Cell::new(None));
    let deal = Rc::new(RefCell::new(Deal {
        trace: source.records()?,
        source: source.clone(),
        read: 0,
        places: survey.threads.iter().copied().zip(0..).collect(),
        queues: vec![VecDeque::new(); threads],
        kept: 0,
        kept_max,
        alone: vec![false; threads],
        failed: Rc::clone(&failed),
    }));
    let stream =
        |place| Box::new(ThreadStream { deal: Rc::clone(&deal), place, own: None }) as Stream;
    Ok(Streams { streams: (0..threads).map(stream).collect(), failed })
}

/// The shared reader's result for a thread.
enum Next {
    Op(PageOp),
    End,
    /// No operation, and the buffer is full.
    Full,
}

impl Deal {
    fn place(&self, record: &TraceRecord) -> usize {
        record.thread.and_then(|thread| self.places.get(&thread).copied()).unwrap_or(0)
    }

    fn next(&mut self, place: usize) -> Result<Next, SimError> {
        if let Some(op) = self.queues[place].pop_front() {
            self.kept -= 1;
            return Ok(Next::Op(op));
        }
        while self.kept < self.kept_max {
            self.look_up(self.read)?;
            let Some(record) = self.trace.next()? else { return Ok(Next::End) };
            self.read += 1;
            let owner = self.place(&record);
            if owner == place {
                return Ok(Next::Op(record.op));
            }
            if !self.alone[owner] {
                self.queues[owner].push_back(record.op);
                self.kept += 1;
            }
        }
        Ok(Next::Full)
    }

    /// A reader for a thread that has received all of its operations up to the shared reader's
    /// position.
    fn reader_for(&mut self, place: usize) -> Result<Records, SimError> {
        self.alone[place] = true;
        let mut trace = self.source.records()?;
        for number in 0..self.read {
            self.look_up(number)?;
            trace.next()?;
        }
        Ok(trace)
    }

    fn next_of_own(&self, place: usize, trace: &mut Records) -> Result<Option<PageOp>, SimError> {
        for number in 0.. {
            self.look_up(number)?;
            match trace.next()? {
                Some(record) if self.place(&record) != place => {}
                record => return Ok(record.map(|record| record.op)),
            }
        }
        Ok(None)
    }

    fn look_up(&self, number: u64) -> Result<(), SimError> {
        if number.is_multiple_of(STRIDE) {
            interrupt::check(|| format!("playing the trace {}", self.source.name()))?;
        }
        Ok(())
    }
}

impl ThreadStream {
    fn next_op(&mut self) -> Result<Option<PageOp>, SimError> {
        let mut deal = self.deal.borrow_mut();
        if self.own.is_none() {
            match deal.next(self.place)? {
                Next::Op(op) => return Ok(Some(op)),
                Next::End => return Ok(None),
                Next::Full => self.own = Some(deal.reader_for(self.place)?),
            }
        }
        self.own.as_mut().map_or(Ok(None), |trace| deal.next_of_own(self.place, trace))
    }
}

impl Iterator for ThreadStream {
    type Item = Result<PageOp, MachineError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.next_op() {
            Ok(op) => op.map(Ok),
            Err(error) => {
                // This only stops the machine; its caller finds the reason here.
                self.deal.borrow().failed.set(Some(error));
                Some(Err(MachineError::Interrupted { at_ns: 0 }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trace whose thread 7 comes after all others.
    fn source(dir: &tempfile::TempDir) -> Source {
        let path = dir.path().join("t.csv");
        let mut lines = String::from("op,space,page,pages,thread\nread,file:a,9,1,\n");
        for page in 0..300 {
            lines += &format!("read,file:a,{page},1,{}\n", if page < 250 { page % 2 } else { 7 });
        }
        std::fs::write(&path, lines).unwrap();
        Source::new(&path, None)
    }

    fn pages(stream: &mut Stream, count: usize) -> Vec<u64> {
        stream.take(count).map(|op| op.unwrap().page).collect()
    }

    #[test]
    fn every_thread_gets_its_own_in_order_whoever_asks_first_and_however_little_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let source = source(&dir);
        let survey = source.survey().unwrap();
        assert_eq!((survey.ops, survey.footprint(), survey.threads.len()), (301, 300, 3));
        let even: Vec<u64> = std::iter::once(9).chain((0..250).step_by(2)).collect();
        let want = [even, (1..250).step_by(2).collect(), (250..300).collect()];
        for kept_max in [1, 10, 1000] {
            for order in [[0, 1, 2], [2, 1, 0], [2, 0, 1]] {
                let mut streams = deal_within(&source, &survey, kept_max).unwrap().streams;
                let mut found = [vec![], vec![], vec![]];
                for part in [60, 1000] {
                    for thread in order {
                        found[thread].extend(pages(&mut streams[thread], part));
                    }
                }
                assert_eq!(found, want, "{kept_max} kept, asked in the order {order:?}");
            }
        }
    }

    #[test]
    fn a_trace_that_changes_between_passes_ends_the_run_with_its_error() {
        let dir = tempfile::tempdir().unwrap();
        let source = source(&dir);
        let survey = source.survey().unwrap();
        std::fs::write(dir.path().join("t.csv"), "op,space,page,pages\nread,file:a,x,1\n").unwrap();
        let mut streams = deal(&source, &survey).unwrap();
        assert!(streams.streams[0].next().is_some_and(|op| op.is_err()));
        assert!(matches!(streams.failed.take(), Some(SimError::Trace(_))));
    }
}
