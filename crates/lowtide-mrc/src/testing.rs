//! Streams and tapes for tests.

use super::{Run, Storage, Tape};
use lowtide_workload::{Distribution, OpKind, PageOp, SpaceId, SplitMix64};
use proptest::prelude::*;
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;

/// An operation in few words.
pub(crate) const fn op(kind: OpKind, space: u32, page: u64, pages: u32) -> PageOp {
    PageOp { kind, space: SpaceId(space), page, pages }
}

/// A tape in memory.
pub(crate) fn tape(ops: &[PageOp]) -> Tape {
    Tape::record(ops.iter().map(|&op| Ok::<_, String>(op)), &Storage::default()).unwrap()
}

/// A run that reports no progress and cannot be stopped.
pub(crate) fn quietly(tape: &Tape, threads: usize) -> Run<'_> {
    static NEVER_SET: AtomicBool = AtomicBool::new(false);
    Run { tape, threads: NonZeroUsize::new(threads).unwrap(), stop: &NEVER_SET, progress: &|_| () }
}

/// Zipf 0.99 reads.
pub(crate) fn zipf(pages: u64, accesses: usize, seed: u64) -> Vec<PageOp> {
    let sampler = Distribution::Zipfian(0.99).sampler(pages, seed).unwrap();
    let mut rng = SplitMix64::new(seed);
    (0..accesses).map(|_| op(OpKind::Read, 0, sampler.draw(&mut rng), 1)).collect()
}

/// Skewed pages of two spaces, scans between them, a few pages freed and synced: about two hundred
/// thousand records.
pub(crate) fn mixed(seed: u64) -> Vec<PageOp> {
    let sampler = Distribution::Zipfian(0.9).sampler(3000, seed).unwrap();
    let mut rng = SplitMix64::new(seed);
    (0..160_000)
        .map(|_| match rng.below(1000) {
            0 => op(OpKind::Load, 2, rng.below(4000), 100),
            1 => op(OpKind::Free, 0, rng.below(3000), 20),
            2 => op(OpKind::Sync, 0, rng.below(3000), 20),
            choice => op(
                OpKind::ALL[(choice % 4) as usize],
                (choice % 2) as u32,
                sampler.draw(&mut rng),
                1,
            ),
        })
        .collect()
}

/// Up to 300 operations of all kinds on few pages.
pub(crate) fn any_ops() -> impl Strategy<Value = Vec<PageOp>> {
    let kind = prop::sample::select(vec![
        OpKind::Read,
        OpKind::Store,
        OpKind::Load,
        OpKind::Write,
        OpKind::Read,
        OpKind::Free,
        OpKind::Sync,
    ]);
    let any = (kind, 0_u32..2, 0_u64..15, 1_u32..4);
    prop::collection::vec(
        any.prop_map(|(kind, space, page, pages)| op(kind, space, page, pages)),
        0..300,
    )
}
