//! What is on disk after each way to stop, and what flush promises: the table in
//! `writeback/mod.rs`, row by row.
//!
//! Ways to stop that end a process are tried on a child: this test binary again, with a test's name
//! and an environment variable that makes it the child.

use crate::common::scene::again;
use crate::common::{Dir, byte_at, make_file};
use lowtide::instruments::{DirtyTimers, Inject, InjectOp, Request, Verdict};
use lowtide::{Error, OpenOptions, Pager, Size, View};
use rustix::process::{Pid, Signal};
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
const PAGES: u64 = 256;

fn pager() -> Pager {
    Pager::builder().max(Size::kib(512)).build().unwrap()
}

fn open(pager: &Pager, path: &Path) -> View {
    OpenOptions::new().write(true).open(pager, path).unwrap()
}

fn fill(view: &View, pages: Range<u64>, version: u64) {
    for page in pages {
        view.write_at(page * PAGE, &[version.to_le_bytes(), page.to_le_bytes()].concat()).unwrap();
    }
}

/// The version of each page that was filled, by its file and through no pager.
fn versions(path: &Path, pages: Range<u64>) -> Vec<u64> {
    let bytes = std::fs::read(path).unwrap();
    pages
        .map(|page| u64::from_le_bytes(bytes[(page * PAGE) as usize..][..8].try_into().unwrap()))
        .collect()
}

fn holds(path: &Path, pages: Range<u64>, version: u64) -> bool {
    versions(path, pages).iter().all(|&v| v == version)
}

/// Counts what reaches the device.
#[derive(Default)]
struct Count {
    writes: AtomicU64,
    syncs: AtomicU64,
    order: Mutex<Vec<InjectOp>>,
}

impl Inject for Count {
    fn before(&self, request: &Request<'_>) -> Verdict {
        match request.op {
            InjectOp::Write => self.writes.fetch_add(1, SeqCst),
            InjectOp::Sync => self.syncs.fetch_add(1, SeqCst),
            _ => return Verdict::Pass,
        };
        self.order.lock().unwrap().push(request.op);
        Verdict::Pass
    }
}

fn counted(count: &Arc<Count>, background: bool) -> Pager {
    let inject: Arc<dyn Inject> = count.clone();
    Pager::builder().max(Size::mib(2)).background(background).inject(inject).build().unwrap()
}

#[test]
fn flush_writes_then_syncs_and_does_neither_if_nothing_was_stored() {
    let dir = Dir::new();
    let path = make_file(&dir, PAGES * PAGE);
    for background in [false, true] {
        let count = Arc::new(Count::default());
        let pager = counted(&count, background);
        let view = open(&pager, &path);
        fill(&view, 0..20, 1);
        view.flush().unwrap();
        assert!(holds(&path, 0..20, 1));
        assert_eq!(
            count.order.lock().unwrap().last(),
            Some(&InjectOp::Sync),
            "the sync comes last"
        );
        let done = (count.writes.load(SeqCst), count.syncs.load(SeqCst));
        view.flush().unwrap();
        view.flush_range(0..0).unwrap();
        pager.open(&path).unwrap().flush().unwrap();
        assert_eq!(
            (count.writes.load(SeqCst), count.syncs.load(SeqCst)),
            done,
            "there was nothing to do"
        );
    }
}

#[test]
fn a_range_is_flushed_and_nothing_else() {
    let dir = Dir::new();
    let path = make_file(&dir, PAGES * PAGE);
    let count = Arc::new(Count::default());
    let pager = counted(&count, false);
    let view = open(&pager, &path);
    fill(&view, 0..30, 1);
    view.flush_range(10 * PAGE + 1..12 * PAGE + 1).unwrap();
    assert!(holds(&path, 10..13, 1));
    assert_eq!(pager.stat().memory.file_dirty, 27);
    assert_eq!((count.writes.load(SeqCst), count.syncs.load(SeqCst)), (1, 1), "one run, one sync");
    view.flush_range(u64::MAX - 1..u64::MAX).unwrap();
    view.flush().unwrap();
    assert!(holds(&path, 0..30, 1));
}

#[test]
fn a_view_opened_for_sync_is_durable_after_each_write() {
    let dir = Dir::new();
    let path = make_file(&dir, PAGES * PAGE);
    let count = Arc::new(Count::default());
    let pager = counted(&count, true);
    let view = OpenOptions::new().write(true).sync(true).open(&pager, &path).unwrap();
    for n in 1..=5 {
        view.write_at(n * 100_000, b"durable").unwrap();
        assert_eq!(count.syncs.load(SeqCst), n);
        assert_eq!(&std::fs::read(&path).unwrap()[n as usize * 100_000..][..7], b"durable");
    }
}

#[test]
fn thirty_two_threads_that_flush_at_once_share_syncs() {
    let dir = Dir::new();
    let path = make_file(&dir, PAGES * PAGE);
    for background in [false, true] {
        let count = Arc::new(Count::default());
        let pager = counted(&count, background);
        let view = open(&pager, &path);
        let start = Barrier::new(32);
        std::thread::scope(|scope| {
            for thread in 0..32_u64 {
                let (view, start, path) = (view.clone(), &start, &path);
                scope.spawn(move || {
                    let mine = thread * 8..thread * 8 + 8;
                    fill(&view, mine.clone(), 1 + thread);
                    start.wait();
                    view.flush().unwrap();
                    assert!(holds(path, mine, 1 + thread), "it is durable for each of them");
                });
            }
        });
        let syncs = count.syncs.load(SeqCst);
        assert!(syncs < 32, "{syncs} syncs for 32 flushes that began at once");
        pager.validate().unwrap();
    }
}

#[test]
fn what_has_been_dirty_for_long_is_written_without_being_asked_for() {
    let dir = Dir::new();
    let path = make_file(&dir, PAGES * PAGE);
    let timers = DirtyTimers { expire_ns: 40_000_000, interval_ns: 20_000_000 };
    let pager = Pager::builder().max(Size::mib(8)).dirty_timers(timers).build().unwrap();
    let view = open(&pager, &path);
    for version in 1..4 {
        fill(&view, 3..9, version);
        let begin = Instant::now();
        while !holds(&path, 3..9, version) {
            assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", pager.stat());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_file_that_grows_is_durable_with_its_length_and_its_name() {
    let dir = Dir::new();
    let path = dir.path().join("new");
    let count = Arc::new(Count::default());
    let pager = counted(&count, true);
    let view = OpenOptions::new().create_with_len(0).open(&pager, &path).unwrap();
    view.flush().unwrap();
    assert_eq!(count.syncs.load(SeqCst), 1, "its name and its length of 0 are news");
    view.write_at(10, b"some bytes").unwrap();
    view.flush().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), [&[0; 10][..], b"some bytes"].concat());
    // A relative name has a folder, too.
    let name = format!("durability-{}", std::process::id());
    let here = OpenOptions::new().create_with_len(5).open(&pager, &name).unwrap();
    let flushed = here.flush();
    std::fs::remove_file(&name).unwrap();
    flushed.unwrap();
}

#[test]
fn what_happens_to_the_file_underneath_is_not_hidden() {
    let dir = Dir::new();
    let pager = pager();
    // Truncated: what was stored makes it long again.
    let path = make_file(&dir, 64 * PAGE);
    let view = open(&pager, &path);
    fill(&view, 60..61, 5);
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(8 * PAGE).unwrap();
    assert_eq!(view.refresh_len().unwrap(), 61 * PAGE, "it is going to be as long");
    assert!(matches!(view.page(62), Err(Error::OutOfRange { .. })));
    view.flush().unwrap();
    assert!(holds(&path, 60..61, 5));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 61 * PAGE);
    // Made read-only: descriptors that are open can still write.
    let mut mode = std::fs::metadata(&path).unwrap().permissions();
    mode.set_readonly(true);
    std::fs::set_permissions(&path, mode).unwrap();
    fill(&view, 3..4, 6);
    view.flush().unwrap();
    assert!(holds(&path, 3..4, 6));
    // Removed: it is written all the same, for processes that have it open.
    std::fs::remove_file(&path).unwrap();
    fill(&view, 4..5, 7);
    view.flush().unwrap();
    assert_eq!(&view.page(4).unwrap()[..8], &7_u64.to_le_bytes());
}

#[test]
fn dropping_views_and_pagers_writes_everything() {
    let dir = Dir::new();
    let path = make_file(&dir, PAGES * PAGE);
    for background in [false, true] {
        let count = Arc::new(Count::default());
        let pager = counted(&count, background);
        let version = 1 + u64::from(background);
        let view = open(&pager, &path);
        let clone = view.clone();
        fill(&view, 0..PAGES, version);
        drop(view);
        drop(clone);
        assert!(holds(&path, 0..PAGES, version));
        assert!(count.syncs.load(SeqCst) > 0, "and it is durable");
        let view = open(&pager, &path);
        fill(&view, 0..PAGES, version + 10);
        // The view keeps the pager.
        drop(pager);
        drop(view);
        assert!(holds(&path, 0..PAGES, version + 10));
    }
}

#[test]
fn a_panic_in_the_callers_code_leaves_whole_pages_that_are_written() {
    let dir = Dir::new();
    let path = make_file(&dir, PAGES * PAGE);
    let pager = pager();
    let view = open(&pager, &path);
    fill(&view, 0..40, 3);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        view.get_many(&[1, 2, 100, 200], |_, _| -> () { panic!("the caller's own") }).unwrap();
    }));
    caught.unwrap_err();
    let caught = catch_unwind(AssertUnwindSafe(move || {
        fill(&view, 40..50, 3);
        let _guard = view.page(7).unwrap();
        panic!("with a guard and a view in hand");
    }));
    caught.unwrap_err();
    assert!(holds(&path, 0..50, 3));
    assert_eq!(std::fs::read(&path).unwrap()[60 * PAGE as usize], byte_at(60 * PAGE));
    pager.validate().unwrap();
}

/// Runs a test of this file in a child, which finds the path in its environment.
fn child(test: &str, path: &Path) -> Child {
    again(test)
        .env("LOWTIDE_DURABILITY_CHILD", path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn child_path() -> Option<PathBuf> {
    std::env::var_os("LOWTIDE_DURABILITY_CHILD").map(PathBuf::from)
}

/// What the child says after it has flushed version by version.
fn flushed_versions(child: &mut Child) -> impl Iterator<Item = u64> + use<> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("flushed ")?.parse().ok())
}

/// The life of a child: stores and flushes one version after the other, until it is killed.
fn store_for_ever(path: &Path) -> ! {
    use std::io::Write as _;
    let pager = pager();
    let view = open(&pager, path);
    let mut out = std::io::stdout();
    // A parent that went leaves no child: it is bounded.
    for version in 1..1_000_000 {
        fill(&view, 0..PAGES, version);
        view.flush().unwrap();
        writeln!(out, "flushed {version}").unwrap();
        if std::os::unix::process::parent_id() == 1 {
            break;
        }
    }
    std::process::exit(0)
}

fn killed_by(signal: Signal, test: &str) {
    if let Some(path) = child_path() {
        store_for_ever(&path);
    }
    let dir = Dir::new();
    let path = make_file(&dir, PAGES * PAGE);
    for kills in 0..3 {
        std::fs::write(&path, vec![0; (PAGES * PAGE) as usize]).unwrap();
        let mut child = child(test, &path);
        let mut flushed = flushed_versions(&mut child);
        let last = flushed.by_ref().nth(3 + kills).expect("it flushes");
        rustix::process::kill_process(Pid::from_child(&child), signal).unwrap();
        let last = flushed.last().unwrap_or(last);
        assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()));
        let found = versions(&path, 0..PAGES);
        assert!(
            found.iter().all(|v| (last..=last + 1).contains(v)),
            "flushed {last}, found {found:?}"
        );
    }
}

#[test]
fn sigterm_without_a_handler_keeps_what_was_flushed() {
    killed_by(Signal::TERM, "durability::sigterm_without_a_handler_keeps_what_was_flushed");
}

#[test]
fn sigkill_keeps_what_was_flushed() {
    killed_by(Signal::KILL, "durability::sigkill_keeps_what_was_flushed");
}

/// A file system of a few megabytes in a file, mounted for a test.
struct Small {
    at: PathBuf,
    mounted: bool,
}

impl Small {
    fn mount(dir: &Dir) -> Option<Self> {
        let (image, at) = (dir.path().join("image"), dir.path().join("mnt"));
        std::fs::File::create(&image).unwrap().set_len(8 << 20).unwrap();
        std::fs::create_dir(&at).unwrap();
        let run = |program: &str, args: &[&std::ffi::OsStr]| {
            let status = Command::new(program)
                .args(args)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            status.is_ok_and(|status| status.success())
        };
        let made = run(
            "mkfs.ext4",
            &["-q".as_ref(), "-m0".as_ref(), "-O^has_journal".as_ref(), image.as_ref()],
        );
        let mounted =
            made && run("mount", &["-o".as_ref(), "loop".as_ref(), image.as_ref(), at.as_ref()]);
        mounted.then_some(Self { at, mounted })
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        if self.mounted {
            drop(Command::new("umount").arg(&self.at).status());
        }
    }
}

#[test]
fn a_disk_that_is_really_full_keeps_pages_until_there_is_room() {
    let dir = Dir::new();
    let Some(small) = Small::mount(&dir) else {
        eprintln!(
            "SKIPPED: a file system cannot be mounted here (needs root, mkfs.ext4 and loop devices)"
        );
        return;
    };
    let (path, filler) = (small.at.join("data"), small.at.join("filler"));
    {
        let pager = Pager::builder().max(Size::mib(8)).build().unwrap();
        // A hole: its blocks are found when it is written.
        let view = OpenOptions::new().create_with_len(256 * PAGE).open(&pager, &path).unwrap();
        view.flush().unwrap();
        let mut bytes = 8_usize << 20;
        while std::fs::write(&filler, vec![1; bytes]).is_err() {
            bytes -= 64 << 10;
        }
        let rest = small.at.join("rest");
        drop(std::fs::write(&rest, vec![1; 1 << 20]));
        fill(&view, 0..200, 4);
        let error = view.flush().unwrap_err();
        let Error::Write { source, .. } = &error else { panic!("{error}") };
        assert_eq!(source.raw_os_error(), Some(28), "{error}");
        assert!(error.to_string().contains("make room"), "{error}");
        assert!(pager.stat().failed_pages > 0);
        view.flush().unwrap_err();
        assert!(
            (0..200).all(|page| view.page(page).unwrap()[..8] == 4_u64.to_le_bytes()),
            "nothing is lost"
        );
        std::fs::remove_file(&filler).unwrap();
        view.flush().unwrap();
        assert!(holds(&path, 0..200, 4));
        pager.validate().unwrap();
    }
    assert!(holds(&path, 0..200, 4));
}
