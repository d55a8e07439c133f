//! The tests of this crate from outside, in one binary.

mod conformance;
mod machine_swap;
mod machines;
mod swap;
mod tide;
