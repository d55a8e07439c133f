//! The settings of a tenant, as values.

use lowtide_core::{Engine, Limits, MemcgId, Size};
use std::fmt;
use std::time::Duration;

/// The settings of a tenant.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
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

/// Whether usage has come down to a limit that was set. The limit is set in either case.
#[must_use = "`Later`: what is pinned, dirty or reserved is above the limit still"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    /// Usage is not above the limit.
    Yes,
    /// Pages that are pinned, dirty or reserved are above it. Usage can only fall until they are
    /// gone, and until then every charge evicts or fails.
    Later,
}

/// Bounds of a limit that sets itself, and what it holds. See
/// [`Tenant::set_auto`](crate::Tenant::set_auto).
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct AutoLimits {
    /// The limit is never less.
    pub least: Size,
    /// It is never more; usage neither.
    pub most: Size,
    /// Share of the time that threads may wait for pages that the limit has evicted, all together:
    /// 0.01 is ten milliseconds a second. Between a millionth and 1.
    pub target: f64,
}

impl AutoLimits {
    /// One percent of the time.
    pub const TARGET: f64 = 0.01;

    /// Bounds, with the default target.
    pub fn new(least: impl Into<Size>, most: impl Into<Size>) -> Self {
        Self { least: least.into(), most: most.into(), target: Self::TARGET }
    }

    /// The same bounds with another [`target`](Self::target).
    #[must_use]
    pub const fn with_target(self, target: f64) -> Self {
        Self { target, ..self }
    }
}

/// The state of a limit that sets itself. Sizes are bytes; means are over time.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct AutoStat {
    /// Its bounds and target.
    pub limits: AutoLimits,
    /// The limit now: the tenant's `high`.
    pub limit_bytes: u64,
    /// The smallest that it was.
    pub least_bytes: u64,
    /// The largest that it was.
    pub most_bytes: u64,
    /// Its mean.
    pub mean_bytes: u64,
    /// The mean of what was used, which is less where a program does not use its limit, or does
    /// nothing.
    pub mean_usage_bytes: u64,
    /// How often it grew.
    pub grown: u64,
    /// How often it shrank.
    pub shrunk: u64,
    /// Pages that came back after they had been evicted.
    pub refaults: u64,
    /// How long threads waited for pages that the limit had evicted, all together. Where the kernel
    /// brings pages in, 0.1 ms for each.
    pub waited: Duration,
    /// The share of the last quarter of a second that this took; more than 1 where several threads
    /// waited.
    pub stall_share: f64,
}
