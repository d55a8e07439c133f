//! The tests of this crate from outside, in one binary.

mod behaviour;
mod patch;
mod within;
