//! The settings of a tenant, as values.

use lowtide_core::{Engine, Limits, MemcgId, Size};
use std::fmt;

/// The settings of a tenant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TenantLimits {
    /// Hard protection.
    pub min: Size,
    /// Best-effort protection.
    pub low: Size,
    /// Above it, a thread that charges evicts first.
    pub high: Size,
    /// Usage never exceeds it.
    pub max: Size,
    /// Bytes that may be in swap.
    pub swap_max: Size,
    /// Threads are throttled while swap usage exceeds this, as for `high`.
    pub swap_high: Size,
}

impl fmt::Debug for TenantLimits {
    /// Sizes as they are written: `max` for no limit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { min, low, high, max, swap_max, swap_high } = self;
        write!(
            f,
            "TenantLimits {{ min: {min}, low: {low}, high: {high}, max: {max}, swap_max: \
             {swap_max}, swap_high: {swap_high} }}"
        )
    }
}

impl Default for TenantLimits {
    /// Neither limited nor protected.
    fn default() -> Self {
        Self {
            min: Size::new(0),
            low: Size::new(0),
            high: Size::MAX,
            max: Size::MAX,
            swap_max: Size::MAX,
            swap_high: Size::MAX,
        }
    }
}

/// Whole pages of a size.
pub(super) const fn pages(size: Size, page_shift: u32) -> u64 {
    if size.is_max() { u64::MAX } else { size.bytes() >> page_shift }
}

impl TenantLimits {
    pub(crate) fn from_pages(limits: Limits, page_shift: u32) -> Self {
        let size =
            |pages: u64| if pages == u64::MAX { Size::MAX } else { Size::new(pages << page_shift) };
        let Limits { min, low, high, max, swap_max, swap_high } = limits;
        Self {
            min: size(min),
            low: size(low),
            high: size(high),
            max: size(max),
            swap_max: size(swap_max),
            swap_high: size(swap_high),
        }
    }

    /// Sets all of them for a group that uses nothing yet.
    pub(super) fn apply(&self, engine: &mut Engine, id: MemcgId, page_shift: u32) {
        engine.set_min(id, pages(self.min, page_shift));
        engine.set_low(id, pages(self.low, page_shift));
        engine.set_high(id, pages(self.high, page_shift));
        engine.set_max(id, pages(self.max, page_shift)).expect("only the root's budget has bounds");
        engine.set_swap_max(id, pages(self.swap_max, page_shift));
        engine.set_swap_high(id, pages(self.swap_high, page_shift));
    }
}

/// How a thread reacts if it would have to sleep because a tenant is over a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnStall {
    /// It sleeps, 2 s at most at a time, before it brings in the next page; not while it has
    /// guards.
    #[default]
    Throttle,
    /// Its next operation that would bring something in fails with
    /// [`Error::OverLimit`](crate::Error::OverLimit), once, and brings nothing in.
    Error,
    /// It goes on, without evicting either: `high` is only counted, and the tenant grows up to
    /// `max`.
    Grow,
}
