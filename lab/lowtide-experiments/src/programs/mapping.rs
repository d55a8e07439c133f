//! Programs that read files through mappings: `mmap-thrash` and `fio-mmap`, described once for both
//! worlds.
//!
//! ```text
//!   mmap-thrash  N threads of a process, a sparse file each, in a group with high and max:
//!                  map ── read a byte of each page, in order ── unmap ── next round
//!   fio-mmap     N processes, a file each, mapped once, in a group with max:
//!                  copy a block, chosen at random ── next
//! ```
//!
//! The first exercises what happens between the end of a fault's I/O and its next look at the page,
//! the second how fast pages of mappings are evicted and come back. Sources:
//! `docs/kernel/workloads.md` §6, §9.

use std::time::Duration;

use lowtide_workload::zipf::zeta;
use lowtide_workload::{DistributionError, SplitMix64};

/// Threads that map, read and unmap a file each, forever. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapThrash {
    /// Threads, of one process.
    pub threads: u32,
    /// The file of each, made by truncation: it is all holes.
    pub file: u64,
    /// `high` of the group.
    pub high: u64,
    /// Budget of the group.
    pub max: u64,
    /// As many threads more, which compute for ten microseconds and sleep for fifty, and files that
    /// are opened again each round.
    pub noise: bool,
    /// Time before the measurement.
    pub warm: Duration,
    /// Time of the measurement.
    pub run: Duration,
    /// Seed of the start times.
    pub seed: u64,
}

impl MapThrash {
    /// Processor time of a noisy thread between two sleeps: 5,000 iterations of an empty loop.
    pub const NOISE_WORK: Duration = Duration::from_micros(10);
    /// How long it sleeps.
    pub const NOISE_SLEEP: Duration = Duration::from_micros(50);

    /// The published setup, but for its times, at a scale: a part of the threads and of the memory.
    #[must_use]
    pub fn published(scale: f64) -> Self {
        let part = |whole: u64| ((whole >> 20) as f64 * scale).round().max(1.0) as u64 * (1 << 20);
        Self {
            threads: (500.0 * scale).round().max(1.0) as u32,
            file: 16 << 20,
            high: part(1 << 30),
            // 1.2 GiB, in whole mebibytes.
            max: part(1229 << 20),
            noise: false,
            warm: Duration::ZERO,
            run: Duration::from_secs(600),
            seed: 1,
        }
    }
}

/// Jobs that read blocks of a mapped file each. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FioMmap {
    /// Jobs, each a process.
    pub jobs: u32,
    /// The file of each.
    pub file: u64,
    /// Budget of the group.
    pub max: u64,
    /// Which blocks they want.
    pub order: FioOrder,
    /// fio's `fadvise_hint`: the mapping is advised to be random, so accesses do not count.
    pub hint: bool,
    /// Time before the measurement.
    pub warm: Duration,
    /// Time of the measurement.
    pub run: Duration,
    /// Seed of the choices.
    pub seed: u64,
}

/// Which blocks a job wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FioOrder {
    /// A few often: `random_distribution=zipf:1.2`.
    Zipf,
    /// All alike.
    Uniform,
}

impl FioMmap {
    /// Bytes of a block.
    pub const BLOCK: u64 = 4096;
    /// The exponent of the published zipf.
    pub const THETA: f64 = 1.2;

    /// The published setup, but for its times, at a scale: files and memory of that part of the
    /// size, and the same number of jobs.
    #[must_use]
    pub fn published(order: FioOrder, scale: f64) -> Self {
        let part = |whole: u64| ((whole >> 20) as f64 * scale).round().max(1.0) as u64 * (1 << 20);
        let max: u64 = match order {
            FioOrder::Zipf => 12 << 30,
            FioOrder::Uniform => 10 << 30,
        };
        Self {
            jobs: 16,
            file: part(3 << 30),
            max: part(max),
            order,
            hint: true,
            warm: Duration::from_secs(60),
            run: Duration::from_secs(300),
            seed: 1,
        }
    }

    /// The blocks that a job wants.
    ///
    /// # Errors
    /// [`DistributionError::NoItems`] for files that have no block.
    pub fn blocks(&self, job: u32) -> Result<FioBlocks, DistributionError> {
        let blocks = self.file / Self::BLOCK;
        if blocks == 0 {
            return Err(DistributionError::NoItems);
        }
        let rng = SplitMix64::new(self.seed).fork(u64::from(job));
        Ok(FioBlocks::new(blocks, self.order, rng))
    }

    /// The share of reads whose block is in memory once it is full, if blocks leave in the order in
    /// which they came, and if the least recently used one leaves: by Che's approximation, from the
    /// popularity of the blocks. Both are the limit's share of the data if blocks are alike. Cost:
    /// a second for the published size.
    ///
    /// # Errors
    /// [`DistributionError::NoItems`] for files that have no block.
    pub fn steady_hits(&self) -> Result<(f64, f64), DistributionError> {
        let popularity = self.blocks(0)?.popularity();
        let room = self.max as f64 / (f64::from(self.jobs) * self.file as f64);
        let room = room.min(1.0) * popularity.len() as f64;
        let fifo = |demand: f64| demand / (1.0 + demand);
        let lru = |demand: f64| 1.0 - (-demand).exp();
        Ok((hits(&popularity, room, fifo), hits(&popularity, room, lru)))
    }
}

/// The blocks that a job of fio wants, one after the other.
///
/// fio's zipf is the closed form of Gray et al. over 32-bit draws; the popular ranks are scattered
/// by a multiplicative hash with an offset for each job, in which some collide, so a part of the
/// blocks is never wanted. Source: `docs/kernel/workloads.md` §6(b).
#[derive(Clone, Debug)]
pub struct FioBlocks {
    blocks: u64,
    rng: SplitMix64,
    zipf: Option<FioZipf>,
}

/// The constants of fio's zipf.
#[derive(Clone, Copy, Debug)]
struct FioZipf {
    zeta: f64,
    eta: f64,
    offset: u64,
}

impl FioBlocks {
    /// Multiplier of the hash.
    const HASH: u64 = 0x61C8_8646_80B5_83EB;
    /// Terms of the sum that fio adds up at most.
    const TERMS: u64 = 10_000_000;

    fn new(blocks: u64, order: FioOrder, mut rng: SplitMix64) -> Self {
        let zipf = (order == FioOrder::Zipf).then(|| {
            let theta = FioMmap::THETA;
            let zeta_n = zeta(blocks.min(Self::TERMS), theta);
            let zeta_2 = 1.0 + 0.5_f64.powf(theta);
            let eta = (1.0 - (2.0 / blocks as f64).powf(1.0 - theta)) / (1.0 - zeta_2 / zeta_n);
            FioZipf { zeta: zeta_n, eta, offset: rng.next_u64() }
        });
        Self { blocks, rng, zipf }
    }

    /// The rank of a draw between 0 and 1; 0 is the most popular.
    fn rank(&self, zipf: FioZipf, u: f64) -> u64 {
        let theta = FioMmap::THETA;
        let uz = u * zipf.zeta;
        if uz < 1.0 {
            return 0;
        }
        if uz < 1.0 + 0.5_f64.powf(theta) {
            return 1;
        }
        let alpha = 1.0 / (1.0 - theta);
        (self.blocks as f64 * (zipf.eta * u - zipf.eta + 1.0).powf(alpha)) as u64
    }

    /// The share of reads of each block.
    fn popularity(&self) -> Vec<f64> {
        let blocks = self.blocks;
        let Some(zipf) = self.zipf else {
            return vec![1.0 / blocks as f64; blocks as usize];
        };
        let theta = FioMmap::THETA;
        let two = (1.0 + 0.5_f64.powf(theta)) / zipf.zeta;
        // The draw up to which a rank is drawn: `rank` backwards.
        let up_to = |rank: u64| match rank {
            0 => 1.0 / zipf.zeta,
            1 => two,
            _ if rank + 1 == blocks => 1.0,
            _ => {
                let at = ((rank + 1) as f64 / blocks as f64).powf(1.0 - theta);
                (1.0 + (at - 1.0) / zipf.eta).clamp(two, 1.0)
            }
        };
        let (mut shares, mut before) = (vec![0.0; blocks as usize], 0.0);
        for rank in 0..blocks {
            let end = up_to(rank);
            shares[self.block(zipf, rank) as usize] += end - before;
            before = end;
        }
        shares
    }

    /// Where the block of a rank is.
    const fn block(&self, zipf: FioZipf, rank: u64) -> u64 {
        rank.wrapping_mul(Self::HASH).wrapping_add(zipf.offset) % self.blocks
    }

    /// The next block.
    pub fn choose(&mut self) -> u64 {
        let Some(zipf) = self.zipf else { return self.rng.below(self.blocks) };
        let u = (self.rng.next_u64() >> 32) as f64 / f64::from(u32::MAX);
        let rank = self.rank(zipf, u).min(self.blocks - 1);
        self.block(zipf, rank)
    }
}

/// Hits by Che's approximation: a block is in memory with a probability that its demand has during
/// the time for which blocks stay, and that time is such that memory is full.
fn hits(popularity: &[f64], room: f64, present: impl Fn(f64) -> f64) -> f64 {
    const STEPS: u32 = 50;
    let (mut short, mut long) = (1.0_f64, 1e12_f64);
    for _ in 0..STEPS {
        let middle = (short * long).sqrt();
        let full: f64 = popularity.iter().map(|share| present(share * middle)).sum();
        *(if full < room { &mut short } else { &mut long }) = middle;
    }
    popularity.iter().map(|share| share * present(share * short)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// `docs/kernel/workloads.md` §6(b): the sum and the constant of 3 GiB.
    #[test]
    fn the_constants_are_those_of_fio() {
        let blocks = FioMmap::published(FioOrder::Zipf, 1.0).blocks(0).unwrap();
        let zipf = blocks.zipf.unwrap();
        assert_eq!(blocks.blocks, 786_432);
        assert!((zipf.zeta - 5.260_575).abs() < 1e-5, "{}", zipf.zeta);
        assert!((zipf.eta + 16.708_77).abs() < 1e-4, "{}", zipf.eta);
    }

    /// The same: shares of the most popular blocks, within a point.
    #[test]
    fn few_blocks_have_most_of_the_reads() {
        const DRAWS: u64 = 2_000_000;
        let mut blocks = FioMmap::published(FioOrder::Zipf, 1.0).blocks(3).unwrap();
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        for _ in 0..DRAWS {
            *counts.entry(blocks.choose()).or_default() += 1;
        }
        let mut counts: Vec<u64> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        for (part, share) in [(0.0001, 0.681), (0.001, 0.821), (0.01, 0.910)] {
            let top = (786_432.0 * part) as usize;
            let found = counts[..top].iter().sum::<u64>() as f64 / DRAWS as f64;
            assert!((found - share).abs() < 0.01, "{part}: {found}");
        }
    }

    /// The popularity is that of the draws.
    #[test]
    fn blocks_are_drawn_as_often_as_their_popularity_says() {
        const DRAWS: usize = 4_000_000;
        let mut blocks = FioMmap::published(FioOrder::Zipf, 1.0 / 512.0).blocks(2).unwrap();
        let popularity = blocks.popularity();
        assert!((popularity.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let mut counts = vec![0_u32; popularity.len()];
        (0..DRAWS).for_each(|_| counts[blocks.choose() as usize] += 1);
        for (block, (&count, share)) in counts.iter().zip(popularity).enumerate() {
            let expected = share * DRAWS as f64;
            let found = f64::from(count);
            assert!((found - expected).abs() < 6.0 * expected.sqrt() + 6.0, "{block}: {found}");
        }
    }

    /// Computed apart from this, in another language, for 3 GiB a job and a quarter of that.
    #[test]
    fn the_steady_hits_of_the_published_sizes_are_those_of_the_popularity() {
        let zipf = FioMmap::published(FioOrder::Zipf, 1.0).steady_hits().unwrap();
        assert!((zipf.0 - 0.965_7).abs() < 2e-4 && (zipf.1 - 0.973_1).abs() < 2e-4, "{zipf:?}");
        let uniform = FioMmap::published(FioOrder::Uniform, 1.0 / 64.0).steady_hits().unwrap();
        assert!((uniform.0 - 10.0 / 48.0).abs() < 1e-3, "{uniform:?}");
        assert!((uniform.1 - 10.0 / 48.0).abs() < 1e-3, "{uniform:?}");
    }

    /// The same: 93.5 % of the blocks can be drawn at all.
    #[test]
    fn some_blocks_are_never_wanted() {
        let n = 786_432_u64;
        let hashed: std::collections::BTreeSet<u64> =
            (0..n).map(|rank| rank.wrapping_mul(FioBlocks::HASH) % n).collect();
        let share = hashed.len() as f64 / n as f64;
        assert!((share - 0.935).abs() < 0.002, "{share}");
    }

    #[test]
    fn jobs_want_different_blocks_and_the_same_ones_again() {
        let fio = FioMmap::published(FioOrder::Zipf, 0.01);
        let first = |job| {
            let mut blocks = fio.blocks(job).unwrap();
            (0..100).map(|_| blocks.choose()).collect::<Vec<_>>()
        };
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
        assert!(FioMmap { file: 0, ..fio }.blocks(0).is_err());
    }
}
