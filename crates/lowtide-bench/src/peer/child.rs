//! A peer: a child process that plays slices on its file at its parent's request.
//!
//! It allocates as much as possible before it is moved into the memory cgroup (tables of the job's
//! script), so that the budget is used for the file's pages, as lowtide's is.

use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

use lowtide_host::usage::CpuTime;
use lowtide_report::tally::Slice;
use serde::de::DeserializeOwned;

use super::descriptor::DescriptorAccess;
use super::mapping::{MappingAccess, Use};
use super::protocol::{Reach, Reply, Request, receive, send};
use crate::access::DataAccess;
use crate::error::BenchError;
use crate::play::job::{Job, Script};
use crate::play::slice::Turn;
use crate::thread_pool::{ThreadPool, Until};

/// Serves standard input until it ends.
///
/// # Errors
/// Those of the pipe to the bench.
pub fn serve<R: DeserializeOwned>(
    answer: impl FnMut(R) -> Result<Reply, String>,
) -> io::Result<()> {
    // The bench may be killed while this process is not reading.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    converse(&mut io::stdin().lock(), &mut io::stdout().lock(), answer)
}

fn converse<R: DeserializeOwned>(
    requests: &mut impl BufRead,
    replies: &mut impl Write,
    mut answer: impl FnMut(R) -> Result<Reply, String>,
) -> io::Result<()> {
    while let Some(request) = receive(requests)? {
        let reply = answer(request).unwrap_or_else(|what| Reply::Failed { what });
        send(replies, &reply)?;
    }
    Ok(())
}

/// A peer that opens or maps a file and plays a job on it.
pub struct Peer<S> {
    prepared: Option<Prepared<S>>,
    playing: Option<Playing<S>>,
}

impl<S> Default for Peer<S> {
    fn default() -> Self {
        Self { prepared: None, playing: None }
    }
}

struct Prepared<S> {
    job: Job,
    script: S,
    path: PathBuf,
    reach: Reach,
}

/// What a peer reads its file through.
enum Reached {
    Mapping(MappingAccess),
    Descriptor(DescriptorAccess),
}

struct Playing<S> {
    access: Reached,
    pool: ThreadPool,
    batch: u32,
    writes: bool,
    script: S,
}

impl<S: Script> Peer<S> {
    /// Does what a request asks for.
    ///
    /// # Errors
    /// The reason why not, for the bench.
    pub fn answer(&mut self, request: Request) -> Result<Reply, String> {
        let text = |error: BenchError| error.to_string();
        match request {
            Request::Prepare { job, path, reach } => {
                let script = S::of(&job).map_err(text)?;
                self.prepared = Some(Prepared { job: *job, script, path, reach });
                Ok(Reply::Done)
            }
            Request::Open => {
                let Prepared { job, script, path, reach } =
                    self.prepared.take().ok_or("asked to open before it was prepared")?;
                let (access, pool) = open(&job, &script, &path, reach)?;
                self.playing =
                    Some(Playing { access, pool, batch: job.batch, writes: job.writes, script });
                Ok(Reply::Done)
            }
            Request::Run { until } => {
                let playing = self.playing.as_mut().ok_or("asked to run before it was to open")?;
                Ok(Reply::Played { slice: Box::new(playing.run(until).map_err(text)?) })
            }
        }
    }
}

/// Opens or maps the file of a job, and starts the job's threads.
fn open(
    job: &Job,
    script: &impl Script,
    path: &Path,
    reach: Reach,
) -> Result<(Reached, ThreadPool), String> {
    fn start<D: DataAccess + Clone>(
        job: &Job,
        script: &impl Script,
        access: &D,
    ) -> Result<ThreadPool, String> {
        ThreadPool::start(job.players(script, || access.clone())).map_err(|error| error.to_string())
    }
    let refused = |what: &str| {
        let what = format!("cannot {what} {}", path.display());
        move |error: io::Error| format!("{what}: {error}")
    };
    Ok(match reach {
        Reach::Mapping | Reach::RandomMapping => {
            let len = usize::try_from(job.data_bytes).map_err(|error| error.to_string())?;
            let random = reach == Reach::RandomMapping;
            let how = Use { writes: job.writes, shared: job.threads > 1, random };
            let access = MappingAccess::open(path, len, how).map_err(refused("map"))?;
            let pool = start(job, script, &access)?;
            (Reached::Mapping(access), pool)
        }
        Reach::Buffered | Reach::Direct => {
            let access = match reach {
                Reach::Direct => DescriptorAccess::direct(path),
                _ => DescriptorAccess::buffered(path),
            };
            let access = access.map_err(refused("open"))?;
            let pool = start(job, script, &access)?;
            (Reached::Descriptor(access), pool)
        }
    })
}

impl<S: Script> Playing<S> {
    fn run(&mut self, until: Until) -> Result<Slice, BenchError> {
        let cpu = CpuTime::now_self();
        let turn = Turn { until, batch: self.batch, writes: self.writes, script: &self.script };
        let mut slice = match &mut self.access {
            Reached::Mapping(access) => turn.play(&mut self.pool, access, |_| ())?,
            Reached::Descriptor(access) => turn.play(&mut self.pool, access, |_| ())?,
        };
        slice.cpu_seconds = CpuTime::now_self().since(cpu).seconds();
        Ok(slice)
    }
}
