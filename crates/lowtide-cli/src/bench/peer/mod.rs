//! What lowtide is compared with.
//!
//! | file | what it is |
//! |---|---|
//! | `mmap.rs` | the bench's side of a kernel mapping in a child process under a memory cgroup |
//! | `child.rs` | that child |
//! | `protocol.rs` | what the two say to each other |
//! | `mapping.rs` | the child's door to its data |
//! | `fio.rs` | random reads by fio |

pub(crate) mod child;
pub(crate) mod fio;
mod mapping;
pub(crate) mod mmap;
mod protocol;
