//! # Status pages
//!
//! A process under lowtide says what it does while it runs, so that others can look without
//! stopping it: `lowtide top`, `lowtide stat`, an exporter of metrics. It writes a [`Status`] into
//! a file in shared memory, its *status page*, about once a second.
//!
//! ```
//! use lowtide_status::{Origin, PagerStatus, Writer};
//!
//! let mut writer = Writer::create(Origin::Library)?;
//! writer.publish(vec![PagerStatus { policy: "mglru".into(), ..PagerStatus::default() }])?;
//! // In any process of the same user:
//! let status = lowtide_status::read(std::process::id())?;
//! assert_eq!(status.pagers[0].policy, "mglru");
//! assert!(lowtide_status::list()?.live.contains(&status));
//! # Ok::<(), lowtide_status::Error>(())
//! ```
//!
//! | module | concept |
//! |---|---|
//! | `status` | what is said: the process, its pagers, their tenants |
//! | `curve` | how many misses there would be at other sizes |
//! | `place` | the folder of a user's pages, and who may have one |
//! | `layout` | the bytes of a page: its header, and how a torn read is noticed |
//! | `writer`, `reader` | writing the page of this process; reading all, and removing dead ones |
//! | `process` | what `/proc` says of a process, and whether it lives |
//! | `held` | a descriptor in a process that may close it |
//! | `numbers` | numbers of the table of counters (`lowtide_core::counters`) in JSON |
//! | `metrics` | pages as metrics of Prometheus: the feature `metrics` |
//! | `error` | what can be wrong |
#![forbid(unsafe_code)]

mod curve;
mod error;
mod held;
mod layout;
#[cfg(feature = "metrics")]
pub mod metrics;
mod numbers;
mod place;
mod process;
mod reader;
mod status;
mod writer;

pub use curve::{Curve, Point};
pub use error::Error;
pub use layout::PAGE_BYTES_MAX;
pub use lowtide_core::counters::{self, ProcessStat, Stat, TenantStat};
pub use process::{printable, start_ticks};
pub use reader::{Pages, list, read};
pub use status::{Generation, Origin, PagerStatus, Status, TenantStatus, VERSION};
pub use writer::Writer;
