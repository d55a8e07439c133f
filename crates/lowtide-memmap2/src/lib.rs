//! The crate [memmap2](https://docs.rs/memmap2/0.9) with a budget: the same names and results, and
//! what is in memory of the files that a process maps stays within one limit.
//!
//! A crate that maps files through memmap2 needs no change. Its user says in `Cargo.toml` which
//! memmap2 is meant (the README has both ways), and how much memory it may have:
//!
//! ```sh
//! LOWTIDE_MAX=256M ./search          # without it: what the memory cgroup of the process allows
//! ```
//!
//! ```
//! use lowtide_memmap2::Mmap;
//! use std::fs::File;
//!
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("index");
//! # std::fs::write(&path, b"some bytes")?;
//! let file = File::open(&path)?;
//! // SAFETY: no program changes the file while it is mapped.
//! let map = unsafe { Mmap::map(&file) }?;
//! assert_eq!(&map[5..], b"bytes");
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # How
//!
//! A map is the kernel's own mapping, made as memmap2 makes it, so all that works with one works:
//! system calls, children of `fork`, other processes that see the same bytes. Then a
//! [`Pager`](lowtide::Pager) of the process [adopts](lowtide::map::MapOptions::adopt) it: it
//! notices which pages come in and evicts others. The budget may be exceeded for moments.
//!
//! | map | within the budget |
//! |---|---|
//! | `map`, `map_raw_read_only`, `map_if_safe` | yes |
//! | `map_mut`, `map_raw` | yes; pages that are not written yet stay until the kernel wrote them |
//! | `map_copy_read_only` | until `make_mut` |
//! | `map_copy`, `map_anon`, `map_exec`, `make_exec` | no: a plain mapping |
//! | after `lock` | no, from then on |
//! | of something without pages, or where no limit is set | no: a plain mapping |
//!
//! | file | concept |
//! |---|---|
//! | `options` | how a file is mapped |
//! | `mmap`, `raw`, `mmap_mut` | the three handles |
//! | `common` | what all of them do: advice, locks, a new length, flushes |
//! | `memory` | the mapping behind a handle: plain, or kept within the budget |
//! | `budget` | the pager of the process |
//! | `advice`, `seal` | what `madvise(2)` takes; which files no process can change |

mod advice;
pub mod budget;
mod common;
mod memory;
mod mmap;
mod mmap_mut;
mod options;
mod raw;
mod seal;

pub use advice::{Advice, UncheckedAdvice};
pub use mmap::Mmap;
pub use mmap_mut::MmapMut;
pub use options::{MmapAsRawDesc, MmapOptions, MmapRawDescriptor, RemapOptions};
pub use raw::MmapRaw;
pub use seal::MapIfSafeError;
