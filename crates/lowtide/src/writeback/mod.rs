//! Write-back: dirty pages to the file, and what may be relied on.
//!
//! The way of a page: its translation is dirty and its folio too. A worker turns the folio into *writeback* under the pool's lock (`collect.rs`), writes it in a
//! contiguous run with many others in flight (`worker.rs`), and when the write has ended the folio is clean, or, if the write failed, dirty as before. Clean is not durable: that
//! takes a sync (`ledger.rs`).
//!
//! # What is on disk
//!
//! | after | bytes that were flushed | other bytes that were stored |
//! |---|---|---|
//! | [`flush`](crate::View::flush) returned `Ok` | there, even if power fails | stored before the call: there. Stored during it: perhaps |
//! | [`flush_range`](crate::View::flush_range) returned `Ok` | there | in the range: as with `flush`; elsewhere: perhaps |
//! | [`write_at`](crate::View::write_at) of a view opened with [`sync`](crate::OpenOptions::sync) returned `Ok` | there | its own: there |
//! | the last [`View`](crate::View) of a file is dropped | there | written and synced before drop returns; if the device fails or takes longer than the deadline, they stay in memory and are tried again until the pager goes |
//! | [`Pager::close`](crate::Pager::close), or the last pager and view dropped | there | written and synced, or named by the error (dropped: by the log) and lost |
//! | a panic in the caller's closure that unwinds | there | as after the drops that it leads to; the pages are whole |
//! | a panic that aborts, SIGTERM without a handler, SIGKILL, `exit` without drops | there | written some seconds ago: in the device's or the kernel's hands, and safe unless power fails; others: lost |
//! | power is cut | there | each sector is as it was or as it was stored, in any mixture |
//!
//! lowtide installs no signal handler. A program that wants its data after SIGTERM handles the signal and drops its pagers.
//!
//! # Errors
//!
//! A page whose write failed stays dirty, and is tried again with growing pauses until it is written or [discarded](crate::View::discard). It takes a part of the budget
//! meanwhile, and that is all it takes. Every handle that writes is told of each incident once. A flush that could not make its own range durable never
//! returns `Ok`.
//!
//! | file | concept |
//! |---|---|
//! | `collect.rs` | finding dirty pages, beginning and ending their writes |
//! | `worker.rs` | writes in flight; rounds of sweep, drain, sync |
//! | `work.rs` | what is written without being asked for |
//! | `device.rs` | a flusher for each device, and what is asked of it |
//! | `ledger.rs`, `page_set.rs` | what is durable, what failed, who was told |
//! | `rescue.rs` | after a failed sync |
//! | `flush.rs` | a view's flush, and discarding |

mod collect;
mod device;
mod flush;
mod ledger;
mod page_set;
mod rescue;
mod work;
mod worker;

pub(crate) use device::{Device, Devices};
pub(crate) use flush::write_error;
pub(crate) use ledger::{Failure, Ledger};
use std::time::Duration;

/// Longest run: a device gains nothing from longer ones, and reads wait behind them.
const RUN_BYTES: u64 = 1 << 20;
/// Longest wait for a request, so that what is asked for meanwhile is noticed.
const POLL: Duration = Duration::from_millis(2);
