//! Programs with heaps on real memory: what `lowtide-lab bench anon-zipf` and `tenants` are played
//! on.
//!
//! ```text
//!   program (lowtide_experiments::programs::heap) ──► players, one for each worker ──► memory
//!                                                                          ├─ a region of lowtide
//!                                                                          └─ private memory
//! ```
//!
//! | file | concept |
//! |---|---|
//! | `checked.rs` | a region of one thread of `bench tenants` |
//! | `content.rs` | what the pages hold, and how a wrong byte or a lost store is found |
//! | `memory.rs` | a heap: a region of lowtide behind guards, or memory behind a pointer |
//! | `pointer.rs` | a region behind a pointer |
//! | `player.rs` | a worker of the program |
//! | `systems.rs` | the rows: lowtide, and memory without a limit |
//! | `zram.rs` | swap of the kernel on compressed memory, set up and taken away |

mod checked;
mod content;
mod memory;
mod player;
mod pointer;
mod systems;
mod zram;

pub(crate) use checked::Checked;
pub(crate) use memory::Plain;
pub(crate) use player::{Counts, fill, players};
pub(crate) use systems::{Access, Lowtide, Unlimited};
pub(crate) use zram::Zram;
