//! Above a limit: threads pay, tenants choose how, programs decide, and neighbours are left alone.

use crate::common;
use crate::common::Dir;
use lowtide::hooks::{LimitHooks, LimitSnapshot, ThrottleAnswer};
use lowtide::{Error, HighPolicy, Pager, Size, Tenant, View};
use lowtide_bpf::Programs;
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
/// Pages of the file.
const PAGES: u64 = 2048;
/// A run that has not shown what it is to show by then has failed.
const LIMIT: Duration = Duration::from_secs(60);

fn pages(n: u64) -> Size {
    Size::new(n * PAGE)
}

/// A tenant that may have half of its file.
fn thrasher(dir: &Dir, policy: HighPolicy) -> (Pager, Tenant, View) {
    let path = common::make_file(dir, PAGES * PAGE);
    let pager = Pager::builder().max(pages(2 * PAGES)).build().unwrap();
    let tenant = pager.tenant("thrasher").high(pages(PAGES / 2)).create().unwrap();
    tenant.set_high_policy(policy).unwrap();
    let view = tenant.open(&path).unwrap();
    (pager, tenant, view)
}

/// Touches random pages until something has happened, and returns that. It is checked after every
/// 512 touches, since asking costs more than a touch; and after every error.
fn thrash<T>(view: &View, mut until: impl FnMut(Result<(), Error>) -> Option<T>) -> T {
    let began = Instant::now();
    let mut state = 1_u64;
    for touches in 1_u64.. {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let page = (state >> 33) % PAGES;
        let result =
            view.page(page).map(|bytes| assert_eq!(bytes[0], common::byte_at(page * PAGE)));
        if (result.is_err() || touches.is_multiple_of(512))
            && let Some(found) = until(result)
        {
            return found;
        }
        assert!(began.elapsed() < LIMIT, "nothing has happened for a minute");
    }
    unreachable!("it runs until something happens")
}

#[test]
fn a_thread_that_thrashes_sleeps_and_the_time_is_pressure() {
    for policy in [HighPolicy::StallDebt, HighPolicy::RefaultRecency] {
        let dir = Dir::new();
        let (pager, tenant, view) = thrasher(&dir, policy);
        thrash(&view, |result| {
            result.unwrap();
            (pager.stat().io.throttled > Duration::from_millis(20)).then_some(())
        });
        let pressure = tenant.pressure().unwrap();
        assert!(!pressure.some.total.is_zero(), "{policy}");
        assert!(
            !pressure.throttle.total.is_zero() && pressure.throttle.total <= pressure.some.total,
            "{policy}"
        );
        let text = pressure.to_string();
        assert!(text.starts_with("some avg10=") && text.contains("\nfull avg10="), "{text}");
        assert!(tenant.events().unwrap().high > 0, "{policy}");
        assert!(
            tenant.usage().unwrap() <= (PAGES / 2 + 64) * PAGE,
            "high is kept, but for a batch"
        );
        pager.validate().unwrap();
    }
}

/// §8.8: the answer to "just raise the limit".
#[test]
fn advice_asks_for_what_the_tenant_misses_and_for_no_more_than_that_when_nobody_waits() {
    let dir = Dir::new();
    let (pager, tenant, view) = thrasher(&dir, HighPolicy::Overage);
    assert_eq!(
        tenant.budget_for_stalls().unwrap(),
        tenant.usage().unwrap(),
        "no thread has waited"
    );
    let mut touches = 0;
    thrash(&view, |result| {
        result.unwrap();
        touches += 512;
        (touches > 20_000).then_some(())
    });
    let advice = tenant.budget_for_stalls().unwrap();
    assert!(
        advice > tenant.usage().unwrap() + 64 * PAGE,
        "{advice} for a file of {}",
        PAGES * PAGE
    );
    drop(pager);
}

/// A program whose threads never sleep: the tenant is over its `high`, and grows up to `max`.
#[test]
fn a_tenant_whose_program_answers_zero_never_sleeps() {
    #[derive(Debug)]
    struct Awake;
    impl LimitHooks for Awake {
        fn throttle(&mut self, _: &LimitSnapshot) -> ThrottleAnswer {
            ThrottleAnswer::Exactly(0)
        }
    }
    let dir = Dir::new();
    let (pager, tenant, view) = thrasher(&dir, HighPolicy::StallDebt);
    tenant.set_hooks(Some(Box::new(Awake))).unwrap();
    let mut touches = 0;
    thrash(&view, |result| {
        result.unwrap();
        touches += 512;
        (touches > 20_000).then_some(())
    });
    assert!(tenant.events().unwrap().high > 0);
    assert_eq!(pager.stat().io.throttled, Duration::ZERO, "no thread slept");
}

/// §15: a program is loaded, replaced and removed while threads run; the kernel patch's penalty as
/// a program makes them sleep.
#[test]
fn a_program_decides_while_threads_run() {
    let object = include_bytes!("../../../examples/bpf/refault_recency.bpf.o");
    let dir = Dir::new();
    let (pager, tenant, view) = thrasher(&dir, HighPolicy::Overage);
    let load = |object: &[u8], name| Programs::load(object, name).unwrap();
    let noop = load(include_bytes!("../../../examples/bpf/noop.bpf.o"), "noop");
    assert!(tenant.set_hooks(Some(Box::new(noop.clone()))).unwrap().is_none(), "none before it");
    thrash(&view, |result| {
        result.unwrap();
        (noop.status().iter().map(|hook| hook.runs).sum::<u64>() > 3).then_some(())
    });
    assert_eq!(
        pager.stat().io.throttled,
        Duration::ZERO,
        "a program without an opinion changes nothing"
    );
    let patch = load(object, "refault_recency");
    let before = tenant.set_hooks(Some(Box::new(patch.clone()))).unwrap().expect("the first");
    assert!(format!("{before:?}").contains("noop"), "{before:?}");
    tenant.set_high_policy(HighPolicy::StallDebt).unwrap();
    thrash(&view, |result| {
        result.unwrap();
        (!pager.stat().io.throttled.is_zero()).then_some(())
    });
    assert!(patch.status().iter().any(|hook| hook.runs > 0 && hook.failures == 0));
    assert!(tenant.set_hooks(None).unwrap().is_some());
    assert!(tenant.set_hooks(None).unwrap().is_none(), "there is none any more");
    let runs = |programs: &Programs| programs.status().iter().map(|hook| hook.runs).sum::<u64>();
    let before = runs(&patch);
    let mut touches = 0;
    tenant.set_high_policy(HighPolicy::Overage).unwrap();
    thrash(&view, |result| {
        result.unwrap();
        touches += 512;
        (touches > 5000).then_some(())
    });
    assert_eq!(runs(&patch), before, "it is gone");
}

/// A neighbour in the same pager owes nothing for another tenant's thrashing.
#[test]
fn an_innocent_neighbour_never_sleeps() {
    let dir = Dir::new();
    let (pager, tenant, view) = thrasher(&dir, HighPolicy::StallDebt);
    let quiet = pager.tenant("quiet").high(pages(PAGES / 2)).create().unwrap();
    let other = Dir::new();
    let path = common::make_file(&other, 256 * PAGE);
    let small = quiet.open(&path).unwrap();
    std::thread::scope(|scope| {
        let neighbour = scope.spawn(|| {
            for round in 0..2000_u64 {
                drop(small.page(round * 7 % 256).unwrap());
            }
        });
        thrash(&view, |result| {
            result.unwrap();
            (!pager.stat().io.throttled.is_zero()).then_some(())
        });
        neighbour.join().unwrap();
    });
    assert_eq!(quiet.pressure().unwrap().throttle.total, Duration::ZERO);
    assert_eq!(quiet.events().unwrap().high, 0);
    assert!(!tenant.pressure().unwrap().throttle.total.is_zero());
}

#[test]
fn memory_that_cannot_be_evicted_makes_whoever_charges_it_wait() {
    let dir = Dir::new();
    let (pager, tenant, view) = thrasher(&dir, HighPolicy::Overage);
    let held = tenant.reserve(pages(PAGES)).unwrap();
    assert!(
        pager.stat().io.throttled >= Duration::from_secs(1),
        "the reservation had to wait, and got what it wanted"
    );
    assert!(tenant.usage().unwrap() >= PAGES * PAGE);
    drop((held, view));
}
