//! Misses: bringing in what is not in memory.
//!
//! | file | concept |
//! |---|---|
//! | `claim` | a translation that one thread has made busy, and is to resolve |
//! | `page` | one page, once, however many threads want it |
//! | `pipeline` | many pages: absent neighbours are joined, and several reads are in flight |
//! | `pieces` | the folios of one call's reads, and their frames |
//! | `wait` | waiting for a page that another thread owns |
//! | `late`, `late_reads` | reads that miss their deadline; how many frames they keep |
//! | `attempt` | a thread that waits owns nothing for long |
//! | `nested` | threads that must not wait |

pub(crate) mod attempt;
mod claim;
pub(crate) mod late;
pub(crate) mod late_reads;
pub(crate) mod nested;
mod page;
pub(crate) mod pieces;
pub(crate) mod pipeline;
pub(crate) mod wait;

pub(crate) use claim::{Access, Claim, Destination, Miss};
