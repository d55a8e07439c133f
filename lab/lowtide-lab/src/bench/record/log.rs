//! Accesses of all threads in order of time, and the thread that writes them.
//!
//! That thread lives as long as the log, which the players of a turn share, and not as long as one
//! call; so it is not one of [`lowtide_report::threads`].

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;
use std::{io, mem};

use lowtide_report::threads::ThreadError;
use lowtide_workload::trace::{Names, TraceFileError, TraceRecord, TraceWriter};
use lowtide_workload::{OpKind, PageOp, Space, SpaceId};

use lowtide_bench::error::BenchError;

/// The space of all notes: there is one file, and the trace must not contain its local name.
const SPACE: &str = "data";
/// Notes sent to the writer together.
const CHUNK: usize = 1 << 14;
/// Chunks that may wait for the writer.
const CHUNKS_WAITING: usize = 4;

/// One access.
#[derive(Clone, Copy, Debug)]
struct Note {
    time_ns: u64,
    page: u64,
    pages: u32,
    thread: u32,
    kind: OpKind,
}

/// The notes of a turn.
#[derive(Debug)]
pub(crate) struct Log {
    begin: Instant,
    notes: Mutex<Notes>,
    writer: Mutex<Option<JoinHandle<Result<TraceWriter, TraceFileError>>>>,
}

#[derive(Debug)]
struct Notes {
    chunk: Vec<Note>,
    noted: u64,
    /// `None` once the log is closed.
    chunks: Option<SyncSender<Vec<Note>>>,
}

impl Log {
    /// Starts the thread that writes to `writer`. Time begins now.
    ///
    /// # Errors
    /// [`ThreadError::Create`] when the kernel cannot create a thread.
    pub(crate) fn start(writer: TraceWriter) -> Result<Self, ThreadError> {
        let (chunks, inbox) = sync_channel(CHUNKS_WAITING);
        let thread = std::thread::Builder::new()
            .name("recorder".into())
            .spawn(move || write(writer, &inbox));
        let thread = thread.map_err(|source| ThreadError::Create { count: 1, source })?;
        let notes = Notes { chunk: Vec::with_capacity(CHUNK), noted: 0, chunks: Some(chunks) };
        Ok(Self {
            begin: Instant::now(),
            notes: Mutex::new(notes),
            writer: Mutex::new(Some(thread)),
        })
    }

    /// Records accesses of one kind by one thread that begin now. Waits while the writer is behind.
    ///
    /// # Errors
    /// When the writer has failed; [`finish`](Self::finish) says why.
    pub(crate) fn note(
        &self,
        thread: u32,
        kind: OpKind,
        ranges: impl IntoIterator<Item = (u64, u32)>,
    ) -> io::Result<()> {
        let mut notes = lock(&self.notes);
        let time_ns = u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let before = notes.chunk.len();
        notes.chunk.extend(ranges.into_iter().map(|(page, pages)| Note {
            time_ns,
            page,
            pages,
            thread,
            kind,
        }));
        notes.noted += (notes.chunk.len() - before) as u64;
        if notes.chunk.len() >= CHUNK { notes.hand_over() } else { Ok(()) }
    }

    /// Writes the rest, and returns the trace, which is complete but for its end, and how many
    /// accesses it has.
    ///
    /// # Errors
    /// [`BenchError::Trace`] when the writer has failed; then the file is removed.
    pub(crate) fn finish(&self) -> Result<(TraceWriter, u64), BenchError> {
        let noted = {
            let mut notes = lock(&self.notes);
            // The code below detects a failed writer, and its reason.
            let _ = notes.hand_over();
            notes.chunks = None;
            notes.noted
        };
        let thread = lock(&self.writer).take().ok_or(ThreadError::Panicked)?;
        let written = thread.join().map_err(|_| ThreadError::Panicked)?;
        Ok((written?, noted))
    }
}

/// Dropping an unfinished log waits for its writer, which removes the file: the program may end
/// right afterwards.
impl Drop for Log {
    fn drop(&mut self) {
        lock(&self.notes).chunks = None;
        if let Some(thread) = lock(&self.writer).take() {
            // The trace is no longer needed, so its error does not matter.
            drop(thread.join());
        }
    }
}

impl Notes {
    fn hand_over(&mut self) -> io::Result<()> {
        let chunk = mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK));
        let sent = self.chunks.as_ref().is_some_and(|chunks| chunks.send(chunk).is_ok());
        if sent {
            Ok(())
        } else {
            Err(io::Error::new(io::ErrorKind::BrokenPipe, "the trace cannot be written any more"))
        }
    }
}

/// A panic under these locks cannot leave an incomplete note.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write(
    mut writer: TraceWriter,
    chunks: &Receiver<Vec<Note>>,
) -> Result<TraceWriter, TraceFileError> {
    let names = Names::with_spaces([Space::file(SPACE)]);
    while let Ok(chunk) = chunks.recv() {
        for Note { time_ns, page, pages, thread, kind } in chunk {
            let op = PageOp { kind, space: SpaceId(0), page, pages };
            let record = TraceRecord { time_ns: Some(time_ns), thread: Some(thread), ..op.into() };
            writer.write(&record, &names)?;
        }
    }
    Ok(writer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_workload::trace::{Columns, create, open};

    const COLUMNS: Columns = Columns { time_ns: true, thread: true, tenant: false };

    #[test]
    fn notes_of_many_threads_are_all_there_and_in_order_of_time() {
        const EACH: u64 = 3 * CHUNK as u64;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace.lt");
        let log = Log::start(create(&path, COLUMNS).unwrap()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let log = &log;
                scope.spawn(move || {
                    for page in 0..EACH {
                        log.note(thread, OpKind::Load, [(page, 1)]).unwrap();
                    }
                });
            }
        });
        let (writer, noted) = log.finish().unwrap();
        writer.finish().unwrap();
        assert_eq!(noted, 4 * EACH);
        let mut next = [0; 4];
        let mut last = 0;
        for record in open(&path, None).unwrap() {
            let record = record.unwrap();
            let thread = record.thread.unwrap() as usize;
            assert_eq!(record.op.page, next[thread], "each thread's accesses are in its order");
            next[thread] += 1;
            assert!(record.time_ns.unwrap() >= last);
            last = record.time_ns.unwrap();
        }
        assert_eq!(next, [EACH; 4]);
    }

    #[test]
    fn a_full_disk_stops_the_notes_and_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("full.csv");
        std::os::unix::fs::symlink("/dev/full", &path).unwrap();
        let log = Log::start(create(&path, COLUMNS).unwrap()).unwrap();
        while log.note(0, OpKind::Load, [(0, 1)]).is_ok() {}
        let error = log.finish().unwrap_err().to_string();
        assert!(error.contains("full.csv") && error.contains("No space"), "{error}");
    }
}
