//! The work that a device's flusher gets, and that everything about devices is counted right
//! whatever happens.

use crate::disk::{MS, ROOT, Rig};
use lowtide_core::{
    Dirtier, DirtyLimitsError, DirtyTimers, Engine, Flags, FlushReason, FlushWork, FolioId,
    LruType, MemcgId, Owner, SpaceId, Task,
};
use proptest::prelude::*;

const SECOND: u64 = 1000 * MS;

fn dirty(rig: &mut Rig, frames: std::ops::Range<u32>) {
    frames.for_each(|frame| assert!(rig.engine.set_dirty(FolioId(frame))));
}

fn write(rig: &mut Rig, frames: std::ops::Range<u32>, written: bool) {
    for frame in frames.map(FolioId) {
        assert!(rig.engine.start_writeback(frame));
        rig.engine.end_writeback(frame, written, Task::DESCRIPTOR);
    }
}

/// Two groups with 1000 pages each on one device, and memory for 10,000.
fn two_groups() -> (Rig, [MemcgId; 2]) {
    let mut rig = Rig::new(10_000, true);
    let disk = rig.disk(1_000);
    let groups = [0, 1].map(|_| rig.engine.create_group(ROOT).unwrap());
    for group in groups {
        rig.writer(group, disk, 1_000);
        // Hard is 200 pages, background 99.
        rig.engine.set_max(group, 1_000).unwrap();
    }
    (rig, groups)
}

#[test]
fn what_reclaim_asked_for_comes_before_old_pages_and_those_before_the_background() {
    let (mut rig, [first, second]) = two_groups();
    let device = rig.disks[0].id;
    assert_eq!(rig.engine.flusher_work(device, 0), None);
    dirty(&mut rig, 0..150);
    dirty(&mut rig, 1000..1010);
    assert_eq!(rig.engine.ask_to_flush(second), [device]);
    let mut next = || rig.engine.flusher_work(device, 60 * SECOND);
    let work = |reason, group, pages| Some(FlushWork { reason, group, pages, older_than: None });
    assert_eq!(next(), work(FlushReason::Reclaim, Some(second), 10));
    let old = FlushWork {
        older_than: Some(30 * SECOND),
        ..work(FlushReason::Periodic, None, 160).unwrap()
    };
    assert_eq!(next(), Some(old));
    assert_eq!(next(), work(FlushReason::Background, Some(first), 1024));
    assert_eq!(next(), None, "nothing was written of what was given");
    rig.engine.set_writing(device, false);
    assert!(rig.engine.over_background(device));
    assert!(rig.engine.flusher_work(device, 60 * SECOND).is_some(), "it has slept since");
    write(&mut rig, 0..60, true);
    assert!(!rig.engine.over_background(device));
    assert_eq!(rig.engine.flusher_work(device, 60 * SECOND), None);
}

#[test]
fn groups_above_their_background_limits_take_turns_and_the_root_comes_first() {
    let (mut rig, [first, second]) = two_groups();
    let device = rig.disks[0].id;
    // Something was written before, so that the device has its part of every domain.
    dirty(&mut rig, 0..1000);
    write(&mut rig, 0..1000, true);
    dirty(&mut rig, 1000..2000);
    write(&mut rig, 1000..2000, true);
    dirty(&mut rig, 0..200);
    dirty(&mut rig, 1000..1200);
    let turns: Vec<_> = (0..4)
        .map(|n| {
            let work = rig.engine.flusher_work(device, 0).unwrap();
            let (of_first, of_second) = (n * 10..n * 10 + 10, 1000 + n * 10..1010 + n * 10);
            write(&mut rig, if work.group == Some(first) { of_first } else { of_second }, true);
            work.group
        })
        .collect();
    assert!(
        turns == [first, second, first, second].map(Some)
            || turns == [second, first, second, first].map(Some)
    );
    dirty(&mut rig, 200..1000);
    assert_eq!(
        rig.engine.flusher_work(device, 0).unwrap().group,
        None,
        "1160 pages are over a tenth of all"
    );
}

#[test]
fn a_slice_of_a_small_group_is_measured_by_the_limit_of_all() {
    let mut rig = Rig::new(60_000, true);
    let disk = rig.disk(1_000);
    let group = rig.engine.create_group(ROOT).unwrap();
    rig.writer(group, disk, 10_000);
    // Hard is about 2000 pages, of which an eighth would be less than the smallest slice.
    rig.engine.set_max(group, 10_000).unwrap();
    dirty(&mut rig, 0..1_500);
    let work = rig.engine.flusher_work(rig.disks[0].id, 0).unwrap();
    assert_eq!((work.group, work.pages), (Some(group), 2048), "an eighth of 12,000, and 1024");
}

#[test]
fn writes_that_fail_are_no_progress() {
    let (mut rig, _) = two_groups();
    let device = rig.disks[0].id;
    dirty(&mut rig, 0..150);
    for _ in 0..3 {
        rig.engine.set_writing(device, true);
        assert!(rig.engine.flusher_work(device, 0).is_some());
        write(&mut rig, 0..150, false);
        assert_eq!(rig.engine.flusher_work(device, 0), None, "no use in trying at once");
        rig.engine.set_writing(device, false);
    }
    rig.engine.validate().unwrap();
}

#[test]
fn old_pages_are_looked_for_once_an_interval() {
    let (mut rig, _) = two_groups();
    let device = rig.disks[0].id;
    dirty(&mut rig, 0..10);
    let mut looks = Vec::new();
    for now in (0..100).map(|second| second * SECOND) {
        let periodic = |work: &FlushWork| work.reason == FlushReason::Periodic;
        if let Some(work) = rig.engine.flusher_work(device, now).filter(periodic) {
            looks.push((now / SECOND, work.older_than.unwrap() / SECOND));
        }
    }
    assert_eq!(looks[..3], [(30, 0), (35, 5), (40, 10)]);
    assert_eq!(rig.engine.next_flush(device), Some(100 * SECOND));
    let never = DirtyTimers { interval_ns: 0, ..DirtyTimers::default() };
    rig.engine.set_dirty_timers(never).unwrap();
    assert_eq!(rig.engine.next_flush(device), None);
    assert_eq!(rig.engine.flusher_work(device, 1000 * SECOND), None);
    let often = DirtyTimers { interval_ns: 1, ..never };
    assert_eq!(
        rig.engine.set_dirty_timers(often),
        Err(DirtyLimitsError::TooOften { interval_ns: 1 })
    );
    assert_eq!(rig.engine.dirty_timers(), never);
}

#[test]
fn timers_and_clocks_near_the_end_of_time_are_as_good_as_others() {
    const END: u64 = u64::MAX;
    for (expire_ns, interval_ns) in
        [(END, END), (END - 1, SECOND), (0, END), (1, END - 1), (0, SECOND)]
    {
        let (mut rig, _) = two_groups();
        let device = rig.disks[0].id;
        dirty(&mut rig, 0..10);
        rig.engine.set_dirty_timers(DirtyTimers { expire_ns, interval_ns }).unwrap();
        let mut before = 0;
        for now in [0, 1, 10 * SECOND, END / 2, END - SECOND, END - 1, END] {
            if let Some(work) = rig.engine.flusher_work(device, now)
                && let Some(old) = work.older_than
            {
                assert_eq!(old, now - expire_ns);
            }
            let next = rig.engine.next_flush(device).unwrap();
            assert!(next >= before.min(interval_ns), "{next} at {now}");
            before = next;
        }
        rig.engine.validate().unwrap();
    }
}

#[test]
fn only_flushers_with_something_to_write_are_asked() {
    let (mut rig, [first, second]) = two_groups();
    rig.disk(1_000);
    assert_eq!(rig.engine.ask_to_flush(ROOT), []);
    dirty(&mut rig, 0..1);
    assert_eq!(rig.engine.ask_to_flush(second), []);
    let device = rig.disks[0].id;
    assert_eq!(rig.engine.ask_to_flush(first), [device]);
    assert_eq!(rig.engine.ask_to_flush(ROOT), [device]);
    let work = rig.engine.flusher_work(device, 0).unwrap();
    assert_eq!((work.group, work.pages), (None, 1), "a request for everything covers the rest");
    assert_eq!(rig.engine.flusher_work(device, 0), None);
    // A group that is gone has no work.
    assert_eq!(rig.engine.ask_to_flush(first), [device]);
    assert_eq!(rig.engine.remove_group(first), Ok(()));
    assert_eq!(
        (rig.engine.flusher_work(device, 0), rig.engine.ask_to_flush(first)),
        (None, vec![])
    );
}

#[test]
fn a_removed_group_leaves_its_dirty_pages_and_writes_to_its_parent() {
    let (mut rig, [first, second]) = two_groups();
    let device = rig.disks[0].id;
    dirty(&mut rig, 0..150);
    dirty(&mut rig, 1000..1150);
    assert!((0..20).all(|frame| rig.engine.start_writeback(FolioId(frame))));
    rig.engine.remove_group(first).unwrap();
    rig.engine.validate().unwrap();
    assert_eq!(rig.engine.flusher_work(device, 0).unwrap().group, Some(second));
    (0..20).for_each(|frame| rig.engine.end_writeback(FolioId(frame), true, Task::DESCRIPTOR));
    assert!((20..30).all(|frame| rig.engine.remove(FolioId(frame))));
    rig.engine.validate().unwrap();
    assert_eq!(rig.engine.dirty_state(ROOT).unclean(), 270);
}

/// Something that happens to a page, a group or a device.
#[derive(Clone, Debug)]
enum Event {
    Insert(u32, u8),
    Dirty(u32),
    Start(u32),
    End(u32, bool),
    Remove(u32),
    Balance(u8),
    Flusher(u8),
    RemoveGroup(u8),
    Publish,
}

fn event() -> impl Strategy<Value = Event> {
    let frame = 0..96_u32;
    prop_oneof![
        4 => (frame.clone(), 0..6_u8).prop_map(|(f, s)| Event::Insert(f, s)),
        8 => frame.clone().prop_map(Event::Dirty),
        6 => frame.clone().prop_map(Event::Start),
        6 => (frame.clone(), prop::bool::weighted(0.8)).prop_map(|(f, w)| Event::End(f, w)),
        2 => frame.prop_map(Event::Remove),
        4 => (0..6_u8).prop_map(Event::Balance),
        4 => (0..2_u8).prop_map(Event::Flusher),
        1 => (0..4_u8).prop_map(Event::RemoveGroup),
        1 => Just(Event::Publish),
    ]
}

proptest! {
    /// Invariants 8 and 12, over groups in two levels and two devices.
    #[test]
    fn counts_are_right_whatever_happens(
        exact in any::<bool>(),
        events in prop::collection::vec(event(), 1..400),
    ) {
        let mut rig = Rig::new(128, exact);
        let devices = [rig.disk(0), rig.disk(0)].map(|disk| rig.disks[disk].id);
        let e = &mut rig.engine;
        let top = [0, 1].map(|_| e.create_group(ROOT).unwrap());
        let groups = [ROOT, top[0], top[1], e.create_group(top[0]).unwrap()];
        let spaces: Vec<SpaceId> = (0..6).map(|n| {
            let space = e.add_space(groups[n % 4]);
            e.set_device_of_space(space, devices[n % 2]);
            space
        }).collect();
        let mut dirtiers = [Dirtier::default(); 6];
        for (event, now) in events.into_iter().zip((0..).map(|n| n * 50 * MS)) {
            let flags = |e: &Engine, frame| e.folio(FolioId(frame)).map(|f| f.flags());
            let in_writeback = |flags: Flags| flags.contains(Flags::WRITEBACK);
            match event {
                Event::Insert(frame, space) => if flags(e, frame).is_none() {
                    let space = spaces[usize::from(space)];
                    let group = e.group_of_space(space);
                    if e.try_charge(group, 1).is_ok() {
                        let owner = Owner { space, page: frame.into() };
                        let (id, task) = (FolioId(frame), Task::DESCRIPTOR);
                        e.insert(id, owner, 0, LruType::File, group, None, task);
                    }
                },
                Event::Dirty(frame) => if let Some(f) = e.folio(FolioId(frame)) {
                    let space = f.owner().space;
                    if e.set_dirty(FolioId(frame)) {
                        let at = spaces.iter().position(|s| *s == space).unwrap();
                        e.dirtied(&mut dirtiers[at], space, 1);
                    }
                },
                Event::Start(frame) => if flags(e, frame).is_some() {
                    e.start_writeback(FolioId(frame));
                },
                Event::End(frame, written) => if flags(e, frame).is_some_and(in_writeback) {
                    e.end_writeback(FolioId(frame), written, Task::DESCRIPTOR);
                },
                Event::Remove(frame) => if flags(e, frame).is_some_and(|f| !in_writeback(f)) {
                    assert!(e.remove(FolioId(frame)));
                },
                Event::Balance(n) => {
                    let n = usize::from(n);
                    let balance = e.balance_dirty(&mut dirtiers[n], spaces[n], now);
                    prop_assert!(balance.pause_ns.is_none_or(|ns| (1..=200 * MS).contains(&ns)));
                    prop_assert!(!balance.again || balance.pause_ns.is_some());
                    let group = e.group_of_space(spaces[n]);
                    let free = [group, ROOT].iter().all(|&id| e.dirty_state(id).unclean() == 0);
                    prop_assert!(!exact || !free || balance.pause_ns.is_none(), "nothing is dirty");
                }
                Event::Flusher(n) => {
                    let device = devices[usize::from(n)];
                    e.set_writing(device, true);
                    for _ in 0..64 {
                        if e.flusher_work(device, now).is_none() {
                            e.set_writing(device, false);
                            break;
                        }
                    }
                    let next = e.flusher_work(device, now);
                    let background = |work: FlushWork| work.reason == FlushReason::Background;
                    prop_assert!(next.is_none_or(background), "{next:?}");
                }
                Event::RemoveGroup(n) => { let _maybe = e.remove_group(groups[usize::from(n)]); }
                Event::Publish => e.publish(),
            }
            let valid = e.validate();
            prop_assert!(valid.is_ok(), "{valid:?}");
        }
    }
}
