//! The kernel's files: the texts that a memory cgroup of the second version has, byte by byte.
//!
//! Sizes are in bytes and end with a newline; no limit is the word `max`. The engine prints
//! `memory.stat` and `memory.events` (`lowtide-core`, `text.rs`). Source: `docs/kernel/memcg.md`
//! §4.1, 12, 13, 14.4.

use crate::pool::{Pool, State};
use crate::swap::Kept;
use lowtide_core::MemcgId;

/// One of the files of a tenant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TenantFile {
    /// Bytes charged.
    Current,
    /// The most that were ever charged.
    Peak,
    /// Hard protection.
    Min,
    /// Best-effort protection.
    Low,
    /// Above it charges evict first.
    High,
    /// The budget.
    Max,
    /// How much may be in swap.
    SwapMax,
    /// Above as much in swap threads are slowed down.
    SwapHigh,
    /// Events of swap, those below included.
    SwapEvents,
    /// Sizes and counters.
    Stat,
    /// Limit events, those below included.
    Events,
    /// Limit events of the tenant alone.
    EventsLocal,
    /// Time lost waiting for memory.
    Pressure,
}

impl TenantFile {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Current,
        Self::Peak,
        Self::Min,
        Self::Low,
        Self::High,
        Self::Max,
        Self::SwapMax,
        Self::SwapHigh,
        Self::SwapEvents,
        Self::Stat,
        Self::Events,
        Self::EventsLocal,
        Self::Pressure,
    ];

    /// The kernel's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Current => "memory.current",
            Self::Peak => "memory.peak",
            Self::Min => "memory.min",
            Self::Low => "memory.low",
            Self::High => "memory.high",
            Self::Max => "memory.max",
            Self::SwapMax => "memory.swap.max",
            Self::SwapHigh => "memory.swap.high",
            Self::SwapEvents => "memory.swap.events",
            Self::Stat => "memory.stat",
            Self::Events => "memory.events",
            Self::EventsLocal => "memory.events.local",
            Self::Pressure => "memory.pressure",
        }
    }

    /// Its text for a group that is alive, of whose pages this is compressed in memory.
    pub(super) fn text(self, state: &mut State, id: MemcgId, pool: &Pool, kept: Kept) -> String {
        let (page_shift, now) = (pool.page_shift, pool.now());
        let engine = &mut state.engine;
        let size = |pages: u64| {
            if pages == u64::MAX {
                "max\n".to_owned()
            } else {
                format!("{}\n", pages << page_shift)
            }
        };
        match self {
            Self::Current => size(engine.usage(id)),
            Self::Peak => size(engine.peak(id)),
            Self::Min => size(engine.limits(id).min),
            Self::Low => size(engine.limits(id).low),
            Self::High => size(engine.limits(id).high),
            Self::Max => size(engine.limits(id).max),
            Self::SwapMax => size(engine.limits(id).swap_max),
            Self::SwapHigh => size(engine.limits(id).swap_high),
            Self::SwapEvents => engine.swap_events(id).to_string(),
            Self::Stat => kept.among(engine.stat(id)).to_string(),
            Self::Events => engine.limit_events(id).to_string(),
            Self::EventsLocal => engine.local_events(id).to_string(),
            Self::Pressure => engine.pressure(id, now).to_string(),
        }
    }
}
