//! Write-back: dirty pages to the file.
//!
//! The path of a page: its translation is dirty and its folio too. A worker turns the folio into
//! *writeback* under the pool's lock (`collect.rs`), writes it in a contiguous run with many others
//! in flight (`worker.rs`), and when the write has ended the folio is clean, or, if the write
//! failed, dirty as before. Clean is not durable: that takes a sync (`ledger.rs`).
//!
//! What users may rely on is in the documentation of the crate ("What is on disk").
//!
//! | file | concept |
//! |---|---|
//! | `collect.rs` | finding dirty pages, beginning and ending their writes |
//! | `worker.rs` | writes in flight |
//! | `round.rs` | tickets of a file together: sweep, drain, sync |
//! | `work.rs` | what is written without a request |
//! | `device.rs` | a device, and the requests to its flusher |
//! | `flushers.rs` | starting and ending flushers, waiting for them |
//! | `ledger.rs`, `page_set.rs` | what is durable, what failed, which handles know of it |
//! | `rescue.rs` | after a failed sync |
//! | `flush.rs` | a view's flush, and discarding |

mod collect;
mod device;
mod flush;
mod flushers;
mod ledger;
mod page_set;
mod rescue;
mod round;
#[cfg(test)]
mod tests;
mod work;
mod worker;

pub(crate) use device::{Device, Devices};
pub(crate) use flush::{discard, flush, write_error};
pub(crate) use ledger::{Failure, Ledger};
