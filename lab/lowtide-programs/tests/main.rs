//! Tests of this crate, one program.

mod databases;
mod guest;
mod programs;
mod python;
