//! Memory without a file that is not kept, of a program whose heap is (`--anon`).
//!
//! What is below `--threshold` stays the C library's: small allocations, arenas that were reserved
//! without rights, stacks, copies that a child of `fork` has of its parent's blocks. Programs that
//! allocate nothing else, such as key-value stores, have all of their heap there. Blocks that are
//! kept are memory of a file for the kernel (`RssShmem`), so the rest is what it counts as
//! `RssAnon` (`proc_pid_status(5)`), less what lowtide itself has for pages that it keeps, which
//! the budget holds: compressed ones, and tables. When it alone is more than the budget, a line
//! says so, once.
//!
//! The file is opened at the beginning and kept: a program may confine itself later, or use its
//! descriptors up.

use crate::{descriptors, room};
use std::fs::File;
use std::time::{Duration, Instant};

/// How often it is looked at, at most.
const PAUSE: Duration = Duration::from_millis(500);

/// What lowtide itself takes of it: tables, and the stacks of its threads.
const OWN: u64 = 16 << 20;

/// What the kernel counts, now and then.
pub(crate) struct Outside {
    status: Option<File>,
    now: u64,
    peak: u64,
    looked: Option<Instant>,
    was_said: bool,
}

impl Outside {
    /// Opens the file. Without it nothing is counted.
    pub(crate) fn open() -> Self {
        let status = File::open("/proc/thread-self/status").ok();
        Self { status, now: 0, peak: 0, looked: None, was_said: false }
    }

    /// Whether the last look was some time ago, and another is due.
    pub(crate) fn is_due(&self) -> bool {
        self.looked.is_none_or(|looked| looked.elapsed() >= PAUSE)
    }

    /// Looks. `charged` is what of it the budget holds. Says once that the rest is more than the
    /// budget, less what was given back, which was said then.
    pub(crate) fn tick(&mut self, charged: u64, max: u64, given_back: u64) {
        self.looked = Some(Instant::now());
        self.look(charged);
        let small = self.now.saturating_sub(given_back.saturating_add(OWN));
        if small > max && !self.was_said {
            self.was_said = true;
            let text = format!(
                "lowtide: --max does not hold for some memory: small allocations, stacks and what \
                 a child has from its parent take {} MiB of it alone; --threshold says what is \
                 small\n",
                small >> 20
            );
            descriptors::say(text.as_bytes());
        }
    }

    fn look(&mut self, charged: u64) {
        let bytes = self.status.as_ref().and_then(|file| anonymous(&room::text(file)?));
        self.now = bytes.unwrap_or_default().saturating_sub(charged);
        self.peak = self.peak.max(self.now);
    }

    /// Bytes now, and the most that was seen; of them the budget holds `charged` now.
    pub(crate) fn figures(&mut self, charged: u64) -> (u64, u64) {
        self.look(charged);
        (self.now, self.peak)
    }
}

/// The bytes that the file says.
fn anonymous(status: &str) -> Option<u64> {
    room::line(status, "RssAnon:")?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_what_is_not_kept() {
        let status = "Name:\tx\nRssAnon:\t    1088 kB\nRssFile:\t    7 kB\n";
        assert_eq!(anonymous(status), Some(1088 << 10));
        assert_eq!(anonymous(""), None);
        let mut outside = Outside::open();
        let before = outside.figures(0).0;
        let more = vec![1_u8; 8 << 20];
        let (now, peak) = outside.figures(0);
        assert!(now > before && peak >= now, "{before} {now} {peak}, {}", more.len());
        let rest = outside.figures(4 << 20).0;
        assert!(rest <= now - (3 << 20), "{now} {rest}: what the budget holds is no part of it");
    }
}
