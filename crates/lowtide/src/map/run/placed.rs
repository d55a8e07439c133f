//! `userfault` mode at addresses that the program chose: for mappings that it made itself.
//!
//! A [`Map`](crate::map::Map) has addresses of its own. A program that is not changed has mapped
//! the file already, and its pointer must not change. So a mirror can be *placed*: the caller maps
//! the mirror's memory where the program's mapping was, before any thread knows the address, and
//! from then on its faults are served here. Later the caller puts the mapping of the file back
//! ([`Placed::end`]); threads that read meanwhile see the same bytes before and after.
//!
//! A mirror shows the file as it is when a page comes in. So it may stand for a mapping only while
//! the file cannot change. The caller takes care of that, with a lease on the file for instance
//! (`F_SETLEASE` of `fcntl(2)`), and ends it before the file changes.

use crate::error::Error;
use crate::map::error::MapError;
use crate::map::mirror::{Mirror, Window};
use crate::map::mode::MapMode;
use crate::map::options::MapOptions;
use crate::map::serve::{serve, server_of};
use crate::map::server::{Served, Server};
use crate::map::space::{check_page_size, page_tables};
use crate::pager::Pager;
use lowtide_sys::memory::page_size;
use lowtide_sys::room::{bring, take};
use lowtide_sys::userfault::UserFault;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A mirror at addresses of the program. If it is dropped without [`Placed::end`], it is served
/// until the process ends.
#[derive(Debug)]
pub struct Placed {
    served: Arc<Served>,
    server: Arc<Server>,
    pager: Pager,
}

impl MapOptions {
    /// Serves the page faults at these addresses from now on, with the bytes of `file` from
    /// [`offset`](MapOptions::offset) on: the mode [`MapMode::Userfault`], for addresses of the
    /// program's own. System calls may use the memory, or this fails.
    ///
    /// # Errors
    /// [`MapError`] says what is wrong with the range or the file, or what the kernel refuses. On
    /// error the addresses are untouched.
    ///
    /// # Safety
    /// The addresses are a shared mapping of `memory` from its beginning on, for loads, which
    /// children do not inherit (`MADV_DONTFORK`). `memory` is a sparse memfd without pages, and
    /// nothing else uses it. No thread touches the addresses before this returns. From then on
    /// the file does not change, and the mapping stays as it is, until [`Placed::end`] is called.
    #[expect(unsafe_code, reason = "this process decides what the memory contains")]
    pub unsafe fn serve(
        &self,
        pager: &Pager,
        file: BorrowedFd<'_>,
        memory: File,
        addresses: Range<usize>,
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
        let window = Window::Placed(addresses);
        let memory = take(memory);
        let file = bring(file).map_err(MapError::kernel("dup(2)"))?;
        let mirror = Mirror::new(memory, window, faults, pagemap, rest, None);
        let served = serve(self, pager, (&file, None), (&server, mirror), &pages)?;
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
        self.served.await_threads();
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

    /// Faults that were served.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.served.faults.load(Relaxed)
    }

    /// The first page that could not be brought in, and why. Its touch was `SIGBUS`.
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        lowtide_pin::sync::lock(&self.served.error).clone()
    }
}
