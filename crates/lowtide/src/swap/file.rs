//! The swap file of a pager: its requests end in time, and tests make them fail.
//!
//! A thread that makes room writes to the file, whatever it wanted, so a device that hangs would
//! stop all threads of a pager one after the other. So threads of the file's own make the requests
//! ([`Bounded`]), from memory of their own, and a write that has not ended within
//! [`PagerBuilder::io_timeout`](crate::PagerBuilder::io_timeout) is *left*: it has failed for the
//! thread that waits, and the slots that it may still write to are given to no page until it ends.
//! Until then the file takes no further write, so no other thread waits for that device.
//!
//! Reads are left likewise where there is a
//! [`read_timeout`](crate::PagerBuilder::read_timeout); without one a thread reads by itself.

use lowtide_io::{Bounded, Inject, InjectOp, Numbers, Request, carry_out};
use lowtide_swap::{AlignedBuffer, Backing as _, CreateError, PAGE_BYTES, SwapFile, UnlinkedFile};
use lowtide_sys::room::Own;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The name by which an injector knows the file.
const NAME: &str = "[swap]";
/// Threads that write, which are started with the file: none is when memory is short, perhaps while
/// a thread of the program has the lock of its allocator and waits for a page.
const WRITERS: usize = 4;
/// Threads that read, at most: as many as keep a device busy.
const READERS: usize = 64;
/// Buffers that are kept for the next requests.
const SPARE: usize = WRITERS;

/// How long requests of a swap file may take. [`Duration::MAX`] is forever.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// A write.
    pub(crate) write: Duration,
    /// A read.
    pub(crate) read: Duration,
}

/// What the slots are on: a file without a name, past an injector if there is one.
pub(crate) struct Backing {
    file: Arc<Watched>,
    limits: Limits,
    writes: Bounded,
    reads: Bounded,
    spare: Mutex<Vec<AlignedBuffer>>,
}

/// The file, and what watches its requests in tests.
struct Watched {
    file: Own<UnlinkedFile>,
    name: PathBuf,
    /// What decides about its requests, in tests, and numbers them with the pager's others.
    inject: Option<(Arc<dyn Inject>, Numbers)>,
}

/// Makes the swap file of a pager.
///
/// # Errors
/// [`CreateError`]
pub(crate) fn create(
    dir: &Path,
    slots: u64,
    limits: Limits,
    inject: Option<(Arc<dyn Inject>, Numbers)>,
) -> Result<Arc<SwapFile<Backing>>, CreateError> {
    let bytes = slots.saturating_mul(PAGE_BYTES as u64);
    let thread = |source| CreateError::Io { action: "open", dir: dir.to_owned(), source };
    let file = Own::try_make(|| UnlinkedFile::create(dir, bytes)).map_err(thread)??;
    let file = Arc::new(Watched { file, name: NAME.into(), inject });
    let now = if limits.write == Duration::MAX { 0 } else { WRITERS };
    let writes = Bounded::new("lowtide-swap", WRITERS, now);
    let reads = Bounded::new("lowtide-swap-in", READERS, 0);
    let backing = Backing { file, limits, writes, reads, spare: Mutex::default() };
    let slots = u32::try_from(slots).unwrap_or(u32::MAX);
    Ok(Arc::new(SwapFile::on(backing, slots)?))
}

impl Watched {
    /// Carries a request out, as the injector says. `Ok` with the result of `act`, or with
    /// `pretended` if it is not called.
    fn request(
        &self,
        op: InjectOp,
        (offset, len): (u64, u64),
        pretended: usize,
        act: impl FnOnce() -> io::Result<usize>,
    ) -> io::Result<usize> {
        let Some((inject, numbers)) = &self.inject else { return act() };
        let number = numbers.next();
        let mut done = pretended;
        let request = Request { op, path: &self.name, offset, len, number };
        carry_out(&**inject, &request, |_| {
            done = act()?;
            Ok(())
        })?;
        Ok(done)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let place = (offset, bytes.len() as u64);
        self.request(InjectOp::Write, place, bytes.len(), || {
            self.file.with(|file| file.write_at(bytes, offset))
        })
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let (place, len) = ((offset, bytes.len() as u64), bytes.len());
        self.request(InjectOp::Read, place, len, || {
            self.file.with(|file| file.read_at(bytes, offset))
        })
    }
}

impl Backing {
    /// Memory for a request, of at least `bytes`.
    fn buffer(&self, bytes: usize) -> AlignedBuffer {
        let mut spare = lowtide_pin::sync::lock(&self.spare);
        let fits = spare.iter().position(|buffer| buffer.len() >= bytes);
        fits.map(|at| spare.swap_remove(at)).unwrap_or_else(|| AlignedBuffer::new(bytes))
    }

    fn keep(&self, buffer: AlignedBuffer) {
        let mut spare = lowtide_pin::sync::lock(&self.spare);
        if spare.len() < SPARE {
            spare.push(buffer);
        }
    }
}

fn too_late(limit: Duration) -> io::Error {
    let text = format!("the device did not answer within {:.1} s", limit.as_secs_f64());
    io::Error::new(io::ErrorKind::TimedOut, text)
}

impl lowtide_swap::Backing for Backing {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let (limit, len) = (self.limits.write, bytes.len());
        if limit == Duration::MAX {
            return self.file.write_at(bytes, offset);
        }
        let mut buffer = self.buffer(len);
        buffer.bytes()[..len].copy_from_slice(bytes);
        let file = Arc::clone(&self.file);
        let written = self.writes.run(limit, move || {
            let written = file.write_at(&buffer.bytes()[..len], offset);
            (buffer, written)
        });
        let (buffer, written) = written.ok_or_else(|| too_late(limit))?;
        self.keep(buffer);
        written
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let (limit, len) = (self.limits.read, bytes.len());
        if limit == Duration::MAX {
            return self.file.read_at(bytes, offset);
        }
        let (mut buffer, file) = (self.buffer(len), Arc::clone(&self.file));
        let read = self.reads.run(limit, move || {
            let read = file.read_at(&mut buffer.bytes()[..len], offset);
            (buffer, read)
        });
        let (mut buffer, read) = read.ok_or_else(|| too_late(limit))?;
        bytes.copy_from_slice(&buffer.bytes()[..len]);
        self.keep(buffer);
        read
    }

    fn is_settled(&self) -> bool {
        self.writes.late() == 0
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let punched = self.file.request(InjectOp::Punch, (offset, bytes), 0, || {
            self.file.file.with(|file| file.punch(offset, bytes)).map(|()| 0)
        });
        punched.map(drop)
    }
}

impl fmt::Debug for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backing").field("file", &self.file.file).finish_non_exhaustive()
    }
}
