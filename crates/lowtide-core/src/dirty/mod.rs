//! Dirty data: how much of it there may be, who waits when there is too much, and who writes it
//! when.
//!
//! ```text
//!                           background       freerun     setpoint     limit
//!   dirty + under writeback ─────┼──────────────┼───────────┼───────────┼──►
//!                                 flusher writes             ▲
//!                                                 writers pause, the longer the further to the right
//! ```
//!
//! A *domain* is a set of pages with such a scale: the whole pool, and each group with what is
//! below it. Up to *freerun* nobody is held back. From there on a writer sleeps a little after some
//! pages, and the sleeps grow smoothly, so that pages become dirty just as fast as the device
//! writes them and the amount settles at the *setpoint*, half-way to the limit. At the limit itself
//! a writer waits until something has been written; a driver whose device is alive seldom gets
//! there.
//!
//! How long a writer sleeps is computed from what was measured: how fast the device writes, and how
//! fast pages become dirty. That is kept for each pair of a device and a group (a *wb*), because
//! one group's writes compete with another's, and one device's do not.
//!
//! What a driver does:
//!
//! | the driver | calls |
//! |---|---|
//! | finds a device, opens a file on it | [`Engine::add_device`](crate::Engine::add_device), [`Engine::set_device_of_space`](crate::Engine::set_device_of_space) |
//! | made clean pages dirty for a task | [`Engine::set_dirty`](crate::Engine::set_dirty), [`Engine::dirtied`](crate::Engine::dirtied) with the task's [`Dirtier`] |
//! | is told so by that | [`Engine::balance_dirty`](crate::Engine::balance_dirty): wakes the flusher, sleeps, calls it again |
//! | was told by reclaim to wake flushers | [`Engine::ask_to_flush`](crate::Engine::ask_to_flush) |
//! | runs a flusher that wakes or goes to sleep | [`Engine::set_writing`](crate::Engine::set_writing) |
//! | runs a flusher that has nothing to do | [`Engine::flusher_work`](crate::Engine::flusher_work), and sleeps until [`Engine::next_flush`](crate::Engine::next_flush) |
//!
//! | file | concept | section |
//! |---|---|---|
//! | `limits.rs` | settings: shares of memory, ages | B1 |
//! | `accounting.rs` | dirty, under writeback, written: counting pages and events | B2 |
//! | `wb.rs` | devices, and what a group has on a device | B2, B10 |
//! | `devices.rs` | adding and removing devices, finding a group's wb | B2, B10 |
//! | `scale.rs` | the scale of a domain, and a limit that falls slowly | B3 |
//! | `domain.rs` | thresholds of a domain from its memory | B3 |
//! | `position.rs` | where on the scale, and what that means for the rate | B6 |
//! | `proportions.rs` | whose part of a domain a device is | B6 |
//! | `bandwidth.rs` | estimators: write bandwidth, the rate that balances | B7 |
//! | `pause.rs` | from a rate to sleeps | B8 |
//! | `balance.rs` | what a writer does after it made pages dirty | B4, B5 |
//! | `flusher.rs` | what the flusher of a device does next | B10 |
//! | `write_budget.rs` | how much may be in flight so that reads do not starve (ours) | - |
//!
//! Everything but `accounting.rs`, `balance.rs` and `flusher.rs` is arithmetic on what it is told.
//! Time is the driver's, in nanoseconds; the formulas work in milliseconds, as a kernel with 1000
//! ticks a second does.
//!
//! Left out: devices with limits of their own (strict limits, minimum and maximum shares),
//! shortcuts for real-time tasks, and files that two groups write (a space belongs to one group).
//! Source: `docs/kernel/fault-and-writeback.md` part B; `B5` and the like in this folder are its
//! sections.

mod accounting;
mod balance;
mod bandwidth;
mod devices;
mod domain;
mod flusher;
mod limits;
mod pause;
mod position;
mod proportions;
mod scale;
mod wb;
mod write_budget;

pub use balance::{Balance, Dirtier};
pub use flusher::{FlushReason, FlushWork};
pub use limits::{DirtyLimits, DirtyLimitsError, DirtyShare, DirtyTimers, DirtyTimersError};
pub(crate) use scale::Figures;
pub use scale::{DirtyState, Thresholds};
pub use wb::{DeviceId, Throttled};
pub(crate) use wb::{Dirty, GroupDirty};
pub use write_budget::WriteBudget;
