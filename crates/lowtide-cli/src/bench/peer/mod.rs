//! What lowtide is compared with.
//!
//! | file | what it is |
//! |---|---|
//! | `process.rs` | the bench's side of a child process under a memory cgroup |
//! | `mmap.rs` | a kernel mapping in such a child |
//! | `filler.rs` | a file written by such a child |
//! | `dd.rs` | a file written by dd |
//! | `child.rs` | that child |
//! | `protocol.rs` | what the two say to each other |
//! | `mapping.rs` | the child's access to its data |
//! | `fio.rs` | random reads by fio |
//! | `program.rs` | how such programs are run |

pub(crate) mod child;
pub(crate) mod dd;
pub(crate) mod filler;
pub(crate) mod fio;
mod mapping;
pub(crate) mod mmap;
mod process;
mod program;
mod protocol;
