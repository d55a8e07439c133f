//! The tests of this crate from outside, in one binary.

#[path = "../../../crates/lowtide-cli/tests/common/mod.rs"]
mod common;

mod bench_sandbox;
mod cut_short;
mod document_store;
mod eval;
mod file_anon_mix;
mod heaps;
mod json_names;
mod proof;
mod recorded_runs;
mod sim;
mod small_runs;
mod tenancy;
mod writing;
