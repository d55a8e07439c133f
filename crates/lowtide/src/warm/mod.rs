//! Warm restart: the pages that were in memory are read again when the program starts again.
//!
//! A cache that begins empty is slow for as long as its working set takes to come in by misses,
//! each alone and at a random place. Which pages those are is known when the program ends: a list
//! of them (`list.rs`) has two or three bytes for a page, so that of a large memory is some
//! megabytes. It is read before the first file is opened, and the pages of each file when that is
//! opened: first those that the policy had among the active ones, then the others, each in the
//! order of the file, which a device reads several times faster than at random.
//!
//! ```text
//!   end:    lists of open files, of those that were closed, of those not opened yet ──► file
//!   start:  file ──► lists ──open──► queue ──one thread──► pages, while there is room
//! ```
//!
//! * **A list is a hint.** It says where pages are worth a read, never what is in them. Of a file
//!   whose inode, length or time of change is another, nothing is read.
//! * **The budget holds**, and nothing is evicted: reading ends where it is full. What came in by
//!   misses meanwhile is better.
//! * **Demand comes first.** One thread reads a piece at a time. While other threads miss, it
//!   pauses for as long as the piece took, so it takes half of the device at most.
//! * **A start never fails for it**: [`WarmStat::error`] has the reason for a cold one.
//!
//! Pages that were read ahead and not used are in no list. A file whose list is not read to its end
//! when it is closed keeps that list.
//!
//! | file | concept |
//! |---|---|
//! | `list`, `error` | the file of lists |
//! | `known` | what a pager knows of pages that it does not have |
//! | `reader` | the thread that reads them |
//! | `save` | which pages are in memory |
//! | `handle` | what a program calls |

mod error;
mod handle;
pub(crate) mod known;
mod list;
pub(crate) mod reader;
pub(crate) mod save;

pub use error::{Foreign, WarmError};
pub use known::WarmStat;
