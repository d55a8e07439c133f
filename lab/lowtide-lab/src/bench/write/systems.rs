//! The writers: lowtide under a policy, and its peers. A turn is one whole file, which is created,
//! checked, and removed.

use std::cell::Cell;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use lowtide::{Error, OpenOptions, Pager, Policy, View};
use lowtide_bench::access::AccessError;
use lowtide_bench::datafile::DataDir;
use lowtide_bench::error::BenchError;
use lowtide_bench::system::{System, count, dirty_bytes};
use lowtide_bench::thread_pool::Until;
use lowtide_experiments::programs::writer::Writer;
use lowtide_host::usage::CpuTime;
use lowtide_report::tally::{Slice, WriteBack};

use super::file::Fill;
use super::source::Source;
use crate::bench::peer::dd::Dd;
use crate::bench::peer::filler::Filler;

/// Interval at which dirty pages are counted during a turn of lowtide.
const SAMPLE: Duration = Duration::from_millis(10);

/// The peers of `fill`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FillPeer {
    // With direct I/O.
    Dd,
    // Through the page cache, in a memory cgroup of the same budget.
    Pwrite,
    // Through a mapping, in a memory cgroup of the same budget.
    Mmap,
    None,
}

/// The directory of the files, their content, and what is written.
#[derive(Debug)]
pub(crate) struct Place {
    /// The bytes. They go before their directory.
    pub(crate) source: Source,
    pub(crate) data_dir: DataDir,
    /// Sizes.
    pub(crate) writer: Writer,
}

/// A way to write a file.
pub(crate) enum Way {
    Lowtide(Pager, Policy),
    Dd(Dd),
    /// Direct writes from this process, as `dd` does.
    Direct,
    /// Through the kernel's page cache, in a memory cgroup: `pwrite` or `mmap`.
    Cached(&'static str, Filler),
}

/// A writer.
pub(crate) struct WritingSystem {
    /// The way of writing.
    pub(crate) way: Way,
    /// The directory and the bytes.
    pub(crate) place: Rc<Place>,
}

impl System for WritingSystem {
    fn name(&self) -> &'static str {
        match &self.way {
            Way::Lowtide(..) => "lowtide",
            Way::Dd(_) => "dd",
            Way::Direct => "direct",
            Way::Cached(name, _) => name,
        }
    }

    fn policy(&self) -> Option<String> {
        match &self.way {
            Way::Lowtide(_, policy) => Some(policy.to_string()),
            _ => None,
        }
    }

    /// Writes one file, regardless of the length of a turn.
    fn run(&mut self, _: Until) -> Result<Slice, BenchError> {
        let scratch =
            self.place.data_dir.scratch(&format!("fill-{}", self.label().replace(' ', "-")))?;
        let (path, source) = (scratch.path().to_owned(), self.place.source.path().to_owned());
        let Writer { file: bytes, durable, .. } = self.place.writer;
        let fill = Fill { path, source, bytes, durable };
        let failed =
            |error: AccessError| BenchError::Peer { peer: "direct", what: error.to_string() };
        let mut slice = match &mut self.way {
            Way::Lowtide(pager, _) => through_lowtide(pager, &fill)?,
            Way::Dd(dd) => dd.fill(&fill)?,
            Way::Direct => directly(&fill).map_err(failed)?,
            Way::Cached(_, filler) => filler.fill(&fill)?,
        };
        fill.prove(&mut slice)?;
        Ok(slice)
    }
}

/// Direct writes, one after the other.
fn directly(fill: &Fill) -> Result<Slice, AccessError> {
    let cpu = CpuTime::now_self();
    let mut file = fill.open(true)?;
    let slice = fill.write(
        &mut file,
        |file, offset, bytes| Ok(file.write_all_at(bytes, offset)?),
        |file| Ok(file.sync_data()?),
    )?;
    Ok(Slice {
        cpu_seconds: CpuTime::now_self().since(cpu).seconds(),
        write_bytes: fill.bytes,
        write_back: WriteBack { requests: Some(slice.ops), ..slice.write_back },
        ..slice
    })
}

/// Writes through a view that extends the file, while the dirty pages are counted.
fn through_lowtide(pager: &Pager, fill: &Fill) -> Result<Slice, BenchError> {
    // The run itself holds the locks of its files.
    let mut view = OpenOptions::new().write(true).lock(false).open(pager, &fill.path)?;
    let (before, cpu) = (pager.stat(), CpuTime::now_self());
    let (oom, dirty_bytes_at_end) = (Cell::new(0), Cell::new(0));
    let store = |view: &mut View, offset, bytes: &[u8]| {
        let done = view.write_at(offset, bytes);
        if matches!(done, Err(Error::OutOfBudget { .. })) {
            oom.set(oom.get() + 1);
        }
        Ok(done?)
    };
    let flush = |view: &mut View| {
        dirty_bytes_at_end.set(dirty_bytes(pager));
        Ok(view.flush()?)
    };
    let (written, dirty_max) = watched(pager, || fill.write(&mut view, store, flush));
    let mut slice =
        written.map_err(|error| BenchError::Peer { peer: "lowtide", what: error.to_string() })?;
    slice.cpu_seconds = CpuTime::now_self().since(cpu).seconds();
    count(&mut slice, &before, &pager.stat());
    slice.write_back.dirty_bytes = Some(dirty_bytes_at_end.get());
    slice.write_back.dirty_max_bytes = Some(dirty_max.max(dirty_bytes_at_end.get()));
    slice.write_back.oom = Some(oom.get());
    Ok(slice)
}

/// Does `work`, and returns the largest number of bytes that were dirty or under writeback.
fn watched<T>(pager: &Pager, work: impl FnOnce() -> T) -> (T, u64) {
    let (done, work_done) = channel::<()>();
    thread::scope(|scope| {
        let watch = scope.spawn(move || {
            let mut most = 0;
            while work_done.recv_timeout(SAMPLE) == Err(RecvTimeoutError::Timeout) {
                most = dirty_bytes(pager).max(most);
            }
            most
        });
        let result = work();
        drop(done);
        (result, watch.join().unwrap_or_default())
    })
}
