//! The tests of this crate from outside, in one binary.

mod common;

mod allocation;
mod costly;
mod examples;
mod header;
mod hostile;
mod mutations;
mod proposed;
mod twin;
