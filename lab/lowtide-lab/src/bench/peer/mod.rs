//! Peers that only experiments are compared with.
//!
//! | file | concept |
//! |---|---|
//! | `filler.rs` | a file written by a child process under a memory cgroup |
//! | `mapped.rs` | programs that read mapped files in such a child |
//! | `swap.rs` | a heap in such a child that swaps to compressed memory |
//! | `dd.rs` | a file written by dd |
//! | `fio.rs` | random reads by fio |
//! | `program.rs` | running external programs |

pub(crate) mod dd;
pub(crate) mod filler;
pub(crate) mod fio;
pub(crate) mod mapped;
pub(crate) mod program;
pub(crate) mod swap;
