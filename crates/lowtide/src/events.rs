//! Events of `tracing` at what the runtime decides, in one place: their targets and fields.
//!
//! | target | level | when |
//! |---|---|---|
//! | `lowtide::auto` | debug | a limit that sets itself moves |
//! | `lowtide::limit` | debug | a limit of a tenant was set |
//! | `lowtide::throttle` | debug | a thread goes to sleep for a limit |
//! | `lowtide::room` | warn | an operation gives up for want of room |
//! | `lowtide::write` | warn | pages could not be written, or a file not synced |
//!
//! `docs/guide/counters.md` has their fields.
//!
//! Other events, of devices and maps, have the module that they come from for a target. Where there
//! is no subscriber an event costs a load, and none of these is on the way of a hit or of a miss
//! that finds room. No event is made while a lock of the pager is held: a subscriber may take long,
//! or use the pager.

use crate::error::Error;
use lowtide_core::auto::AutoStep;
use lowtide_core::high::handler::SleepCause;
use lowtide_sys::tell;
use std::io;
use std::ops::Range;
use std::path::Path;
use tracing::{Level, enabled};

const AUTO: &str = "lowtide::auto";
const LIMIT: &str = "lowtide::limit";
const THROTTLE: &str = "lowtide::throttle";
const ROOM: &str = "lowtide::room";
const WRITE: &str = "lowtide::write";

/// Pages as bytes; no limit stays none.
const fn bytes(pages: u64, page_shift: u32) -> u64 {
    if pages == u64::MAX { u64::MAX } else { pages << page_shift }
}

/// Whether a subscriber wants to know of moves of limits that set themselves.
pub(crate) fn moves_wanted() -> bool {
    enabled!(target: AUTO, Level::DEBUG)
}

/// A limit that sets itself has moved. Sizes are pages.
pub(crate) fn moved(tenant: &str, before: u64, usage: u64, step: &AutoStep, page_shift: u32) {
    tell!(debug, target: AUTO,
        tenant,
        cause = step.cause.name(),
        limit_bytes = bytes(step.limit, page_shift),
        before_bytes = bytes(before, page_shift),
        usage_bytes = bytes(usage, page_shift),
        stall_share = step.stall_share as f64 / 1e6,
        "a limit that sets itself moves"
    );
}

/// Whether a subscriber wants to know of limits that are set.
pub(crate) fn limits_wanted() -> bool {
    enabled!(target: LIMIT, Level::DEBUG)
}

/// A limit of a tenant was set, in pages.
pub(crate) fn limit_set(tenant: &str, limit: &str, before: u64, now: u64, page_shift: u32) {
    tell!(debug, target: LIMIT,
        tenant,
        limit,
        bytes = bytes(now, page_shift),
        before_bytes = bytes(before, page_shift),
        "a limit is set"
    );
}

/// Whether a subscriber wants to know of threads that are slowed down.
pub(crate) fn throttles_wanted() -> bool {
    enabled!(target: THROTTLE, Level::DEBUG)
}

/// A thread goes to sleep for a limit.
pub(crate) fn throttled(tenant: &str, sleep_ns: u64, cause: SleepCause) {
    tell!(debug, target: THROTTLE, tenant, sleep_ns, ?cause, "a thread sleeps for a limit");
}

/// An operation gives up, if it does for want of room.
pub(crate) fn gave_up(error: &Error) {
    let Error::OutOfBudget { report } = error else { return };
    tell!(warn, target: ROOM,
        tenant = report.tenant,
        payer = report.payer,
        asked_bytes = report.asked_bytes,
        usage_bytes = report.usage_bytes,
        limit_bytes = report.limit_bytes,
        "an operation gives up: {}",
        report.summary()
    );
}

/// Pages could not be written.
pub(crate) fn write_failed(path: &Path, pages: &Range<u64>, error: &io::Error) {
    let path = path.display();
    tell!(warn, target: WRITE, %path, ?pages, %error, "write-back failed; the pages stay dirty");
}

/// A file could not be synced.
pub(crate) fn sync_failed(path: &Path, error: &io::Error) {
    let path = path.display();
    tell!(warn, target: WRITE,
        %path,
        %error,
        "the file could not be synced; what was written since the last time is written again"
    );
}
