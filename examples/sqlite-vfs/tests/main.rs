//! The tests of this crate from outside, in one binary.

mod common;

mod kill;
mod same;
