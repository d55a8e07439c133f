//! `lowtide-lab bench map-fault`: what a map costs, apart from the device.
//!
//! The file is in the page cache, so nothing waits for a device, and each *step* of the life of a
//! mapped page is measured alone, in random order of pages:
//!
//! | step | what is timed, for each page |
//! |---|---|
//! | `fault` | the first touch: served by this process (`userfault`), or by the kernel |
//! | `notice` | processor time of the thread that watches, until it has charged a new page |
//! | `scan` | `PAGEMAP_SCAN` of all pages, where the kernel has it |
//! | `zap` | taking all entries out of the page table |
//! | `touch` | the touch after that, which maps the page again |
//! | `tick` | processor time of the watching thread for one look at pages that it knows |
//! | `evict` | `Tenant::reclaim` of all pages, with what the policy looks at meanwhile |
//! | `turnover` | random touches of four times the budget: an eviction for each fault |
//!
//! `scan`, `zap` and `touch` together are what a round of sampling costs for a page in use. In the
//! turnover of `map-pagecache` an evicted page comes from the device, unless the file is on tmpfs.
//! A mapping of the kernel with `MADV_RANDOM` is measured beside.
//!
//! | file | concept |
//! |---|---|
//! | `memory.rs` | the memory that is touched |
//! | `steps.rs` | the steps |
//! | `run.rs` | rounds, table, JSON |

mod memory;
mod run;
mod steps;

pub(crate) use run::{ABOUT, MapFaultArgs, NAME, run};
