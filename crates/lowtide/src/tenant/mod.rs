//! Tenants: budgets within the budget of a pager.
//!
//! A [`Tenant`] is a node of a tree; the root is the pager. Pages of a view are charged to one
//! tenant and, through it, to all of its ancestors, and a limit anywhere on that path holds at
//! every instant. Tenants are the engine's groups (`lowtide-core`, `memcg/`) under names; the
//! engine makes all decisions. Source: `docs/kernel/memcg.md` §1-5, 9, 11-13.
//!
//! | file | concept |
//! |---|---|
//! | `handle.rs` | the handle: tree, figures, files to open |
//! | `limits.rs` | its settings, as values |
//! | `builder.rs` | making one |
//! | `control.rs` | limits while it runs, proactive reclaim, moving, renaming, removing |
//! | `auto.rs` | limits that set themselves |
//! | `dirty.rs` | limits of dirty data |
//! | `policy.rs` | what happens above a limit: throttle policies, programs, advice |
//! | `files.rs` | the kernel's files: their texts |
//! | `share.rs` | how those below one tenant share its budget |
//! | `reserve.rs`, `reservations.rs` | memory of the program's own |
//! | `names.rs` | names and paths |
//! | `report.rs` | the report when there is no room |
//! | `error.rs` | what can go wrong |

mod auto;
mod builder;
mod control;
mod dirty;
mod error;
mod files;
mod handle;
mod limits;
mod names;
mod policy;
mod report;
mod reservations;
mod reserve;
mod share;

pub use builder::TenantBuilder;
pub use error::TenantError;
pub use files::TenantFile;
pub use handle::Tenant;
pub use limits::{AutoLimits, AutoStat, Settled, TenantLimits};
pub(crate) use names::Names;
pub use report::{Consumer, OomReport, Unwritable};
pub(crate) use reservations::Reservations;
pub use reserve::Reservation;
pub use share::Share;
