//! Opening files. A file is one [`Space`] of a pager, however often it is opened.
//!
//! All views of a file share its pages, so each sees at once what another wrote. They also share
//! the tenant that pays and the size of folios: the first open decides. There is one exception:
//! while no view may write the file, an open for another tenant or with other folios gets a space
//! of its own, so that readers of one file can have separate budgets. Read-only copies need no
//! coherence. While one exists the file cannot be opened for writing.
//!
//! Opening and the last steps of closing exclude each other ([`Pool::opening`]), for moments only:
//! while the lock of the file is held elsewhere, the open is repeated from the beginning, so that
//! it sees whatever has happened in between. An open of a file that is being closed either takes it
//! over, or finds it gone.

use super::backing::{Backing, Create, Descriptors, Held, Wanted};
use super::length::Length;
use super::{PAGES_MAX, SPACES_MAX, Space};
use crate::ahead::readahead::window_pages;
use crate::error::OpenError;
use crate::pager::Pager;
use crate::pool::{Pool, State};
use crate::tenant::{Tenant, TenantError};
use crate::view::{Open, View};
use crate::warm::reader::{opened, read};
use crate::zcache::{OfSpace, Zcache};
use lowtide_core::limits::MAX_ORDER;
use lowtide_core::{MemcgId, Size, SpaceId};
use lowtide_io::Deadline;
use lowtide_sys::tell;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Time between two attempts to get the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(2);
/// How far a file may grow beyond its size when it is opened.
const GROWTH: Size = Size::new(1 << 40);

/// How to open a file as a view. Reading is always allowed.
///
/// ```
/// use lowtide::{Size, OpenOptions, Pager};
///
/// # let dir = tempfile::tempdir()?;
/// # let (table, log) = (dir.path().join("table"), dir.path().join("log"));
/// let pager = Pager::builder().max(Size::mib(8)).build()?;
/// let index = pager.tenant("index").low(Size::mib(2)).create()?;
///
/// // A new file of 16 MiB, its memory paid for by one tenant.
/// let options = OpenOptions::new().create_with_len(16 << 20).tenant(&index);
/// let table = options.open(&pager, table)?;
/// assert_eq!(table.len(), 16 << 20);
///
/// // A log: every write is durable when `write_at` returns.
/// let log = OpenOptions::new().create_with_len(0).sync(true).open(&pager, log)?;
/// log.write_at(0, b"first entry")?;
///
/// // A temporary file, which has no name.
/// let spill = OpenOptions::new().write(true).open_file(&pager, tempfile::tempfile()?)?;
/// spill.write_at(0, b"sorted run")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    write: bool,
    create: Option<u64>,
    create_new: bool,
    pub(crate) order: u8,
    tenant: Option<Tenant>,
    lock: bool,
    sync: bool,
    growth: Size,
    stable: Option<bool>,
    read_ahead: Option<u64>,
    lock_timeout: Duration,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            write: false,
            create: None,
            create_new: false,
            order: 0,
            tenant: None,
            lock: true,
            sync: false,
            growth: GROWTH,
            stable: None,
            read_ahead: None,
            lock_timeout: Duration::from_secs(10),
        }
    }
}

impl OpenOptions {
    /// For reading, in folios of one base page.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the view may be written to.
    #[must_use]
    pub fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// Creates the file if it does not exist, and makes it at least `bytes` long; implies writing.
    /// An existing longer file keeps its length. The first flush makes its name durable, too.
    #[must_use]
    pub fn create_with_len(mut self, bytes: impl Into<Size>) -> Self {
        self.create = Some(bytes.into().bytes());
        self.write = true;
        self
    }

    /// Creates the file, `bytes` long; implies writing. If it exists the open fails with
    /// [`AlreadyExists`](std::io::ErrorKind::AlreadyExists), and of several opens that race one
    /// succeeds.
    #[must_use]
    pub fn create_new_with_len(mut self, bytes: impl Into<Size>) -> Self {
        self.create_new = true;
        self.create_with_len(bytes)
    }

    /// Charges the view's pages to a tenant. Without one they are charged to the root, which only
    /// the pager's own budget limits. Views of one file share its pages, and the tenant of the
    /// first open pays, unless all of them only read: then each tenant has pages of its own.
    #[must_use]
    pub fn tenant(mut self, tenant: &Tenant) -> Self {
        self.tenant = Some(tenant.clone());
        self
    }

    /// Whether to take the advisory lock on the file (`flock(2)`; default: yes): shared for
    /// reading, exclusive once the pager has it open for writing. Without it, two pagers or
    /// processes that write one file would each undo what the other wrote.
    #[must_use]
    pub fn lock(mut self, lock: bool) -> Self {
        self.lock = lock;
        self
    }

    /// How long to retry when the lock is held elsewhere (default: 10 s). The kernel keeps the lock
    /// of a process that was killed until the last of its writes has ended, which on a busy disk
    /// takes seconds: a program that is started again should not fail because of that. With zero
    /// there is one attempt.
    #[must_use]
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// Whether each [`write_at`](View::write_at) through this view returns only when its bytes are
    /// durable, as if [`flush_range`](View::flush_range) followed (default: no). As with `O_SYNC`,
    /// this is about written bytes: [`set_len`](View::set_len) and [`punch`](View::punch) are
    /// durable after the next flush, or the next `write_at` through such a view.
    #[must_use]
    pub fn sync(mut self, sync: bool) -> Self {
        self.sync = sync;
        self
    }

    /// How far the file may grow while it is open, beyond its size when it is opened, or the size
    /// that [`create_with_len`](Self::create_with_len) gives it (default: 1 TiB). For each page
    /// that it may have, four bytes of addresses are set aside; memory is taken for pages that it
    /// has. A file that is open already keeps the limit that it was opened with.
    #[must_use]
    pub fn growth(mut self, growth: impl Into<Size>) -> Self {
        self.growth = growth.into();
        self
    }

    /// Whether a store to a page that is being written to the file waits until the write has ended,
    /// so that the device reads bytes that do not change. Default: where the file system keeps
    /// checksums of its data (btrfs, ZFS, bcachefs) or the device's queue requires it
    /// (`stable_writes`). Elsewhere it costs such stores the time of a write, and its only benefit
    /// is that a sector that was being written when power failed is of one version.
    ///
    /// The first open for writing decides for the file; [`Pager::report`] shows the decision and
    /// its reason.
    #[must_use]
    pub fn stable_writes(mut self, stable: bool) -> Self {
        self.stable = Some(stable);
        self
    }

    /// How much may be read ahead at a time where the file is read in order: the largest window. 0
    /// reads nothing ahead. By default it is 8 MiB, and 0 in a pager without [background
    /// threads](crate::PagerBuilder::background), where the reader itself would have to read it. It
    /// is never more than a sixteenth of the pager's or the tenant's budget, and below four pages
    /// there is none.
    ///
    /// Each view, and each clone of it, notices by itself where it is read in order, in up to four
    /// places at a time: by guards, by [`read_at`](View::read_at), or by
    /// [`get_many`](View::get_many) with neighbours. Windows begin small and grow; they shrink
    /// where pages are evicted before they are used ([`IoStat`](crate::IoStat) counts them). Random
    /// access reads nothing ahead.
    #[must_use]
    pub fn read_ahead(mut self, window: impl Into<Size>) -> Self {
        self.read_ahead = Some(window.into().bytes());
        self
    }

    /// Opens the file.
    ///
    /// Never waits for a pipe or a terminal, which are no files with pages. While the lock is
    /// waited for, other files are opened and closed.
    ///
    /// # Errors
    /// [`OpenError`] says what is wrong with the file or with the options.
    pub fn open(&self, pager: &Pager, path: impl AsRef<Path>) -> Result<View, OpenError> {
        let path = path.as_ref();
        let create = match self.create {
            None => Create::No,
            Some(_) if self.create_new => Create::New,
            Some(_) => Create::IfAbsent,
        };
        self.open_with(pager, path, create, |wanted| Descriptors::open(path, wanted))
    }

    /// Opens the file of a descriptor: a [`File`](std::fs::File), a temporary one that has no name,
    /// or one that another process passed. The file is opened once more, so the descriptor's
    /// position, flags and locks stay separate: a `flock` on it keeps this pager out, too. The
    /// descriptor is closed.
    ///
    /// The descriptor only determines the file, and these options how it is used: a descriptor that
    /// only reads, or only writes, is as good as any, if this process may open the file so. Give
    /// away no more than you want to be used: with [`write(true)`](Self::write) a file is written
    /// whose descriptor was opened for reading. Where there is no `/proc` the descriptor is used as
    /// it is, and the open fails if it was opened for less.
    ///
    /// [`create_with_len`](Self::create_with_len) makes the file that long; it exists already.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_file(&self, pager: &Pager, file: impl Into<OwnedFd>) -> Result<View, OpenError> {
        let file: OwnedFd = file.into();
        let link = lowtide_sys::file::path_of(file.as_fd());
        let path = std::fs::read_link(&link).unwrap_or(link);
        let open = |wanted: &Wanted| Descriptors::of_file(&path, file, wanted);
        self.open_with(pager, &path, Create::No, open)
    }

    fn open_with(
        &self,
        pager: &Pager,
        path: &Path,
        create: Create,
        open: impl FnOnce(&Wanted) -> Result<Descriptors, OpenError>,
    ) -> Result<View, OpenError> {
        let pool = &pager.inner.pool;
        let group = match &self.tenant {
            Some(other) if !Arc::ptr_eq(&other.pager.inner, &pager.inner) => {
                return Err(tenant_error(path, TenantError::OtherPager));
            }
            Some(tenant) => tenant.id,
            None => MemcgId::ROOT,
        };
        let limit = (2 << 20).min(pool.budget_bytes() / 8).max(pool.page_bytes() as u64);
        let bytes =
            (pool.page_bytes() as u64).checked_shl(u32::from(self.order)).unwrap_or(u64::MAX);
        if self.order > MAX_ORDER || bytes > limit {
            return Err(OpenError::FolioOrder { bytes, limit });
        }
        let longest = PAGES_MAX << pool.page_shift;
        if let Some(bytes) = self.create.filter(|bytes| *bytes > longest) {
            // Before an empty file is made.
            return Err(OpenError::TooLarge { path: path.to_owned(), bytes, limit: longest });
        }
        let (mode, page_bytes) = (pool.io_mode, pool.page_bytes());
        let mut descriptors = open(&Wanted { write: self.write, create, mode, page_bytes })?;
        let name = descriptors.created.take();
        let space = self.space(pool, path, group, descriptors)?;
        // From here on the handle counts: dropping this closes it.
        let open = Open::new(pager.clone(), Arc::clone(&space));
        if let Some(name) = name {
            space.name_is_new(name);
            // So is its length, even if it has none.
            space.note_change();
        }
        if space.takes_notice_of_others()
            && let Err(error) = Length::of(pool, &space).forget_clean()
        {
            tell!(warn, path = %path.display(), %error, "the file was changed while its lock \
                was not held; some of its pages are old");
        }
        if let Some(bytes) = self.create
            && space.backing.is_regular()
            && space.len() < bytes
        {
            let grow = |source| OpenError::SetLen { path: path.to_owned(), bytes, source };
            Length::of(pool, &space).extend_to(bytes).map_err(grow)?;
        }
        if space.is_writable() {
            space.decide_stable(self.stable);
            pool.attach_device(&space)?;
        }
        opened(pool, &pager.inner.threads, &space, Box::new(read));
        let window = window_pages(pool, self.read_ahead);
        Ok(View::new(open, self.write, self.sync, window))
    }

    /// The space of the file, with one more handle: an existing one, or a new one. Waits for the
    /// file's lock.
    fn space(
        &self,
        pool: &Arc<Pool>,
        path: &Path,
        group: MemcgId,
        descriptors: Descriptors,
    ) -> Result<Arc<Space>, OpenError> {
        let deadline = Deadline::after(self.lock_timeout);
        let mut new = Some(descriptors);
        let mut reported = false;
        loop {
            if let Some(space) = self.try_space(pool, path, group, &mut new)? {
                return Ok(space);
            }
            if deadline.has_passed() {
                return Err(OpenError::Locked { path: path.to_owned(), waited: self.lock_timeout });
            }
            if !std::mem::replace(&mut reported, true) {
                let path = path.display();
                tell!(info, %path, "the file is locked elsewhere; waiting for its lock");
            }
            std::thread::sleep(LOCK_PAUSE);
        }
    }

    /// As [`Self::space`], without waiting: `None` if the lock is held elsewhere. `new` is there
    /// until it is used.
    fn try_space(
        &self,
        pool: &Arc<Pool>,
        path: &Path,
        group: MemcgId,
        new: &mut Option<Descriptors>,
    ) -> Result<Option<Arc<Space>>, OpenError> {
        let _one_at_a_time = lowtide_pin::sync::lock(&pool.opening);
        let Ok(state) = pool.lock_sound() else {
            return Err(OpenError::Poisoned { path: path.to_owned() });
        };
        if !state.engine.alive(group) {
            return Err(tenant_error(path, TenantError::Gone));
        }
        let Some(descriptors) = new.take() else { return Ok(None) };
        if let Some(space) = self.find(&state, path, group, &descriptors)? {
            // No thread closes it while `opening` is held.
            drop(state);
            let locked = match (self.lock, self.write) {
                (false, _) => true,
                (true, false) => space.backing.try_lock_shared(|| space.others_changed_it()),
                (true, true) => {
                    space.backing.try_lock_exclusive(&descriptors, || space.others_changed_it())
                }
            };
            if !locked {
                *new = Some(descriptors);
                return Ok(None);
            }
            space.add_handle();
            if self.write {
                space.backing.make_writable(descriptors);
            }
            return Ok(Some(space));
        }
        drop(state);
        let held = if self.lock { descriptors.try_lock(path, self.write) } else { Held::Nothing };
        if held == Held::Elsewhere {
            *new = Some(descriptors);
            return Ok(None);
        }
        let backing = Backing::new(path, descriptors, held);
        let len =
            backing.size().map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        let room = len.max(self.create.unwrap_or(0)).saturating_add(self.growth.bytes());
        // Before the lock, and dropped after it.
        let zcache = if self.order == 0 { Zcache::of(pool, group) } else { None };
        let mut state = pool.lock();
        if !state.engine.alive(group) {
            return Err(tenant_error(path, TenantError::Gone));
        }
        let id: SpaceId = state.engine.add_space(group);
        let made = if id.0 < SPACES_MAX {
            Space::new(id, backing, len, self.order, pool.page_shift, room)
        } else {
            Err(OpenError::TooMany { path: path.to_owned(), limit: SPACES_MAX })
        };
        let space = match made {
            Ok(mut space) => {
                space.zcache = zcache.map(|cache| OfSpace::new(cache, id));
                Arc::new(space)
            }
            Err(e) => {
                state.engine.remove_space(id);
                return Err(e);
            }
        };
        if let Some(name) = lowtide_pin::sync::lock(&pool.new_names).remove(&space.backing.key()) {
            space.name_is_new(name);
            space.note_change();
        }
        state.add_space(&space);
        Ok(Some(space))
    }

    /// The space that this open shares, if there is one.
    fn find(
        &self,
        state: &State,
        path: &Path,
        group: MemcgId,
        descriptors: &Descriptors,
    ) -> Result<Option<Arc<Space>>, OpenError> {
        let mut open = state.spaces_of(descriptors.key()).filter(|space| !space.is_closed());
        let copies = open.clone().count();
        let maps = open.clone().any(|space| space.mapped.is_some());
        let found = if self.write {
            if copies > 1 || maps {
                return Err(OpenError::Copies { path: path.to_owned(), copies });
            }
            open.next()
        } else {
            let as_wanted = |s: &&Arc<Space>| {
                s.order == self.order && state.engine.group_of_space(s.id) == group
            };
            open.find(|s| s.mapped.is_none() && (s.is_writable() || as_wanted(s)))
        };
        Ok(found.cloned())
    }
}

fn tenant_error(path: &Path, source: TenantError) -> OpenError {
    OpenError::Tenant { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pager_opens_no_more_files_than_it_can_number() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let pager = Pager::builder().max(Size::mib(1)).background(false).build().unwrap();
        let open = pager.open(file.path()).unwrap();
        let add = |count: u32| {
            let mut state = pager.inner.pool.lock();
            (0..count).map(|_| state.engine.add_space(MemcgId::ROOT)).last().unwrap()
        };
        let last = add(SPACES_MAX - 1);
        assert_eq!(last.0, SPACES_MAX - 1);
        let other = tempfile::NamedTempFile::new().unwrap();
        let error = pager.open(other.path()).unwrap_err();
        assert!(matches!(error, OpenError::TooMany { limit: SPACES_MAX, .. }), "{error}");
        assert!(pager.open(file.path()).is_ok(), "it is open");
        pager.inner.pool.lock().engine.remove_space(last);
        let view = pager.open(other.path()).unwrap();
        drop((view, open));
        pager.validate().unwrap();
    }
}
