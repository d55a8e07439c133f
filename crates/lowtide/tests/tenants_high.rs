//! Above a limit: threads pay, tenants choose how, programs decide, and neighbours are left alone.

mod common;

use common::Dir;
use lowtide::{Error, HighPolicy, OnStall, Pager, Size, Tenant, TenantError, View};
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
            (pager.stat().io.throttled_ns > 20_000_000).then_some(())
        });
        let pressure = tenant.pressure().unwrap();
        assert!(pressure.some.total_ns > 0, "{policy}");
        assert!(
            pressure.throttle.total_ns > 0 && pressure.throttle.total_ns <= pressure.some.total_ns,
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
    assert_eq!(tenant.stall_advice().unwrap(), tenant.usage().unwrap(), "no thread has waited");
    let mut touches = 0;
    thrash(&view, |result| {
        result.unwrap();
        touches += 512;
        (touches > 20_000).then_some(())
    });
    let advice = tenant.stall_advice().unwrap();
    assert!(
        advice > tenant.usage().unwrap() + 64 * PAGE,
        "{advice} for a file of {}",
        PAGES * PAGE
    );
    drop(pager);
}

#[test]
fn whoever_asked_for_an_error_gets_one_instead_of_a_sleep() {
    let dir = Dir::new();
    let (pager, tenant, view) = thrasher(&dir, HighPolicy::RefaultRecency);
    tenant.set_on_stall(OnStall::Error).unwrap();
    let error = thrash(&view, Result::err);
    let Error::OverLimit { tenant: path, wait } = &error else { panic!("{error}") };
    assert_eq!(path, "/thrasher");
    assert!((Duration::from_nanos(1)..=Duration::from_secs(2)).contains(wait));
    assert_eq!(pager.stat().io.throttled_ns, 0, "no thread slept");
    assert!(error.to_string().contains("/thrasher"), "{error}");
}

#[test]
fn whoever_asked_to_grow_grows_to_max_and_no_further() {
    let dir = Dir::new();
    let (pager, tenant, view) = thrasher(&dir, HighPolicy::StallDebt);
    tenant.set_on_stall(OnStall::Grow).unwrap();
    tenant.set_max(pages(PAGES * 3 / 4)).unwrap();
    thrash(&view, |result| {
        result.unwrap();
        (tenant.usage().unwrap() >= (PAGES * 3 / 4 - 64) * PAGE).then_some(())
    });
    assert!(tenant.usage().unwrap() <= PAGES * 3 / 4 * PAGE);
    assert_eq!(pager.stat().io.throttled_ns, 0);
}

/// §15: a program is loaded, replaced and removed while threads run; the kernel patch's penalty as
/// a program makes them sleep.
#[test]
fn a_program_decides_while_threads_run() {
    let object = include_bytes!("../../../examples/bpf/refault_recency.bpf.o");
    let dir = Dir::new();
    let (pager, tenant, view) = thrasher(&dir, HighPolicy::Overage);
    let noop = tenant.attach(include_bytes!("../../../examples/bpf/noop.bpf.o"), "noop").unwrap();
    thrash(&view, |result| {
        result.unwrap();
        (noop.status().iter().map(|hook| hook.runs).sum::<u64>() > 3).then_some(())
    });
    assert_eq!(pager.stat().io.throttled_ns, 0, "a program without an opinion changes nothing");
    let refused = tenant.attach(b"\x7fELF of nothing", "broken").unwrap_err();
    assert!(matches!(refused, TenantError::Program(_)), "{refused}");
    let patch = tenant.attach(object, "refault_recency").unwrap();
    tenant.set_high_policy(HighPolicy::StallDebt).unwrap();
    thrash(&view, |result| {
        result.unwrap();
        (pager.stat().io.throttled_ns > 0).then_some(())
    });
    assert!(patch.status().iter().any(|hook| hook.runs > 0 && hook.failures == 0));
    assert!(tenant.detach().unwrap());
    assert!(!tenant.detach().unwrap(), "there is none any more");
    let runs =
        |programs: &lowtide::Programs| programs.status().iter().map(|hook| hook.runs).sum::<u64>();
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
            (pager.stat().io.throttled_ns > 0).then_some(())
        });
        neighbour.join().unwrap();
    });
    assert_eq!(quiet.pressure().unwrap().throttle.total_ns, 0);
    assert_eq!(quiet.events().unwrap().high, 0);
    assert!(tenant.pressure().unwrap().throttle.total_ns > 0);
}

#[test]
fn memory_that_cannot_be_evicted_makes_whoever_charges_it_wait() {
    let dir = Dir::new();
    let (pager, tenant, view) = thrasher(&dir, HighPolicy::Overage);
    let held = tenant.reserve(pages(PAGES)).unwrap();
    assert!(
        pager.stat().io.throttled_ns >= 1_000_000_000,
        "the reservation had to wait, and got what it wanted"
    );
    assert!(tenant.usage().unwrap() >= PAGES * PAGE);
    drop((held, view));
}
