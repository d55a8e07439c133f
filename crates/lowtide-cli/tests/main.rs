//! The tests of this crate from outside, in one binary.

mod common;

mod advise;
mod bad_input;
mod bench_sandbox;
mod cut_short;
mod documented;
mod gather;
mod json_names;
mod lists;
mod report;
mod run;
mod run_children;
mod run_corners;
mod run_exact;
mod run_limits;
mod run_musl;
mod run_read;
mod run_sandbox;
mod run_shared;
mod run_streams;
mod run_waits;
mod run_warm;
mod sim;
mod small_runs;
mod top;
mod traces;
mod watch;
mod writing;
