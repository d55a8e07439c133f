//! Writing files from start to end on a real machine, for the experiments of `lab::writing`.
//!
//! | file | concept |
//! |---|---|
//! | `file` | one file to be written, the same for all systems: the loop, the clock, the check |
//! | `source` | the bytes to be written, in a file |
//! | `systems` | lowtide and its peers as writers |

mod file;
mod source;
mod systems;

pub(crate) use file::Fill;
pub(crate) use source::Source;
pub(crate) use systems::{FillPeer, Place, Way, WritingSystem};
