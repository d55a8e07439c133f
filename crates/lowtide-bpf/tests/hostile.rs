//! Malicious and faulty programs: each is rejected or stopped, and the process goes on.

use crate::common::*;
use lowtide_bpf::limits::{FAILURES_MAX, FUNCTIONS_MAX, INSTRUCTIONS_MAX};
use lowtide_bpf::{Hook, LoadFault, Programs, Refusal, RunFault};
use lowtide_core::hooks::{DELAY_MAX_NS, LimitHooks, LimitSnapshot, ThrottleAnswer};
use std::slice;

fn refusal(maker: &Maker) -> (usize, Refusal) {
    match Programs::load(&maker.bytes(), "hostile").map_err(|e| e.what) {
        Err(LoadFault::Refused { at, why, .. }) => (at, why),
        other => panic!("{other:?}"),
    }
}

/// Loads a throttle, asks it once, and gives the answer and the error of the run.
fn answer(maker: &Maker) -> (ThrottleAnswer, Option<(usize, RunFault)>) {
    let mut programs = Programs::load(&maker.bytes(), "hostile").unwrap();
    let answer = programs.throttle(&LimitSnapshot::default());
    let status = programs.status();
    assert_eq!((status.len(), status[0].runs), (1, 1));
    (answer, status[0].last_error.map(|e| (e.at, e.what)))
}

const SKIP: ThrottleAnswer = ThrottleAnswer::Default;

#[test]
fn a_good_program_made_by_hand_is_loaded_and_asked() {
    let maker = Maker::new(vec![load(0, 1, 168), exit()]);
    let mut programs = Programs::load(&maker.bytes(), "good").unwrap();
    let snapshot = LimitSnapshot { default_delay_ns: 77, ..LimitSnapshot::default() };
    assert_eq!(programs.throttle(&snapshot), ThrottleAnswer::Exactly(77));
    assert_eq!(programs.below_low(&snapshot), None);
    assert_eq!(programs.proactive(&snapshot), 0);
    assert_eq!(programs.status()[0].hook, Hook::Throttle);
}

#[test]
fn an_endless_loop_without_a_way_out_is_refused() {
    assert_eq!(refusal(&Maker::new(vec![mov(0, 0), goto(-1), exit()])), (1, Refusal::EndlessLoop));
    assert_eq!(
        refusal(&Maker::new(vec![mov(0, 0), op(0x15, 0, 0, 1, 0), exit(), goto(-1)])),
        (3, Refusal::EndlessLoop),
        "only one way is endless"
    );
}

#[test]
fn a_back_edge_whose_condition_never_fails_is_stopped_by_the_budget() {
    // r0 = 0; do {} while (r0 == 0);
    let (got, error) = answer(&Maker::new(vec![mov(0, 0), op(0x15, 0, 0, -1, 0), exit()]));
    assert_eq!((got, error), (SKIP, Some((1, RunFault::Budget))));
}

#[test]
fn a_back_edge_that_ends_runs_to_its_end() {
    // for (r0 = 0; r0 < 1000; r0++);
    let (got, error) =
        answer(&Maker::new(vec![mov(0, 0), add(0, 1), op(0xa5, 0, 0, -2, 1000), exit()]));
    assert_eq!((got, error), (ThrottleAnswer::Exactly(1000), None));
}

#[test]
fn many_helper_calls_cost_more_than_many_instructions() {
    // 1000 turns of three instructions fit; with a helper in each they do not.
    let turns = |body| {
        Maker::new(vec![mov(6, 0), body, add(6, 1), op(0xa5, 6, 0, -3, 1000), mov(0, 1), exit()])
    };
    assert_eq!(answer(&turns(mov(0, 0))).1, None);
    assert_eq!(answer(&turns(helper(5))).1.map(|(_, what)| what), Some(RunFault::Budget));
}

/// `*(key at r10 - 8) = 0; r0 = lookup(&m, r10 - 8)`
fn lookup() -> Vec<[u8; 8]> {
    let [low, high] = constant(1, 0);
    vec![mov(2, 0), store(10, -8, 2), copy(2, 10), add(2, -8), low, high, helper(1)]
}

fn with_lookup(rest: &[[u8; 8]]) -> Maker {
    let mut code = lookup();
    code.extend(rest);
    Maker::new(code).map_at(&[4])
}

#[test]
fn a_looked_up_value_without_a_test_for_null_is_refused() {
    assert_eq!(refusal(&with_lookup(&[load(0, 0, 0), exit()])), (7, Refusal::MaybeNull));
    let other_way = with_lookup(&[op(0x55, 0, 0, 1, 0), load(0, 0, 0), mov(0, 0), exit()]);
    assert_eq!(refusal(&other_way), (8, Refusal::NotAnAddress { register: 0 }), "it is null there");
}

#[test]
fn a_null_value_that_slips_through_the_verifier_stops_the_run() {
    // Through the stack, where the verifier looks away.
    let maker = with_lookup(&[store(10, -16, 0), load(3, 10, -16), load(0, 3, 0), exit()]);
    assert_eq!(answer(&maker), (SKIP, Some((9, RunFault::Null { offset: 0 }))));
}

#[test]
fn accesses_beside_a_value_are_refused_or_stopped() {
    let tested = |rest: &[[u8; 8]]| {
        let mut maker = with_lookup(&[op(0x55, 0, 0, 2, 0), mov(0, 0), exit()]);
        maker.code.extend(rest);
        maker.map = (2, 4);
        maker
    };
    assert_eq!(answer(&tested(&[load(0, 0, 0), exit()])), (ThrottleAnswer::Exactly(0), None));
    assert_eq!(
        refusal(&tested(&[load(0, 0, 1), exit()])),
        (10, Refusal::ValueBounds { offset: 1, bytes: 8 })
    );
    assert_eq!(
        refusal(&tested(&[add(0, -8), store(0, 0, 0), mov(0, 0), exit()])),
        (11, Refusal::ValueBounds { offset: -8, bytes: 8 })
    );
    // By a distance that only the run knows: 4096, and then 8, which a table without gaps would
    // take for the next value.
    for distance in [4096, 8, 1] {
        let add_page_bytes =
            tested(&[mov(3, distance), op(0x0f, 0, 3, 0, 0), load(0, 0, 0), exit()]);
        assert_eq!(answer(&add_page_bytes), (SKIP, Some((12, RunFault::OutOfBounds { bytes: 8 }))));
    }
}

#[test]
fn wrong_use_of_maps_is_refused() {
    let [low, high] = constant(1, 0);
    let memory = Maker::new(vec![low, high, load(0, 1, 0), exit()]).map_at(&[0]);
    assert_eq!(refusal(&memory), (2, Refusal::MapAsMemory { register: 1 }));
    let not_a_map =
        Maker::new(vec![mov(1, 0), copy(2, 10), add(2, -8), helper(1), mov(0, 0), exit()]);
    assert_eq!(refusal(&not_a_map), (3, Refusal::NotAMap { number: 1, register: 1 }));
    let key_beside =
        Maker::new(vec![low, high, copy(2, 10), add(2, -4), helper(1), mov(0, 0), exit()]);
    assert_eq!(refusal(&key_beside.map_at(&[0])), (4, Refusal::StackBounds { offset: -4 }));
    let no_key = Maker::new(vec![low, high, mov(2, 8), helper(1), mov(0, 0), exit()]).map_at(&[0]);
    assert_eq!(refusal(&no_key), (3, Refusal::NotAnAddress { register: 2 }));
    let mut keyless = lookup();
    keyless.drain(..4);
    keyless.extend([mov(0, 0), exit()]);
    assert_eq!(
        refusal(&Maker::new(keyless).map_at(&[0])),
        (2, Refusal::Uninitialised { register: 2 })
    );
}

#[test]
fn a_number_that_looks_like_a_map_is_none() {
    // The numbers by which maps are known, made by hand and passed through the stack.
    for forged in [4096u64 << 32, 4097 << 32, 256 << 32, 1] {
        let [low, high] = constant(3, forged);
        let code = vec![
            low,
            high,
            store(10, -16, 3),
            load(1, 10, -16),
            mov(2, 0),
            store(10, -8, 2),
            copy(2, 10),
            add(2, -8),
            helper(3),
            mov(0, 3),
            exit(),
        ];
        let (got, error) = answer(&Maker { map: (2, 4), ..Maker::new(code) });
        // The object has a map, 4096 is its number: that one is as good as a real reference, and an
        // array refuses.
        let expected = if forged == 4096 << 32 {
            (ThrottleAnswer::Exactly(3), None)
        } else {
            (SKIP, Some((8, RunFault::NotAMap)))
        };
        assert_eq!((got, error), expected, "{forged:#x}");
    }
}

#[test]
fn accesses_beside_the_stack_are_refused_or_stopped() {
    for off in [-513, -520, -7, 0, 8, i16::MIN, i16::MAX] {
        let maker = Maker::new(vec![mov(0, 0), store(10, off, 0), exit()]);
        assert_eq!(refusal(&maker), (1, Refusal::StackBounds { offset: off.into() }));
    }
    for distance in [-520, 0, i32::MAX, i32::MIN] {
        let maker =
            Maker::new(vec![mov(3, distance), op(0x0f, 3, 10, 0, 0), load(0, 3, 0), exit()]);
        assert_eq!(
            answer(&maker),
            (SKIP, Some((2, RunFault::OutOfBounds { bytes: 8 }))),
            "{distance}"
        );
    }
}

#[test]
fn accesses_beside_the_context_are_refused_or_stopped() {
    for off in [-8, 505, 512, i16::MAX] {
        let maker = Maker::new(vec![load(0, 1, off), exit()]);
        assert_eq!(refusal(&maker), (0, Refusal::ContextBounds { offset: off.into(), bytes: 512 }));
    }
    let maker = Maker::new(vec![mov(3, 512), op(0x0f, 1, 3, 0, 0), load(0, 1, 0), exit()]);
    assert_eq!(answer(&maker), (SKIP, Some((2, RunFault::OutOfBounds { bytes: 8 }))));
    let last = Maker::new(vec![load(0, 1, 504), exit()]);
    assert_eq!(answer(&last), (ThrottleAnswer::Exactly(0), None), "behind the fields it is 0");
}

#[test]
fn writes_to_the_context_are_refused_or_stopped() {
    let mut writes = vec![store(1, 0, 0), op(0x7a, 1, 0, 8, 1), op(0xdb, 1, 0, 8, 0)];
    writes.push(op(0x73, 1, 0, 500, 0));
    for write in writes {
        let maker = Maker::new(vec![mov(0, 0), write, exit()]);
        assert_eq!(refusal(&maker), (1, Refusal::ContextWrite));
    }
    let hidden =
        Maker::new(vec![store(10, -8, 1), load(3, 10, -8), store(3, 0, 1), mov(0, 0), exit()]);
    assert_eq!(answer(&hidden), (SKIP, Some((2, RunFault::ReadOnly))));
}

#[test]
fn jumps_that_leave_the_program_are_refused() {
    for off in [1, 100, -3, i16::MIN, i16::MAX] {
        let maker = Maker::new(vec![mov(0, 0), goto(off), exit()]);
        assert_eq!(refusal(&maker), (1, Refusal::JumpOutOfRange { target: 2 + i64::from(off) }));
    }
    let far = Maker::new(vec![mov(0, 0), op(0x06, 0, 0, 0, i32::MAX), exit()]);
    assert_eq!(refusal(&far), (1, Refusal::JumpOutOfRange { target: 2 + i64::from(i32::MAX) }));
    let call = Maker::new(vec![local(i32::MIN), exit()]);
    assert_eq!(refusal(&call), (0, Refusal::JumpOutOfRange { target: 1 + i64::from(i32::MIN) }));
}

#[test]
fn jumps_into_a_constant_are_refused() {
    let [low, high] = constant(0, u64::MAX);
    assert_eq!(
        refusal(&Maker::new(vec![goto(1), low, high, exit()])),
        (0, Refusal::JumpIntoConstant { target: 2 })
    );
    assert_eq!(refusal(&Maker::new(vec![mov(0, 0), exit(), low])), (2, Refusal::HalfConstant));
    assert_eq!(refusal(&Maker::new(vec![low, exit()])), (0, Refusal::HalfConstant));
}

#[test]
fn unknown_operations_helpers_registers_and_fields_are_refused() {
    for unknown in [0x00, 0x20, 0x30, 0xe7, 0xf5, 0x8d, 0xdf, 0x06 | 0x80, 0x9b, 0xff] {
        let maker = Maker::new(vec![op(unknown, 0, 0, 0, 0), mov(0, 0), exit()]);
        assert_eq!(refusal(&maker), (0, Refusal::UnknownOperation { op: unknown }));
    }
    for number in [0, 4, 6, 12, 4099, -1, i32::MAX] {
        let maker = Maker::new(vec![helper(number), exit()]);
        assert_eq!(refusal(&maker), (0, Refusal::UnknownHelper { number }));
    }
    let kernel_function = Maker::new(vec![op(0x85, 0, 2, 0, 1), exit()]);
    assert_eq!(refusal(&kernel_function), (0, Refusal::ForeignCall { kind: 2 }));
    let map_by_number = Maker::new(vec![op(0x18, 1, 1, 0, 3), op(0, 0, 0, 0, 0), exit()]);
    assert_eq!(refusal(&map_by_number), (0, Refusal::ForeignConstant { kind: 1 }));
    assert_eq!(
        refusal(&Maker::new(vec![mov(11, 0), exit()])),
        (0, Refusal::Register { register: 11 })
    );
    assert_eq!(
        refusal(&Maker::new(vec![copy(0, 15), exit()])),
        (0, Refusal::Register { register: 15 })
    );
    assert_eq!(refusal(&Maker::new(vec![mov(10, 0), exit()])), (0, Refusal::FramePointer));
    assert_eq!(
        refusal(&Maker::new(vec![op(0xb7, 0, 3, 0, 0), exit()])),
        (0, Refusal::Field { op: 0xb7 })
    );
    assert_eq!(
        refusal(&Maker::new(vec![op(0xdb, 10, 0, -8, 0x23), exit()])),
        (0, Refusal::Field { op: 0xdb })
    );
}

#[test]
fn a_program_without_an_exit_or_an_answer_is_refused() {
    assert_eq!(refusal(&Maker::new(vec![mov(0, 0)])), (0, Refusal::NoExit));
    assert_eq!(
        refusal(&Maker::new(vec![mov(0, 0), op(0x15, 0, 0, 1, 0), exit(), mov(0, 1)])),
        (3, Refusal::NoExit)
    );
    assert_eq!(refusal(&Maker::new(vec![exit()])), (0, Refusal::Uninitialised { register: 0 }));
    assert_eq!(refusal(&Maker::new(Vec::new())).1, Refusal::Empty);
}

#[test]
fn a_program_that_is_too_long_is_refused() {
    let long = |slots: usize| {
        let mut code = vec![mov(0, 1); slots - 1];
        code.push(exit());
        Maker::new(code)
    };
    assert!(Programs::load(&long(INSTRUCTIONS_MAX).bytes(), "long").is_ok());
    let found = INSTRUCTIONS_MAX + 1;
    assert_eq!(refusal(&long(found)), (0, Refusal::TooLong { found }));
}

#[test]
fn division_by_zero_is_zero_and_a_remainder_by_zero_changes_nothing() {
    let by_zero =
        |operation: u8| Maker::new(vec![mov(0, 40), mov(3, 0), op(operation, 0, 3, 0, 0), exit()]);
    for (operation, expected) in [(0x3f, 0), (0x3c, 0), (0x9f, 40), (0x9c, 40)] {
        assert_eq!(answer(&by_zero(operation)), (ThrottleAnswer::Exactly(expected), None));
    }
    // The one quotient that does not fit: i64::MIN / -1.
    let [low, high] = constant(0, i64::MIN as u64);
    let minimum = Maker::new(vec![
        low,
        high,
        mov(3, -1),
        op(0x3f, 0, 3, 1, 0),
        op(0x77, 0, 0, 0, 63),
        exit(),
    ]);
    assert_eq!(answer(&minimum), (ThrottleAnswer::Exactly(1), None));
}

#[test]
fn a_huge_answer_is_clamped_and_a_negative_one_is_none() {
    let returns = |value: u64| {
        let [low, high] = constant(0, value);
        Maker::new(vec![low, high, exit()])
    };
    assert_eq!(answer(&returns(i64::MAX as u64)).0, ThrottleAnswer::Exactly(DELAY_MAX_NS));
    assert_eq!(answer(&returns(DELAY_MAX_NS)).0, ThrottleAnswer::Exactly(DELAY_MAX_NS));
    assert_eq!(answer(&returns(u64::MAX)), (SKIP, None), "no opinion is no failure");
    assert_eq!(answer(&returns(1 << 63)).0, SKIP);
    let at_least = returns(u64::MAX >> 1).section("memcg/throttle_at_least");
    assert_eq!(answer(&at_least).0, ThrottleAnswer::AtLeast(DELAY_MAX_NS));
    let snapshot = LimitSnapshot { usage: 10, ..LimitSnapshot::default() };
    for (value, pages, protected) in
        [(u64::MAX >> 1, 10, None), (u64::MAX, 0, None), (7, 7, Some(true)), (0, 0, Some(false))]
    {
        let load =
            |section| Programs::load(&returns(value).section(section).bytes(), "returns").unwrap();
        assert_eq!(load("memcg/proactive").proactive(&snapshot), pages);
        assert_eq!(load("memcg/below_low").below_low(&snapshot), protected);
        assert_eq!(load("memcg/below_min").below_min(&snapshot), protected);
    }
}

#[test]
fn an_address_is_no_answer_and_does_not_escape() {
    assert_eq!(refusal(&Maker::new(vec![copy(0, 10), exit()])), (1, Refusal::AddressReturned));
    assert_eq!(
        refusal(&Maker::new(vec![copy(0, 1), add(0, 5), exit()])),
        (2, Refusal::AddressReturned)
    );
    let mut escape = lookup();
    escape.extend([op(0x15, 0, 0, 1, 0), store(0, 0, 10), mov(0, 0), exit()]);
    assert_eq!(refusal(&Maker::new(escape).map_at(&[4])), (8, Refusal::AddressEscapes));
}

#[test]
fn an_address_that_slips_out_is_the_same_in_every_process() {
    // The frame pointer through the stack, shifted: what a run can see of it is a virtual address,
    // not one of this process.
    let maker = Maker::new(vec![store(10, -8, 10), load(0, 10, -8), op(0x77, 0, 0, 0, 4), exit()]);
    let expected = ThrottleAnswer::Exactly((2 << 32 | 4096) >> 4);
    assert_eq!(answer(&maker).0, expected);
}

#[test]
fn recursion_is_refused() {
    assert_eq!(refusal(&Maker::new(vec![local(-1), exit()])), (0, Refusal::Recursion));
    // Through another function.
    let mutual = Maker::new(vec![local(1), exit(), local(1), exit(), local(-3), exit()]);
    assert_eq!(refusal(&mutual), (4, Refusal::Recursion));
}

#[test]
fn calls_may_be_eight_functions_deep_and_no_deeper() {
    // Each function adds 1 to what the next returns; the last begins with 1.
    let chain = |functions: usize| {
        let mut code = Vec::new();
        for _ in 1..functions {
            code.extend([local(2), add(0, 1), exit()]);
        }
        code.extend([store(10, -512, 10), mov(0, 1), exit()]);
        Maker::new(code)
    };
    assert_eq!(answer(&chain(8)), (ThrottleAnswer::Exactly(8), None));
    assert!(matches!(refusal(&chain(9)), (_, Refusal::TooDeep)));
    assert!(matches!(refusal(&chain(300)), (_, Refusal::TooDeep)));
}

#[test]
fn a_program_may_have_so_many_functions_and_no_more() {
    // Calls of functions that begin at each of a row of instructions, all ending in the same exit.
    let calls = |functions: i32| {
        // Call `i` goes to slot `i + functions + 2`.
        let mut code = vec![local(functions + 1); functions as usize];
        code.extend([mov(0, 1), exit()]);
        code.extend(vec![mov(0, 2); functions as usize]);
        code.push(exit());
        Maker::new(code)
    };
    let most = FUNCTIONS_MAX as i32 - 1;
    assert_eq!(answer(&calls(most)), (ThrottleAnswer::Exactly(1), None));
    assert!(matches!(refusal(&calls(most + 1)), (_, Refusal::TooManyFunctions)));
}

#[test]
fn a_callee_cannot_change_what_its_caller_keeps() {
    // r6 = 5; f(); return r6;   f: r6 = 9; stack bottom = 9;
    let code = vec![
        mov(6, 5),
        local(2),
        copy(0, 6),
        exit(),
        mov(6, 9),
        store(10, -8, 6),
        mov(0, 0),
        exit(),
    ];
    assert_eq!(answer(&Maker::new(code)), (ThrottleAnswer::Exactly(5), None));
}

#[test]
fn a_failing_hook_is_switched_off_after_sixteen_runs_in_a_row_and_can_be_switched_on() {
    // Fails while the group is 1.
    let code = vec![load(3, 1, 8), mov(0, 5), op(0x55, 3, 0, 1, 1), goto(-2), exit()];
    let mut programs = Programs::load(&Maker::new(code).bytes(), "fails").unwrap();
    let bad = LimitSnapshot { group: 1, ..LimitSnapshot::default() };
    let good = LimitSnapshot { group: 2, ..LimitSnapshot::default() };
    let fail = |programs: &mut Programs, times: u32| {
        for _ in 0..times {
            assert_eq!(programs.throttle(&bad), SKIP);
        }
    };
    fail(&mut programs, FAILURES_MAX - 1);
    assert_eq!(programs.throttle(&good), ThrottleAnswer::Exactly(5), "not in a row");
    fail(&mut programs, FAILURES_MAX - 1);
    assert_eq!(programs.status()[0].switched_off, None);
    fail(&mut programs, 1);
    let status = programs.status()[0];
    let off = status.switched_off.unwrap();
    assert_eq!((off.failures, off.last.what), (FAILURES_MAX, RunFault::Budget));
    assert_eq!((status.runs, status.failures), (2 * 16, 2 * 16 - 1));
    assert_eq!(programs.throttle(&good), SKIP, "it is not asked any more");
    assert_eq!(programs.status()[0].runs, 2 * 16);
    assert!(programs.switch_on(Hook::Throttle) && !programs.switch_on(Hook::Throttle));
    assert_eq!(programs.throttle(&good), ThrottleAnswer::Exactly(5));
    programs.add_time(Hook::Throttle, 40);
    assert_eq!(programs.status()[0].total_ns, 40);
}

#[test]
fn reclaim_requests_are_queued_joined_and_bounded() {
    // request(ctx->group, ctx->usage)
    let code = vec![load(2, 1, 24), load(1, 1, 8), helper(4096), op(0x87, 0, 0, 0, 0), exit()];
    let mut programs = Programs::load(&Maker::new(code).bytes(), "requests").unwrap();
    let mut ask = |group, usage| {
        programs.throttle(&LimitSnapshot { group, usage, ..LimitSnapshot::default() })
    };
    assert_eq!(ask(1, 0), ThrottleAnswer::Exactly(22), "no pages");
    for group in 0..64 {
        assert_eq!(ask(group, 10), ThrottleAnswer::Exactly(0));
    }
    assert_eq!(ask(64, 10), ThrottleAnswer::Exactly(11), "full");
    assert_eq!(ask(3, u64::MAX), ThrottleAnswer::Exactly(0), "another for the same group has room");
    let taken = programs.take_requests();
    assert_eq!((taken.len(), taken[3].pages, taken[4].pages), (64, u64::MAX, 10));
    assert!(programs.take_requests().is_empty());
}

#[test]
fn a_truncated_object_is_refused_at_every_length() {
    let whole = with_lookup(&[mov(0, 0), exit()]).bytes();
    assert!(Programs::load(&whole, "whole").is_ok());
    for length in 0..whole.len() {
        assert!(Programs::load(&whole[..length], "truncated").is_err(), "{length} bytes");
    }
}

#[test]
fn a_wrong_machine_kind_or_section_is_named() {
    let what = |maker: &Maker| Programs::load(&maker.bytes(), "wrong").unwrap_err().what;
    let good = Maker::new(vec![mov(0, 0), exit()]);
    assert_eq!(what(&Maker { machine: 62, ..good.clone() }), LoadFault::Machine { machine: 62 });
    assert_eq!(what(&good.clone().section("xdp")), LoadFault::NoPrograms);
    let unknown = LoadFault::UnknownHook { section: "memcg/oom".to_owned() };
    assert_eq!(what(&good.clone().section("memcg/oom")), unknown);
    let mut linked = good.bytes();
    linked[16] = 2;
    assert_eq!(Programs::load(&linked, "linked").unwrap_err().what, LoadFault::Kind);
    let mut big_endian = good.bytes();
    big_endian[5] = 2;
    assert_eq!(Programs::load(&big_endian, "big").unwrap_err().what, LoadFault::Kind);
    let error = Programs::load(slice::from_ref(&0), "short").unwrap_err();
    assert!(matches!(error.what, LoadFault::NotElf { .. }));
    assert!(error.to_string().starts_with("short: not a readable ELF object"), "{error}");
}

#[test]
fn an_object_without_sections_is_refused() {
    let mut bytes = Maker::new(vec![mov(0, 0), exit()]).bytes();
    // Table of sections: offset, count, index of names.
    bytes[40..48].fill(0);
    bytes[60..64].fill(0);
    assert_eq!(Programs::load(&bytes, "bare").unwrap_err().what, LoadFault::NoPrograms);
}

#[test]
fn maps_that_are_too_big_or_of_a_wrong_type_are_refused() {
    for map in [(1, u32::MAX), (1, 0), (3, 4), (27, 4), (1, 1 << 20)] {
        let maker = Maker { map, ..with_lookup(&[mov(0, 0), exit()]) };
        let error = Programs::load(&maker.bytes(), "maps").unwrap_err();
        assert!(matches!(error.what, LoadFault::Map { .. }), "{map:?}: {error}");
    }
}

#[test]
fn objects_whose_parts_do_not_fit_together_are_refused() {
    let what = |bytes: &[u8]| Programs::load(bytes, "parts").unwrap_err().what;
    let good = with_lookup(&[mov(0, 0), exit()]);
    let entry = |found| LoadFault::Entry { section: "memcg/throttle".to_owned(), found };
    assert_eq!(what(&Maker { functions: 0, ..good.clone() }.bytes()), entry(0));
    assert_eq!(what(&Maker { functions: 2, ..good.clone() }.bytes()), entry(2));
    let undefined = what(&Maker { map_section: 0, ..good.clone() }.bytes());
    assert!(
        matches!(&undefined, LoadFault::Relocation { at: 4, why, .. } if why.contains("`m` is not \
            defined")),
        "{undefined}"
    );
    let nowhere = what(&good.clone().map_at(&[3]).bytes());
    assert!(matches!(nowhere, LoadFault::Relocation { at: 3, .. }), "not at a constant: {nowhere}");
    let outside = what(&good.clone().map_at(&[9]).bytes());
    assert!(matches!(outside, LoadFault::Relocation { at: 9, .. }), "past the end: {outside}");
    // Wherever the name stands.
    let renamed = |from: &[u8], to: &[u8], bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        for at in 0..=bytes.len() - from.len() {
            if bytes[at..].starts_with(from) {
                bytes[at..at + to.len()].copy_from_slice(to);
            }
        }
        bytes
    };
    let untyped = what(&renamed(b".BTF\0", b".BTX\0", &good.bytes()));
    assert!(matches!(&untyped, LoadFault::TypeInformation { .. }), "{untyped}");
    assert!(untyped.to_string().contains("compile with -g"));
    let unknown = what(&renamed(b"\0key\0", b"\0kex\0", &good.bytes()));
    assert!(matches!(unknown, LoadFault::Map { .. }), "{unknown}");
    let priority = include_bytes!("../../../examples/bpf/priority.bpf.o");
    let twice = what(&renamed(b"memcg/below_low", b"memcg/throttle\0", priority));
    let throttle = || "memcg/throttle".to_owned();
    assert_eq!(twice, LoadFault::Twice { first: throttle(), second: throttle() });
}
