//! The interface for programs that decide about limits.
//!
//! To replace the built-in over-limit behaviour, attach [`LimitHooks`] to a group. The engine calls
//! them at a few points with a [`LimitSnapshot`] and nothing else. It trusts an answer only as far
//! as the answer is harmless: delays are clamped, and protection cannot make a charge fail that
//! could succeed. A hook may be native code or a program in a virtual machine (the crate
//! `lowtide-bpf`); the engine does not know which.
//!
//! | hook | called | answer |
//! |---|---|---|
//! | throttle | when a task is about to pay for being over a limit | nanoseconds |
//! | throttle, if [wanted](LimitHooks::wants_charges) | after each batch charged | nanoseconds |
//! | below low, below min | when reclaim comes to the group | protected or not |
//! | proactive, requests | at the driver's interval | pages to reclaim |
//! | online, offline | when a group is created, and before it is removed | |
//!
//! Equal snapshots and an equal state of the program give equal answers: no hook reads a clock.
//! Source: `docs/kernel/memcg.md` §15.4.

use std::fmt;

/// No limit, in pages, as a [`LimitSnapshot`] has it.
pub const NO_LIMIT: u64 = u64::MAX;

/// Longest delay that an answer may ask for, in nanoseconds; more means this much.
pub const DELAY_MAX_NS: u64 = 2_000_000_000;

/// Why a hook is called: the value of [`LimitSnapshot::reason`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[repr(u32)]
pub enum LimitReason {
    /// Usage is above `high`.
    High = 0,
    /// Usage is at `max`.
    Max = 1,
    /// Swap usage is above its `high`.
    SwapHigh = 2,
    /// Reclaim wants to know whether the group is protected.
    Protection = 3,
    /// The driver's timer: is there something to reclaim in advance?
    Proactive = 4,
    /// A task charged pages; usage may be below `high`.
    Charge = 5,
    /// The group was created.
    Online = 6,
    /// The group is about to be removed.
    Offline = 7,
}

/// What a hook sees: one level of the tree and the task that pays.
///
/// The layout is an interface (`include/lowtide_bpf.h` in the crate `lowtide-bpf`). It only ever
/// grows at the end; `size` is its length in bytes; what lies past that reads as 0. Memory is in
/// base pages, time in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct LimitSnapshot {
    /// Bytes of this structure.
    pub size: u32,
    /// A [`LimitReason`].
    pub reason: u32,
    /// Identity of the group; never used again for another one.
    pub group: u64,
    /// Depth of the group: 0 for the root.
    pub level: u32,
    /// Bytes of a base page.
    pub page_bytes: u32,
    /// Pages charged.
    pub usage: u64,
    /// Limits and protection as they were set; [`NO_LIMIT`] for none.
    pub max: u64,
    /// See `max`.
    pub high: u64,
    /// See `max`.
    pub low: u64,
    /// See `max`.
    pub min: u64,
    /// Effective protection, as last computed.
    pub elow: u64,
    /// See `elow`.
    pub emin: u64,
    /// Pages in swap.
    pub swap_usage: u64,
    /// Limit on pages in swap.
    pub swap_max: u64,
    /// Refault stall in nanoseconds a second, decayed over ten seconds, of all tasks below the
    /// group.
    pub stall_rate: u64,
    /// Total time in which some task, and all tasks, waited for memory: microseconds.
    pub psi_some_us: u64,
    /// See `psi_some_us`.
    pub psi_full_us: u64,
    /// The averages over ten seconds in hundredths of a percent (0 to 10000).
    pub psi_some_avg10: u32,
    /// See `psi_some_avg10`.
    pub psi_full_avg10: u32,
    /// The task, as the driver numbers them.
    pub task: u64,
    /// Refault stall for which the task has not paid yet.
    pub task_debt_ns: u64,
    /// Pages that the task charged over the limit since it was last handled; for
    /// [`LimitReason::Charge`] all that it charged in batches.
    pub nr_over_high: u64,
    /// Nanoseconds since the last refault in the group of the task; `u64::MAX` if there was none.
    pub since_refault_ns: u64,
    /// What the kernel's penalty for overage would be.
    pub overage_delay_ns: u64,
    /// What the built-in policy of the group would do.
    pub default_delay_ns: u64,
    /// Ticks a second of the driver's scheduler, for penalties that count in ticks.
    pub hz: u64,
    /// The driver's time.
    pub now_ns: u64,
}

/// A request that pages of a group be reclaimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReclaimRequest {
    /// The group, as in [`LimitSnapshot::group`]. It may not exist.
    pub group: u64,
    /// Pages, at least 1.
    pub pages: u64,
}

/// The answer to a throttle hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ThrottleAnswer {
    /// Sleep for this many nanoseconds, whatever the built-in policy says.
    Exactly(u64),
    /// Sleep for at least this many nanoseconds; the built-in policy may require more.
    AtLeast(u64),
    /// No opinion: the built-in policy decides.
    Default,
}

/// What a program answers. No hook has an opinion unless it is implemented.
///
/// Hooks are called, and dropped, while the driver's lock is held: they may not wait, panic, or use
/// the memory that they decide about. `Debug` is for messages.
///
/// They are called in the thread that has the lock, because no other could be waited for. With a
/// pager that may be one of its own threads, which has another table of descriptors and blocks all
/// signals. So a hook may use memory, and no descriptor: a number means another file there, or
/// none. One that wants to write leaves that to a thread of the program's, through memory.
pub trait LimitHooks: fmt::Debug + Send {
    /// How long the task is to sleep.
    fn throttle(&mut self, snapshot: &LimitSnapshot) -> ThrottleAnswer {
        let _ = snapshot;
        ThrottleAnswer::Default
    }

    /// Whether [`throttle`](Self::throttle) is to be called after each batch of pages that a task
    /// charges, whether or not the group is above `high`. The snapshot is then that of the group
    /// that was charged, not of the one that the program is attached to.
    fn wants_charges(&self) -> bool {
        false
    }

    /// Whether reclaim has to spare the group as long as others have something.
    fn below_low(&mut self, snapshot: &LimitSnapshot) -> Option<bool> {
        let _ = snapshot;
        None
    }

    /// Whether reclaim has to spare the group altogether.
    fn below_min(&mut self, snapshot: &LimitSnapshot) -> Option<bool> {
        let _ = snapshot;
        None
    }

    /// Whether [`proactive`](Self::proactive) may ask for anything: a driver need not call it else.
    fn is_proactive(&self) -> bool {
        true
    }

    /// Pages to reclaim from the group now, ahead of need.
    fn proactive(&mut self, snapshot: &LimitSnapshot) -> u64 {
        let _ = snapshot;
        0
    }

    /// Other pages to reclaim now, from the group or from those below it; requests for others are
    /// ignored. Called after [`proactive`](Self::proactive). Requests are not given out again.
    fn take_requests(&mut self) -> Vec<ReclaimRequest> {
        Vec::new()
    }

    /// A group was created that this program decides for. It has no limits yet. The snapshot has
    /// no time and no pressure.
    fn online(&mut self, snapshot: &LimitSnapshot) {
        let _ = snapshot;
    }

    /// A group that this program decides for is about to be removed. The snapshot has no time and
    /// no pressure.
    fn offline(&mut self, snapshot: &LimitSnapshot) {
        let _ = snapshot;
    }
}

impl Default for LimitSnapshot {
    /// A group without limits, protection, or history.
    fn default() -> Self {
        Self {
            size: size_of::<Self>() as u32,
            reason: LimitReason::High as u32,
            group: 0,
            level: 0,
            page_bytes: 4096,
            usage: 0,
            max: NO_LIMIT,
            high: NO_LIMIT,
            low: 0,
            min: 0,
            elow: 0,
            emin: 0,
            swap_usage: 0,
            swap_max: NO_LIMIT,
            stall_rate: 0,
            psi_some_us: 0,
            psi_full_us: 0,
            psi_some_avg10: 0,
            psi_full_avg10: 0,
            task: 0,
            task_debt_ns: 0,
            nr_over_high: 0,
            since_refault_ns: u64::MAX,
            overage_delay_ns: 0,
            default_delay_ns: 0,
            hz: 1000,
            now_ns: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// Programs are compiled against these numbers.
    #[test]
    fn the_layout_of_the_snapshot_is_as_published() {
        assert_eq!(offset_of!(LimitSnapshot, size), 0);
        assert_eq!(offset_of!(LimitSnapshot, group), 8);
        assert_eq!(offset_of!(LimitSnapshot, usage), 24);
        assert_eq!(offset_of!(LimitSnapshot, swap_usage), 80);
        assert_eq!(offset_of!(LimitSnapshot, psi_some_avg10), 120);
        assert_eq!(offset_of!(LimitSnapshot, task), 128);
        assert_eq!(offset_of!(LimitSnapshot, now_ns), 184);
        assert_eq!(size_of::<LimitSnapshot>(), 192);
    }
}
