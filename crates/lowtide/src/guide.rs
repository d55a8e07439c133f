//! How to use lowtide in a program: the size of the budget, threads, async, `fork`, signals,
//! sandboxes.
//!
//! This module has no code.
//!
//! # How large a budget
//!
//! The budget ([`PagerBuilder::max`]) is the memory for pages of files, and nothing else. On top of
//! it a pager takes about 30 bytes for each page of the budget and 4 bytes for each page of each
//! open file; [`Pager::stat`] reports both. Give it what you would let the page cache have: pages
//! that lowtide has in memory are read with direct I/O where the file system has it, and are not in
//! the page cache as well.
//!
//! * *Enough*: measure. Record a run (`lowtide run --record FILE`) and compute a miss-ratio
//!   curve (`lowtide sim trace FILE --mrc --advise 0.01`), or look at a running program:
//!   [`Tenant::budget_for_misses`] is the budget at which at most a share of its accesses misses,
//!   and [`Stat::hit_ratio`] the share of the reads that found their page in memory. Pages
//!   that were read ahead are no hits: a scan has a ratio of zero, however fast it is. To watch it,
//!   keep the last snapshot:
//!
//! ```
//! # let file = tempfile::NamedTempFile::new()?;
//! # std::fs::write(file.path(), vec![0; 1 << 20])?;
//! # let pager = lowtide::Pager::builder().max(lowtide::Size::mib(4)).build()?;
//! # let view = pager.open(file.path())?;
//! let mut last = pager.stat();
//! for _every_few_seconds in 0..2 {
//! #   for i in 0..100_000 { view.page(i % 256)?; }
//!     let now = pager.stat();
//!     if let Some(ratio) = now.hit_ratio_since(&last) {
//!         println!("{:.2} % hits, {} misses", 100.0 * ratio, now.misses - last.misses);
//!     }
//!     last = now;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! * *At least*: 32 pages, and more than all threads pin by guards at once, plus what they store
//!   to. What is dirty, pinned by a guard, or [reserved](Tenant::reserve) cannot be evicted. An
//!   operation that finds no room waits for [`PagerBuilder::memory_timeout`] and fails with
//!   [`Error::OutOfBudget`], whose report names the tenants that have the memory.
//! * *At most*: memory that the system has. Memory is taken as pages come, 2 MiB at a time, and
//!   given back when [`set_max`](Tenant::set_max) lowers the root's budget; `resident_bytes` of
//!   [`Stat`] is what is taken now. A budget above the limit of the memory cgroup is refused
//!   ([`AboveLimit`](crate::BuildError::AboveLimit)). One beyond the machine's memory is not, and a
//!   budget and the rest of the process together may be too much for either: then the kernel kills
//!   a process.
//!
//! # Page sizes
//!
//! A base page ([`PagerBuilder::base_page`]) is what is read, evicted and written: 4 KiB by
//! default. Smaller ones, down to 512 bytes, hold more of what is used where records are small and
//! scattered; larger ones cost less to describe. Files that are read in large pieces can have
//! larger folios ([`folio_order`](crate::advanced::OpenAdvanced::folio_order)) in the same pager.
//!
//! # Threads
//!
//! [`Pager`], [`View`], [`Tenant`] and [`Reservation`] can be shared by threads and sent to others;
//! clones are cheap. A hit takes no lock and writes to nothing that other threads read. Give each
//! thread a clone of the view. Many threads that miss the same page cause one read.
//!
//! A guard ([`Page`]) belongs to the thread that took it. While it lives its page does not change,
//! so a store to that page waits, and fails with [`Error::HeldElsewhere`] after
//! [`PagerBuilder::memory_timeout`], or at once with [`Error::HeldHere`] if the guard is the
//! thread's own. Keep guards for as long as you read; do not wait for other work with one.
//!
//! In the same way a guard delays [`View::revert`], [`View::punch`] and [`View::set_len`] where
//! they affect its page, or the folio that the page is in. The thread that has it may read any
//! other page meanwhile, flush, and store to pages without guards. But two threads that each pin a
//! page and store to the other's page wait for each other until that time has passed; so do one
//! that pins a page and calls `set_len`, and one that stores to that page.
//!
//! # Async
//!
//! Operations block the thread while the device works: there is no asynchronous interface. In an
//! executor, put them where blocking is allowed:
//!
//! ```
//! # // Stands for tokio::task::spawn_blocking, which takes the same closure.
//! # use std::thread::JoinHandle;
//! # fn spawn_blocking<T, F>(f: F) -> JoinHandle<T>
//! # where F: FnOnce() -> T + Send + 'static, T: Send + 'static {
//! #     std::thread::spawn(f)
//! # }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let pager = lowtide::Pager::builder().max(lowtide::Size::mib(1)).build()?;
//! # let options = lowtide::OpenOptions::new().create_with_len(1 << 20);
//! # let view = options.open(&pager, dir.path().join("data"))?;
//! let reader = view.clone();
//! let record = spawn_blocking(move || {
//!     let mut record = [0; 100];
//!     reader.read_at(4000, &mut record).map(|()| record)    // copied: no guard leaves the closure
//! });
//! // let record = record.await??;
//! # assert_eq!(record.join().unwrap()?, [0; 100]);
//! # Ok(())
//! # }
//! ```
//!
//! One blocking task for many pages ([`View::get_many`]) keeps many reads in flight and is cheaper
//! than many tasks for one page each. A guard is not `Send`, so a future that holds one across an
//! `.await` cannot be spawned on a multi-threaded executor: the compiler rejects it. On an executor
//! of one thread it compiles, and must not be done: the page stays pinned for as long as the future
//! sleeps, and stores to it time out.
//!
//! # Pointers
//!
//! Code that wants `&[u8]` gets a [`Map`](crate::map::Map) of the file, under the same budget; the
//! page of its [module](crate::map) says how it works and where it ends.
//!
//! # fork
//!
//! Build pagers after forking, not before: after daemonizing, and in each worker process for
//! itself. Frames and tables are left out of child processes (`MADV_DONTFORK`), because a fork
//! would otherwise copy every frame that either side writes. A child that uses a view of its parent
//! dies of SIGSEGV, and one that drops a pager of its parent waits for threads that it does not
//! have. A child that calls `exec` at once, as [`std::process::Command`] does, is fine. A child of
//! `fork(3)` can build pagers of its own, unless a thread that [`std::thread`] made began or ended
//! in the parent just then: the standard library holds a lock of its own for that, the child gets
//! it as it was, and the first thread that is to begin there waits forever. So fork before there
//! are threads, or while none begins or ends. A child of a raw `clone(2)` cannot build a pager,
//! because no handler runs there.
//!
//! # Signals
//!
//! lowtide installs no handler, its threads block all signals, and system calls that a signal
//! interrupts are repeated. Do not call it *in* a handler: set a flag or write to a pipe there, and
//! act on it in a thread. A program that wants its data after SIGTERM handles the signal, and drops
//! or [closes](Pager::close) its pagers; what is on disk after each way to stop is a table on the
//! front page of this crate.
//!
//! # Sandboxes
//!
//! Before the first pager is built, give capabilities up, and install seccomp filters: a pager's
//! threads keep the rights that there are then, and the C library ends a process (`SIGABRT`) whose
//! threads do not agree whether a change of user is allowed. The pager notices what is forbidden,
//! and does it in another way: without io_uring transfers are system calls, without `membarrier`
//! each hit costs a fence. It cannot replace what is forbidden *later*: without
//! `membarrier` pages that are read often cannot be evicted or stored to any more, and operations
//! on them fail with [`Error::NoBarrier`]. `lowtide doctor` prints what a machine allows.
#![allow(unused_imports, reason = "for the links")]

use crate::{Error, OpenOptions, Page, Pager, PagerBuilder, Reservation, Stat, Tenant, View};
