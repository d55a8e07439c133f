//! Read-ahead for the kernel's mappings: noticing that a file is read in order, and deciding what
//! comes next and how much of it.
//!
//! The kernel's own read-ahead is off for watched mappings (`MADV_RANDOM`): around each miss it
//! would read pages that random access never uses, and in large folios, of which no part can be
//! dropped. Where pages come in one behind the other, they are a *stream*, and what lies ahead of
//! it is requested:
//!
//! ```text
//!   ...touched....│next            │end
//!                 └── ahead ───────┘ requested; more when half of the last window is left
//! ```
//!
//! A window begins with 32 pages, and each one is four times as long as the one before. So a stream
//! reads at most a few times what it has used, and one that ends wastes a window and a half. Where
//! more than an eighth of what was requested of a file is evicted before it is used, a stream
//! halves its windows, and ends when they are too short to be worth a request. While less is, they
//! grow again: what one place wastes must not slow down another for the rest of the file.
//!
//! Windows of full length are read by the kernel itself (`handed.rs`). They grow further, to half
//! of what may be ahead: a fast reader has passed a shorter one before the next look. Streams that
//! meet are one: the second would request what the first has left behind. One that has come to the
//! end of the file begins again at its beginning.
//!
//! The pages of a window are charged *before* they are read (`watch.rs`), so other pages have left
//! when they come in, and no scan can run ahead of eviction.

use std::cmp::Reverse;
use std::ops::Range;

/// New neighbours that make a stream.
const RUN: u64 = 16;
/// Pages of the first window, and of the shortest.
const FIRST: u64 = 32;
/// Pages of a window from which on the kernel reads it: as many come in with each fault then.
pub(super) const HANDED: u64 = 2048;
/// How much longer the next window is.
const GROWTH: u64 = 4;
/// Streams of a file that are followed.
const STREAMS: usize = 8;
/// Looks without progress after which a stream has ended.
const PATIENCE: u32 = 200;
/// Looks without progress after which a stream has no share of the room until it goes on.
const STALLED: u32 = 20;
/// Windows after which what was requested and wasted counts half.
const REMEMBERED: u64 = 4;

/// The windows of a file's streams together, as a part of the budget.
pub(super) const AHEAD_PART: u64 = 8;

/// One place where a file is read in order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stream {
    /// The first page that was not touched when it was looked at last.
    next: u64,
    /// The page behind what was requested.
    end: u64,
    /// Pages of the last window.
    size: u64,
    /// Pages of the largest window that did not waste much.
    limit: u64,
    /// Looks since it last went on.
    idle: u32,
}

/// The streams of one file.
#[derive(Debug, Default)]
pub(super) struct Streams {
    all: Vec<Stream>,
    /// Pages of the largest window; 0 is none at all.
    largest: u64,
    /// Pages for which the program wants nothing read ahead.
    quiet: Vec<Range<u64>>,
    /// Pages of the file that were read ahead and evicted unused, at the last look.
    wasted: u64,
    /// Pages that were requested lately, and how many were evicted unused meanwhile.
    requested: u64,
    lost: u64,
}

/// What bounds the windows of one look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Pages of the file.
    pub(super) pages: u64,
    /// Pages that the windows of all streams together may have.
    pub(super) room: u64,
    /// Pages of the largest window that the kernel reads, which costs less than to request it; 0 if
    /// it reads none.
    pub(super) handed: u64,
    /// Pages of the file that were read ahead and evicted unused, so far.
    pub(super) wasted: u64,
}

impl Streams {
    /// Windows may have this number of pages from now on, if they may not have more already.
    pub(super) fn allow(&mut self, largest: u64) {
        self.largest = self.largest.max(largest);
    }

    /// The program says whether pages will be read at random. If not, streams may begin again.
    pub(super) fn advise(&mut self, pages: &Range<u64>, random: bool) {
        let mut rest = Vec::with_capacity(self.quiet.len() + 1);
        for quiet in self.quiet.drain(..) {
            let before = quiet.start..quiet.end.min(pages.start);
            let behind = quiet.start.max(pages.end)..quiet.end;
            rest.extend([before, behind].into_iter().filter(|part| !part.is_empty()));
        }
        self.quiet = rest;
        if random && !pages.is_empty() {
            self.quiet.push(pages.clone());
            self.all.retain(|stream| !pages.contains(&stream.next));
        }
    }

    /// Whether new pages are long enough for a stream, and of none that there is.
    pub(super) fn could_follow(&self, run: &Range<u64>) -> bool {
        let known = |s: &Stream| run.start <= s.end && s.next <= run.end;
        let quiet = |quiet: &Range<u64>| quiet.contains(&run.end);
        self.largest >= FIRST
            && run.end - run.start >= RUN
            && !self.all.iter().any(known)
            && !self.quiet.iter().any(quiet)
    }

    /// New pages have come in, as runs. Those that are long enough begin streams, unless they
    /// belong to one.
    pub(super) fn came_in(&mut self, runs: &[Range<u64>]) {
        for run in runs {
            if !self.could_follow(run) {
                continue;
            }
            if self.all.len() == STREAMS {
                let oldest = (0..STREAMS).max_by_key(|at| self.all[*at].idle).unwrap_or(0);
                self.all.swap_remove(oldest);
            }
            let (next, end) = (run.end, run.end);
            self.all.push(Stream { next, end, size: 0, limit: u64::MAX, idle: 0 });
        }
    }

    /// Whether a stream went on at the last look.
    pub(super) fn are_going(&self) -> bool {
        self.all.iter().any(|stream| stream.idle == 0)
    }

    /// The page that a stream has come to that goes on within these pages; the first, of several.
    pub(super) fn within(&self, pages: &Range<u64>) -> Option<u64> {
        let here = |stream: &&Stream| stream.next <= pages.end && pages.start <= stream.end;
        self.all.iter().filter(here).map(|stream| stream.next).min()
    }

    /// Pages to look at: behind which page each stream is, and up to where it may have gone.
    pub(super) fn ahead(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.all.iter().map(|stream| stream.next..stream.end.max(stream.next + FIRST))
    }

    /// The pages that streams which go on are about to read: one at least, of each.
    pub(super) fn windows(&self) -> Vec<Range<u64>> {
        let has_gone = |stream: &&Stream| stream.idle < STALLED && stream.end > 0;
        let going = self.all.iter().filter(has_gone);
        going.map(|stream| stream.next..stream.end.max(stream.next + 1)).collect()
    }

    /// Each stream was looked at, in order: it has gone on to the page of `reached`. Calls
    /// `request` with what is to be read now, which returns the page up to which it is.
    pub(super) fn went_on(
        &mut self,
        reached: &[u64],
        bounds: Bounds,
        mut request: impl FnMut(Range<u64>) -> u64,
    ) {
        let going = self.all.iter().filter(|stream| stream.idle < STALLED).count();
        let share = bounds.room / going.max(1) as u64;
        let largest =
            if self.largest < HANDED { self.largest } else { self.largest.max(bounds.handed) };
        self.lost += bounds.wasted - std::mem::replace(&mut self.wasted, bounds.wasted);
        for (stream, &next) in self.all.iter_mut().zip(reached) {
            if next <= stream.next {
                stream.idle += 1;
                continue;
            }
            (stream.next, stream.idle) = (next, 0);
            stream.end = stream.end.max(next);
            let most = largest.min(share);
            if most < FIRST || stream.end - next > stream.size.min(most).min(stream.limit) / 2 {
                continue;
            }
            if self.lost * 8 > self.requested.max(FIRST) && stream.size > 0 {
                stream.limit = stream.size.min(stream.limit) / 2;
                (self.requested, self.lost) = (0, 0);
            } else if stream.size >= stream.limit {
                stream.limit = stream.limit.saturating_mul(2);
            }
            let largest = most.min(stream.limit);
            if largest < FIRST {
                continue;
            }
            let size = if stream.size == 0 { FIRST } else { stream.size * GROWTH };
            let window = stream.end..(stream.end + size.min(largest)).min(bounds.pages);
            stream.size = size.min(largest);
            if !window.is_empty() {
                self.requested += window.end - window.start;
                stream.end = request(window).max(stream.end);
            }
            if self.requested > REMEMBERED * most {
                (self.requested, self.lost) = (self.requested / 2, self.lost / 2);
            }
        }
        for stream in self.all.iter_mut().filter(|stream| stream.next >= bounds.pages) {
            // What was read to its end is read again from its beginning, mostly: then no scan has
            // to find it first.
            (stream.next, stream.end, stream.size) = (0, 0, stream.size.min(FIRST));
        }
        self.all.retain(|stream| stream.idle < PATIENCE && stream.limit >= FIRST);
        self.unite();
    }

    /// Streams that have come to the same place are one: that which went on last, or that with the
    /// longest windows.
    fn unite(&mut self) {
        let rank = |stream: &Stream, number| (Reverse(stream.idle), stream.size, Reverse(number));
        let mut at = 0;
        while let Some(stream) = self.all.get(at) {
            let has_it = |(number, other): (usize, &Stream)| {
                number != at
                    && other.next <= stream.end
                    && stream.next <= other.end
                    && rank(other, number) > rank(stream, at)
            };
            if self.all.iter().enumerate().any(has_it) {
                self.all.remove(at);
            } else {
                at += 1;
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges, some of one")]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { pages: 100_000, room: 1 << 20, handed: 0, wasted: 0 };

    fn streams() -> Streams {
        let mut streams = Streams::default();
        streams.allow(2048);
        streams
    }

    fn step_within(streams: &mut Streams, reached: u64, bounds: Bounds) -> Vec<Range<u64>> {
        let mut requests = Vec::new();
        streams.went_on(&[reached], bounds, |window| {
            requests.push(window.clone());
            window.end
        });
        requests
    }

    fn step(streams: &mut Streams, reached: u64) -> Vec<Range<u64>> {
        step_within(streams, reached, BOUNDS)
    }

    #[test]
    fn windows_grow_while_they_are_used_and_follow_each_other() {
        let mut streams = streams();
        streams.came_in(&[5..9, 100..120]);
        assert_eq!(streams.ahead().collect::<Vec<_>>(), [120..152], "four pages are no stream");
        assert_eq!(step(&mut streams, 130), [130..162]);
        assert_eq!(step(&mut streams, 131), [], "most of the window is ahead");
        assert!(streams.are_going());
        assert_eq!(step(&mut streams, 146), [162..290], "half of it is left");
        let mut end = 290;
        for size in [512, 2048, 2048, 2048] {
            assert_eq!(step(&mut streams, end - 16), [end..end + size]);
            end += size;
        }
        for going in [true, false] {
            assert_eq!(step(&mut streams, end - 2032), [], "most of the window is ahead");
            assert_eq!(streams.are_going(), going);
        }
    }

    #[test]
    fn windows_that_the_kernel_reads_are_longer_unless_the_program_wants_short_ones() {
        for (allowed, longest) in [(2048, 4096), (1024, 1024)] {
            let mut streams = Streams::default();
            streams.allow(allowed);
            streams.came_in(&[0..20]);
            let mut last = 0;
            for next in (1..20).map(|step| step * 5000) {
                let windows = step_within(&mut streams, next, Bounds { handed: 4096, ..BOUNDS });
                last = windows.last().map_or(last, |window| window.end - window.start);
            }
            assert_eq!(last, longest);
        }
    }

    #[test]
    fn a_stream_that_does_not_go_on_is_forgotten_and_none_is_followed_twice() {
        let mut streams = streams();
        streams.came_in(&[0..20, 500..600]);
        streams.came_in(&[20..40, 590..640]);
        assert_eq!(streams.ahead().count(), 2);
        for _ in 0..PATIENCE {
            streams.went_on(&[20, 600], BOUNDS, |window| panic!("{window:?}"));
        }
        assert_eq!(streams.ahead().count(), 0);
    }

    #[test]
    fn windows_end_with_the_file_and_with_the_budget() {
        let mut streams = streams();
        streams.came_in(&[0..20]);
        assert_eq!(step_within(&mut streams, 30, Bounds { pages: 50, ..BOUNDS }), [30..50]);
        let mut streams = self::streams();
        streams.came_in(&[0..20]);
        assert_eq!(step_within(&mut streams, 30, Bounds { room: 16, ..BOUNDS }), []);
        // What there was no room for is requested again.
        let mut requests = Vec::new();
        for reached in [40, 44, 45] {
            streams.went_on(&[reached], BOUNDS, |window| {
                requests.push(window.clone());
                window.start + 8
            });
        }
        assert_eq!(requests, [40..72, 48..176, 56..568]);
    }

    #[test]
    fn a_stream_whose_pages_leave_before_they_are_used_reads_less_and_then_nothing() {
        let mut streams = streams();
        streams.came_in(&[0..20]);
        let mut next = 20;
        let mut window = |streams: &mut Streams, wasted| {
            next += 3000;
            let requests = step_within(streams, next, Bounds { wasted, ..BOUNDS });
            requests.first().map(|window| window.end - window.start)
        };
        for size in [32, 128, 512, 2048] {
            assert_eq!(window(&mut streams, 0), Some(size));
        }
        assert_eq!(window(&mut streams, 200), Some(2048), "less than an eighth");
        assert_eq!(window(&mut streams, 600), Some(1024));
        assert_eq!(window(&mut streams, 600), Some(2048), "nothing was wasted since");
        let mut wasted = 600;
        for size in [1024, 512, 256, 128, 64, 32] {
            wasted += 500;
            assert_eq!(window(&mut streams, wasted), Some(size));
        }
        assert_eq!(window(&mut streams, wasted + 500), None);
        assert_eq!(streams.ahead().count(), 0);
    }

    #[test]
    fn a_stream_that_has_stopped_leaves_its_room_to_those_that_go_on() {
        let mut streams = streams();
        let bounds = Bounds { room: 4096, ..BOUNDS };
        streams.came_in(&[5000..5020, 0..20, 900..920]);
        let mut windows = Vec::new();
        let mut next = 5020;
        for _ in 0..STALLED + 8 {
            next += 3000;
            streams.went_on(&[next, 20, 920], bounds, |window| {
                windows.push(window.end - window.start);
                window.end
            });
        }
        assert_eq!(windows[..5], [32, 128, 512, 1365, 1365], "three share the room");
        assert_eq!(windows.last(), Some(&2048), "it has the room alone");
    }

    #[test]
    fn streams_that_meet_are_one_and_one_that_has_ended_begins_again() {
        let mut streams = streams();
        streams.came_in(&[0..20, 100..120]);
        let mut went_on = |reached: &[u64]| {
            streams.went_on(reached, BOUNDS, |window| window.end);
            streams.ahead().collect::<Vec<_>>()
        };
        assert_eq!(went_on(&[30, 120]), [30..62, 120..152]);
        assert_eq!(went_on(&[120, 121]), [120..248], "that with the longer window");
        assert_eq!(went_on(&[BOUNDS.pages]), [0..32]);
        assert_eq!(went_on(&[20]), [20..148], "a second window at once");
        let handed = [0..5, 10..30, 100..600, 149..600];
        let within = handed.map(|pages| streams.within(&pages));
        assert_eq!(within, [None, Some(20), Some(20), None]);
        // One that stands still does not take the place of one that comes from behind.
        streams.came_in(&[200..232]);
        let mut went_on = |reached: &[u64]| {
            streams.went_on(reached, BOUNDS, |window| window.end);
            streams.ahead().collect::<Vec<_>>()
        };
        assert_eq!(went_on(&[20, 240]), [20..148, 240..272]);
        assert_eq!(went_on(&[140, 240]), [140..660]);
    }

    #[test]
    fn nothing_is_read_ahead_where_the_program_or_the_user_does_not_want_it() {
        let mut streams = streams();
        streams.came_in(&[0..20, 300..320, 900..920]);
        streams.advise(&(100..1000), true);
        assert_eq!(streams.ahead().collect::<Vec<_>>(), [20..52]);
        streams.came_in(&[300..320, 1000..1020]);
        assert_eq!(streams.ahead().count(), 2, "pages at the border are behind it");
        streams.advise(&(200..400), false);
        streams.came_in(&[150..180, 300..320, 500..520]);
        assert_eq!(streams.ahead().last(), Some(320..352));
        assert_eq!(streams.ahead().count(), 3);
        let mut off = Streams::default();
        off.came_in(&[0..200]);
        assert_eq!(off.ahead().count(), 0);
    }
}
