//! `userfault` mode at addresses that the program chose: for mappings that it made itself.
//!
//! A [`Map`](crate::map::Map) has addresses of its own. A program that is not changed has mapped
//! the file already, and its pointer must not change. So a mirror can be *placed*: its memory is
//! mapped [`Aside`], where its faults are served already, and the caller moves it to where the
//! program's mapping is ([`Cover`](super::Cover)). Later the caller puts the mapping of the file
//! back ([`Placed::end`]). Threads that read meanwhile see the same bytes before and after.
//!
//! A mirror shows the file as it is when a page comes in. So it may stand for a mapping only while
//! the file cannot change. The caller takes care of that, with a lease on the file for instance
//! (`F_SETLEASE` of `fcntl(2)`), and ends it before the file changes.

use super::manner::Manner;
use crate::error::Error;
use crate::map::error::MapError;
use crate::map::mirror::{Mirror, Window};
use crate::map::mode::MapMode;
use crate::map::options::MapOptions;
use crate::map::serve::{serve, server_of};
use crate::map::server::{Served, Server};
use crate::map::space::{check_page_size, page_tables};
use crate::map::sweep::drop_at_once;
use crate::pager::Pager;
use lowtide_sys::memory::page_size;
use lowtide_sys::page_cache;
use lowtide_sys::room::{bring, take};
use lowtide_sys::shared::memfd;
use lowtide_sys::userfault::UserFault;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;

/// A mirror at addresses of the program. If it is dropped without [`Placed::end`], it is served
/// until the process ends. Otherwise that waits a moment for the threads that serve it, after which
/// nothing is charged for it.
#[derive(Debug)]
pub struct Placed {
    served: Arc<Served>,
    server: Arc<Server>,
    pager: Pager,
}

/// The memory of a mirror where no thread of the program knows it: mapped for loads, not inherited
/// by children, and unmapped if it is dropped.
#[derive(Debug)]
pub struct Aside {
    at: usize,
    len: usize,
    goes_to: usize,
}

impl Aside {
    /// Maps it. The calls are made as such, as those of [`Cover`](super::Cover).
    #[expect(unsafe_code, reason = "memory of its own is mapped")]
    fn map(memory: BorrowedFd<'_>, goes_to: &Range<usize>) -> io::Result<Self> {
        // Whole words: of a shorter argument on the stack the rest is not defined.
        let [prot, flags, fd, offset] =
            [libc::PROT_READ, libc::MAP_SHARED, memory.as_raw_fd(), 0].map(libc::c_long::from);
        let (none, len) = (ptr::null_mut::<libc::c_void>(), goes_to.len());
        // SAFETY: new memory, where nothing is.
        let at = unsafe { libc::syscall(libc::SYS_mmap, none, len, prot, flags, fd, offset) };
        if at == -1 {
            return Err(io::Error::last_os_error());
        }
        let aside = Self { at: at as usize, len, goes_to: goes_to.start };
        page_cache::dont_fork(aside.addresses())?;
        Ok(aside)
    }

    pub(super) const fn addresses(&self) -> Range<usize> {
        self.at..self.at + self.len
    }

    pub(super) const fn goes_to(&self) -> usize {
        self.goes_to
    }

    /// It is at its place, and nothing here any more.
    pub(super) fn note_put(mut self) {
        self.len = 0;
    }
}

impl Drop for Aside {
    #[expect(unsafe_code, reason = "memory of its own is unmapped")]
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: mapped by this, and known to no thread.
            unsafe { libc::syscall(libc::SYS_munmap, self.at as *mut libc::c_void, self.len) };
        }
    }
}

impl MapOptions {
    /// Serves the page faults at these addresses from now on, with the bytes of `file` from
    /// [`offset`](MapOptions::offset) on: the mode [`MapMode::Userfault`], for addresses of the
    /// program's own. System calls may use the memory, or this fails. `put` moves the mirror there
    /// ([`Cover::put`](super::Cover::put)).
    ///
    /// # Errors
    /// [`MapError`] says what is wrong with the range or the file, or what the kernel refuses; or
    /// the error of `put`. On error the addresses are untouched.
    ///
    /// # Safety
    /// The addresses are a mapping of these pages of the file, for loads. When `put` returns, they
    /// are the mirror's, or it fails. From then on the file does not change, and the mirror stays
    /// there, until [`Placed::end`] is called.
    #[expect(unsafe_code, reason = "this process decides what the memory contains")]
    pub unsafe fn serve(
        &self,
        pager: &Pager,
        file: BorrowedFd<'_>,
        addresses: Range<usize>,
        put: impl FnOnce(Aside) -> Result<(), MapError>,
    ) -> Result<Placed, MapError> {
        let pool = &pager.inner.pool;
        check_page_size(pool)?;
        let page = page_size();
        let is_whole = addresses.start.is_multiple_of(page) && addresses.end.is_multiple_of(page);
        if !is_whole || addresses.is_empty() || !self.offset.is_multiple_of(page as u64) {
            let (len, why) = (addresses.len() as u64, "a mapping has whole pages, at least one");
            return Err(MapError::Range { offset: self.offset, len, why });
        }
        let server = server_of(pager)?;
        if server.faults().fact(UserFault::user_mode_only) {
            let why = "a system call on a page that is not in memory would fail with EFAULT: the \
                       kernel serves only faults of user code here (`sysctl \
                       vm.unprivileged_userfaultfd=1`, or a right to open /dev/userfaultfd)";
            return Err(MapError::Mode { mode: MapMode::Userfault, why: why.to_owned() });
        }
        let first = self.offset >> pool.page_shift;
        let pages = first..first + (addresses.len() >> pool.page_shift) as u64;
        let faults = Arc::clone(server.faults());
        let pagemap = page_tables(pool, MapMode::Userfault)?;
        let rest = (pool.page_shift, first, pool.young_faults);
        let memory = memfd("lowtide", addresses.len() as u64);
        let memory = memory.map_err(MapError::kernel("memfd_create(2)"))?;
        let aside = Aside::map(memory.as_fd(), &addresses).map_err(MapError::kernel("mmap(2)"))?;
        let (memory, window) = (take(memory), Window::Placed(addresses, aside.at));
        let file = bring(file).map_err(MapError::kernel("dup(2)"))?;
        let mirror = Mirror::new(memory, window, faults, pagemap, rest, None);
        let served = serve(self, pager, (&file, None), (&server, mirror), &pages)?;
        let is_put = put(aside);
        served.mirror.arrive(is_put.is_ok());
        if let Err(error) = is_put {
            server.remove(&served);
            return Err(error);
        }
        // What was mapped there could not be dropped before.
        drop_at_once(&served.space);
        Ok(Placed { served, server, pager: pager.clone() })
    }
}

impl Placed {
    /// Ends it. `replace` puts other memory at the addresses, in one step: the mapping of the file,
    /// or something that no thread can read. Threads that wait for a page there look again. While
    /// `replace` runs no thread of the pager touches the addresses, and none does so afterwards.
    ///
    /// # Errors
    /// The error of `replace`; all is as before.
    pub fn end(&self, replace: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.served.mirror.detach_and(replace)?;
        self.server.remove(&self.served);
        Ok(())
    }

    /// The program's addresses.
    #[must_use]
    pub fn addresses(&self) -> Range<usize> {
        self.served.mirror.addresses()
    }

    /// Says whether pages will be read at random: then nothing is read ahead from now on.
    /// Otherwise what is read in order is.
    pub fn advise(&self, random: bool) {
        if random {
            self.served.ahead.pause();
        } else {
            self.served.ahead.resume();
        }
    }

    /// The pages at these addresses are soon wanted: they are read in the background, as far as
    /// there is room.
    pub fn will_need(&self, addresses: Range<usize>) {
        let mirror = &self.served.mirror;
        let own = mirror.addresses();
        let start = addresses.start.max(own.start);
        let end = addresses.end.min(own.end);
        if start < end {
            let pages = mirror.page_at(start)..mirror.page_at(end - 1) + 1;
            self.pager.inner.threads.read_ahead(&self.served.space, pages);
        }
    }

    /// Bytes of memory that its pages take, as the kernel counts them.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.served.mirror.memory_bytes()
    }

    /// How many of its pages came in so far, and in which manner.
    #[must_use]
    pub fn manner(&self) -> Manner {
        self.served.came.now()
    }

    /// The first page that could not be brought in, and why. Its touch was `SIGBUS`.
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        lowtide_pin::sync::lock(&self.served.error).clone()
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        if self.served.mirror.is_detached() {
            self.served.await_threads();
        }
    }
}
