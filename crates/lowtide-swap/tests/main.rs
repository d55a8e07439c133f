//! The tests of this crate from outside, in one binary.

mod common;

mod corrupt;
mod killed;
mod model;
mod refused;
mod swap_file;
mod threads;
