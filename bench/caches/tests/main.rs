//! The tests of this crate from outside, in one binary.

mod heap;
mod small;
