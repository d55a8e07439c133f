//! `io.max`: a group whose reads wait before they reach the device.
//!
//! ```text
//!   task submits a read ──► is its group ahead of its rate? ──no──► device
//!                                   └──yes──► waits its turn ──────────┘
//! ```
//!
//! A group may read as many bytes in a slice of a tenth of a second as its rate allows; what is
//! more waits, in the order of submission, outside the device: it takes no slot there and keeps no
//! other group waiting. The task goes on, as after every submission, and waits for the page. Only
//! reads are limited. Source: the kernel's *Control Group v2*, `io.max`.

use lowtide_core::MemcgId;
use std::collections::BTreeMap;

/// What a group may read at once when it has read nothing for long.
const SLICE_NS: u64 = 100_000_000;

/// The limit of a group.
#[derive(Clone, Copy, Debug)]
struct IoMax {
    bytes_per_s: u64,
    /// When all that it has been allowed would be read at its rate.
    paid_until: u64,
}

impl IoMax {
    const fn new(bytes_per_s: u64) -> Self {
        Self { bytes_per_s, paid_until: 0 }
    }

    /// When a read that is submitted now may go to the device.
    fn admit(&mut self, now: u64, bytes: u64) -> u64 {
        let takes = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_s);
        let start = now.max(self.paid_until.saturating_sub(SLICE_NS));
        self.paid_until = self.paid_until.max(now) + takes as u64;
        start
    }
}

/// The limits of all groups that have one.
#[derive(Debug, Default)]
pub struct IoLimits(BTreeMap<MemcgId, IoMax>);

impl IoLimits {
    /// Limits the reads of a group, in bytes a second.
    ///
    /// # Panics
    /// When it may read nothing.
    pub fn set(&mut self, memcg: MemcgId, bytes_per_s: u64) {
        assert!(bytes_per_s > 0, "a group that may read nothing would wait forever");
        self.0.insert(memcg, IoMax::new(bytes_per_s));
    }

    /// When a read that a member of a group submits now may go to the device.
    pub(super) fn admit(&mut self, memcg: MemcgId, now: u64, bytes: u64) -> u64 {
        self.0.get_mut(&memcg).map_or(now, |limit| limit.admit(now, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_reads_one_slice_at_once_and_then_at_its_rate() {
        let mut limit = IoMax::new(10_000_000);
        // A slice is a million bytes: the first eleven reads of 100 kB find it not used up.
        let starts: Vec<u64> = (0..21).map(|_| limit.admit(5_000_000, 100_000)).collect();
        assert!(starts[..11].iter().all(|&start| start == 5_000_000), "{starts:?}");
        assert_eq!(starts[20], 5_000_000 + 100_000_000);
        // Silence gives back one slice, not more.
        let later = 10_000_000_000;
        let starts: Vec<u64> = (0..12).map(|_| limit.admit(later, 100_000)).collect();
        assert_eq!(starts[10], later);
        assert_eq!(starts[11], later + 10_000_000);
    }
}
