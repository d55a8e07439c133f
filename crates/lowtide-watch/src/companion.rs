//! The process that exports the metrics of a program under `lowtide run`.
//!
//! `lowtide run` becomes the program by `execve(2)`, so what serves metrics is another process,
//! started before. It must not be a child that the program does not expect: `lowtide run` starts a
//! first process, which starts the second and ends, and waits for the first. The second has a
//! session of its own, its standard streams are `/dev/null`, and it ends when the program and all
//! that it started under lowtide have ended.
//!
//! The listener is opened by `lowtide run` itself, so a port that is in use is an error before the
//! program starts. It is passed on as standard input.

use crate::file::{self, FileError};
use crate::http::Server;
use crate::tree::Tree;
use lowtide_status::{Status, metrics};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, setsid};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// The time between two looks whether processes that a program left behind have ended.
const LOOK: Duration = Duration::from_secs(1);

/// How metrics are exported.
#[derive(Debug)]
pub struct Export {
    /// Requests come from here.
    pub listener: Option<TcpListener>,
    /// This file is written.
    pub file: Option<PathBuf>,
    /// The time between two writes of the file.
    pub interval: Duration,
}

/// What the companion is started for: the words after the name of the hidden command.
#[derive(Clone, Debug)]
pub struct Purpose {
    /// The program.
    pub pid: u32,
    /// When it started: its number may be another's by now.
    pub start: u64,
    /// Whether standard input is a listener.
    pub listens: bool,
    /// The file.
    pub file: Option<PathBuf>,
    /// Seconds between two writes.
    pub interval: u64,
    /// Whether this is the first of both processes.
    pub first: bool,
}

impl Purpose {
    fn command(&self, first: bool) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("lowtide").arg("export").args(["--pid", &self.pid.to_string()]);
        command.args(["--start", &self.start.to_string()]);
        command.args(["--interval", &self.interval.to_string()]);
        if self.listens {
            command.arg("--listens");
        }
        if let Some(file) = &self.file {
            command.arg("--file").arg(file);
        }
        if first {
            command.arg("--first");
        }
        command.stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
        command
    }
}

/// Starts the companion of this process, which is about to become a program.
///
/// # Errors
/// [`FileError`], if the file cannot be written; that no process can be started.
pub fn start(export: Export) -> Result<(), CompanionError> {
    if let Some(path) = &export.file {
        file::replace(path, &metrics::plain(Vec::new()))?;
    }
    let pid = std::process::id();
    let start = lowtide_status::start_ticks(pid).ok_or(CompanionError::NoProc)?;
    let purpose = Purpose {
        pid,
        start,
        listens: export.listener.is_some(),
        file: export.file,
        interval: export.interval.as_secs().max(1),
        first: true,
    };
    let mut first = purpose.command(true);
    first.stdin(export.listener.map_or_else(Stdio::null, |it| Stdio::from(OwnedFd::from(it))));
    match first.spawn().map_err(CompanionError::Start)?.wait() {
        Ok(status) if status.success() => Ok(()),
        // Where the caller ignores the end of children, there is nothing to wait for.
        Err(error) if error.raw_os_error() == Some(Errno::CHILD.raw_os_error()) => Ok(()),
        Ok(_) => Err(CompanionError::Start(io::Error::other("it failed"))),
        Err(error) => Err(CompanionError::Start(error)),
    }
}

/// Why metrics of a program cannot be exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompanionError {
    /// The file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// There is no `/proc`.
    #[error("/proc does not show this process, so its metrics cannot be exported")]
    NoProc,
    /// There is no process for it.
    #[error("cannot start the process that exports metrics: {0}")]
    Start(io::Error),
}

/// The work of the companion: of its first process, or of the one that stays.
///
/// # Errors
/// Those of starting the second process, and of serving.
pub fn run(purpose: &Purpose) -> io::Result<()> {
    if purpose.first {
        // What the caller has open is the program's: a pipe, or the lock of a supervisor.
        lowtide_sys::descriptors::close_on_exec(3)?;
        // It is not waited for: this process ends, and the second has another parent.
        return purpose.command(false).stdin(Stdio::inherit()).spawn().map(drop);
    }
    // It fails for the leader of a group, which this is not.
    let _ = setsid();
    let pid = i32::try_from(purpose.pid).ok().and_then(Pid::from_raw);
    let program = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    // If it has ended by now, its number may be another's.
    let lives = || lowtide_status::start_ticks(purpose.pid) == Some(purpose.start);
    let program = program.filter(|_| lives());
    let listener = if purpose.listens {
        Some(TcpListener::from(io::stdin().as_fd().try_clone_to_owned()?))
    } else {
        None
    };
    let interval = Duration::from_secs(purpose.interval);
    let export = Export { listener, file: purpose.file.clone(), interval };
    let tree = Arc::new(Tree::new(purpose.pid));
    let of_tree = Arc::clone(&tree);
    let mut exporter = Exporter::new(export, Arc::new(move || of_tree.pages()))?;
    if let Some(program) = program {
        while !exporter.turn(Duration::MAX, Some(&program))? {}
    }
    // What it left behind.
    while !tree.pages().is_empty() {
        exporter.turn(LOOK, None)?;
    }
    exporter.end();
    Ok(())
}

/// Exports, in turns.
pub struct Exporter {
    server: Option<Server>,
    pages: Arc<dyn Fn() -> Vec<Status> + Send + Sync>,
    file: Option<PathBuf>,
    interval: Duration,
    due: Instant,
}

impl Exporter {
    /// Exports what `pages` returns.
    ///
    /// # Errors
    /// Those of the listener.
    pub fn new(
        export: Export,
        pages: Arc<dyn Fn() -> Vec<Status> + Send + Sync>,
    ) -> io::Result<Self> {
        let Export { listener, file, interval } = export;
        let server = listener.map(|it| Server::new(it, Arc::clone(&pages))).transpose()?;
        Ok(Self { server, pages, file, interval, due: Instant::now() })
    }

    /// Serves and writes for some time, or until a process has ended, whose descriptor this is;
    /// whether it has.
    ///
    /// # Errors
    /// Those of waiting. A file that cannot be written just now is written the next time.
    pub fn turn(&mut self, time: Duration, process: Option<&OwnedFd>) -> io::Result<bool> {
        let mut time = time.min(Duration::from_secs(3600));
        if let Some(file) = &self.file {
            if Instant::now() >= self.due {
                let _ = self.write(file);
                self.due = Instant::now() + self.interval;
            }
            time = time.min(self.due.saturating_duration_since(Instant::now()));
        }
        match &self.server {
            Some(server) => server.serve(time, process.map(|it| it as &dyn crate::http::AsFdRef)),
            None => wait(time, process),
        }
    }

    /// Writes the file.
    ///
    /// # Errors
    /// [`FileError`].
    fn write(&self, file: &Path) -> Result<(), FileError> {
        file::replace(file, &metrics::plain((self.pages)()))
    }

    /// There is nothing to export any more: the file goes, so its figures are not taken for new.
    pub fn end(&self) {
        if let Some(file) = &self.file {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Waits for the end of a process; whether it has ended.
fn wait(time: Duration, process: Option<&OwnedFd>) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let Some(process) = process else {
        thread::sleep(time);
        return Ok(false);
    };
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    let timeout = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    match poll(&mut polled, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(!polled[0].revents().is_empty()),
        Err(errno) => Err(errno.into()),
    }
}
