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

pub mod child;
pub mod dd;
pub mod filler;
pub mod fio;
pub mod mapped;
pub mod mapping;
pub mod mmap;
pub mod process;
pub mod program;
pub mod protocol;
pub mod swap;
