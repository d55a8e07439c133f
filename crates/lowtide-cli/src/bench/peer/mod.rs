//! Peers: the systems that lowtide is compared with.
//!
//! | file | concept |
//! |---|---|
//! | `process.rs` | the bench's side of a child process under a memory cgroup |
//! | `mmap.rs` | a kernel mapping in such a child |
//! | `filler.rs` | a file written by such a child |
//! | `mapped.rs` | programs that read mapped files in such a child |
//! | `swap.rs` | a heap in such a child that swaps to compressed memory |
//! | `dd.rs` | a file written by dd |
//! | `child.rs` | the child process itself |
//! | `protocol.rs` | the messages between bench and child |
//! | `mapping.rs` | the child's access to its data |
//! | `fio.rs` | random reads by fio |
//! | `program.rs` | running external programs |

pub(crate) mod child;
pub(crate) mod dd;
pub(crate) mod filler;
pub(crate) mod fio;
pub(crate) mod mapped;
mod mapping;
pub(crate) mod mmap;
mod process;
mod program;
pub(crate) mod protocol;
pub(crate) mod swap;
