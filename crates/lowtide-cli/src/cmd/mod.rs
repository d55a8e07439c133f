//! The commands, one file each: they run the work and choose the exit code.

pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod crash_writer;
pub(crate) mod doctor;
pub(crate) mod list;
pub(crate) mod man;
pub(crate) mod peer_mmap;
pub(crate) mod run;
pub(crate) mod sim;
