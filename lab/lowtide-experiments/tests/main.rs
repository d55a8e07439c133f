//! The tests of this crate from outside, in one binary.

mod kernels;
mod table;

mod aging_oom;
mod compressed;
mod database;
mod dd_oom;
mod fidelity;
mod heaps;
mod swarm;
mod writeback;
