//! The commands that are no more than one file, each: they run the work and choose the exit code.

pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod list;
pub(crate) mod man;
pub(crate) mod metrics;
pub(crate) mod peer_mmap;
pub(crate) mod run;
pub(crate) mod stat;
pub(crate) mod top;
