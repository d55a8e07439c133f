//! Read-ahead for the kernel's mappings: noticing that a file is read in order, and asking the
//! kernel for what comes next.
//!
//! The kernel's own read-ahead is off for watched mappings (`MADV_RANDOM`): around each miss it
//! would read pages that random access never uses. Where pages come in one behind the other, they
//! are a *stream*, and what lies ahead of it is requested (`MADV_WILLNEED`):
//!
//! ```text
//!   ...touched....│next        │end
//!                 └── ahead ───┘ requested; more when half of it is used
//! ```
//!
//! A window begins with 32 pages and doubles each time it was used, up to 8 MiB and to a part of
//! the budget. So no stream reads more than it has used, and a stream that ends wastes one window.

use std::ops::Range;

/// New neighbours that make a stream.
const RUN: u64 = 16;
/// Pages of the first window.
const FIRST: u64 = 32;
/// Pages of the largest window: 8 MiB, as the largest of a view.
const LARGEST: u64 = 2048;
/// Streams of a file that are followed.
const STREAMS: usize = 8;
/// Looks without progress after which a stream has ended.
const PATIENCE: u32 = 200;

/// One place where a file is read in order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stream {
    /// The first page that was not touched when it was looked at last.
    next: u64,
    /// The page behind what was requested.
    end: u64,
    /// Pages of the next window.
    size: u64,
    /// Looks since it last went on.
    idle: u32,
}

/// The streams of one file.
#[derive(Debug, Default)]
pub(super) struct Streams {
    all: Vec<Stream>,
}

impl Streams {
    /// New pages have come in, as runs. Those that are long enough begin streams, unless they
    /// belong to one.
    pub(super) fn came_in(&mut self, runs: &[Range<u64>]) {
        for run in runs.iter().filter(|run| run.end - run.start >= RUN) {
            let known = |s: &Stream| run.start <= s.end && s.next <= run.end;
            if self.all.iter().any(known) {
                continue;
            }
            if self.all.len() == STREAMS {
                let oldest = (0..STREAMS).max_by_key(|at| self.all[*at].idle).unwrap_or(0);
                self.all.swap_remove(oldest);
            }
            self.all.push(Stream { next: run.end, end: run.end, size: FIRST, idle: 0 });
        }
    }

    /// Pages to look at: behind which page each stream is, and up to where it may have gone.
    pub(super) fn ahead(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.all.iter().map(|stream| stream.next..stream.end.max(stream.next + FIRST))
    }

    /// Pages that were requested and not touched yet.
    pub(super) fn waiting(&self) -> u64 {
        self.all.iter().map(|stream| stream.end - stream.next).sum()
    }

    /// Each stream was looked at, in order: it has gone on to the page of `reached`. Calls
    /// `request` with what is to be read now; windows together have at most `room` pages.
    pub(super) fn went_on(
        &mut self,
        reached: &[u64],
        pages: u64,
        room: u64,
        mut request: impl FnMut(Range<u64>),
    ) {
        let largest = LARGEST.min(room / self.all.len().max(1) as u64);
        for (stream, &next) in self.all.iter_mut().zip(reached) {
            if next <= stream.next {
                stream.idle += 1;
                continue;
            }
            (stream.next, stream.idle) = (next, 0);
            stream.end = stream.end.max(next);
            if stream.end - next > stream.size / 4 || largest < FIRST {
                continue;
            }
            let window = stream.end..(stream.end + stream.size.min(largest)).min(pages);
            stream.size = (stream.size * 2).min(LARGEST);
            stream.end = window.end.max(stream.end);
            if !window.is_empty() {
                request(window);
            }
        }
        self.all.retain(|stream| stream.idle < PATIENCE && stream.next < pages);
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges, some of one")]
mod tests {
    use super::*;

    fn step(streams: &mut Streams, reached: u64) -> Vec<Range<u64>> {
        let mut requests = Vec::new();
        streams.went_on(&[reached], 100_000, 1 << 20, |window| requests.push(window));
        requests
    }

    #[test]
    fn windows_double_while_they_are_used_and_follow_each_other() {
        let mut streams = Streams::default();
        streams.came_in(&[5..9, 100..120]);
        assert_eq!(streams.ahead().collect::<Vec<_>>(), [120..152], "four pages are no stream");
        assert_eq!(step(&mut streams, 130), [130..162]);
        assert_eq!(step(&mut streams, 131), [], "most of the window is ahead");
        assert_eq!(step(&mut streams, 150), [162..226]);
        let mut end = 226;
        for size in [128, 256, 512, 1024, 2048, 2048, 2048] {
            assert_eq!(step(&mut streams, end - 1), [end..end + size]);
            end += size;
        }
        assert_eq!(streams.waiting(), 2049);
    }

    #[test]
    fn a_stream_that_does_not_go_on_is_forgotten_and_none_is_followed_twice() {
        let mut streams = Streams::default();
        streams.came_in(&[0..20, 500..600]);
        streams.came_in(&[20..40, 590..640]);
        assert_eq!(streams.ahead().count(), 2);
        for _ in 0..PATIENCE {
            streams.went_on(&[20, 600], 1000, 1 << 20, |window| panic!("{window:?}"));
        }
        assert_eq!(streams.ahead().count(), 0);
    }

    #[test]
    fn windows_end_with_the_file_and_with_the_budget() {
        let mut streams = Streams::default();
        streams.came_in(&[0..20]);
        let mut requests = Vec::new();
        streams.went_on(&[30], 50, 1 << 20, |window| requests.push(window));
        assert_eq!(requests, [30..50]);
        let mut streams = Streams::default();
        streams.came_in(&[0..20]);
        streams.went_on(&[30], 5000, 16, |window| panic!("{window:?}: no room for a window"));
    }
}
