//! The tests of this crate from outside, in one binary.

mod disk;
mod forest;
mod harness;
mod writer;

mod allocation;
mod dirty;
mod easy_to_get_wrong;
mod flusher;
mod groups_that_change;
mod lazy_free;
mod older_release;
mod out_of_memory;
mod payment;
mod properties;
mod reclaim_writeback;
mod swap;
mod tide;
mod tree;
mod tree_properties;
