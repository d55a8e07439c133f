//! Pages that stay compressed cost nowhere more than they may, and save much where they can.

use lowtide_core::Policy;
use lowtide_experiments::compressed::{Cell, Codec, Contents, Grid, Skew, TOLERANCE};
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;

fn play(skews: &[Skew], accesses: usize, budgets: &[u32], reads: &[u64]) -> Vec<Cell> {
    let contents = |tenths, incompressible| Contents { tenths, incompressible };
    let grid = Grid {
        pages: 1024,
        accesses,
        policies: vec![Policy::MGLRU],
        skews: skews.to_vec(),
        contents: vec![contents(10, 0), contents(25, 0), contents(25, 50)],
        budgets: budgets.to_vec(),
        reads: reads.to_vec(),
        codecs: vec![Codec::Fast],
        seed: 1,
    };
    grid.play(NonZeroUsize::MIN, &AtomicBool::new(false), &|_| ()).unwrap()
}

#[test]
fn compressed_pages_cost_nowhere_more_than_they_may() {
    let skews = [Skew::Zipf(99), Skew::Loop, Skew::Mixed];
    for cell in play(&skews, 300_000, &[40, 15], &[25_000, 1_000_000]) {
        assert!(cell.gain() >= 1.0 - TOLERANCE, "{}: {cell:?}", cell.gain());
    }
}

#[test]
fn what_fits_only_compressed_is_many_times_faster() {
    let skews = [Skew::Loop, Skew::Uniform];
    // Of a uniform stream one access of four misses: it takes a while until a trial begins.
    let cells = play(&skews, 1_000_000, &[13], &[1_000_000]);
    let gain = |skew, tenths| {
        let is_it = |cell: &&Cell| {
            cell.skew == skew && (cell.contents.tenths, cell.contents.incompressible) == (tenths, 0)
        };
        cells.iter().find(is_it).unwrap().gain()
    };
    for skew in skews {
        assert!(gain(skew, 25) > 3.0, "{skew:?}");
        assert!((0.99..=1.0).contains(&gain(skew, 10)), "{skew:?}: nothing to gain");
    }
}
