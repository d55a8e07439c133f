//! # lowtide
//!
//! Read and write files that are bigger than the memory you want to spend on them, on a stock Linux
//! kernel, without root: pages of your files live in a fixed budget of memory, and Linux's newest
//! page reclaim, rebuilt in user space, decides which stay.
//!
//! ```
//! use lowtide::{Size, OpenOptions, Pager};
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("data");
//! let pager = Pager::builder().max(Size::mib(8)).policy("mglru".parse()?).build()?;
//! let view = OpenOptions::new().create_with_len(64 << 20).open(&pager, &path)?;
//! view.write_at(5_000_000, b"hello")?;
//! view.flush()?;
//!
//! let page = view.page(5_000_000 / 4096)?;             // a guard: the page stays while it lives
//! assert_eq!(&page[5_000_000 % 4096..][..5], b"hello");
//! drop(page);
//! view.get_many(&[1, 2, 3], |i, bytes| assert_eq!((i < 3, bytes.len()), (true, 4096)))?;
//! println!("{}", pager.stat());                        // as memory.stat
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Pager`] is one budget, and [`Tenant`]s are budgets within it. A [`View`] is an open file
//! under one of them. Reading gives a guard, [`Page`]; a hit costs about as much as a pointer into
//! a memory map, a miss one read of the device and no more, however many threads want the page.
//!
//! A [`Region`] is memory without a file that may be larger than its budget: pages that are
//! not used are compressed ([`SwapOptions`]).
//!
//! The [`guide`] says how large a budget should be, and what threads, async code, `fork` and
//! signals need to know.
//!
//! ## What is on disk
//!
//! | after | bytes that were flushed | other bytes that were stored |
//! |---|---|---|
//! | [`View::flush`], [`View::close`] returned `Ok` | there, always | note 1 |
//! | [`View::flush_range`] returned `Ok` | there | in the range: note 1; elsewhere: perhaps |
//! | [`View::write_at`] with [`OpenOptions::sync`] returned `Ok` | there | its own: there |
//! | the last [`View`] of a file is dropped | there | note 2 |
//! | [`Pager::close`], or the last pager and view dropped | there | note 3 |
//! | a panic in the caller's closure that unwinds | there | as after the drops; whole pages |
//! | a panic that aborts, SIGTERM (no handler), SIGKILL, `exit` without drops | there | note 4 |
//! | power is cut | there, but see below | any mixture |
//!
//! 1. Stored before the call: there, even if power fails. Stored during it: perhaps.
//! 2. Written and synced before drop returns. If the device fails, or takes longer than the
//!    deadline, they stay in memory and are tried again until the pager goes.
//! 3. Written and synced, or lost and named by the error (dropped: by the log).
//! 4. Written some seconds ago: the device or the kernel has them, and they are safe unless power
//!    fails. Others: lost. Pages that were being written: any mixture.
//!
//! **Any mixture** means: each byte of a page that was being written at that moment, or since the
//! last flush, is as it was in some version of the page since then, and it is undefined which bytes
//! are of which version. A store may change a page while the device reads it, so even a sector may
//! be a part of one version and a part of another; where stores wait for the write
//! ([`OpenOptions::stable_writes`]) each sector is of one version. Bytes that were flushed and not
//! stored to since are in all versions, so they are there. Bytes that were flushed and have been
//! stored to since are as they were flushed, or as they were stored later.
//!
//! lowtide installs no signal handler. A program that wants its data after SIGTERM handles the
//! signal and drops its pagers.
//!
//! ## Reading in order
//!
//! Where a file is read in order, pages are read ahead in windows that grow up to 8 MiB, in the
//! background ([`OpenOptions::read_ahead`]). It makes no difference how it is read: page by page
//! with [`View::page`], in ranges with [`View::read_at`], or in lists of neighbours with
//! [`View::get_many`]. Read-ahead notices order by itself, and random access reads nothing ahead.
//! Pages that were read ahead make room before pages that are used again and again do.
//!
//! A call for many pages reads absent neighbours together, up to 512 KiB in one transfer, and has
//! several transfers in flight. So one `read_at` of 1 MiB at a random place is many times faster
//! than 256 of 4 KiB, and `get_many` of a sorted list is faster than of the same list in another
//! order. [`View::prefetch`] is for accesses that a program knows of and no stream shows. Whether
//! read-ahead is worth its reads is in [`Stat::io`](Stat): pages read ahead, used, and wasted.
//!
//! ## When writing fails
//!
//! A page whose write failed stays dirty, and is tried again with growing pauses until it is
//! written or [reverted](View::revert). Meanwhile it takes a part of the budget, and has no other
//! effect. Every handle that writes gets each incident once. A flush that could not make its own
//! range durable never returns `Ok`.
//!
//! ## Features
//!
//! None is on by default; without them the crate is Rust only.
//!
//! | feature | adds | costs |
//! |---|---|---|
//! | `alloc` | `lowtide::alloc`: an arena for collections that take an allocator | two crates |
//! | `run` | `map::run`: memory that a program mapped itself; for hosts, not stable | nothing |
//! | `status` | `Pager::publish_status`: what `lowtide top` and `stat` read | JSON, a thread |
//! | `zstd` | pages that stay cold in swap are compressed again | a C compiler |
//! | `instruments` | `lowtide::instruments`: failing devices, counters; not stable | nothing |
//!
//! ## Inside
//!
//! Everything that decides about pages is in the crate `lowtide-core`, which this crate drives on
//! real memory. Pins without a lock are the crate `lowtide-pin`, I/O engines the
//! crate `lowtide-io`.
//!
//! | module | concept |
//! |---|---|
//! | `pager`, `config`, `stat`, `error`, `errno` | budgets, counters, errors; the [`guide`] |
//! | [`budget`], `recorder` | how much memory is needed; accesses recorded as a trace |
//! | [`advanced`] | settings in the kernel's own terms |
//! | `view` | the pages of an open file: the hit path, guards, adapters |
//! | `fault` | misses, of one page or many; waiting for other threads |
//! | `ahead` | reading ahead, and around |
//! | `pool` | the engine and its lock, frames, charging, reclaim |
//! | `space` | open files: descriptors, length, holes, opening and closing |
//! | `store`, `writeback` | writing to pages; writing pages to files |
//! | [`map`], `alloc` | files, and heaps, behind a plain pointer |
//! | `anon`, `swap` | regions without a file; where their pages are when not in memory |
//! | `tenant` | budgets within the budget: limits, reservations, the kernel's files |
//! | `thread_locals` | what a thread of a pager does before it begins |
//! | [`warm`] | the pages that were in memory, read again at the next start |
//! | `publish` | what the feature `status` adds |
//! | [`hooks`] | what a program sees that decides about limits, and what it may answer |
//! | `instruments` | what the feature `instruments` adds |
#![deny(unsafe_code)]
// What only instruments and hosts look at is kept without them, too.
#![cfg_attr(not(all(feature = "instruments", feature = "run")), allow(dead_code, unreachable_pub))]

mod ahead;
#[cfg(feature = "alloc")]
#[allow(unsafe_code, reason = "an allocator is unsafe by its interface")]
pub mod alloc;
mod anon;
pub mod budget;
mod config;
mod errno;
mod error;
mod events;
mod fault;
pub mod guide;
#[cfg(feature = "instruments")]
pub mod instruments;
pub mod map;
mod pager;
mod pool;
#[cfg(feature = "status")]
mod publish;
mod recorder;
mod space;
mod stat;
mod store;
mod swap;
mod tenant;
mod thread_locals;
mod view;
pub mod warm;
mod writeback;
mod zcache;

pub use anon::{Elements, PageMut, Region, RegionOptions, TenantVec};
pub use config::advanced;
pub use config::{IoMode, PagerBuilder, UnknownIoMode};
pub use error::{BuildError, CloseError, Error, OpenError, Unwritten};
pub use lowtide_core::counters::{DirtyStat, IoStat, Stat};
pub use lowtide_core::high::handler::HighPolicy;
pub use lowtide_core::psi::{Pressure, PressureLine};
pub use lowtide_core::{
    DirtyLimits, DirtyLimitsError, DirtyShare, Events, MemcgEvents, MemoryStat, Policy,
    PolicyError, Size, SizeError,
};
pub use lowtide_io::{IoEngine, UnknownIoEngine};
pub use lowtide_swap::CreateError as SwapFileError;
pub use pager::Pager;
pub use space::open::OpenOptions;
pub use swap::{SwapOptions, SwapStat};
pub use tenant::{
    Consumer, OomReport, Reservation, Settled, Tenant, TenantBuilder, TenantError, TenantFile,
    TenantLimits, Unwritable,
};
pub use view::{Cursor, Flow, Page, PageCursor, View};
pub use zcache::ZcacheStat;

/// Programs that decide about limits: [`Tenant::set_hooks`].
pub use lowtide_core::hooks;

/// Status pages: their contents, and how to read those of other processes. Feature `status`.
#[cfg(feature = "status")]
pub use lowtide_status as status;

/// The programs in the README and in the documents compile.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guide/open.md")]
    struct Open;
    #[doc = include_str!("../../../docs/guide/budget.md")]
    struct Budget;
    #[doc = include_str!("../../../docs/guide/write.md")]
    struct Write;
    #[doc = include_str!("../../../docs/guide/tenants.md")]
    struct Tenants;
    #[doc = include_str!("../../../docs/guide/map.md")]
    struct Map;
    #[doc = include_str!("../../../docs/guide/anon.md")]
    struct Region;
    #[doc = include_str!("../../../docs/guide/counters.md")]
    struct Counters;
    #[cfg(feature = "alloc")]
    #[doc = include_str!("../../../docs/guide/alloc.md")]
    struct Alloc;
}
