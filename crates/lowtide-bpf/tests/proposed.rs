//! Programs in the names of the series that is proposed for the kernel: they do what their twins in
//! our names do, and what is not served is refused by name.

use crate::common::Draw;
use lowtide_bpf::{Hook, LoadFault, Programs, Refusal};
use lowtide_core::hooks::{LimitHooks, LimitSnapshot, ThrottleAnswer};
use object::{Object as _, ObjectSection as _};

const PROPOSED: &[u8] = include_bytes!("programs/proposed.bpf.o");
const OWN: &[u8] = include_bytes!("programs/own.bpf.o");
const KERNEL_FIELD: &[u8] = include_bytes!("programs/kernel_field.bpf.o");
const FAIR_SHARE: &[u8] = include_bytes!("../../../examples/bpf/fair_share.bpf.o");

#[test]
fn one_program_in_both_names_gives_the_same_answers() {
    let mut twins = [PROPOSED, OWN].map(|object| Programs::load(object, "twin").unwrap());
    let mut draw = Draw(3);
    let (mut slept, mut spared, mut clamped) = (0_u32, 0_u32, 0_u32);
    for _ in 0..20_000 {
        let snapshot = LimitSnapshot {
            group: draw.below(1 << 40),
            usage: draw.below(1 << 30),
            elow: draw.below(1 << 30),
            emin: draw.below(1 << 30),
            nr_over_high: draw.below(4000),
            ..LimitSnapshot::default()
        };
        let [proposed, own] = twins.each_mut().map(|twin| {
            twin.online(&snapshot);
            let answers = (
                twin.throttle(&snapshot),
                twin.below_low(&snapshot),
                twin.below_min(&snapshot),
                twin.proactive(&snapshot),
            );
            twin.offline(&snapshot);
            let sums = [0u32, 1, 2, 3].map(|at| twin.map_get("sums", &at.to_le_bytes()).unwrap());
            (answers, sums)
        });
        assert_eq!(proposed, own, "{snapshot:?}");
        let ((throttle, low, min, _), _) = own;
        let ms = snapshot.nr_over_high + snapshot.usage % 100;
        assert_eq!(throttle, ThrottleAnswer::AtLeast(2_000_000_000.min(ms * 1_000_000)));
        slept += u32::from(ms > 0);
        clamped += u32::from(ms > 2000);
        assert_eq!(low, (snapshot.usage < 2 * snapshot.elow).then_some(true));
        assert_eq!(min, (snapshot.usage < 3 * snapshot.emin).then_some(true));
        spared += u32::from(low.is_some());
    }
    assert!(slept > 10_000 && clamped > 5_000, "{slept} {clamped}");
    assert!((10_000..19_000).contains(&spared), "{spared}");
    for twin in &twins {
        assert!(twin.wants_charges());
        let hooks: Vec<_> = twin.status().iter().map(|s| (s.hook, s.runs, s.failures)).collect();
        let served = [Hook::Charged, Hook::BelowLow, Hook::BelowMin, Hook::Online, Hook::Offline];
        assert_eq!(hooks, served.map(|hook| (hook, 20_000, 0)));
    }
}

#[test]
fn fair_share_spares_groups_below_the_average() {
    let mut programs = Programs::load(FAIR_SHARE, "fair_share").unwrap();
    assert!(!programs.wants_charges());
    let at = |group, usage| LimitSnapshot { group, usage, ..LimitSnapshot::default() };
    assert_eq!(programs.below_low(&at(9, 1)), None, "it does not know the group");
    for group in 1..=3 {
        programs.online(&at(group, 0));
    }
    assert_eq!(programs.below_low(&at(1, 300)), None, "300 of 300");
    assert_eq!(programs.below_low(&at(2, 90)), Some(true), "90 of 390, a third is 130");
    assert_eq!(programs.below_low(&at(3, 210)), None, "210 of 600");
    assert_eq!(programs.below_low(&at(3, 195)), None, "195 of 585 is a third");
    programs.offline(&at(1, 300));
    assert_eq!(programs.below_low(&at(3, 100)), None, "100 of 190");
    assert_eq!(programs.below_low(&at(2, 90)), Some(true));
    programs.offline(&at(1, 300));
    assert_eq!(programs.below_low(&at(2, 90)), Some(true), "what is gone is gone once");
    assert!(programs.status().iter().all(|hook| hook.failures == 0));
}

/// The object with each occurrence of some bytes replaced by as many others.
fn patched(from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut object = PROPOSED.to_vec();
    let mut found = false;
    for at in 0..=object.len() - from.len() {
        if object[at..].starts_with(from.as_bytes()) {
            object[at..at + to.len()].copy_from_slice(to.as_bytes());
            found = true;
        }
    }
    assert!(found, "{from}");
    object
}

fn refused(object: &[u8]) -> (String, LoadFault) {
    let error = Programs::load(object, "x").unwrap_err();
    (error.to_string(), error.what)
}

#[test]
fn what_is_not_served_is_refused_by_name() {
    // The first member that is set becomes the third of the structure.
    let mut uncharged = PROPOSED.to_vec();
    let elf = object::File::parse(PROPOSED).unwrap();
    let table = elf.section_by_name(".rel.struct_ops.link").unwrap().file_range().unwrap();
    let at = table.0 as usize;
    assert_eq!(uncharged[at..at + 8], 0u64.to_le_bytes(), "memcg_charged is the first member");
    uncharged[at..at + 8].copy_from_slice(&16u64.to_le_bytes());
    for (object, expected) in [
        (uncharged.clone(), "`memcg_uncharged` is not served: pages are given back"),
        (patched("memcg_charged", "memcg_nothing"), "`memcg_nothing` is not served: no version"),
        (patched("memcg_bpf_ops", "bpf_other_ops"), "`bpf_other_ops` is not served: only the"),
        (
            patched("bpf_mem_cgroup_usage", "bpf_mem_cgroup_flush"),
            "`bpf_mem_cgroup_flush` is not served: it is not defined",
        ),
        (
            patched("struct_ops/below_low", "struct_ops.s/low_low"),
            "`struct_ops.s/low_low` is not served: no hook may sleep",
        ),
    ] {
        let (text, what) = refused(&object);
        assert!(text.starts_with(&format!("x: {expected}")), "{text}");
        assert!(matches!(what, LoadFault::NotServed { .. }), "{what:?}");
    }
    // The second pointer to a member that is not at its beginning, or is none.
    uncharged[at..at + 8].copy_from_slice(&4u64.to_le_bytes());
    let (text, what) = refused(&uncharged);
    assert!(matches!(what, LoadFault::TypeInformation { .. }), "{text}");
}

#[test]
fn the_older_name_is_the_same_hook_without_pages() {
    let mut older = PROPOSED.to_vec();
    let elf = object::File::parse(PROPOSED).unwrap();
    let table = elf.section_by_name(".rel.struct_ops.link").unwrap().file_range().unwrap();
    // From memcg_charged to get_high_delay_ms, which has one argument: the program reads two.
    older[table.0 as usize] = 8;
    let (text, what) = refused(&older);
    let refusal = Refusal::ContextBounds { offset: 8, bytes: 8 };
    assert!(
        matches!(&what, LoadFault::Refused { section, why, .. }
            if section == "struct_ops/memcg_charged" && *why == refusal),
        "{text}"
    );
}

#[test]
fn a_hook_that_is_set_twice_is_refused() {
    let mut twice = PROPOSED.to_vec();
    let elf = object::File::parse(PROPOSED).unwrap();
    let table = elf.section_by_name(".rel.struct_ops.link").unwrap().file_range().unwrap();
    // Relocations have 16 bytes: the one of below_min goes to below_low.
    let at = table.0 as usize + 2 * 16;
    assert_eq!(twice[at], 32);
    twice[at] = 24;
    let (text, what) = refused(&twice);
    assert!(matches!(what, LoadFault::Twice { .. }), "{text}");
    assert!(text.contains("struct_ops/below_low and struct_ops/below_min"), "{text}");
}

#[test]
fn fields_of_kernel_structures_cannot_be_read() {
    let (text, what) = refused(KERNEL_FIELD);
    let LoadFault::Refused { section, why, .. } = what else { panic!("{text}") };
    assert_eq!((&section[..], why), ("struct_ops/below_low", Refusal::KernelField));
}
