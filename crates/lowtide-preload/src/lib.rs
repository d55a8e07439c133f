//! The library behind `lowtide run`: it is loaded into a program before the C library
//! (`LD_PRELOAD`) and keeps what the program maps of files within a budget.
//!
//! The program maps a file as it always did, and the mapping stays the kernel's own: what it reads
//! and writes is the page cache, so system calls, other processes, `fork` and crashes are as usual.
//! This library only learns of the mapping. A thread of its own then watches which pages are in
//! memory and drops some when there are more than the budget allows. In `userfault` mode a
//! mirror takes the mapping's place while the file cannot change.
//!
//! | file | concept |
//! |---|---|
//! | `traced` | which settings a tracer forbids (the others: `lowtide-run`) |
//! | `start` | before the first instruction, at the end, at SIGUSR1 |
//! | `interpose`, `real` | the functions that the program calls; those behind them |
//! | `opens` | opening a file that is mirrored for writing, without waiting |
//! | `judge`, `paths` | which mappings are adopted; what their files are called |
//! | `state`, `wiped`, `lock` | what is known, in memory that a fork wipes |
//! | `own`, `real_threads` | which threads are ours, and what they must not need |
//! | `stdio`, `imports` | standard streams without locks; which names a program needs |
//! | `quiet`, `last`, `tasks` | when no handler runs; the end of a process; its threads |
//! | `ranges`, `left` | addresses that are adopted; mappings that are left to the kernel |
//! | `line`, `keeper`, `descriptors` | asking our thread; the thread; its own descriptors |
//! | `kept` | the mappings that it keeps within the budget |
//! | `budgets`, `shares` | the pager and its tenants; one budget for many processes |
//! | `mirrors`, `modes` | `userfault` mode; reasons for `pagecache` mode |
//! | `calls`, `streams`, `real_reads` | reading files; the functions behind |
//! | `reads`, `reading` | what is read: noted by the program's threads, kept by the keeper |
//! | `rights` | what a program with one thread gives up, and our threads with it |
//! | `syscalls` | what a program calls past the functions of the C library |
//! | `execs`, `children` | starting programs; which of them without the library |
//! | `forks`, `clones`, `inherited` | children: of `fork`, of other calls; what they have |
//! | `allocator`, `c_library` | where our own memory is from; glibc and musl |
//! | `users` | programs that give up a user's rights |
//! | `summary`, `page` | what is said at the end, and while it runs |
//!
//! # Words
//!
//! *Adopt* is said of the runtime, which takes over a mapping of the kernel's. *Kept* is a mapping
//! within the budget, in either mode; *watched* is one in `pagecache` mode. *Shares* are the table
//! by which processes divide a budget, of which each has a *part*. Locks and leases are *held*.
//!
//! # Rules
//!
//! Threads of the program allocate nothing here while they unmap or protect memory, take no lock
//! that a fork could leave taken, and wait for our thread only where a mapping of a file is made or
//! changed, or a mirrored file is opened. Where something cannot be kept, the mapping is left to
//! the kernel and the summary says why.

#![deny(unsafe_code)]
// A test does not stand in front of its own C library, so nothing calls the wrappers there. With
// musl nothing notes reads (`c_library.rs`).
#![cfg_attr(any(test, target_env = "musl"), allow(dead_code))]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("lowtide run needs 64-bit Linux");

mod addresses;
mod allocator;
mod behind;
mod budgets;
mod c_library;
#[cfg(not(target_env = "musl"))]
mod calls;
mod children;
mod clones;
mod descriptors;
mod execs;
mod forks;

mod imports;
mod inherited;
mod interpose;
mod judge;
mod keeper;
mod kept;
mod last;
mod left;
mod line;
mod lock;
mod mirrors;
mod modes;
mod opens;
mod own;
mod page;
mod paths;
mod quiet;
mod ranges;
mod reading;
mod reads;
mod real;
mod real_reads;
mod real_threads;
mod rights;
mod start;
mod state;
mod stdio;
#[cfg(not(target_env = "musl"))]
mod streams;
mod summary;
mod syscalls;
mod tasks;
mod traced;
mod users;
mod wiped;
