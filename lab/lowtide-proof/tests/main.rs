//! The tests of this crate from outside, in one binary.

mod mapped;
mod power_cut;
