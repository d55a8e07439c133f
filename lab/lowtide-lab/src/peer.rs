//! `lowtide-lab peer-mmap`, an internal command: the process of a peer.
//!
//! It serves the requests of comparisons ([`lowtide_bench::peer`]), and those of experiments:
//! a heap in the kernel's memory, files that are written, and programs that read mappings. As
//! there, tables are made before the process is moved into its memory cgroup.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;

use lowtide_bench::access::{AccessError, DataAccess};
use lowtide_bench::error::BenchError;
use lowtide_bench::peer::child::{self, Peer};
use lowtide_bench::peer::mapping::{MappingAccess, Use};
use lowtide_bench::peer::protocol::{self, Reply};
use lowtide_bench::thread_pool::{ThreadPool, Until};
use lowtide_experiments::programs::heap::AnonZipf;
use lowtide_host::usage::CpuTime;
use lowtide_report::tally::Slice;
use serde::{Deserialize, Serialize};

use crate::bench::heap::{Counts, Plain, fill, players};
use crate::bench::mapped::Mapped;
use crate::bench::script::LabScript;
use crate::bench::write::Fill;

/// `anon-zipf`, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeapJob {
    /// Bytes of the heap.
    pub heap: u64,
    pub threads: u32,
    /// Operations that store, in percent.
    pub stores: u32,
    /// Seed of the choices.
    pub seed: u64,
}

impl From<HeapJob> for AnonZipf {
    /// Its sizes of time are those of a new one: a player on real memory has its own.
    fn from(job: HeapJob) -> Self {
        let HeapJob { heap, threads, stores, seed } = job;
        Self { heap, threads, stores, seed, ..Self::new(heap, 1.0) }
    }
}

/// A request of an experiment.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Prepare for a program with a heap without touching the heap.
    PrepareHeap {
        /// The program.
        job: HeapJob,
    },
    /// Fill the heap, and start the threads.
    FillHeap,
    /// Play a slice of the program with a heap.
    RunHeap { until: Until },
    /// Write a file from its start to its end.
    Fill {
        /// The file, and the source of its bytes.
        fill: Fill,
        /// Through a mapping instead of the descriptor.
        mapped: bool,
    },
    /// Read files through mappings.
    Mapped {
        /// What is read, and how.
        program: Mapped,
        /// With `MADV_RANDOM`.
        random: bool,
        /// How long.
        until: Until,
    },
}

/// Any request: the names of both kinds differ.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Any {
    /// Of an experiment.
    Own(Request),
    /// Of a comparison.
    Shared(protocol::Request),
}

/// Serves the bench on standard input and output until the bench closes them.
pub(crate) fn run() -> ExitCode {
    let (mut peer, mut own) = (Peer::<LabScript>::default(), Own::default());
    let served = child::serve(|request| match request {
        Any::Own(request) => own.answer(request),
        Any::Shared(request) => peer.answer(request),
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        // The bench has already received the error, if it still reads.
        Err(_) => ExitCode::FAILURE,
    }
}

/// What experiments have in the process.
#[derive(Default)]
struct Own {
    heap: Option<(AnonZipf, Counts)>,
    /// The threads of a program that reads mappings.
    mapped: Option<ThreadPool>,
    /// The threads of a program with a heap.
    workers: Option<ThreadPool>,
}

impl Own {
    fn answer(&mut self, request: Request) -> Result<Reply, String> {
        let text = |error: BenchError| error.to_string();
        match request {
            Request::PrepareHeap { job } => {
                self.heap = Some((job.into(), Counts::new(job.heap)));
                Ok(Reply::Done)
            }
            Request::FillHeap => {
                let (program, counts) = self.heap.take().ok_or("there is no program")?;
                let heap = Plain::new(program.heap);
                fill(&program, &heap)?;
                let players = players(&program, &heap, &counts);
                self.workers = Some(ThreadPool::start(players).map_err(|e| e.to_string())?);
                Ok(Reply::Done)
            }
            Request::RunHeap { until } => {
                slice_of(self.workers.as_mut().ok_or("there are no threads")?, until)
            }
            Request::Fill { fill, mapped } => {
                Ok(Reply::Played { slice: Box::new(fill_file(&fill, mapped)?) })
            }
            Request::Mapped { program, random, until } => {
                let pool = match &mut self.mapped {
                    Some(pool) => pool,
                    none => none.insert(program.start(program.kernels(random)).map_err(text)?),
                };
                slice_of(pool, until)
            }
        }
    }
}

impl Mapped {
    /// Maps a file as the kernel does.
    fn kernels(
        &self,
        random: bool,
    ) -> impl Fn(&Path) -> Result<MappingAccess, AccessError> + Clone + Send + 'static {
        let len = self.bytes() as usize;
        let how = Use { writes: false, shared: false, random };
        move |path: &Path| Ok(MappingAccess::open(path, len, how)?)
    }
}

/// A slice of threads that flush nothing.
fn slice_of(pool: &mut ThreadPool, until: Until) -> Result<Reply, String> {
    let slice = pool.slice(until).map_err(|error| error.to_string())?;
    Ok(Reply::Played { slice: Box::new(slice) })
}

/// Writes a whole file through the page cache, and makes it durable.
fn fill_file(fill: &Fill, mapped: bool) -> Result<Slice, String> {
    let cpu = CpuTime::now_self();
    let named = |error: AccessError| format!("cannot fill {}: {error}", fill.path.display());
    let mut slice = if mapped {
        fill.set_len().map_err(|error| named(error.into()))?;
        let how = Use { writes: true, shared: false, random: false };
        let len = usize::try_from(fill.bytes).map_err(|error| error.to_string())?;
        let mut access =
            MappingAccess::open(&fill.path, len, how).map_err(|error| named(error.into()))?;
        fill.write(&mut access, MappingAccess::store, MappingAccess::flush)
    } else {
        let mut file = fill.open(false).map_err(|error| named(error.into()))?;
        fill.write(
            &mut file,
            |file, offset, bytes| Ok(file.write_all_at(bytes, offset)?),
            |file| Ok(file.sync_data()?),
        )
    }
    .map_err(named)?;
    slice.cpu_seconds = CpuTime::now_self().since(cpu).seconds();
    Ok(slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_both_kinds_are_told_apart() {
        fn read(request: &impl Serialize) -> Any {
            serde_json::from_str(&serde_json::to_string(request).unwrap()).unwrap()
        }
        assert!(matches!(read(&Request::FillHeap), Any::Own(Request::FillHeap)));
        assert!(matches!(read(&protocol::Request::Open), Any::Shared(protocol::Request::Open)));
        let until = Until::Seconds(0.5);
        assert!(matches!(
            read(&protocol::Request::Run { until }),
            Any::Shared(protocol::Request::Run { until: Until::Seconds(s) }) if s == 0.5
        ));
    }
}
