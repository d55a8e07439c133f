//! What a disk could still lose.
//!
//! What was written and not yet made durable may be on the disk after a cut of the power, or not,
//! or in part: a disk writes sectors of 512 bytes in any order. So for each sector the log keeps
//! what it held before each write since the last that is surely durable:
//!
//! ```text
//!   sector 7:   "a" ──write 1──▶ "b" ──write 2──▶ "c" (in the file now)
//!               after a cut: "a", "b" or "c"
//! ```
//!
//! A write that is under way when the power goes may stop anywhere, also within a sector: of such a
//! sector each byte is as it was before the write or as it is now.
//!
//! A sync that ends well makes durable what had *ended* before it began: of the sectors of such a
//! write, older contents are forgotten. A write that is still under way, or ended while the sync
//! ran, stays undecided.
//!
//! A sync that *fails* makes nothing durable, and it spoils what had ended by then: the disk has
//! reported the error, and may have dropped these writes for good. A later sync that ends well says
//! nothing about them. Only sectors that are written again become durable again (Linux reports each
//! error once, see `fsync(2)`).
//!
//! # Lengths and holes
//!
//! They are metadata. The file system keeps a journal of it, and a sync of the file (`fsync(2)`,
//! `fdatasync(2)`) makes durable what was changed before. Where ext4 and XFS promise different
//! things, this disk promises what both do, or less. What a cut may leave of a change until a sync,
//! and why:
//!
//! * *a length*: any that the file had since the last sync, because each change is a transaction of
//!   its own; both commit them later, in order;
//! * *a shorter length that is kept*: what was cut off is gone, and stays gone when the file grows,
//!   because both zero the rest of the last block before a longer length is on disk;
//! * *a shorter length that is lost*: each sector behind it as it was, or as zeroes, or as it was
//!   written since, because the rest of the last block is zeroed as data, which may come early;
//!   ext4 and XFS would not show the others;
//! * *a hole*: each sector of it as it was, or as zeroes, because a large one takes several
//!   transactions; parts of blocks are zeroed as data.
//!
//! Nothing orders metadata against data that was written before or since, nor lengths against
//! holes. What a sync that failed could not do to metadata a later one can: the journal has it
//! still, or the file system has stopped and every later sync fails. Zeroes in parts of blocks are
//! data and could be lost like it. That is not played: who cuts or punches at other places than
//! whole blocks, and goes on after a failed sync, has these bytes from the kernel's page cache.
//!
//! # Why the simulator has a model of its own
//!
//! This is a file in a file system: bytes in sectors, torn writes, lengths and holes, and a failed
//! `fsync` after which earlier writes are lost for good. `swarm/medium.rs` of `lowtide-sim` is a
//! device below the kernel: whole pages as version numbers, several flushes in flight, and a failed
//! flush that the next one makes up for. They share a rule of two lines (a flush covers the writes
//! that ended before it began); one model would have both sets of states in each.

use std::collections::BTreeMap;
use std::ops::Range;

use lowtide_workload::SplitMix64;

/// Bytes that a disk has written all or none of, once a write has ended.
pub(super) const SECTOR: usize = 512;

/// The end of a write that has not ended.
const UNDER_WAY: u64 = u64::MAX;

/// What was there before a write, or before a change of length.
#[derive(Debug)]
struct Undo<T> {
    before: T,
    /// Number of the write.
    write: u64,
    ended: u64,
    /// What came of it no failed sync has spoilt.
    metadata: bool,
}

/// The undecided state of one file. Times count requests.
#[derive(Debug, Default)]
pub(super) struct Log {
    sectors: BTreeMap<u64, Vec<Undo<[u8; SECTOR]>>>,
    lengths: Vec<Undo<u64>>,
    /// Bytes behind an end that were to be zeroes and are not, by offset ([`Log::leave_tail`]).
    tails: BTreeMap<u64, Vec<u8>>,
    /// When the last sync failed.
    failed: u64,
}

/// How a cut of the power was played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Sectors of which more than one content was possible.
    pub undecided: u64,
    /// Those that lost everything since they were durable.
    pub dropped: u64,
    /// Those that kept an older write and lost a newer one.
    pub intermediate: u64,
    /// Those that kept everything.
    pub kept: u64,
    /// Sectors of a write under way that are old in one byte and new in another.
    pub mixed: u64,
    /// Writes of which a part was kept and a part was not.
    pub torn: u64,
    /// Whether a write was kept that came after one that was dropped.
    pub reordered: bool,
    /// Whether the file is shorter than it was at last.
    pub shortened: bool,
    /// Whether it is longer: it was cut off, and that is lost.
    pub lengthened: bool,
    /// Sectors of holes, or behind an end, that are as they were before.
    pub refilled: u64,
    /// Whether the file has lost its name.
    pub unnamed: bool,
}

fn cover(bytes: Range<u64>) -> Range<u64> {
    bytes.start / SECTOR as u64..bytes.end.div_ceil(SECTOR as u64)
}

impl Log {
    /// A write of a range begins; `before` is what the file holds from the range's first sector on,
    /// as far as it goes.
    pub(super) fn begin_write(&mut self, bytes: Range<u64>, before: &[u8], write: u64) {
        self.begin(bytes, before, write, false);
    }

    /// A range begins to become a hole.
    pub(super) fn begin_hole(&mut self, bytes: Range<u64>, before: &[u8], write: u64) {
        self.begin(bytes, before, write, true);
    }

    /// The file begins to be cut off; `bytes` is what goes.
    pub(super) fn begin_cut(&mut self, bytes: Range<u64>, before: &[u8], write: u64) {
        self.begin_length(bytes.end, write);
        self.begin(bytes, before, write, true);
    }

    fn begin(&mut self, bytes: Range<u64>, before: &[u8], write: u64, metadata: bool) {
        for (index, sector) in cover(bytes).enumerate() {
            let mut contents = [0; SECTOR];
            let held = before.get(index * SECTOR..).unwrap_or_default();
            let held = &held[..held.len().min(SECTOR)];
            contents[..held.len()].copy_from_slice(held);
            let undo = Undo { before: contents, write, ended: UNDER_WAY, metadata };
            self.sectors.entry(sector).or_default().push(undo);
        }
    }

    /// The length begins to grow.
    pub(super) fn begin_length(&mut self, before: u64, write: u64) {
        self.lengths.push(Undo { before, write, ended: UNDER_WAY, metadata: true });
    }

    /// A write or a change has ended, well or not: after an error any part of it may have been
    /// done.
    pub(super) fn end(&mut self, write: u64, now: u64) {
        for undo in self.sectors.values_mut().flatten().filter(|undo| undo.write == write) {
            undo.ended = now;
        }
        for undo in self.lengths.iter_mut().filter(|undo| undo.write == write) {
            undo.ended = now;
        }
    }

    /// A disk that lies: the file is cut off at `end`, and the rest of that sector, of which
    /// `before` is what the file held, will be there again where zeroes are due.
    pub(super) fn leave_tail(&mut self, end: u64, before: &[u8]) {
        let within = (end % SECTOR as u64) as usize;
        let rest = before[..before.len().min(SECTOR)].get(within..).unwrap_or_default();
        self.tails.insert(end, rest.to_vec());
    }

    /// A sync that had begun at a time has ended well.
    pub(super) fn synced(&mut self, began: u64) {
        let failed = self.failed;
        self.sectors.retain(|_, undos| {
            let counts = |undo: &Undo<_>| undo.metadata || failed < undo.ended;
            let durable = undos.iter().rposition(|undo| counts(undo) && undo.ended < began);
            undos.drain(..durable.map_or(0, |last| last + 1));
            !undos.is_empty()
        });
        let durable = self.lengths.iter().rposition(|undo| undo.ended < began);
        self.lengths.drain(..durable.map_or(0, |last| last + 1));
    }

    /// A sync has failed.
    pub(super) fn sync_failed(&mut self, now: u64) {
        self.failed = now;
    }

    /// Sectors of which more than one content is possible.
    pub(super) fn undecided(&self) -> usize {
        self.sectors.len()
    }

    /// Turns what the file holds into what a cut at some time may leave, and forgets the log.
    pub(super) fn cut(&mut self, image: &mut Vec<u8>, rng: &mut SplitMix64, at: u64) -> Cut {
        let mut cut = Cut { undecided: self.sectors.len() as u64, ..Cut::default() };
        // The extremes are where programs break, and chance would hardly find them: nothing was
        // kept, everything was.
        let keep_in_16 = [0, 4, 8, 12, 16][rng.below(5) as usize];
        let lengths = std::mem::take(&mut self.lengths);
        let kept_lengths = rng.below(lengths.len() as u64 + 1) as usize;
        let newest_length = image.len();
        let length = lengths.get(kept_lengths).map_or(newest_length as u64, |undo| undo.before);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        // What was cut off may come back.
        image.resize(length.max(newest_length), 0);
        let is_kept = |write| lengths[..kept_lengths].iter().any(|undo| undo.write == write);
        // By write: whether sectors were kept and dropped.
        let mut fates: BTreeMap<u64, (bool, bool)> = BTreeMap::new();
        for (sector, undos) in std::mem::take(&mut self.sectors) {
            let newest = undos.len();
            // What was cut off stays so if the shorter length does.
            let least = undos.iter().rposition(|undo| undo.metadata && is_kept(undo.write));
            let least = least.map_or(0, |cut| cut + 1);
            let choice = match rng.below(16) < keep_in_16 || least == newest {
                true => newest,
                false => least + rng.below((newest - least) as u64) as usize,
            };
            cut.refilled += u64::from(undos.get(choice).is_some_and(|undo| undo.metadata));
            match choice {
                0 => cut.dropped += 1,
                _ if choice == newest => cut.kept += 1,
                _ => cut.intermediate += 1,
            }
            for (index, undo) in undos.iter().enumerate() {
                let (kept, dropped) = fates.entry(undo.write).or_default();
                *kept |= choice == index + 1;
                *dropped |= choice <= index;
            }
            let start = sector as usize * SECTOR;
            let end = image.len().min(start + SECTOR);
            if start >= end {
                continue;
            }
            let under_way = undos.last().filter(|undo| undo.ended >= at && !undo.metadata);
            if let Some(undo) = under_way.filter(|_| choice + 1 >= newest && rng.below(2) == 0) {
                cut.mixed += u64::from(mix(&mut image[start..end], &undo.before, rng));
            } else if let Some(undo) = undos.get(choice) {
                image[start..end].copy_from_slice(&undo.before[..end - start]);
            }
        }
        cut.torn = fates.values().filter(|(kept, dropped)| *kept && *dropped).count() as u64;
        let first_lost = fates.values().position(|(_, dropped)| *dropped);
        let last_kept = fates.values().rposition(|(kept, _)| *kept);
        cut.reordered = first_lost.is_some_and(|lost| last_kept.is_some_and(|kept| lost < kept));
        image.truncate(length);
        cut.shortened = length < newest_length;
        cut.lengthened = length > newest_length;
        for (end, tail) in std::mem::take(&mut self.tails) {
            let held = image.get_mut(end as usize..).unwrap_or_default().iter_mut();
            held.zip(tail).filter(|(held, _)| **held == 0).for_each(|(held, tail)| *held = tail);
        }
        self.failed = 0;
        cut
    }
}

/// Puts some of the bytes back that a sector held before. Returns whether others are still new.
fn mix(now: &mut [u8], before: &[u8; SECTOR], rng: &mut SplitMix64) -> bool {
    let old = before[..now.len()].to_vec();
    let new = now.to_vec();
    if rng.below(2) == 0 {
        // It stopped at one byte.
        let at = rng.below(now.len() as u64 + 1) as usize;
        now[at..].copy_from_slice(&old[at..]);
    } else {
        for at in 0..now.len() {
            if rng.below(2) == 0 {
                now[at] = old[at];
            }
        }
    }
    now != old && now != new
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No write is under way at the cut.
    const QUIET: u64 = u64::MAX - 1;

    const S: u64 = SECTOR as u64;

    /// All that cuts with many seeds leave of a file of one letter for each sector.
    fn outcomes(make: impl Fn() -> (Log, &'static str)) -> Vec<String> {
        let mut seen: Vec<String> = (0..500)
            .map(|seed| {
                let (mut log, now) = make();
                let mut image: Vec<u8> = now.bytes().flat_map(|letter| [letter; SECTOR]).collect();
                log.cut(&mut image, &mut SplitMix64::new(seed), QUIET);
                image.chunks(SECTOR).map(|sector| char::from(sector[0])).collect()
            })
            .collect();
        seen.sort();
        seen.dedup();
        seen
    }

    fn write(log: &mut Log, sectors: Range<u64>, before: &str, at: u64) {
        let before: Vec<u8> = before.bytes().flat_map(|letter| [letter; SECTOR]).collect();
        let bytes = sectors.start * S..sectors.end * S;
        log.begin_write(bytes, &before, at);
        log.end(at, at + 1);
    }

    #[test]
    fn a_cut_drops_tears_and_reorders_what_was_not_synced() {
        let seen = outcomes(|| {
            let mut log = Log::default();
            write(&mut log, 0..2, "aa", 1);
            write(&mut log, 1..2, "b", 3);
            (log, "bc")
        });
        assert_eq!(seen, ["aa", "ab", "ac", "ba", "bb", "bc"]);
    }

    #[test]
    fn a_sync_decides_what_had_ended_before_it_began() {
        let seen = outcomes(|| {
            let mut log = Log::default();
            write(&mut log, 0..2, "aa", 1);
            log.begin_write(0..S, &[b'b'; SECTOR], 3);
            log.synced(4);
            log.end(3, 5);
            (log, "cb")
        });
        assert_eq!(seen, ["bb", "cb"], "the second write was under way");
        let seen = outcomes(|| {
            let mut log = Log::default();
            write(&mut log, 0..1, "a", 5);
            log.synced(4);
            (log, "b")
        });
        assert_eq!(seen, ["a", "b"], "it was written while the sync ran");
    }

    #[test]
    fn after_a_failed_sync_only_what_is_written_again_becomes_durable() {
        let seen = outcomes(|| {
            let mut log = Log::default();
            write(&mut log, 0..2, "aa", 1);
            log.sync_failed(4);
            write(&mut log, 0..1, "b", 5);
            log.synced(7);
            (log, "bb")
        });
        assert_eq!(seen, ["ba", "bb"]);
    }

    #[test]
    fn an_old_length_may_come_back_until_a_sync() {
        let make = |synced| {
            move || {
                let mut log = Log::default();
                log.begin_length(S, 1);
                log.end(1, 2);
                if synced {
                    log.synced(3);
                }
                (log, "ab")
            }
        };
        assert_eq!(outcomes(make(false)), ["a", "ab"]);
        assert_eq!(outcomes(make(true)), ["ab"]);
    }

    /// A file of "abc" that was cut behind the first sector, and made as long as before.
    fn cut_and_grown() -> Log {
        let mut log = Log::default();
        log.begin_cut(S..3 * S, &[[b'b'; SECTOR], [b'c'; SECTOR]].concat(), 1);
        log.end(1, 2);
        log.begin_length(S, 3);
        log.end(3, 4);
        log
    }

    #[test]
    fn what_was_cut_off_comes_back_with_the_old_length_and_with_no_later_one() {
        let seen = outcomes(|| {
            let mut log = Log::default();
            log.begin_cut(S..2 * S, &[b'b'; SECTOR], 1);
            log.end(1, 2);
            (log, "a")
        });
        assert_eq!(seen, ["a", "a\0", "ab"]);
        let synced = |at| {
            move || {
                let mut log = cut_and_grown();
                log.synced(at);
                (log, "a\0\0")
            }
        };
        assert_eq!(outcomes(synced(1)), ["a", "a\0\0", "a\0c", "ab\0", "abc"]);
        assert_eq!(outcomes(synced(3)), ["a", "a\0\0"], "the cut is durable, growing is not");
        assert_eq!(outcomes(synced(5)), ["a\0\0"]);
    }

    #[test]
    fn what_was_written_behind_a_cut_is_lost_or_kept_and_never_older_than_the_cut_that_is_kept() {
        let seen = outcomes(|| {
            let mut log = cut_and_grown();
            log.synced(3);
            write(&mut log, 1..2, "\0", 5);
            (log, "ad\0")
        });
        assert_eq!(seen, ["a", "a\0\0", "ad\0"]);
    }

    #[test]
    fn a_hole_is_there_in_part_until_a_sync_and_no_failed_sync_spoils_it() {
        let make = |sync: fn(&mut Log)| {
            move || {
                let mut log = Log::default();
                log.begin_hole(0..2 * S, &[[b'a'; SECTOR], [b'b'; SECTOR]].concat(), 1);
                log.end(1, 2);
                sync(&mut log);
                (log, "\0\0")
            }
        };
        assert_eq!(outcomes(make(|_| ())), ["\0\0", "\0b", "a\0", "ab"]);
        assert_eq!(outcomes(make(|log| log.sync_failed(3))), ["\0\0", "\0b", "a\0", "ab"]);
        let again = |log: &mut Log| {
            log.sync_failed(3);
            log.synced(4);
        };
        assert_eq!(outcomes(make(again)), ["\0\0"]);
    }

    #[test]
    fn a_disk_that_leaves_a_tail_shows_it_when_the_file_is_longer_again() {
        let mut log = Log::default();
        let mut before = vec![b'a'; SECTOR];
        log.leave_tail(100, &before);
        log.begin_cut(100..S, &before, 1);
        log.end(1, 2);
        log.synced(3);
        before[100..].fill(0);
        log.cut(&mut before, &mut SplitMix64::new(1), QUIET);
        assert!(before.iter().all(|byte| *byte == b'a'));
    }

    #[test]
    fn the_end_of_a_file_may_lie_within_a_sector() {
        let dropped = (0..100).find_map(|seed| {
            let mut log = Log::default();
            log.begin_write(S..S + 100, &[b'a'; 50], 1);
            log.end(1, 2);
            let mut image = vec![b'b'; SECTOR + 100];
            (log.cut(&mut image, &mut SplitMix64::new(seed), QUIET).dropped > 0).then_some(image)
        });
        let image = dropped.expect("some seed drops the write");
        assert_eq!(image.len(), SECTOR + 100);
        assert_eq!((image[SECTOR + 49], image[SECTOR + 50]), (b'a', 0));
    }

    #[test]
    fn a_write_under_way_at_the_cut_may_stop_within_a_sector() {
        let mut mixed = 0;
        for seed in 0..100 {
            let mut log = Log::default();
            log.begin_write(0..S, &[b'a'; SECTOR], 1);
            log.end(1, 9);
            let mut image = vec![b'b'; SECTOR];
            let cut = log.cut(&mut image, &mut SplitMix64::new(seed), 5);
            assert!(image.iter().all(|byte| [b'a', b'b'].contains(byte)));
            let is_mixed = image.contains(&b'a') && image.contains(&b'b');
            assert_eq!(is_mixed, cut.mixed == 1);
            mixed += cut.mixed;
        }
        assert!((10..90).contains(&mixed), "{mixed} of 100 cuts stopped within the sector");
    }
}
