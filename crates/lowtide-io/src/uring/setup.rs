//! What this kernel accepts, found out once; and making rings accordingly.
//!
//! Flags are tried from the best to none, because an older kernel refuses those it does not know
//! with `EINVAL`:
//!
//! | since | flags | what they save |
//! |---|---|---|
//! | 6.1 | `SINGLE_ISSUER`, `DEFER_TASKRUN`, `TASKRUN_FLAG` | completions come in bulk, on demand |
//! | 5.19 | `COOP_TASKRUN`, `TASKRUN_FLAG` | no interrupt of the thread for a completion |
//! | 5.1 | none | |
//!
//! The arena is registered with a *donor* ring and cloned into every other (Linux 6.12), so that
//! its pages are pinned and counted once. Before that, a small arena is registered with every ring
//! and a larger one with none: the transfers then pin their pages one by one, which costs a little
//! time and nothing else.
//!
//! # Safety
//!
//! This file opts in to unsafe code to register the arena, whose maker promised that it stays in
//! place while the backend exists (see `Arena::new`), and to stage one no-op.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::{Builder, IoUring, Probe, opcode};

use lowtide_sys::room::Own;

use super::super::request::Arena;
use super::ring::Ring;

/// The largest arena that is registered with each ring where rings cannot share: 64 MiB.
const REGISTER_EACH_MAX: usize = 64 << 20;

/// The most entries of a ring.
const ENTRIES_MAX: u32 = 4096;

/// Why io_uring cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{step} failed: {source}")]
pub struct Refusal {
    /// The step that failed.
    pub step: &'static str,
    /// The kernel's answer.
    pub source: io::Error,
}

impl Refusal {
    fn at(step: &'static str) -> impl FnOnce(io::Error) -> Refusal {
        move |source| Refusal { step, source }
    }
}

/// How completions are processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskWork {
    Deferred,
    Cooperative,
    Interrupting,
}

impl TaskWork {
    const BEST_FIRST: [TaskWork; 3] =
        [TaskWork::Deferred, TaskWork::Cooperative, TaskWork::Interrupting];

    fn builder(self) -> Builder {
        let mut builder = IoUring::builder();
        // A child would share the queues of its parent.
        builder.dontfork();
        match self {
            TaskWork::Deferred => {
                builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
            }
            TaskWork::Cooperative => {
                builder.setup_coop_taskrun().setup_taskrun_flag();
            }
            TaskWork::Interrupting => {}
        }
        builder
    }
}

/// How rings learn about the arena.
enum Registration {
    /// Not at all, and why.
    None(String),
    /// From the donor, which is kept open for that; in the table of the thread that opened it.
    Cloned { donor: Own<Box<IoUring>>, arena: Arena },
    /// Each by itself.
    Each { arena: Arena },
}

/// Makes rings for one backend.
pub(super) struct Setup {
    entries: u32,
    task_work: TaskWork,
    registration: Registration,
    /// One reference for each open ring, and this one.
    open: Arc<()>,
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Setup").field(&self.describe()).finish()
    }
}

impl Setup {
    /// Opens rings until one works, has a no-op carried out, and registers the arena if that is
    /// possible.
    pub(super) fn probe(depth: u32, arena: Option<Arena>) -> Result<Setup, Refusal> {
        let entries = depth.clamp(1, ENTRIES_MAX).next_power_of_two();
        let (task_work, mut ring) = Self::first_accepted(entries)?;
        Self::check_operations(&ring)?;
        Self::check_round_trip(&mut ring)?;
        let registration = match arena {
            Some(arena) => Self::register(arena, &ring),
            None => Registration::None(
                "its memory comes as pages do; a populated pager registers it".to_owned(),
            ),
        };
        Ok(Setup { entries, task_work, registration, open: Arc::new(()) })
    }

    fn first_accepted(entries: u32) -> Result<(TaskWork, IoUring), Refusal> {
        let mut refused = io::Error::from_raw_os_error(libc::EINVAL);
        for task_work in TaskWork::BEST_FIRST {
            match task_work.builder().build(entries) {
                Ok(ring) => return Ok((task_work, ring)),
                Err(error) => {
                    let unknown_flag = error.raw_os_error() == Some(libc::EINVAL);
                    refused = error;
                    if !unknown_flag {
                        break;
                    }
                }
            }
        }
        Err(Refusal { step: "io_uring_setup", source: refused })
    }

    /// Plain reads are younger (Linux 5.6) than io_uring.
    fn check_operations(ring: &IoUring) -> Result<(), Refusal> {
        let step = "looking for the read and write operations of io_uring (Linux 5.6)";
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe).map_err(Refusal::at(step))?;
        let needed = [
            opcode::Read::CODE,
            opcode::ReadFixed::CODE,
            opcode::Readv::CODE,
            opcode::Writev::CODE,
            opcode::Fsync::CODE,
        ];
        if needed.iter().all(|&code| probe.is_supported(code)) {
            Ok(())
        } else {
            Err(Refusal { step, source: io::Error::from_raw_os_error(libc::EOPNOTSUPP) })
        }
    }

    /// A sandbox may allow `io_uring_setup` and forbid `io_uring_enter`.
    fn check_round_trip(ring: &mut IoUring) -> Result<(), Refusal> {
        let no_op = opcode::Nop::new().build();
        // SAFETY: a no-op names no memory.
        let staged = unsafe { ring.submission().push(&no_op) };
        debug_assert!(staged.is_ok(), "a new ring has room");
        loop {
            match ring.submit_and_wait(1) {
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => return Err(Refusal { step: "io_uring_enter", source: error }),
                Ok(_) => {}
            }
            if ring.completion().next().is_some() {
                return Ok(());
            }
        }
    }

    /// Registers the arena in the best way that works. `trial` is a ring to try cloning with.
    fn register(arena: Arena, trial: &IoUring) -> Registration {
        let donor = match IoUring::new(1) {
            Ok(donor) => donor,
            Err(error) => {
                return Registration::None(format!("a ring to hold it was refused: {error}"));
            }
        };
        // SAFETY: the maker of the arena promised that it stays mapped to the same pages while the
        // backend exists, and the backend closes every ring before it goes.
        if let Err(error) = unsafe { donor.submitter().register_buffers(&arena.pieces()) } {
            return Registration::None(match error.raw_os_error() {
                Some(libc::ENOMEM) => {
                    "RLIMIT_MEMLOCK is too small for it: raise `ulimit -l`, or grant \
                                       CAP_IPC_LOCK"
                        .to_owned()
                }
                _ => format!("the kernel refused: {error}"),
            });
        }
        match trial.submitter().register_buffers_clone(donor.as_raw_fd()) {
            Ok(()) => Registration::Cloned { donor: Own::of_this_side(Box::new(donor)), arena },
            Err(_) if arena.bytes() <= REGISTER_EACH_MAX => Registration::Each { arena },
            Err(error) => {
                Registration::None(format!("rings cannot share it before Linux 6.12: {error}"))
            }
        }
    }

    /// Opens a ring for the calling thread.
    ///
    /// # Errors
    ///
    /// When the system has no more descriptors or memory for rings. A registration that fails is
    /// none: the ring then works without.
    pub(super) fn open_ring(&self) -> io::Result<Ring> {
        let ring = self.task_work.builder().build(self.entries)?;
        let registered = match &self.registration {
            Registration::None(_) => None,
            Registration::Cloned { donor, arena } => donor.here().and_then(|donor| {
                ring.submitter().register_buffers_clone(donor.as_raw_fd()).ok().map(|()| *arena)
            }),
            Registration::Each { arena } => {
                // SAFETY: as for the donor.
                let registered = unsafe { ring.submitter().register_buffers(&arena.pieces()) };
                registered.ok().map(|()| *arena)
            }
        };
        Ok(Ring::new(ring, registered, Arc::clone(&self.open)))
    }

    /// What was accepted, in words.
    pub(super) fn describe(&self) -> String {
        let task_work = match self.task_work {
            TaskWork::Deferred => "deferred task work",
            TaskWork::Cooperative => "cooperative task work",
            TaskWork::Interrupting => "no flags",
        };
        let memory = match &self.registration {
            Registration::None(why) => format!("arena not registered ({why})"),
            Registration::Cloned { arena, .. } => {
                format!(
                    "arena of {} MiB registered once and shared by all rings",
                    arena.bytes() >> 20
                )
            }
            Registration::Each { arena } => {
                format!("arena of {} MiB registered with each ring", arena.bytes() >> 20)
            }
        };
        format!("one ring of {} entries for each thread, {task_work}, {memory}", self.entries)
    }

    /// Counts open rings: as many strong references, and one more while the backend lives.
    #[cfg(test)]
    pub(super) fn rings(&self) -> std::sync::Weak<()> {
        Arc::downgrade(&self.open)
    }
}
