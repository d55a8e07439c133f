//! Dirty data: how much of it there may be, when writers wait, and when it is written.
//!
//! ```text
//!                           background       freerun     setpoint     limit
//!   dirty + under writeback ─────┼──────────────┼───────────┼───────────┼──►
//!                                 flusher writes             ▲
//!                                                 writers pause, longer to the right
//! ```
//!
//! A *domain* is a set of pages with such a scale: the whole pool, and each group with the groups
//! below it. Up to *freerun* no writer is held back. Above it a writer sleeps a little after some
//! pages, and the sleeps grow smoothly, so that pages become dirty just as fast as the device
//! writes them and the amount settles at the *setpoint*, half-way to the limit. At the limit itself
//! a writer waits until something has been written; while the device works, that is rare.
//!
//! The length of a sleep is computed from measurements: how fast the device writes, and how fast
//! pages become dirty. They are kept for each pair of a device and a group (a *wb*), because the
//! writes of one group compete with those of another, and those of two devices do not.
//!
//! What a driver does:
//!
//! | the driver | calls |
//! |---|---|
//! | finds a device | [`Engine::add_device`] |
//! | opens a file on it | [`Engine::set_device_of_space`] |
//! | made clean pages dirty | [`Engine::set_dirty`], [`Engine::dirtied`] with a [`Dirtier`] |
//! | gets true from that | [`Engine::balance_dirty`]: wakes the flusher, sleeps, calls it again |
//! | gets [`WakeFlushers`] from a reclaim | [`Engine::ask_to_flush`] |
//! | starts or stops a flusher's work | [`Engine::set_writing`] |
//! | has a flusher without work | [`Engine::flusher_work`]; sleeps until [`Engine::next_flush`] |
//!
//! | file | concept | section |
//! |---|---|---|
//! | `limits.rs` | settings: shares of memory, ages | B1 |
//! | `accounting.rs` | dirty, under writeback, written: counting pages and events | B2 |
//! | `wb.rs` | devices, and what a group has on a device | B2, B10 |
//! | `devices.rs` | adding devices, finding a group's wb | B2, B10 |
//! | `scale.rs` | the scale of a domain, and a limit that falls slowly | B3 |
//! | `domain.rs` | thresholds of a domain from its memory | B3 |
//! | `position.rs` | the position on the scale, and the factor for the rate | B6 |
//! | `proportions.rs` | the share of a device in a domain | B6 |
//! | `bandwidth.rs` | estimators: write bandwidth, the rate that balances | B7 |
//! | `pause.rs` | from a rate to sleeps | B8 |
//! | `balance.rs` | what a writer does after it made pages dirty | B4, B5 |
//! | `flusher.rs` | what the flusher of a device does next | B10 |
//! | `write_budget.rs` | how much may be in flight so that reads do not starve (ours) | - |
//!
//! Only `accounting.rs`, `balance.rs`, `devices.rs`, `domain.rs` and `flusher.rs` use the engine;
//! the rest is arithmetic on its arguments. Time is the driver's, in nanoseconds; the formulas work
//! in milliseconds, as a kernel with 1000 ticks a second does.
//!
//! Left out: devices with limits of their own (strict limits, minimum and maximum shares),
//! shortcuts for real-time tasks, and files that two groups write (a space belongs to one group).
//! Source: `docs/kernel/fault-and-writeback.md` part B; `B5` and the like in this folder are its
//! sections.
//!
//! [`Engine::add_device`]: crate::Engine::add_device
//! [`Engine::set_device_of_space`]: crate::Engine::set_device_of_space
//! [`Engine::set_dirty`]: crate::Engine::set_dirty
//! [`Engine::dirtied`]: crate::Engine::dirtied
//! [`Engine::balance_dirty`]: crate::Engine::balance_dirty
//! [`Engine::ask_to_flush`]: crate::Engine::ask_to_flush
//! [`Engine::set_writing`]: crate::Engine::set_writing
//! [`Engine::flusher_work`]: crate::Engine::flusher_work
//! [`Engine::next_flush`]: crate::Engine::next_flush
//! [`WakeFlushers`]: crate::Step::WakeFlushers

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
pub use limits::{DirtyLimits, DirtyLimitsError, DirtyShare, DirtyTimers};
pub(crate) use scale::Figures;
pub use scale::{DirtyState, Thresholds};
pub use wb::{DeviceId, Throttled};
pub(crate) use wb::{Dirty, GroupDirty};
pub use write_budget::WriteBudget;
