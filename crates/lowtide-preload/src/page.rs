//! The status page of this process: what `lowtide top`, `lowtide stat` and exporters of metrics
//! read, written by the keeper once a second.
//!
//! It is made a moment after the keeper began, so a program that runs no longer than that has none,
//! and costs none. The keeper has a table of descriptors of its own, so the program cannot close
//! the page, and a program that has changed its root still writes it. The page names the keeper's
//! thread: after `execve(2)`, which ends all threads but one, readers see that it is old, and
//! remove it. A child of `fork(2)` has its own keeper, if it has mappings, and its own page.
//! `exit(3)` removes the page; after `_exit(2)`, or a signal, the next reader does.
//!
//! A sandbox that the program builds around itself (seccomp) may end it for calls that it does not
//! expect. So when this thread has more filters than at its beginning, the page is written no more,
//! and readers see its age; to know that takes one `pread(2)`, which `last.rs` needs, too.
//!
//! Where no page can be made (no `/proc`, no `/dev/shm`, a folder of another user) there is none,
//! and nothing else changes.

use lowtide_status::{Origin, PagerStatus, Writer};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::pread;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Programs that end before have no page.
const FIRST: Duration = Duration::from_millis(100);
/// The time between two writes.
const PAUSE: Duration = Duration::from_secs(1);
/// A write may take this part of the time, should there be very much to write.
const SELDOM: u32 = 1000;

/// The page, and when it is written next.
pub(crate) struct Page {
    writer: Option<Writer>,
    due: Option<Instant>,
    /// This thread's `status` in `/proc`, and how many filters it had at the beginning.
    filters: Option<(OwnedFd, Filters)>,
}

impl Page {
    /// For a keeper that begins.
    pub(crate) fn new() -> Self {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let status = open("/proc/thread-self/status", flags, Mode::empty()).ok();
        let filters = status.and_then(|status| Some((filters(&status)?, status)));
        let filters = filters.map(|(count, status)| (status, count));
        Self { writer: None, due: Some(Instant::now() + FIRST), filters }
    }

    /// Writes the page, if it is time; the time until the next write, if there is one. `pager` says
    /// what there is to write.
    pub(crate) fn tick(&mut self, pager: impl FnOnce() -> Option<PagerStatus>) -> Option<Duration> {
        let began = Instant::now();
        let due = self.due?;
        if began < due {
            return Some(due - began);
        }
        let is_as_before = |(status, before): &(OwnedFd, Filters)| filters(status) == Some(*before);
        if !self.filters.as_ref().is_some_and(is_as_before) {
            self.due = None;
            return None;
        }
        if self.writer.is_none() {
            self.writer = Writer::create(Origin::Run).ok();
        }
        let Some(writer) = &mut self.writer else {
            // What refused it once will not be other in a second.
            self.due = None;
            return None;
        };
        // A file system that is full may have room later.
        let _ = writer.publish(pager().into_iter().collect());
        let pause = PAUSE.max(began.elapsed() * SELDOM);
        self.due = Some(Instant::now() + pause);
        Some(pause)
    }

    /// The process ends: removes the page, unless a sandbox may forbid that.
    pub(crate) fn leave(&mut self) {
        if self.due.take().is_some() {
            self.writer = None;
        }
    }
}

/// The mode of seccomp and the number of filters, as `/proc/PID/status` has them.
type Filters = (u64, u64);

/// Those of the thread whose `status` this is.
fn filters(status: &OwnedFd) -> Option<Filters> {
    let mut text = [0; 4096];
    let len = pread(status, &mut text, 0).ok()?;
    parse(&String::from_utf8_lossy(&text[..len]))
}

/// Kernels before 5.9 do not say how many there are, and some do not know of any.
fn parse(text: &str) -> Option<Filters> {
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or_default()
    };
    (!text.is_empty()).then(|| (number("Seccomp:"), number("Seccomp_filters:")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_counted_where_the_kernel_says_how_many_there_are() {
        assert_eq!(parse("Name:\ta\nSeccomp:\t2\nSeccomp_filters:\t3\n"), Some((2, 3)));
        assert_eq!(parse("Name:\tSeccomp:\nSeccomp:\t1\n"), Some((1, 0)));
        assert_eq!(parse("Name:\ta\n"), Some((0, 0)));
        assert_eq!(parse(""), None);
        let page = Page::new();
        let (status, before) = page.filters.as_ref().expect("this thread");
        assert_eq!(filters(status), Some(*before));
    }
}
