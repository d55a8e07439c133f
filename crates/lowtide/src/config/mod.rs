//! How a pager is built: the budget, the policy, the page, and how it may do I/O.

pub mod advanced;

use crate::swap::SwapOptions;
use crate::zcache::ZcacheSize;
use lowtide_core::{DirtyLimits, DirtyTimers, Policy, Size};
use lowtide_io::{Inject, IoEngine};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// Whether reads and writes go past the kernel's page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum IoMode {
    /// Direct where the file and the page size allow it, otherwise buffered.
    #[default]
    Auto,
    /// Direct, or the file cannot be opened.
    Direct,
    /// Through the page cache. Memory that the cache takes is not in the budget.
    Buffered,
}

/// A name that is no I/O mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no I/O mode is called \"{name}\": use auto, direct or buffered")]
#[non_exhaustive]
pub struct UnknownIoMode {
    /// The name that was given.
    pub name: String,
}

impl FromStr for IoMode {
    type Err = UnknownIoMode;

    fn from_str(text: &str) -> Result<Self, UnknownIoMode> {
        match text {
            "auto" => Ok(Self::Auto),
            "direct" => Ok(Self::Direct),
            "buffered" => Ok(Self::Buffered),
            _ => Err(UnknownIoMode { name: text.to_owned() }),
        }
    }
}

/// Smallest and largest base page in bytes.
pub(crate) const PAGE_BYTES: std::ops::RangeInclusive<usize> = 512..=65536;

/// Collects the choices for a [`Pager`](crate::Pager). Only the budget has no default.
///
/// ```
/// use lowtide::{Size, DirtyLimits, IoMode, Pager};
/// use std::time::Duration;
///
/// let pager = Pager::builder()
///     .max(Size::mib(64))                        // all the memory that pages may take
///     .policy("mglru".parse()?)                   // as Linux 7.3 decides
///     .base_page(4096)
///     .direct(IoMode::Auto)                       // past the kernel's page cache where possible
///     .dirty_limits(DirtyLimits::default())       // written early above 10 %, slowed towards 20 %
///     .memory_timeout(Duration::from_secs(2))           // then an operation without room fails
///     .build()?;
/// assert_eq!(pager.page_size(), 4096);
/// println!("{}", pager.report());                 // what was chosen, and why
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct PagerBuilder {
    pub(crate) max: Option<Size>,
    pub(crate) policy: Policy,
    pub(crate) page_bytes: usize,
    pub(crate) io_engine: IoEngine,
    pub(crate) io_mode: IoMode,
    pub(crate) depth: u32,
    pub(crate) background: bool,
    pub(crate) young_faults: bool,
    pub(crate) memory_timeout: Duration,
    pub(crate) io_timeout: Duration,
    pub(crate) read_timeout: Option<Duration>,
    pub(crate) dirty_limits: DirtyLimits,
    pub(crate) dirty_timers: DirtyTimers,
    pub(crate) warm: Option<PathBuf>,
    pub(crate) inject: Option<Arc<dyn Inject>>,
    pub(crate) populate: bool,
    pub(crate) swap: Option<SwapOptions>,
    pub(crate) zcache: ZcacheSize,
}

impl fmt::Debug for PagerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut it = f.debug_struct("PagerBuilder");
        it.field("max", &self.max)
            .field("policy", &self.policy)
            .field("page_bytes", &self.page_bytes);
        it.finish_non_exhaustive()
    }
}

impl Default for PagerBuilder {
    fn default() -> Self {
        Self {
            max: None,
            policy: Policy::MGLRU,
            page_bytes: 4096,
            io_engine: IoEngine::Auto,
            io_mode: IoMode::Auto,
            depth: 32,
            background: true,
            young_faults: false,
            memory_timeout: Duration::from_secs(10),
            io_timeout: Duration::from_secs(60),
            read_timeout: None,
            dirty_limits: DirtyLimits::default(),
            dirty_timers: DirtyTimers::default(),
            warm: None,
            inject: None,
            populate: false,
            swap: None,
            zcache: ZcacheSize::Measured,
        }
    }
}

impl PagerBuilder {
    /// A builder whose budget comes from the memory cgroup of this process, for a program in a
    /// container: seven eighths of the smallest limit there, `memory.max` or `memory.high`. The
    /// last eighth is for the program's own memory. `None` where nothing limits this process.
    ///
    /// Cost: reads some files of `/proc` and of the cgroup.
    ///
    /// ```
    /// use lowtide::{Pager, PagerBuilder, Size};
    ///
    /// let builder = PagerBuilder::from_cgroup();
    /// let pager = builder.unwrap_or_else(|| Pager::builder().max(Size::mib(256))).build()?;
    /// # Ok::<(), lowtide::BuildError>(())
    /// ```
    #[must_use]
    pub fn from_cgroup() -> Option<Self> {
        let limit = lowtide_sys::memcg::own_limit_or_high()?;
        Some(Self::default().max(lowtide_sys::memcg::part_for_pages(limit.bytes)))
    }

    /// The budget: memory for page frames, in use or in flight. Its addresses are reserved when the
    /// first frame needs memory (those of maps need none), its memory comes as pages do. The tables
    /// that describe the frames come on top and are reported by
    /// [`Pager::stat`](crate::Pager::stat).
    pub fn max(mut self, max: impl Into<Size>) -> Self {
        self.max = Some(max.into());
        self
    }

    /// Whether all memory of the budget is taken from the system when the pager is built, and
    /// registered with the kernel's rings. Default: no, memory comes with the pages that need it, 2
    /// MiB at a time, and goes back when the root's `max` is lowered.
    ///
    /// Populated, building fails with [`BuildError::Memory`](crate::BuildError::Memory) where there
    /// is too little, misses never wait for memory to be cleared, transfers need not pin their
    /// frames one by one, and nothing is given back before the pager goes. Otherwise a miss for
    /// which the system has no memory fails with [`Error::NoMemory`](crate::Error::NoMemory) where
    /// the kernel refuses it; a machine, or a memory cgroup, that is out of memory kills a process
    /// instead. A budget above the limit of the memory cgroup is refused in either case.
    pub fn populate(mut self, populate: bool) -> Self {
        self.populate = populate;
        self
    }

    /// Begins warm: where the list of pages in `path` is of files that have not changed since,
    /// their pages are read when they are opened, in the background and as far as there is room.
    /// When the pager ends it saves the list there, and
    /// [`Pager::save_warm`](crate::Pager::save_warm) does at any time;
    /// [`Pager::wait_warm`](crate::Pager::wait_warm) waits for the reading.
    ///
    /// Building never fails for it: a list that is missing is none, and for one that is damaged, or
    /// of other pages, [`Pager::warm_stat`](crate::Pager::warm_stat) has the reason.
    ///
    /// ```
    /// use lowtide::{Pager, Size};
    /// use std::time::Duration;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let (path, list) = (dir.path().join("data"), dir.path().join("data.warm"));
    /// # std::fs::write(&path, vec![1; 64 * 4096])?;
    /// let begin = || Pager::builder().max(Size::mib(8)).warm(&list).build();
    /// let pager = begin()?;
    /// pager.open(&path)?.get_many(&[3, 9, 27], |_, _| ())?;
    /// drop(pager);                                          // saves
    ///
    /// let pager = begin()?;                                 // another day
    /// let view = pager.open(&path)?;
    /// assert!(pager.wait_warm(Duration::from_secs(10)));
    /// assert_eq!(pager.warm_stat().read_pages, 3);
    /// # drop(view);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn warm(mut self, path: impl Into<PathBuf>) -> Self {
        self.warm = Some(path.into());
        self
    }

    /// The reclaim policy. Default: `mglru`.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Bytes of a base page: a power of two from 512 to 65536, 4096 by default. Small pages hold
    /// more of what is really used, large ones cost less to describe.
    pub fn base_page(mut self, bytes: usize) -> Self {
        self.page_bytes = bytes;
        self
    }

    /// How reads and writes that overlap are submitted. Default: io_uring where the kernel allows
    /// it. A miss by itself is a system call of its thread in either case.
    pub fn io_engine(mut self, engine: IoEngine) -> Self {
        self.io_engine = engine;
        self
    }

    /// Whether I/O goes past the kernel's page cache. Default: where possible.
    pub fn direct(mut self, mode: IoMode) -> Self {
        self.io_mode = mode;
        self
    }

    /// Whether background threads reclaim and write back ahead of need (default). Without them
    /// everything happens in the calling threads, in an order that depends only on the calls.
    pub fn background(mut self, background: bool) -> Self {
        self.background = background;
        self
    }

    /// How long an operation waits for a frame, for guards of other threads, or for reclaim that is
    /// using pages of a tenant that is to be [removed](crate::Tenant::remove), before it fails
    /// (default 10 s). Dropping a region waits at most as long for reclaim that is using its pages.
    /// [`Duration::MAX`] waits indefinitely.
    pub fn memory_timeout(mut self, timeout: Duration) -> Self {
        self.memory_timeout = timeout;
        self
    }

    /// How long a thread waits for dirty pages to be written and synced, and for a page that
    /// another thread reads or writes (default 60 s). Past it a flush or an access fails with
    /// [`Error::Timeout`](crate::Error::Timeout), and closing a file or the pager goes on without.
    /// [`Duration::MAX`] waits indefinitely. The pages stay dirty and are retried.
    ///
    /// It also bounds each write to the [swap](Self::swap) file by a thread that makes room: past
    /// it the pages stay in memory, and nothing more is written to swap until the device answers.
    ///
    /// It does not bound requests that the calling thread makes itself: the read of a miss, which
    /// [`read_timeout`](Self::read_timeout) bounds, [`View::set_len`](crate::View::set_len),
    /// [`View::punch`](crate::View::punch), the sync of a new file's name, and all writing of files
    /// in a pager without background threads; nor the holes that the background thread makes in the
    /// swap file. These take as long as the device takes.
    pub fn io_timeout(mut self, timeout: Duration) -> Self {
        self.io_timeout = timeout;
        self
    }

    /// How long a thread waits for pages to be read (default: as long as the device takes). Past
    /// it the call fails with [`Error::Timeout`](crate::Error::Timeout). A call for many pages
    /// fails when none of them has arrived for so long.
    ///
    /// The device may still write to the page's memory, so a late read keeps it: it counts as
    /// used, and cannot be evicted. Calls that want such a page wait for the same read, and fail,
    /// too. When the device answers, the page is there. Late reads of one device keep at most half
    /// of the budget: then misses on files there fail at once. Nothing is read ahead there
    /// while a read is late.
    ///
    /// A page of an anonymous region that is in the swap file fails with
    /// [`Error::SwapIn`](crate::Error::SwapIn), and stays there.
    ///
    /// A thread cannot leave a read that it makes itself. With a deadline, threads of the pager
    /// make all reads of views, up to [`depth`](advanced::PagerAdvanced::depth) of a call at a
    /// time, and each miss costs two switches of threads more (measured in `docs/measured.md`).
    /// Maps and heaps are not bounded: they wait.
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.read_timeout = Some(timeout);
        self
    }

    /// How much of the memory may be dirty: above `background` it is written in the background, and
    /// from half-way between that and `hard` on, writers are slowed down until they write as fast
    /// as the device does. Default: 10 % and 20 %. Tenants without limits of their own have the
    /// same shares of their own memory.
    ///
    /// One writer may exceed `hard` by the pages that it makes dirty between two checks: 32 when it
    /// begins, fewer where there is less room.
    pub fn dirty_limits(mut self, limits: DirtyLimits) -> Self {
        self.dirty_limits = limits;
        self
    }

    /// Whether clean pages of files that are evicted stay in memory compressed, where that pays.
    /// Default: yes.
    ///
    /// A page that is missed again is then decompressed instead of read: a microsecond or two
    /// instead of the device's time. How much of the budget compressed pages take, up to three
    /// quarters, is decided several times a second by measurement: how well pages compress, how
    /// soon they come back, what a read costs. Where pages do not compress, where they all fit, or
    /// where reads are cheap and processors are busy, it is nothing. `docs/compressed.md` has
    /// figures.
    ///
    /// Pages of [views](crate::View) are kept so, as long as they are not of large folios. Needs
    /// the feature `zstd` to be worth much; without it pages are compressed by lz4.
    /// [`Tenant::zcache_stat`](crate::Tenant::zcache_stat) says what it does.
    pub fn zcache(mut self, zcache: bool) -> Self {
        self.zcache = if zcache { ZcacheSize::Measured } else { ZcacheSize::None };
        self
    }

    /// Where anonymous pages ([`Tenant::region`](crate::Tenant::region)) go that are evicted.
    /// Default: nowhere, they stay in memory until they are discarded. Needs pages of 4096 bytes.
    pub fn swap(mut self, swap: SwapOptions) -> Self {
        self.swap = Some(swap);
        self
    }
}
