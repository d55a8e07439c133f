//! What simulations share: options, machines, rows in parallel, output.
//!
//! | file | concept |
//! |---|---|
//! | `options` | groups of options that workloads share |
//! | `host`, `jobs`, `clock` | resources of the host; rows in parallel; their CPU time |
//! | `show`, `error` | output |

pub mod clock;
pub mod error;
pub mod host;
pub mod jobs;
pub mod options;
pub mod show;
