//! Writers are held back so that dirty data neither takes over memory nor lets the device idle: closed loops in virtual time.
//!
//! Numbers of invariants are those of `fault-and-writeback.md`, section D.

mod disk;

use disk::{MS, ROOT, Rig};

const MINUTE: u64 = 60_000;

/// Mean of what is dirty or being written over a time, in pages.
fn mean_unclean(rig: &mut Rig, ms: u64) -> u64 {
    let (mut sum, mut most) = (0, 0);
    rig.run(ms, |rig| {
        let unclean = rig.engine.dirty_state(ROOT).unclean();
        sum += unclean;
        most = most.max(unclean);
    });
    sum / ms
}

/// Invariant 11.
#[test]
fn one_writer_settles_at_the_speed_of_the_device() {
    for exact in [true, false] {
        for speed in [1_000, 5_000, 50_000] {
            let mut rig = Rig::new(1 << 16, exact);
            if !exact {
                rig.engine.set_machine_root();
            }
            let disk = rig.disk(speed);
            let writer = rig.writer(ROOT, disk, (1 << 16) - 1000);
            rig.run(MINUTE, |_| ());
            let (dirtied, written) = (rig.writers[writer].dirtied, rig.disks[disk].written);
            let mean = mean_unclean(&mut rig, MINUTE);
            let (dirtied, written) =
                (rig.writers[writer].dirtied - dirtied, rig.disks[disk].written - written);
            println!("speed {speed} exact {exact}: dirtied {dirtied} written {written} mean {mean} {:?} pauses {} paused {} ms", rig.engine.dirty_thresholds(ROOT), rig.writers[writer].pauses, rig.writers[writer].paused/MS);
        }
    }
}

#[test]
fn equal_writers() {
    for (count, speed) in [(2, 5_000), (4, 20_000), (16, 20_000), (16, 2000)] {
        let mut rig = Rig::new(1 << 16, true);
        let disk = rig.disk(speed);
        for _ in 0..count {
            rig.writer(ROOT, disk, 60_000 / count);
        }
        rig.run(MINUTE, |_| ());
        let before: Vec<_> = rig.writers.iter().map(|w| w.dirtied).collect();
        let mean = mean_unclean(&mut rig, MINUTE);
        let rates: Vec<_> = rig.writers.iter().zip(before).map(|(w, b)| w.dirtied - b).collect();
        println!("{count} {speed}: mean {mean} {:?} {rates:?} ", rig.engine.dirty_thresholds(ROOT));
    }
}
