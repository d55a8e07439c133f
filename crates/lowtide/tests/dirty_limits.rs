//! What a user relies on who writes faster than the device: dirty data stays within its limits, for
//! the pager and for each tenant; writers are slowed down in short pauses; and no writer pays for a
//! neighbour.
//!
//! Devices are made slow by an injector. No time decides a test: what is looked at are counters,
//! and bounds of sizes.

use crate::common::{Dir, byte_at, make_file};
use lowtide::instruments::{DirtyTimers, Inject, InjectOp, Request, Verdict};
use lowtide::{
    BuildError, DirtyLimits, DirtyLimitsError, DirtyShare, DirtyStat, OpenOptions, Pager, Size,
    TenantError, View,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
/// No pause is longer (`docs/kernel/fault-and-writeback.md` B8).
const LONGEST: Duration = Duration::from_millis(200);

/// Writes of files whose names begin with `slow` start so much later.
struct Slow(Duration);

impl Inject for Slow {
    fn before(&self, request: &Request<'_>) -> Verdict {
        let name = request.path.file_name().unwrap_or_default().to_string_lossy();
        if request.op == InjectOp::Write && name.starts_with("slow") {
            Verdict::Later(self.0)
        } else {
            Verdict::Pass
        }
    }
}

fn pages(n: u64) -> Size {
    Size::new(n * PAGE)
}

fn slow_pager(frames: u64, delay_ms: u64, limits: DirtyLimits) -> Pager {
    Pager::builder()
        .max(pages(frames))
        .inject(Arc::new(Slow(Duration::from_millis(delay_ms))))
        .dirty_limits(limits)
        // Nothing is written because it is old.
        .dirty_timers(DirtyTimers { expire_ns: u64::MAX, interval_ns: 0 })
        .build()
        .unwrap()
}

fn percent(background: u32, hard: u32) -> DirtyLimits {
    DirtyLimits::new(DirtyShare::Percent(background), DirtyShare::Percent(hard))
}

fn bytes(background: u64, hard: u64) -> DirtyLimits {
    DirtyLimits::new(DirtyShare::Bytes(background), DirtyShare::Bytes(hard))
}

fn slow_file(dir: &Dir, name: &str, bytes: u64) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
    path
}

/// Ends whatever waits for it, even when a thread has panicked.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Writes `total` pages in pieces, round and round in the file.
fn write_round(view: &View, from: u64, total: u64, piece: u64) {
    let content: Vec<u8> = (0..piece * PAGE).map(byte_at).collect();
    let rounds = view.page_count() / piece;
    for i in 0..total / piece {
        view.write_at((from + i) % rounds * piece * PAGE, &content).unwrap();
    }
}

/// Runs writers while another thread looks at how much is dirty. Returns the largest excess over
/// the hard limit and the last look.
fn excess(stat: impl Fn() -> DirtyStat + Sync, writers: &[&(dyn Fn() + Sync)]) -> (u64, DirtyStat) {
    let over = AtomicBool::new(false);
    let worst = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut hard = 0;
            while !over.load(SeqCst) {
                let now = stat();
                // A limit falls slowly when a threshold does.
                hard = hard.max(now.hard_bytes);
                worst.fetch_max(
                    (now.dirty_bytes + now.writeback_bytes).saturating_sub(hard),
                    SeqCst,
                );
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        let _over = Over(&over);
        std::thread::scope(|scope| writers.iter().for_each(|writer| drop(scope.spawn(writer))));
    });
    (worst.into_inner(), stat())
}

/// The slack that is documented: a sixteenth of the limit, and a batch of each writer.
fn slack(hard_bytes: u64, writers: u64) -> u64 {
    hard_bytes / 16 + writers * 64 * PAGE
}

#[test]
fn dirty_pages_of_a_pager_stay_within_its_limit() {
    for limits in [percent(10, 20), percent(2, 5), bytes(1 << 20, 2 << 20)] {
        let dir = Dir::new();
        let pager = slow_pager(4096, 2, limits);
        let path = slow_file(&dir, "slow", 8192 * PAGE);
        let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
        let (excess, last) = excess(
            || pager.stat().dirty,
            &[&|| write_round(&view, 0, 6000, 16), &|| write_round(&view, 200, 6000, 100)],
        );
        assert!(
            excess <= slack(last.hard_bytes, 2),
            "{excess} bytes above {} with {limits:?}",
            last.hard_bytes
        );
        assert!(last.pauses > 0, "{limits:?}: the device is far too slow for two writers");
        assert!(!last.paused.is_zero() && last.longest_pause <= LONGEST, "{last:?}");
        if let DirtyShare::Bytes(bytes) = limits.hard {
            assert_eq!(last.hard_bytes, bytes);
        }
        view.flush().unwrap();
        assert_eq!(pager.stat().dirty.dirty_bytes, 0);
        pager.validate().unwrap();
    }
}

#[test]
fn dirty_pages_of_a_tenant_stay_within_its_own_limit() {
    for limits in [None, Some(percent(20, 40)), Some(bytes(128 << 10, 256 << 10))] {
        let dir = Dir::new();
        let pager = slow_pager(4096, 2, DirtyLimits::default());
        let tenant = pager.tenant("writer").max(pages(512));
        let tenant = match limits {
            Some(limits) => tenant.dirty_limits(limits),
            None => tenant,
        };
        let tenant = tenant.create().unwrap();
        let path = slow_file(&dir, "slow", 2048 * PAGE);
        let view = OpenOptions::new().write(true).tenant(&tenant).open(&pager, &path).unwrap();
        let (excess, last) =
            excess(|| tenant.dirty().unwrap(), &[&|| write_round(&view, 0, 3000, 30)]);
        assert!(
            excess <= slack(last.hard_bytes, 1),
            "{excess} bytes above {} with {limits:?}",
            last.hard_bytes
        );
        assert!(last.hard_bytes <= 512 * PAGE * 2 / 5);
        assert!(last.pauses > 0 && last.longest_pause <= LONGEST, "{last:?}");
        assert_eq!(tenant.events().unwrap().oom, 0);
        view.flush().unwrap();
        pager.validate().unwrap();
    }
}

#[test]
fn a_neighbour_who_writes_little_never_pauses() {
    let dir = Dir::new();
    let pager = slow_pager(16_384, 5, DirtyLimits::default());
    let [loud, quiet] =
        ["loud", "quiet"].map(|name| pager.tenant(name).max(pages(2048)).create().unwrap());
    let open = |tenant, name| {
        let path = slow_file(&dir, name, 4096 * PAGE);
        OpenOptions::new().write(true).tenant(tenant).open(&pager, path).unwrap()
    };
    let (loud_view, quiet_view) = (open(&loud, "slow-loud"), open(&quiet, "slow-quiet"));
    std::thread::scope(|scope| {
        scope.spawn(|| write_round(&loud_view, 0, 6000, 64));
        // A hundred pages, again and again: far below what it may have dirty.
        scope.spawn(|| {
            for i in 0..600 {
                quiet_view.write_at(i % 10 * 10 * PAGE, &[i as u8; 10 * PAGE as usize]).unwrap();
            }
        });
    });
    let (loud, quiet) = (loud.dirty().unwrap(), quiet.dirty().unwrap());
    assert!(loud.pauses > 0, "{loud:?}");
    assert_eq!((quiet.pauses, quiet.paused), (0, Duration::ZERO), "{quiet:?}");
    assert_eq!(pager.stat().dirty.pauses, loud.pauses, "the pager counts those of its tenants");
}

#[test]
fn write_back_of_a_tenant_begins_at_its_own_background_limit() {
    let dir = Dir::new();
    let pager = slow_pager(16_384, 0, DirtyLimits::default());
    let tenant = pager.tenant("small").max(pages(400)).create().unwrap();
    let path = slow_file(&dir, "file", 1024 * PAGE);
    let view = OpenOptions::new().write(true).tenant(&tenant).open(&pager, path).unwrap();
    // More than 10 % of 400 pages, and very little for the pager.
    view.write_at(0, &vec![1; 60 * PAGE as usize]).unwrap();
    let began = Instant::now();
    loop {
        let now = tenant.dirty().unwrap();
        if now.dirty_bytes <= now.background_bytes && pager.stat().io.write_bytes > 0 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "no thread writes: {now:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_limit_that_changes_holds_from_then_on() {
    let dir = Dir::new();
    let pager = slow_pager(4096, 2, percent(10, 50));
    let tenant = pager.tenant("writer").max(pages(2048)).create().unwrap();
    let path = slow_file(&dir, "slow", 4096 * PAGE);
    let view = OpenOptions::new().write(true).tenant(&tenant).open(&pager, path).unwrap();
    write_round(&view, 0, 600, 30);
    tenant.set_dirty_limits(bytes(64 << 10, 200 << 10)).unwrap();
    view.flush().unwrap();
    let (excess, last) = excess(|| tenant.dirty().unwrap(), &[&|| write_round(&view, 0, 1500, 30)]);
    assert_eq!(last.hard_bytes, 200 << 10);
    assert!(excess <= slack(last.hard_bytes, 1), "{excess}");
}

#[test]
fn tiny_tenants_write_at_the_speed_of_the_device_and_never_fail() {
    for (max, total) in [(1, 60), (2, 60), (16, 300)] {
        let dir = Dir::new();
        let pager = slow_pager(4096, 1, DirtyLimits::default());
        let tenant = pager.tenant("tiny").max(pages(max)).create().unwrap();
        let path = slow_file(&dir, "slow", total * PAGE);
        let view = OpenOptions::new().write(true).tenant(&tenant).open(&pager, &path).unwrap();
        for page in 0..total {
            view.write_at(page * PAGE, &[page as u8; PAGE as usize]).unwrap();
        }
        view.write_at(0, &vec![7; 40 * PAGE as usize]).unwrap();
        let stat = tenant.dirty().unwrap();
        assert!(stat.longest_pause <= LONGEST, "{stat:?}");
        assert_eq!(tenant.events().unwrap().oom, 0);
        view.flush().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        for (page, bytes) in (0..).zip(bytes.chunks(PAGE as usize)) {
            let expected = if page < 40 { 7 } else { page as u8 };
            assert!(bytes.iter().all(|b| *b == expected), "page {page} of a tenant of {max}");
        }
        pager.validate().unwrap();
    }
}

#[test]
fn ten_small_tenants_each_write_sixteen_times_what_they_may_hold() {
    let dir = Dir::new();
    let pager = slow_pager(2048, 0, DirtyLimits::default());
    let views: Vec<_> = (0..10)
        .map(|i| {
            let tenant = pager.tenant(&i.to_string()).max(pages(64)).create().unwrap();
            let path = slow_file(&dir, &i.to_string(), 1024 * PAGE);
            OpenOptions::new().write(true).tenant(&tenant).open(&pager, path).unwrap()
        })
        .collect();
    std::thread::scope(|scope| {
        views.iter().for_each(|view| drop(scope.spawn(|| write_round(view, 0, 1024, 16))));
    });
    for (i, view) in (0..).zip(&views) {
        view.flush().unwrap();
        let written = std::fs::read(dir.path().join(format!("{i}"))).unwrap();
        assert!(
            written
                .chunks(16 * PAGE as usize)
                .all(|c| c.iter().zip(0..).all(|(b, at)| *b == byte_at(at)))
        );
    }
    assert_eq!(pager.root().events().unwrap().oom, 0);
    pager.validate().unwrap();
}

#[test]
fn short_lived_threads_do_not_get_around_the_limit() {
    let dir = Dir::new();
    // Far slower than threads begin, also where processors are busy.
    let pager = slow_pager(2048, 20, percent(5, 10));
    let path = slow_file(&dir, "slow", 4096 * PAGE);
    let view = OpenOptions::new().write(true).open(&pager, path).unwrap();
    let (excess, last) = excess(
        || pager.stat().dirty,
        &[&|| {
            for i in 0..200 {
                // Each ends before it has to answer.
                std::thread::scope(|scope| {
                    drop(scope.spawn(|| {
                        view.write_at(i * 10 * PAGE, &[1; 10 * PAGE as usize]).unwrap();
                    }));
                });
            }
        }],
    );
    assert!(excess <= slack(last.hard_bytes, 2), "{excess} above {}", last.hard_bytes);
    assert!(last.pauses > 0);
}

#[test]
fn without_background_threads_writers_write_instead_of_pausing() {
    let dir = Dir::new();
    let pager = Pager::builder().max(pages(2048)).background(false).build().unwrap();
    let path = slow_file(&dir, "file", 8192 * PAGE);
    let view = OpenOptions::new().write(true).open(&pager, path).unwrap();
    for from in 0..500 {
        view.write_at(from * 16 * PAGE, &[1; 16 * PAGE as usize]).unwrap();
        let now = pager.stat().dirty;
        assert!(now.dirty_bytes <= now.hard_bytes + slack(now.hard_bytes, 1), "{now:?}");
    }
    assert!(pager.stat().io.write_bytes > 5000 * PAGE);
}

#[test]
fn a_thread_with_a_guard_does_not_pause_and_answers_later() {
    let dir = Dir::new();
    let pager = slow_pager(2048, 2, percent(2, 4));
    let path = make_file(&dir, 10 * PAGE);
    let other = pager.open(path).unwrap();
    let path = slow_file(&dir, "slow", 4096 * PAGE);
    let view = OpenOptions::new().write(true).open(&pager, path).unwrap();
    let guard = other.page(3).unwrap();
    write_round(&view, 0, 400, 20);
    assert_eq!(pager.stat().dirty.pauses, 0, "another thread may be waiting for the guard");
    drop(guard);
    write_round(&view, 20, 400, 20);
    assert!(pager.stat().dirty.pauses > 0);
}

#[test]
fn timers_of_centuries_are_waited_for_and_stop_nothing() {
    let dir = Dir::new();
    for (expire_ns, interval_ns) in [
        (u64::MAX, u64::MAX),
        (u64::MAX, DirtyTimers::SHORTEST_NS),
        (0, u64::MAX),
        (1, u64::MAX - 1),
    ] {
        let path = make_file(&dir, 64 * PAGE);
        let timers = DirtyTimers { expire_ns, interval_ns };
        let pager = Pager::builder().max(pages(64)).dirty_timers(timers).build().unwrap();
        let view = OpenOptions::new().write(true).open(&pager, &path).unwrap();
        view.write_at(0, &[1; 4 * PAGE as usize]).unwrap();
        // The flusher has looked, and sleeps again.
        view.flush().unwrap();
        view.write_at(PAGE, &[2; PAGE as usize]).unwrap();
        pager.clone().close().unwrap();
        assert_eq!(pager.dirty().dirty_bytes, 0);
        drop(view);
        assert_eq!(std::fs::read(&path).unwrap()[PAGE as usize], 2);
    }
}

#[test]
fn limits_and_timers_that_make_no_sense_are_refused_with_a_reason() {
    let build = |limits| Pager::builder().max(pages(64)).dirty_limits(limits).build().map(drop);
    let error = build(percent(30, 20)).unwrap_err();
    assert!(
        matches!(error, BuildError::DirtyLimits(DirtyLimitsError::BackgroundAboveHard { .. })),
        "{error}"
    );
    let error = build(percent(1, 101)).unwrap_err();
    assert!(error.to_string().contains("101"), "{error}");
    let timers = DirtyTimers { expire_ns: 0, interval_ns: 1 };
    let error = Pager::builder().max(pages(64)).dirty_timers(timers).build().map(drop).unwrap_err();
    assert!(matches!(error, BuildError::DirtyLimits(DirtyLimitsError::TooOften { .. })), "{error}");

    let pager = Pager::builder().max(pages(64)).build().unwrap();
    let error = pager.tenant("a").dirty_limits(bytes(0, 1)).create().map(drop).unwrap_err();
    assert!(matches!(error, TenantError::DirtyLimits(DirtyLimitsError::Nothing { .. })), "{error}");
    assert!(pager.find("a").is_none(), "nothing was created");
    let tenant = pager.tenant("a").dirty_limits(percent(30, 40)).create().unwrap();
    let before = tenant.dirty().unwrap();
    assert!(tenant.set_dirty_limits(percent(0, 0)).is_err());
    assert_eq!(tenant.dirty().unwrap(), before, "what was refused changes nothing");
    pager.root().set_dirty_limits(percent(10, 20)).unwrap();
    let other = pager.tenant("b").create().unwrap().dirty().unwrap();
    assert!(other.hard_bytes < before.hard_bytes, "the root's: {other:?}, {before:?}");
    tenant.remove().unwrap();
    assert_eq!(tenant.set_dirty_limits(percent(3, 4)).unwrap_err(), TenantError::Gone);
    assert_eq!(tenant.dirty().unwrap_err(), TenantError::Gone);
}
