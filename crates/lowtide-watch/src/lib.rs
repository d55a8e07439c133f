//! # Processes under lowtide, seen from outside
//!
//! `lowtide stat` and `lowtide metrics` read the status pages of running processes
//! ([`lowtide_status`]) and show them: as text for people ([`text`]), and as metrics, by HTTP
//! ([`http`]) or in a file ([`mod@file`]). Nothing here reaches into a process.
//!
//! `lowtide run --metrics` needs a process beside the program that it becomes: [`companion`].
//!
//! | module | concept |
//! |---|---|
//! | `text` | a process as lines, all processes as a table; rates between two looks |
//! | `address` | where to listen, as it is written |
//! | `http` | answering requests for `/metrics` |
//! | `file` | a file for the `textfile` collector of node_exporter |
//! | `tree` | which processes a `lowtide run` has started |
//! | `companion` | the process that exports the metrics of a program |
#![forbid(unsafe_code)]

pub mod address;
pub mod companion;
pub mod file;
pub mod http;
pub mod text;
mod tree;
