//! The tests of this crate from outside, in one binary.

mod binaries;
mod callers;
mod counters;
mod docs;
mod limits;
mod packages;
mod product;
mod public;
mod references;
mod renamed;
mod results;
mod sources;
mod structure;
mod switches;
mod unsafe_code;
mod walks;
