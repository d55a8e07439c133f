//! Groups are moved and removed while an invocation of reclaim or a charge is between two steps:
//! nothing panics, nothing is lost.

use lowtide_core::{
    Charge, Engine, EngineConfig, Facts, Folio, FolioId, FolioState, LruType, MemcgId, Next, Owner,
    Policy, Reason, Reclaim, References, Step, Task, Unmapped, Window,
};

/// No folio was accessed, and all can be unmapped.
struct Idle;

impl Facts for Idle {
    fn state(&mut self, _: FolioId, _: &Folio) -> FolioState {
        FolioState { locked: false, mapped: true }
    }

    fn references(&mut self, _: FolioId, _: &Folio) -> References {
        References { young: 0, exec: false }
    }

    fn look_around(
        &mut self,
        _: FolioId,
        _: &Folio,
        _: &mut dyn FnMut(FolioId) -> bool,
    ) -> Option<Window> {
        None
    }
}

/// An engine of 256 frames, a group below the root, one below that, and `pages` in the lower one.
fn tree(policy: Policy, pages: u32) -> (Engine, MemcgId, MemcgId) {
    let config = EngineConfig { frames: 256, max: 256, page_bytes: 4096, policy, cpus: 1 };
    let mut engine = Engine::new(&config).unwrap();
    let upper = engine.create_group(MemcgId::ROOT).unwrap();
    let lower = engine.create_group(upper).unwrap();
    let space = engine.add_space(lower);
    for i in 0..pages {
        engine.try_charge(lower, 1).unwrap();
        let owner = Owner { space, page: u64::from(i) };
        engine.insert(FolioId(i), owner, 0, LruType::File, lower, None, Task::FAULT);
    }
    (engine, upper, lower)
}

/// Goes on to the next moment in which others may run; returns the step.
fn pause(engine: &mut Engine, reclaim: &mut Reclaim) -> Step {
    loop {
        match reclaim.step(engine, &mut Idle, 0) {
            Step::Unmap => {
                reclaim.victims().iter_mut().for_each(|victim| victim.outcome = Unmapped::Done);
            }
            Step::Freed | Step::WakeFlushers => {}
            Step::Walk => {
                while reclaim.age_job().next_space(engine).is_some() {}
                return Step::Walk;
            }
            step => return step,
        }
    }
}

#[test]
fn an_invocation_ends_when_its_target_is_removed_and_what_was_below_has_moved_away() {
    for policy in [Policy::MGLRU, Policy::MGLRU_7_1, Policy::LRU, Policy::TIDE] {
        for (pauses, gives_up) in (0..6).flat_map(|pauses| [(pauses, false), (pauses, true)]) {
            let (mut engine, upper, lower) = tree(policy, 200);
            let mut reclaim = Reclaim::new(upper, 150, Reason::Direct, Task::FAULT);
            for _ in 0..pauses {
                pause(&mut engine, &mut reclaim);
            }
            let reclaimed = reclaim.reclaimed();
            engine.move_group(lower, MemcgId::ROOT).unwrap();
            engine.remove_group(upper).unwrap();
            if gives_up {
                // Its driver has waited for long enough.
                reclaim.give_up();
            }
            assert_eq!(pause(&mut engine, &mut reclaim), Step::Done, "{policy}, {pauses} pauses");
            assert_eq!(
                engine.usage(lower),
                200 - reclaimed,
                "nothing is taken from who is not below any more"
            );
            engine.validate().unwrap();
        }
    }
}

#[test]
fn a_charge_to_a_group_that_goes_meanwhile_says_so_and_charges_nothing() {
    let (mut engine, upper, lower) = tree(Policy::MGLRU, 50);
    engine.set_max(lower, 50).unwrap();
    let mut charge = Charge::new(lower, 1);
    let Next::Reclaim(mut reclaim) = charge.next(&mut engine, Task::FAULT, None) else {
        panic!("it is full")
    };
    engine.remove_group(lower).unwrap();
    while pause(&mut engine, &mut reclaim) != Step::Done {}
    assert!(matches!(charge.next(&mut engine, Task::FAULT, Some(reclaim.reclaimed())), Next::Gone));
    assert_eq!(engine.usage(upper), 50);
    engine.validate().unwrap();
}

#[test]
fn a_patient_charge_is_counted_as_out_of_memory_when_its_driver_gives_up() {
    for (patient, oom) in [(false, 1), (true, 0)] {
        let (mut engine, upper, lower) = tree(Policy::MGLRU, 10);
        engine.set_max(upper, 10).unwrap();
        let mut charge = if patient { Charge::patient(lower, 1) } else { Charge::new(lower, 1) };
        let mut reclaimed = None;
        let over = loop {
            match charge.next(&mut engine, Task::FAULT, reclaimed) {
                Next::Reclaim(_) => reclaimed = Some(0),
                Next::Failed { over } => break over,
                next => panic!("{next:?}"),
            }
        };
        assert_eq!((over, engine.limit_events(upper).oom), (upper, oom));
        engine.count_oom(over);
        assert_eq!(
            (engine.limit_events(MemcgId::ROOT).oom, engine.limit_events(lower).oom),
            (oom + 1, 0)
        );
        assert!(
            engine.failcnt(upper) > 0 && engine.failcnt(lower) == 0,
            "the level that refuses counts"
        );
    }
}
