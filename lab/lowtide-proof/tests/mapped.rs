//! What was stored through a pointer and flushed survives a cut of the power.

use lowtide::map::MapMode;
use lowtide::{IoEngine, IoMode, Pager, Policy, Size};
use lowtide_proof::access::Mapped;
use lowtide_proof::files::Files;
use lowtide_proof::layout::Layout;
use lowtide_proof::power_cut::{PowerCuts, Setting};

#[test]
fn power_cuts_leave_every_byte_that_was_flushed_through_a_map() {
    let dir = tempfile::tempdir().unwrap();
    let files = Files::beside(&dir.path().join("file"));
    let pager = Pager::builder().max(Size::mib(1)).build().unwrap();
    std::fs::write(&files.now, [0; 4096]).unwrap();
    if let Err(error) = Mapped::open(&pager, &files.now, MapMode::Userfault) {
        return eprintln!("SKIPPED: {error}");
    }
    drop(pager);
    let layout = Layout::new((512 << 10) + 1600);
    let setting = Setting {
        policies: vec![Policy::MGLRU],
        io: IoEngine::Auto,
        direct: IoMode::Auto,
        max_bytes: 128 << 10,
        threads: 4,
        seed: 1,
        lie: None,
        maps: true,
    };
    let mut proof = PowerCuts::new(setting, &layout, files);
    let row = "stores through a map, userfault";
    let mapped = |proof: &PowerCuts<'_>| proof.coverage().drawn.get(row).copied().unwrap_or(0);
    while mapped(&proof) < 12 && proof.tally().cycles < 200 {
        proof.cycle().unwrap();
    }
    let (tally, found) = (proof.tally(), &proof.tally().findings);
    assert_eq!((found.lost, found.wrong), (0, 0), "{:?}", found.first);
    assert!(mapped(&proof) >= 12, "few maps could be made in {} cycles", tally.cycles);
    assert!(tally.flushes > 100, "{} flushes", tally.flushes);
}
