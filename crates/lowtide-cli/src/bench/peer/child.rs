//! The mmap peer: a child process that plays slices on a mapping at its parent's request.
//!
//! It allocates as much as possible before it is moved into the memory cgroup (the trace, the table
//! of a replay's page seeds), so that the budget is used for the file's pages, as lowtide's is.

use std::io::{self, BufRead, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use lowtide_host::usage::CpuTime;
use lowtide_report::tally::Slice;
use lowtide_workload::heap::AnonZipf;

use super::mapping::{MappingAccess, Use};
use super::protocol::{Reply, Request, receive, send};
use crate::bench::access::{AccessError, DataAccess};
use crate::bench::error::BenchError;
use crate::bench::heap::{Counts, Plain, fill, players};
use crate::bench::mapped::Mapped;
use crate::bench::play::checkpoint::Checkpointer;
use crate::bench::play::job::{Job, Script};
use crate::bench::play::slice::Turn;
use crate::bench::thread_pool::{ThreadPool, Until};
use crate::bench::write::Fill;

/// Serves standard input until it ends.
///
/// # Errors
/// Those of the pipe to the bench.
pub fn serve() -> io::Result<()> {
    // The bench may be killed while this process is not reading.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    converse(&mut io::stdin().lock(), &mut io::stdout().lock())
}

fn converse(requests: &mut impl BufRead, replies: &mut impl Write) -> io::Result<()> {
    let mut peer = Peer::default();
    while let Some(request) = receive(requests)? {
        let reply = peer.answer(request).unwrap_or_else(|what| Reply::Failed { what });
        send(replies, &reply)?;
    }
    Ok(())
}

#[derive(Default)]
struct Peer {
    prepared: Option<Prepared>,
    heap: Option<(AnonZipf, Counts)>,
    playing: Option<Playing>,
    /// The threads of a program that reads mappings.
    mapped: Option<ThreadPool>,
    /// The threads of a program with a heap.
    workers: Option<ThreadPool>,
}

struct Prepared {
    job: Job,
    script: Script,
    path: PathBuf,
    random: bool,
}

struct Playing {
    access: MappingAccess,
    pool: ThreadPool,
    batch: u32,
    writes: bool,
    checkpointer: Option<Checkpointer>,
}

impl Peer {
    fn answer(&mut self, request: Request) -> Result<Reply, String> {
        let text = |error: BenchError| error.to_string();
        match request {
            Request::Prepare { job, path, random } => {
                let script = job.script(None).map_err(text)?;
                self.prepared = Some(Prepared { job: *job, script, path, random });
                Ok(Reply::Done)
            }
            Request::PrepareHeap { job } => {
                self.heap = Some((job.into(), Counts::new(job.heap)));
                Ok(Reply::Done)
            }
            Request::Map if self.heap.is_some() => {
                let (program, counts) = self.heap.take().ok_or("there is no program")?;
                let heap = Plain::new(program.heap);
                fill(&program, &heap)?;
                let players = players(&program, &heap, &counts);
                self.workers = Some(ThreadPool::start(players).map_err(|e| e.to_string())?);
                Ok(Reply::Done)
            }
            Request::Map => {
                let Prepared { job, script, path, random } =
                    self.prepared.take().ok_or("asked to map before it was prepared")?;
                let len = usize::try_from(job.data_bytes).map_err(|error| error.to_string())?;
                let how = Use { writes: job.writes, shared: job.threads > 1, random };
                let access = MappingAccess::open(&path, len, how)
                    .map_err(|error| format!("cannot map {}: {error}", path.display()))?;
                let pool = ThreadPool::start(job.players(&script, || access.clone()))
                    .map_err(|error| error.to_string())?;
                self.playing = Some(Playing {
                    access,
                    pool,
                    batch: job.batch,
                    writes: job.writes,
                    checkpointer: script.checkpointer().cloned(),
                });
                Ok(Reply::Done)
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
            Request::Run { until } if self.workers.is_some() => {
                slice_of(self.workers.as_mut().ok_or("there are no threads")?, until)
            }
            Request::Run { until } => {
                let playing = self.playing.as_mut().ok_or("asked to run before it was to map")?;
                Ok(Reply::Played { slice: Box::new(playing.run(until).map_err(text)?) })
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

impl Playing {
    fn run(&mut self, until: Until) -> Result<Slice, BenchError> {
        let cpu = CpuTime::now_self();
        let turn = Turn {
            until,
            batch: self.batch,
            writes: self.writes,
            checkpointer: self.checkpointer.as_ref(),
        };
        let mut slice = turn.play(&mut self.pool, &mut self.access, |_| ())?;
        slice.cpu_seconds = CpuTime::now_self().since(cpu).seconds();
        Ok(slice)
    }
}
