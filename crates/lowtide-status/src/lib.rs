//! # Status pages
//!
//! A process under lowtide says what it does while it runs, so that others can look without
//! stopping it: `lowtide top`, `lowtide stat`, an exporter of metrics. It writes a [`Status`] into
//! a file in shared memory, its *status page*, about once a second.
//!
//! | module | concept |
//! |---|---|
//! | `status` | what is said: the process, its pagers, their tenants |
//! | `curve` | how many misses there would be at other sizes |
#![forbid(unsafe_code)]

mod curve;
mod status;

pub use curve::{Curve, Point};
pub use status::{Door, Generation, PagerStatus, Status, TenantStatus, VERSION};
