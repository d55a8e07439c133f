//! Workloads on real files, as commands play them: real memory, a real device, and every byte
//! verified.
//!
//! `lowtide bench` and the laboratory compare lowtide with the kernel's own paging through these
//! parts. A workload is options, a plan and players; its rows take turns under equal budgets.
//!
//! | file | concept |
//! |---|---|
//! | `options` | options that several workloads share |
//! | `content`, `datafile` | the content of data files; creating, locking and keeping them |
//! | `access`, `play`, `thread_pool` | access to data; operations; threads |
//! | `system`, `map`, `peer` | lowtide under a policy; its maps; the systems it is compared with |
//! | `rounds` | turns |
//! | `compare` | ycsb, random reads, rows, scans: lowtide beside the kernel |
//! | `machine`, `error` | the machine, and errors, in the output |
//! | `sim` | what simulations share |

#![deny(unsafe_code)]
#![allow(missing_docs, reason = "for the command and the laboratory; its files explain it")]

pub mod access;
pub mod compare;
pub mod content;
pub mod datafile;
pub mod error;
pub mod machine;
pub mod map;
pub mod options;
pub mod peer;
pub mod play;
pub mod rounds;
pub mod sim;
pub mod system;
pub mod thread_pool;
