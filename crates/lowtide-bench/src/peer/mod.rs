//! Peers: the systems that lowtide is compared with.
//!
//! | file | concept |
//! |---|---|
//! | `process.rs` | the bench's side of a child process under a memory cgroup |
//! | `kernel.rs` | the kernel's ways to a file, in such a child |
//! | `child.rs` | the child process itself |
//! | `protocol.rs` | the messages between bench and child |
//! | `mapping.rs`, `descriptor.rs` | the child's access to its data |

pub mod child;
pub mod descriptor;
pub mod kernel;
pub mod mapping;
pub mod process;
pub mod protocol;
