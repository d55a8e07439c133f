//! The six generators of the ground-truth runs, draw for draw.
//!
//! The kernels were measured on op lists made by another program, so a port is right only when it
//! draws the same random numbers in the same order. Everything below is integer arithmetic on one
//! generator seeded with the case's seed, except the permutations, which have a generator of their
//! own:
//!
//! * an op is a `u32`: page in bits 0 to 29, bit 30 for the anon region, bit 31 for a write;
//! * the permutation of region `r` (0 file, 1 anon) in phase `p` is drawn from `seed + ((r + 1) <<
//!   32) + p`;
//! * a write share of 0 % draws nothing; `anon_percent` and `scan_percent` are always drawn.
//!
//! [`op_hash`] fingerprints a list, and the tests compare it with the published fingerprints.

use lowtide_workload::prng::SplitMix64;
use lowtide_workload::zipf::{ZipfTable, permutation};

/// The bits of an op that hold its page.
pub const PAGE_MASK: u32 = (1 << 30) - 1;
/// Set in an op on the anon region.
pub const ANON_BIT: u32 = 1 << 30;
/// Set in an op that writes.
pub const WRITE_BIT: u32 = 1 << 31;

/// A generator with its parameters. Sizes are in pages, shares in percent.
///
/// Made and validated by parsing a [`Case`](super::Case).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Sequence {
    /// Zipf draws over the whole file; each phase has its own popular pages.
    Zipf {
        /// The Zipf exponent.
        exponent: f64,
        /// Pages of the file.
        file_pages: u32,
        /// Accesses in all.
        accesses: u64,
        /// Equal phases, at least one.
        phases: u64,
        /// Share of writes.
        write_percent: u32,
    },
    /// Uniform draws over the whole file.
    Uniform {
        /// Pages of the file.
        file_pages: u32,
        /// Accesses in all.
        accesses: u64,
        /// Share of writes.
        write_percent: u32,
    },
    /// The file from start to end, over and over.
    Loop {
        /// Pages of the file.
        file_pages: u32,
        /// Accesses in all.
        accesses: u64,
    },
    /// Zipf draws over a hot part, interrupted by steps of a scan through the rest.
    Mix {
        /// The Zipf exponent.
        exponent: f64,
        /// Pages of the hot part, fewer than `file_pages`.
        hot_pages: u32,
        /// Pages of the file.
        file_pages: u32,
        /// Accesses in all.
        accesses: u64,
        /// Share of scan steps.
        scan_percent: u32,
    },
    /// Zipf draws over a hot part, and a scan through the rest that touches each page twice.
    TwoTouch {
        /// The Zipf exponent.
        exponent: f64,
        /// Pages of the hot part, fewer than `file_pages`.
        hot_pages: u32,
        /// Pages of the file.
        file_pages: u32,
        /// Accesses in all.
        accesses: u64,
        /// The second touch follows the first by four times this many accesses.
        distance: u64,
    },
    /// A heap that is filled once, then Zipf draws over heap and file.
    AnonFile {
        /// The heap's Zipf exponent.
        anon_exponent: f64,
        /// Pages of the heap.
        anon_pages: u32,
        /// The file's Zipf exponent.
        exponent: f64,
        /// Pages of the file.
        file_pages: u32,
        /// Accesses after the fill.
        accesses: u64,
        /// Share of accesses to the heap.
        anon_percent: u32,
        /// Share of writes among the accesses to the heap.
        anon_write_percent: u32,
        /// Share of writes among the accesses to the file.
        write_percent: u32,
    },
}

impl Sequence {
    /// How many ops the sequence has, the fill of the heap included.
    #[must_use]
    pub const fn len(&self) -> u64 {
        match self {
            Self::Zipf { accesses, .. }
            | Self::Uniform { accesses, .. }
            | Self::Loop { accesses, .. }
            | Self::Mix { accesses, .. }
            | Self::TwoTouch { accesses, .. } => *accesses,
            Self::AnonFile { accesses, anon_pages, .. } => {
                accesses.saturating_add(*anon_pages as u64)
            }
        }
    }

    /// Whether there is no op at all.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Pages of the file region.
    #[must_use]
    pub const fn file_pages(&self) -> u32 {
        match self {
            Self::Zipf { file_pages, .. }
            | Self::Uniform { file_pages, .. }
            | Self::Loop { file_pages, .. }
            | Self::Mix { file_pages, .. }
            | Self::TwoTouch { file_pages, .. }
            | Self::AnonFile { file_pages, .. } => *file_pages,
        }
    }

    /// Pages of the anon region; 0 where there is none.
    #[must_use]
    pub const fn anon_pages(&self) -> u32 {
        match self {
            Self::AnonFile { anon_pages, .. } => *anon_pages,
            _ => 0,
        }
    }

    /// The ops, from the first. Builds the tables: 12 bytes per page of each Zipf region.
    #[must_use]
    pub fn ops(&self, seed: u64) -> Ops {
        let hot = |exponent, pages| Popular::new(exponent, pages, Region::File, seed);
        let draws = match *self {
            Self::Zipf { exponent, file_pages, .. }
            | Self::AnonFile { exponent, file_pages, .. } => Some(hot(exponent, file_pages)),
            Self::Mix { exponent, hot_pages, .. } | Self::TwoTouch { exponent, hot_pages, .. } => {
                Some(hot(exponent, hot_pages))
            }
            Self::Uniform { .. } | Self::Loop { .. } => None,
        };
        let anon = match *self {
            Self::AnonFile { anon_exponent, anon_pages, .. } => {
                Some(Popular::new(anon_exponent, anon_pages, Region::Anon, seed))
            }
            _ => None,
        };
        Ops { sequence: self.clone(), rng: SplitMix64::new(seed), next: 0, scanned: 0, draws, anon }
    }
}

/// The two regions, with the number that their permutations are seeded by.
#[derive(Clone, Copy, Debug)]
enum Region {
    File = 0,
    Anon = 1,
}

/// Zipf draws over the pages of one region, through the permutation of the current phase.
#[derive(Clone, Debug)]
struct Popular {
    table: ZipfTable,
    region: Region,
    seed: u64,
    phase: u64,
    page_of_rank: Vec<u32>,
}

impl Popular {
    fn new(exponent: f64, pages: u32, region: Region, seed: u64) -> Self {
        let mut popular = Self {
            table: ZipfTable::new(pages, exponent),
            region,
            seed,
            phase: 0,
            page_of_rank: Vec::new(),
        };
        popular.shuffle();
        popular
    }

    fn shuffle(&mut self) {
        let state = self.seed.wrapping_add((self.region as u64 + 1) << 32).wrapping_add(self.phase);
        self.page_of_rank = permutation(self.table.ranks() as u32, SplitMix64::new(state));
    }

    fn enter(&mut self, phase: u64) {
        if phase != self.phase {
            self.phase = phase;
            self.shuffle();
        }
    }

    fn draw(&self, rng: &mut SplitMix64) -> u32 {
        self.page_of_rank[self.table.draw(rng)]
    }
}

/// The ops of a [`Sequence`], one `u32` each.
#[derive(Clone, Debug)]
pub struct Ops {
    sequence: Sequence,
    rng: SplitMix64,
    /// Ops already given out.
    next: u64,
    /// Steps of the scan already made.
    scanned: u64,
    /// Draws over the file, where the sequence has popular pages.
    draws: Option<Popular>,
    /// Draws over the heap, where the sequence has one.
    anon: Option<Popular>,
}

impl Ops {
    fn popular_file_page(&mut self) -> u32 {
        // A sequence that draws has its table; a page 0 for one that does not keeps this total.
        self.draws.as_ref().map_or(0, |popular| popular.draw(&mut self.rng))
    }

    fn write_bit(&mut self, percent: u32) -> u32 {
        if percent != 0 && self.rng.percent(percent) { WRITE_BIT } else { 0 }
    }

    fn op(&mut self, i: u64) -> u32 {
        match self.sequence {
            Sequence::Zipf { accesses, phases, write_percent, .. } => {
                let phase = (u128::from(i) * u128::from(phases) / u128::from(accesses)) as u64;
                if let Some(popular) = &mut self.draws {
                    popular.enter(phase);
                }
                self.popular_file_page() | self.write_bit(write_percent)
            }
            Sequence::Uniform { file_pages, write_percent, .. } => {
                let page = self.rng.below(u64::from(file_pages)) as u32;
                page | self.write_bit(write_percent)
            }
            Sequence::Loop { file_pages, .. } => (i % u64::from(file_pages)) as u32,
            Sequence::Mix { hot_pages, file_pages, scan_percent, .. } => {
                if self.rng.percent(scan_percent) {
                    let step = self.scanned;
                    self.scanned += 1;
                    cold_page(hot_pages, file_pages, step)
                } else {
                    self.popular_file_page()
                }
            }
            Sequence::TwoTouch { hot_pages, file_pages, distance, .. } => {
                let j = i / 4;
                match i % 4 {
                    0 => cold_page(hot_pages, file_pages, j),
                    1 if j >= distance => cold_page(hot_pages, file_pages, j - distance),
                    _ => self.popular_file_page(),
                }
            }
            Sequence::AnonFile {
                anon_pages,
                anon_percent,
                anon_write_percent,
                write_percent,
                ..
            } => {
                if i < u64::from(anon_pages) {
                    i as u32 | ANON_BIT | WRITE_BIT
                } else if self.rng.percent(anon_percent) {
                    let page = self.anon.as_ref().map_or(0, |popular| popular.draw(&mut self.rng));
                    page | ANON_BIT | self.write_bit(anon_write_percent)
                } else {
                    self.popular_file_page() | self.write_bit(write_percent)
                }
            }
        }
    }
}

/// The page of a scan's step number `step` through the part of the file behind the hot one.
fn cold_page(hot_pages: u32, file_pages: u32, step: u64) -> u32 {
    hot_pages + (step % u64::from(file_pages - hot_pages)) as u32
}

impl Iterator for Ops {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        if self.next == self.sequence.len() {
            return None;
        }
        let op = self.op(self.next);
        self.next += 1;
        Some(op)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match usize::try_from(self.sequence.len() - self.next) {
            Ok(left) => (left, Some(left)),
            Err(_) => (usize::MAX, None),
        }
    }
}

/// The fingerprint of an op list: FNV-1a with whole ops in place of bytes.
#[must_use]
pub fn op_hash(ops: impl IntoIterator<Item = u32>) -> u64 {
    ops.into_iter().fold(0xCBF2_9CE4_8422_2325, |hash, op| {
        (hash ^ u64::from(op)).wrapping_mul(0x100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use super::super::Case;
    use super::*;
    use std::collections::HashSet;

    fn ops(parameters: &str) -> Vec<u32> {
        let case: Case = parameters.parse().unwrap();
        case.ops().collect()
    }

    #[test]
    fn phases_change_the_popular_pages_and_nothing_else() {
        let one = ops("kind=zipf s=0.99 F=1000 N=1000 phases=1 seed=1");
        let two = ops("kind=zipf s=0.99 F=1000 N=1000 phases=2 seed=1");
        assert_eq!(one[..500], two[..500]);
        assert_ne!(one[500..], two[500..]);
        let distinct = |list: &[u32]| list.iter().collect::<HashSet<_>>().len();
        assert_eq!(distinct(&one[500..]), distinct(&two[500..]), "same ranks, other pages");
    }

    #[test]
    fn two_touch_touches_cold_pages_twice_at_its_distance() {
        let list = ops("kind=twotouch s=0.99 H=16 F=1000000 N=4000 D=10 seed=2");
        for j in 10..1000_usize {
            assert_eq!(list[4 * j + 1], list[4 * (j - 10)], "second touch of step {j}");
        }
        let cold = list.iter().filter(|&&page| page >= 16).count();
        assert_eq!(cold, 1000 + 990);
    }

    #[test]
    fn scans_wrap_within_the_cold_part() {
        for kind in ["mix scan=50", "twotouch D=3"] {
            let list = ops(&format!("kind={kind} H=10 F=17 N=5000 seed=1"));
            assert_eq!(list.iter().copied().collect::<HashSet<_>>(), (0..17).collect(), "{kind}");
        }
    }

    #[test]
    fn write_share_is_kept() {
        let list = ops("kind=uniform F=100 N=100000 wf=5 seed=1");
        let writes = list.iter().filter(|&&op| op & WRITE_BIT != 0).count();
        assert!((4700..5300).contains(&writes), "{writes} writes of 5000 expected");
    }
}
