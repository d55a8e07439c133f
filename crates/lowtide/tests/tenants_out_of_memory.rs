//! When there is no room: which call fails, what the report says, and that none fails as long as
//! one clean page could go.

use crate::common::{Dir, byte_at, local_events};
use lowtide::advanced::OpenAdvanced as _;
use lowtide::instruments::{Inject, InjectOp, Request, Verdict};
use lowtide::{Error, OomReport, OpenOptions, Pager, Size, Tenant, View};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;

fn pages(n: u64) -> Size {
    Size::new(n * PAGE)
}

fn pager(max: u64, patience: u64) -> Pager {
    Pager::builder()
        .max(pages(max))
        .memory_timeout(Duration::from_millis(patience))
        .build()
        .unwrap()
}

fn file(dir: &Dir, name: &str, n: u64) -> PathBuf {
    let path = dir.path().join(name);
    std::fs::write(&path, (0..n * PAGE).map(byte_at).collect::<Vec<_>>()).unwrap();
    path
}

fn full(view: &View, page: u64) -> Arc<OomReport> {
    match view.page(page) {
        Err(Error::OutOfBudget { report }) => report,
        other => panic!("page {page} found room: {other:?}"),
    }
}

/// The lines of a report between two others.
fn between<'t>(text: &'t str, first: &str, last: &str) -> Vec<&'t str> {
    text.lines().skip_while(|l| *l != first).skip(1).take_while(|l| !l.starts_with(last)).collect()
}

#[test]
fn the_report_says_what_the_kernels_log_says() {
    let dir = Dir::new();
    let pager = pager(512, 30);
    let top = pager.tenant("top").max(pages(50)).low(pages(7)).create().unwrap();
    let (a, b) = (top.child("a").min(pages(5)).create().unwrap(), top.child("b").create().unwrap());
    let one = a.open(file(&dir, "one", 50)).unwrap();
    let two = b.open(file(&dir, "two", 50)).unwrap();
    let reserved = b.reserve(pages(8)).unwrap();
    let held: Vec<_> = (0..12).map(|p| one.page(p).unwrap()).collect();
    let more: Vec<_> = (0..30).map(|p| two.page(p).unwrap()).collect();
    let report = full(&two, 40);
    assert_eq!((report.tenant.as_str(), report.payer.as_str()), ("/top", "/top/b"));
    assert_eq!((report.usage_bytes, report.limit_bytes), (50 * PAGE, 50 * PAGE));
    assert_eq!((report.asked_bytes, report.stat.file_dirty, report.stat.reserved), (PAGE, 0, 8));
    assert!(report.failcnt > 0);
    let largest: Vec<_> =
        report.consumers.iter().map(|c| (c.tenant.as_str(), c.bytes / PAGE)).collect();
    assert_eq!(largest, [("/top/b", 38), ("/top/a", 12)]);
    assert_eq!((report.consumers[1].min_bytes, report.consumers_total), (5 * PAGE, 3));

    let text = report.to_string();
    let first = format!("memory: usage 200kB, limit 200kB, failcnt {}", report.failcnt);
    let head = [
        first.as_str(),
        "swap: usage 0kB, limit 9007199254740988kB, failcnt 0",
        "Memory cgroup stats for /top:",
    ];
    assert_eq!(text.lines().take(3).collect::<Vec<_>>(), head);
    let stat = between(&text, head[2], "protection");
    assert_eq!(stat, report.stat.to_string().lines().collect::<Vec<_>>(), "memory.stat, whole");
    let stat: HashMap<_, u64> = stat
        .iter()
        .map(|l| l.split_once(' ').unwrap())
        .map(|(k, v)| (k, v.parse().unwrap()))
        .collect();
    assert_eq!((stat["file"], stat["anon"]), (42 * PAGE, 8 * PAGE));
    assert!(text.contains("\nprotection: min 0kB, low 28kB, effective 0kB, "));
    assert!(text.ends_with(
        "largest of 3 tenants:\n152kB (min 0kB, low 0kB) /top/b\n48kB (min 20kB, low 0kB) /top/a\n"
    ));
    let message = Error::OutOfBudget { report }.to_string();
    assert!(message.contains("\"/top\"") && message.contains("204800 bytes"), "{message}");

    assert_eq!(
        (top.events().unwrap().oom, local_events(&top, "oom")),
        (1, 1),
        "once for the operation"
    );
    assert_eq!((b.events().unwrap().oom, pager.root().events().unwrap().oom), (0, 1));
    drop((held, more, reserved));
    drop(two.page(40).unwrap());
    pager.validate().unwrap();
}

#[test]
fn nobody_is_out_of_memory_while_one_clean_page_is_not_held() {
    let dir = Dir::new();
    for policy in ["mglru", "mglru-7.1", "lru"] {
        let pager = Pager::builder()
            .max(pages(256))
            .policy(policy.parse().unwrap())
            .memory_timeout(Duration::from_millis(500))
            .build()
            .unwrap();
        let t = pager.tenant("t").max(pages(40)).create().unwrap();
        let view = t.open(file(&dir, "data", 400)).unwrap();
        let held: Vec<_> = (0..39).map(|p| view.page(p).unwrap()).collect();
        // One page is all there is to turn around in; each is young when the next one comes.
        for page in 39..400 {
            drop(view.page(page).unwrap_or_else(|e| panic!("{policy}: page {page}: {e}")));
        }
        assert_eq!(t.events().unwrap().oom, 0);
        let last = view.page(399).unwrap();
        assert!(view.page(100).is_err(), "now all are held");
        assert_eq!(t.events().unwrap().oom, 1);
        drop((held, last));
    }
}

#[test]
fn what_can_never_become_evictable_fails_at_once() {
    let dir = Dir::new();
    let pager = pager(256, 600_000);
    let none = pager.tenant("none").max(pages(0)).create().unwrap();
    let view = none.open(file(&dir, "data", 10)).unwrap();
    let began = Instant::now();
    assert_eq!(full(&view, 0).usage_bytes, 0);
    let top = pager.tenant("top").max(pages(20)).create().unwrap();
    let kept = top.child("kept").min(pages(20)).create().unwrap();
    let poor = top.child("poor").create().unwrap();
    let protected = kept.open(file(&dir, "kept", 20)).unwrap();
    for page in 0..20 {
        drop(protected.page(page).unwrap());
    }
    let view = poor.open(file(&dir, "poor", 10)).unwrap();
    let report = full(&view, 0);
    assert_eq!((report.tenant.as_str(), report.consumers[0].min_bytes), ("/top", 20 * PAGE));
    assert!(began.elapsed() < Duration::from_secs(60), "no thread waited for what cannot come");
    assert!(kept.set_min(pages(19)).is_ok() && view.page(0).is_ok(), "one page is enough");
}

#[test]
fn a_folio_larger_than_the_tenant_becomes_a_page() {
    let dir = Dir::new();
    let pager = pager(512, 5000);
    let t = pager.tenant("t").max(pages(10)).create().unwrap();
    let path = file(&dir, "data", 64);
    let view = OpenOptions::new().folio_order(4).tenant(&t).open(&pager, path).unwrap();
    for page in 0..64 {
        assert_eq!(view.page(page).unwrap()[0], byte_at(page * PAGE));
    }
    assert_eq!(t.events().unwrap().oom, 0);
    pager.validate().unwrap();
}

/// A device that refuses writes for a while.
#[derive(Debug, Default)]
struct Broken(AtomicBool);

impl Inject for Broken {
    fn before(&self, request: &Request<'_>) -> Verdict {
        let broken = request.op == InjectOp::Write && self.0.load(SeqCst);
        if broken { Verdict::Fail(std::io::Error::from_raw_os_error(5)) } else { Verdict::Pass }
    }
}

fn write_all(view: &View, pages: u64) -> Result<(), Error> {
    (0..pages).try_for_each(|page| view.write_at(page * PAGE, &page.to_le_bytes()))
}

#[test]
fn a_tenant_full_of_dirty_pages_writes_its_own_and_goes_on() {
    let dir = Dir::new();
    let device = Arc::new(Broken::default());
    let inject: Arc<dyn Inject> = device.clone();
    let pager = Pager::builder()
        .max(pages(2048))
        .background(false)
        .memory_timeout(Duration::from_secs(2))
        .inject(inject)
        .build()
        .unwrap();
    let open = |t: &Tenant, name| {
        OpenOptions::new().create_with_len(600 * PAGE).tenant(t).open(&pager, dir.path().join(name))
    };
    // Much dirty elsewhere, and first in the list of files.
    let other = pager.tenant("other").create().unwrap();
    let first = open(&other, "first").unwrap();
    write_all(&first, 150).unwrap();
    let t = pager.tenant("t").max(pages(40)).create().unwrap();
    let view = open(&t, "second").unwrap();
    write_all(&view, 600).unwrap();
    assert_eq!(t.events().unwrap().oom, 0);
    device.0.store(true, SeqCst);
    let Err(Error::OutOfBudget { report }) = write_all(&view, 600) else {
        panic!("nothing can be written")
    };
    assert!(
        report.tenant == "/t" && report.stat.file_dirty + report.stat.file_writeback >= 38,
        "{report}"
    );
    device.0.store(false, SeqCst);
    write_all(&view, 600).unwrap();
    let _told_of_the_error = view.flush();
    view.flush().unwrap();
    pager.validate().unwrap();
}
