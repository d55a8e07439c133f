//! Read-around: reading the neighbours of a page that is missed, where that was found useful.
//!
//! Pages that are read in order are read ahead (`readahead.rs`). Others may still lie together: a
//! file that is read backwards, records that span pages, the blocks of an index. There a miss that
//! brings its neighbours saves the misses that would follow. Where accesses are scattered it costs
//! reads, and memory that other pages had. So read-around is *measured* before it is done, for each
//! region of [`REGION`] pages.
//!
//! # What is measured
//!
//! ```text
//!   missed in one cluster of 16 pages, in any order, before four other clusters of the region:
//!
//!     .##..... ####....      blocks of 4:  6 missed, 2 begun     4 of 6 would have been useful
//!     |  8   |               blocks of 8:  6 missed, 2 begun     4 of 14
//! ```
//!
//! A block is an aligned power of two of pages, from four on: pairs are missed by chance, too. Had
//! the first miss of a block brought all of it, the other misses there would not have been, if that
//! would have stayed for as long: a miss counts while the page is in memory with which its cluster
//! began. The largest block of which at least half would have been useful is the region's *level*,
//! and the misses that it would have saved are *credit*.
//!
//! # What may be read
//!
//! A page that is read around a miss takes one from the region's credit. It gives that back when
//! it is *touched*; if it is evicted before, the credit is gone. Nothing else earns any: not that
//! the page is in memory, nor that a miss did not happen in a cluster that was read around. So a
//! region reads no more than was measured useful, and its own reads confirm nothing. A region that
//! has used up its credit reads single pages again, which measures it again.
//!
//! A touch behind a pointer is not seen when it happens. Before a region goes without for want of
//! credit, the page table shows which of its pages were touched meanwhile
//! ([`MappedPages::see`](crate::map::MappedPages::see)).
//!
//! # Guesses
//!
//! Half of a block is much where a request for eight pages takes a device no longer than one for a
//! single page, as for memory that comes back from swap. There one miss in [`GUESSED`] that nothing
//! is known of brings its block of [`GUESS`] pages, as a guess. If a quarter of what guesses have
//! brought was touched before it left, each such miss does, until that ends. So what is scattered
//! costs a page in eighteen, and what is dense in a place but in no order comes in blocks.
//!
//! # Cost
//!
//! A miss takes one lock, and remembers its page in a region of about 120 bytes. A file has at most
//! [`REGIONS`] of them. Of a larger one those are known that missed last: read-around is for
//! places, and scattered accesses have none.

use lowtide_pin::sync::lock;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Pages of a region.
const REGION: u64 = 512;
/// Pages of a cluster: the most that a miss brings.
const CLUSTER: u64 = 16;
/// log2 of the pages of the smallest block, and of a cluster.
const LEVELS: std::ops::RangeInclusive<u8> = 2..=CLUSTER.trailing_zeros() as u8;
/// Clusters that a region follows.
const RECENT: usize = 4;
/// Regions that a file remembers.
const REGIONS: u64 = 1024;
/// The most that a region has in credit, in pages.
const CREDIT_MAX: u16 = 64;

/// log2 of the pages that a guess brings: 8, as many as a kernel reads from swap.
const GUESS: u8 = 3;
/// Of this number of misses one guesses, while guesses are of no use.
const GUESSED: u32 = 128;
/// Ends of pages after which the use of guesses is judged.
const JUDGED: u32 = 64;
/// The part of these that is to be touched: one in four.
const USEFUL: u32 = 4;

/// What was measured of a file. See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Around {
    regions: Mutex<Vec<Region>>,
    /// Pages that were read around and not yet seen to be touched or evicted.
    open: AtomicU64,
    guesses: Mutex<Guesses>,
}

/// Whether guesses are of use.
#[derive(Debug, Default)]
struct Guesses {
    on: bool,
    misses: u32,
    /// Pages that were touched, or evicted, since the use was judged last, and those touched.
    ended: u32,
    touched: u32,
}

impl Guesses {
    /// Whether this miss guesses.
    fn next(&mut self) -> bool {
        self.misses = self.misses.wrapping_add(1);
        self.on || self.misses.is_multiple_of(GUESSED)
    }

    fn learn(&mut self, touched: bool) {
        self.ended += 1;
        self.touched += u32::from(touched);
        if self.ended == JUDGED {
            self.on = self.touched * USEFUL >= self.ended;
            (self.ended, self.touched) = (0, 0);
        }
    }
}

/// What a miss is to bring.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Advice {
    /// These pages, of which it is one.
    Read(Range<u64>),
    /// The page alone, unless some of these were touched.
    Look(Range<u64>),
}

#[derive(Clone, Debug, Default)]
struct Region {
    /// Its number, and one.
    tag: u64,
    /// Clusters of the last misses, the newest first.
    recent: [Cluster; RECENT],
    /// log2 of the pages of a block that is worth reading.
    level: u8,
    credit: u16,
    /// Pages that were read around, and not yet seen to be touched or evicted.
    open: [u64; (REGION / 64) as usize],
}

#[derive(Clone, Copy, Debug, Default)]
struct Cluster {
    number: u8,
    /// The page that was missed first, of the region's.
    first: u16,
    /// A bit for each page that was missed; none: there is no such cluster.
    missed: u16,
    /// Some of it was read around a miss, so that misses say nothing about the others.
    read: bool,
}

impl Cluster {
    /// The level that would have been useful, and the misses that it would have saved.
    fn measure(self) -> (u8, u16) {
        let missed = self.missed.count_ones();
        let begun = |level: u8| {
            let blocks = 0..CLUSTER as u32 >> level;
            let of = |block: u32| self.missed >> (block << level) & low_bits(1 << level);
            blocks.filter(|&block| of(block) != 0).count() as u32
        };
        let useful = |&level: &u8| 2 * (missed - begun(level)) >= begun(level) * ((1 << level) - 1);
        match LEVELS.rev().find(useful) {
            Some(level) => (level, (missed - begun(level)) as u16),
            None => (0, 0),
        }
    }
}

/// A word whose lowest `count` of 16 bits are set.
const fn low_bits(count: u32) -> u16 {
    (u16::MAX as u32 >> (16 - count)) as u16
}

impl Region {
    fn of(tag: u64) -> Self {
        Self { tag, ..Self::default() }
    }

    /// A page of the region is missed; `resident` says whether another is in memory.
    fn missed(&mut self, page: u16, resident: impl FnOnce(u16) -> bool) {
        let (number, bit) = ((page / CLUSTER as u16) as u8, 1 << (page % CLUSTER as u16));
        let known = self.recent.iter().position(|c| c.missed != 0 && c.number == number);
        let mut cluster = match known {
            Some(at) => {
                let mut cluster = self.recent[at];
                self.recent[..=at].rotate_right(1);
                if !resident(cluster.first) {
                    // What the first miss could have brought would be gone, too.
                    self.learn(cluster);
                    cluster = Cluster { number, first: page, missed: 0, read: false };
                }
                cluster
            }
            None => {
                let oldest = self.recent[RECENT - 1];
                self.learn(oldest);
                self.recent.rotate_right(1);
                Cluster { number, first: page, missed: 0, read: false }
            }
        };
        cluster.missed |= bit;
        if cluster.missed == u16::MAX {
            self.learn(cluster);
            cluster = Cluster::default();
        }
        self.recent[0] = cluster;
    }

    fn learn(&mut self, cluster: Cluster) {
        if cluster.missed == 0 || cluster.read {
            return;
        }
        let (level, saved) = cluster.measure();
        if level == 0 {
            self.credit /= 2;
        }
        self.level = level.max(self.level.saturating_sub(1));
        self.credit = (self.credit + saved).min(CREDIT_MAX);
    }

    /// log2 of the pages of the block that there is credit for.
    fn affordable(&self) -> u8 {
        let may = |level: &u8| *level <= self.level && (1 << level) - 1 <= self.credit;
        LEVELS.rev().find(may).unwrap_or(0)
    }

    /// Takes the note that a page was read around; returns whether there was one.
    fn close(&mut self, page: u16) -> bool {
        let (word, bit) = (&mut self.open[usize::from(page / 64)], 1 << (page % 64));
        let noted = *word & bit != 0;
        *word &= !bit;
        noted
    }
}

impl Around {
    /// A page of a file of `pages` is missed, which a thread waits for. Says what to read with it.
    /// `resident` says whether another page is in memory.
    pub(crate) fn missed(
        &self,
        page: u64,
        pages: u64,
        resident: impl FnOnce(u64) -> bool,
    ) -> Advice {
        let (tag, within) = place(page);
        let mut regions = lock(&self.regions);
        if regions.is_empty() {
            let count = pages.div_ceil(REGION).next_power_of_two().min(REGIONS);
            regions.resize_with(count as usize, Region::default);
        }
        let at = slot(tag, regions.len());
        if regions[at].tag != tag {
            // What the old one has open is not followed any more.
            let forgotten = regions[at].open.iter().map(|word| u64::from(word.count_ones())).sum();
            self.open.fetch_sub(forgotten, Relaxed);
            regions[at] = Region::of(tag);
        }
        let region = &mut regions[at];
        region.missed(within, |other| resident((tag - 1) * REGION + u64::from(other)));
        let level = region.affordable();
        if level < region.level && region.open.iter().any(|&word| word != 0) {
            return Advice::Look(page / REGION * REGION..(page / REGION + 1) * REGION);
        }
        Advice::Read(block(page, level))
    }

    /// The block of a page that there is credit for now.
    pub(crate) fn block_of(&self, page: u64) -> Range<u64> {
        let level = self.with(page, |region, _| region.affordable()).unwrap_or(0);
        block(page, level)
    }

    /// What a miss is to bring that nothing is known of.
    pub(crate) fn guess(&self, page: u64) -> Range<u64> {
        block(page, if lock(&self.guesses).next() { GUESS } else { 0 })
    }

    /// This number of pages is about to be read around a miss of `page`.
    pub(crate) fn spend(&self, page: u64, pages: u64) {
        self.with(page, |region, within| {
            let number = (within / CLUSTER as u16) as u8;
            if let Some(cluster) = region.recent.iter_mut().find(|c| c.number == number) {
                cluster.read = true;
            }
            region.credit = region.credit.saturating_sub(pages as u16);
        });
    }

    /// These pages were read around a miss of `page`, and are in memory now.
    pub(crate) fn arrived(&self, page: u64, with: impl Iterator<Item = u64>) {
        self.with(page, |region, _| {
            for page in with {
                let within = place(page).1;
                let (word, bit) = (&mut region.open[usize::from(within / 64)], 1 << (within % 64));
                self.open.fetch_add(u64::from(*word & bit == 0), Relaxed);
                *word |= bit;
            }
        });
    }

    /// Whether a page was read around a miss, and not yet seen to be touched or evicted.
    #[cfg(test)]
    pub(crate) fn is_open(&self, page: u64) -> bool {
        let is = |region: &mut Region, within: u16| {
            region.open[usize::from(within / 64)] & 1 << (within % 64) != 0
        };
        self.with(page, is).unwrap_or(false)
    }

    /// A page was touched.
    pub(crate) fn touched(&self, page: u64) {
        self.closed(page, true, |region| region.credit = (region.credit + 1).min(CREDIT_MAX));
    }

    /// A page leaves memory.
    pub(crate) fn evicted(&self, page: u64) {
        self.closed(page, false, |_| ());
    }

    fn closed(&self, page: u64, touched: bool, then: impl FnOnce(&mut Region)) {
        // Almost always: nothing is read around.
        if self.open.load(Relaxed) == 0 {
            return;
        }
        let closed = self.with(page, |region, within| {
            let closed = region.close(within);
            if closed {
                self.open.fetch_sub(1, Relaxed);
                then(region);
            }
            closed
        });
        if closed == Some(true) {
            lock(&self.guesses).learn(touched);
        }
    }

    /// The region of a page, if it is known, and the page's place in it.
    fn with<T>(&self, page: u64, act: impl FnOnce(&mut Region, u16) -> T) -> Option<T> {
        let (tag, within) = place(page);
        let mut regions = lock(&self.regions);
        if regions.is_empty() {
            return None;
        }
        let at = slot(tag, regions.len());
        let region = &mut regions[at];
        (region.tag == tag).then(|| act(region, within))
    }
}

fn place(page: u64) -> (u64, u16) {
    (page / REGION + 1, (page % REGION) as u16)
}

fn slot(tag: u64, slots: usize) -> usize {
    tag as usize & (slots - 1)
}

fn block(page: u64, level: u8) -> Range<u64> {
    let first = page >> level << level;
    first..first + (1 << level)
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges, some of one")]
mod tests {
    use super::*;

    /// Misses these pages, and reads what is advised, but for pages that were missed in this call.
    /// Returns what was read with each.
    fn miss(around: &Around, pages: impl IntoIterator<Item = u64>) -> Vec<Range<u64>> {
        let mut there = Vec::new();
        let read = |page| {
            there.push(page);
            let block = match around.missed(page, 1 << 20, |_| true) {
                Advice::Read(block) => block,
                Advice::Look(_) => around.block_of(page),
            };
            let mut others = block.clone().filter(|other| !there.contains(other));
            let Some(first) = others.next() else { return page..page + 1 };
            around.spend(page, others.clone().count() as u64 + 1);
            around.arrived(page, std::iter::once(first).chain(others));
            block
        };
        pages.into_iter().map(read).collect()
    }

    #[test]
    fn guesses_go_on_while_a_quarter_of_what_they_bring_is_touched() {
        let around = Around::default();
        let mut played = 0_u64;
        // Misses of blocks that none has touched; `touched` of the neighbours of each are.
        let mut play = |misses: u64, touched: u64| {
            let mut guesses = 0;
            for _ in 0..misses {
                let page = played % 4096 * 8;
                played += 1;
                around.missed(page, 1 << 20, |_| true);
                let block = around.guess(page);
                assert!(block.contains(&page));
                if block.end - block.start > 1 {
                    guesses += 1;
                    around.arrived(page, page + 1..page + 8);
                    (page + 1..page + 1 + touched).for_each(|other| around.touched(other));
                    (page + 1 + touched..page + 8).for_each(|other| around.evicted(other));
                }
            }
            guesses
        };
        assert_eq!(play(1280, 1), 10, "one in 128, and one of seven is touched");
        assert_eq!(play(1152, 2), 9, "two of seven are touched");
        assert!(play(1280, 2) > 1000, "each miss, now that this is known");
        assert!(play(1280, 0) < 40, "until it ends");
    }

    fn pages_of(reads: &[Range<u64>]) -> u64 {
        reads.iter().map(|block| block.end - block.start).sum()
    }

    #[test]
    fn pages_that_are_missed_together_are_read_together_in_any_order() {
        for order in [[0_u64, 1, 5, 3, 4, 2, 6, 7, 15, 8, 14, 9, 13, 10, 12, 11], {
            let mut down = std::array::from_fn(|k| 15 - k as u64);
            down.rotate_left(3);
            down
        }] {
            let around = Around::default();
            let alone = miss(&around, order.map(|page| 1600 + page));
            assert_eq!(pages_of(&alone), 16, "nothing is known yet: {alone:?}");
            assert_eq!(miss(&around, [1707]), [1696..1712]);
            assert_eq!(miss(&around, [5000]), [5000..5001], "another region");
        }
    }

    #[test]
    fn scattered_misses_read_nothing_around_them() {
        let around = Around::default();
        let mut at = 7_u64;
        let scattered = std::iter::repeat_with(|| {
            at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (at >> 33) % 4096
        });
        let reads = miss(&around, scattered.take(20_000));
        let more = pages_of(&reads) - 20_000;
        assert_eq!(more, 0);
    }

    #[test]
    fn a_level_is_the_largest_block_of_which_half_is_useful() {
        let measured = |missed| Cluster { missed, ..Cluster::default() }.measure();
        assert_eq!(measured(u16::MAX), (4, 15));
        assert_eq!(measured(0b0101_0101_0101_0101), (0, 0), "every second page");
        assert_eq!(measured(0b1), (0, 0));
        assert_eq!(measured(0b0000_1111_0000_0110), (2, 4), "the drawing");
        assert_eq!(measured(0b11), (0, 0), "two pages may be chance");
        assert_eq!(measured(0b0000_0111_1110_0111), (4, 8));
    }

    #[test]
    fn no_more_is_read_than_was_measured_useful() {
        let around = Around::default();
        let measured = 3 * 15;
        miss(&around, 0..3 * 16);
        // From here on one page of each cluster is wanted.
        let reads = miss(&around, (4..32).map(|cluster| cluster * 16 + 5));
        let more = pages_of(&reads) - 28;
        assert!(more <= measured, "{more} pages, {measured} of them measured useful");
        assert!(more > 0);
        let last = miss(&around, (4..20).map(|cluster| cluster * 16 + 9));
        assert_eq!(pages_of(&last), 16, "its own reads have confirmed nothing: {last:?}");
    }

    #[test]
    fn misses_count_only_while_what_was_read_first_would_still_be_there() {
        let around = Around::default();
        for page in 0..64 {
            assert_eq!(around.missed(page, 1 << 20, |_| false), Advice::Read(page..page + 1));
        }
        assert_eq!(around.block_of(99), 99..100);
    }

    #[test]
    fn touches_keep_it_going_and_evictions_do_not() {
        let [touched, evicted] = [true, false].map(|touches| {
            let around = Around::default();
            miss(&around, 0..16);
            let reads: Vec<_> = (1..31)
                .flat_map(|cluster| {
                    let read = miss(&around, [cluster * 16 + 3]);
                    for page in read[0].clone() {
                        if touches {
                            around.touched(page);
                        } else {
                            around.evicted(page);
                        }
                        around.touched(page);
                    }
                    read
                })
                .collect();
            assert_eq!(around.open.load(Relaxed), 0);
            pages_of(&reads)
        });
        assert_eq!(touched, 30 * 16);
        assert_eq!(evicted, 30 + 15);
    }

    #[test]
    fn a_region_asks_for_a_look_before_it_goes_without() {
        let around = Around::default();
        miss(&around, 0..16);
        assert_eq!(miss(&around, [20]), [16..32]);
        assert_eq!(around.missed(33, 1 << 20, |_| true), Advice::Look(0..512));
        (16..32).for_each(|page| around.touched(page));
        assert_eq!(around.block_of(33), 32..48);
    }

    #[test]
    fn a_file_of_any_size_has_a_bounded_number_of_regions() {
        let around = Around::default();
        for page in (0..1 << 30).step_by(1 << 16) {
            around.missed(page, 1 << 30, |_| true);
        }
        assert_eq!(lock(&around.regions).len() as u64, REGIONS);
    }
}
