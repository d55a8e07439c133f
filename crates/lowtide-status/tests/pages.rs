//! Pages of real processes: they appear, change, and go with their process.

#![allow(clippy::print_stdout)] // Of the other process.

use lowtide_status::{
    Error, Origin, PAGE_BYTES_MAX, PagerStatus, TenantStat, TenantStatus, VERSION, Writer, list,
    read,
};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio, id};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::{env, thread};

/// A process has one page, so tests that write one of this process take turns.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn folder() -> PathBuf {
    let uid = fs::metadata("/proc/self").expect("/proc").uid();
    PathBuf::from(format!("/dev/shm/lowtide-{uid}"))
}

fn tenant(path: &str) -> TenantStatus {
    TenantStatus { path: path.into(), ..TenantStatus::default() }
}

/// This test again, as a process that writes a page in a thread, and does what lines say.
struct Other {
    child: Child,
    input: ChildStdin,
    output: BufReader<std::process::ChildStdout>,
}

impl Other {
    fn start() -> Self {
        let mut command = Command::new(env::current_exe().expect("this test"));
        command.args(["--exact", "pages::other_process", "--ignored", "--nocapture"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("another process");
        let input = child.stdin.take().expect("its input");
        let output = BufReader::new(child.stdout.take().expect("its output"));
        let mut other = Self { child, input, output };
        other.wait_for("ready");
        other
    }

    fn wait_for(&mut self, word: &str) {
        let mut line = String::new();
        while !line.trim_end().ends_with(word) {
            line.clear();
            assert!(self.output.read_line(&mut line).expect("a line") > 0, "it ended");
        }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("it listens");
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
#[ignore = "the other process of these tests"]
fn other_process() {
    let (to_writer, lines) = std::sync::mpsc::channel::<String>();
    let writer = thread::spawn(move || {
        let mut writer = Writer::create(Origin::Run).expect("a page");
        println!("\nready");
        for line in lines {
            let pager = PagerStatus { policy: line, ..PagerStatus::default() };
            writer.publish(vec![pager]).expect("the page");
            println!("\nwritten");
        }
    });
    for line in std::io::stdin().lines() {
        let line = line.expect("a line");
        match line.as_str() {
            "exec" => panic!("{}", Command::new("sleep").arg("1000").exec()),
            "end" => break,
            _ => to_writer.send(line).expect("the writer"),
        }
    }
    drop(to_writer);
    writer.join().expect("the writer");
}

#[test]
fn a_page_is_read_by_another_process_as_it_was_written() {
    let mut other = Other::start();
    other.say("tide");
    other.wait_for("written");
    let status = read(other.pid()).expect("its page");
    assert_eq!((status.pid, status.version, status.origin), (other.pid(), VERSION, Origin::Run));
    assert_eq!(status.pagers[0].policy, "tide");
    assert!(status.written_ns > 1_700_000_000 * 1_000_000_000);
    assert!(!status.program.is_empty() && status.start_ticks > 0);
    assert!(list().expect("pages").live.contains(&status));
    let metadata = fs::metadata(folder().join(other.pid().to_string())).expect("its file");
    assert_eq!(metadata.mode() & 0o777, 0o600);
}

#[test]
fn a_page_goes_with_its_process_however_that_ends() {
    let mut other = Other::start();
    let (pid, path) = (other.pid(), folder().join(other.pid().to_string()));
    other.say("end");
    other.child.wait().expect("it ends");
    assert!(!path.exists(), "it was removed by the process");

    let mut other = Other::start();
    let path = folder().join(other.pid().to_string());
    other.child.kill().expect("a signal");
    // Until its parent asks, the process is a zombie, and its page is dead already.
    while !matches!(read(other.pid()), Err(Error::NoProcess { .. })) {
        thread::yield_now();
    }
    assert!(!path.exists(), "it was removed by the reader");
    assert!(list().expect("pages").live.iter().all(|status| status.pid != pid));
}

#[test]
fn the_page_of_a_program_does_not_outlive_exec() {
    let mut other = Other::start();
    let (pid, path) = (other.pid(), folder().join(other.pid().to_string()));
    assert!(read(pid).is_ok());
    other.say("exec");
    let comm = || fs::read_to_string(format!("/proc/{pid}/comm")).expect("its name");
    while comm() != "sleep\n" {
        thread::yield_now();
    }
    match read(pid) {
        Err(Error::NotUnderLowtide { program, .. }) => assert_eq!(program, "sleep"),
        other => panic!("{other:?}"),
    }
    assert!(!path.exists());
}

/// Ends the writer, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn readers_never_see_a_part_of_a_page() {
    let _turn = turn();
    let (begun, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let stops = Stop(&stop);
        scope.spawn(|| {
            let mut writer = Writer::create(Origin::Library).expect("a page");
            let mut round = 0;
            while !stop.load(Relaxed) {
                round += 1;
                // Long and short ones in turns; all parts of one have its number.
                let tenants = if round % 2 == 0 { 300 } else { 3 };
                let tenants = (0..tenants)
                    .map(|_| TenantStatus {
                        stat: TenantStat { usage_bytes: round, ..TenantStat::default() },
                        ..tenant("/a")
                    })
                    .collect();
                let mut pager = PagerStatus { tenants, ..PagerStatus::default() };
                pager.stat.io.reads = round;
                writer.publish(vec![pager]).expect("the page");
                begun.store(true, Relaxed);
            }
        });
        while !begun.load(Relaxed) {
            thread::yield_now();
        }
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..2000 {
            let Ok(status) = read(id()) else { continue };
            let pager = &status.pagers[0];
            let round = pager.stat.io.reads;
            assert_eq!(pager.tenants.len(), if round % 2 == 0 { 300 } else { 3 });
            assert!(pager.tenants.iter().all(|tenant| tenant.stat.usage_bytes == round));
            seen.insert(round);
        }
        drop(stops);
        assert!(seen.len() > 10, "only {} pages were seen", seen.len());
    });
}

#[test]
fn tenants_beyond_the_size_of_a_page_are_counted() {
    let _turn = turn();
    let mut writer = Writer::create(Origin::Library).expect("a page");
    let tenants: Vec<_> = (0..5000).map(|n| tenant(&format!("/tenant {n}"))).collect();
    let pager = PagerStatus { tenants, tenants_left_out: 7, ..PagerStatus::default() };
    writer.publish(vec![pager]).expect("the page");
    let status = read(id()).expect("the page");
    let pager = &status.pagers[0];
    assert!(pager.tenants.len() > 100, "there is room for {}", pager.tenants.len());
    assert_eq!(pager.tenants.len() as u64 + pager.tenants_left_out, 5007);
    assert_eq!(pager.tenants[99].path, "/tenant 99", "the first are kept");
    let len = fs::metadata(folder().join(id().to_string())).expect("the file").len();
    assert!(len as usize <= PAGE_BYTES_MAX, "{len}");
    let file = "a".repeat(PAGE_BYTES_MAX);
    let pager = PagerStatus { policy: file, ..PagerStatus::default() };
    assert!(matches!(writer.publish(vec![pager]), Err(Error::TooLarge { .. })));
    assert_eq!(read(id()).expect("the page"), status, "the old one stays");
}

#[test]
fn a_newer_page_is_refused_by_name_and_a_broken_one_too() {
    let _turn = turn();
    let _writer = Writer::create(Origin::Library).expect("a page");
    let path = folder().join(id().to_string());
    let file = fs::File::options().write(true).open(&path).expect("the file");
    file.write_all_at(&(VERSION + 1).to_ne_bytes(), 8).expect("a version");
    let text = read(id()).expect_err("a newer page").to_string();
    assert!(text.contains(&format!("has format {}", VERSION + 1)), "{text}");
    assert!(list().expect("pages").refused.iter().any(|error| error.to_string() == text));
    file.write_all_at(&VERSION.to_ne_bytes(), 8).expect("a version");
    assert!(read(id()).is_ok());
    file.write_all_at(b"#", 70).expect("a byte of the text");
    assert!(matches!(read(id()), Err(Error::Unfinished { .. })), "its sum is wrong");
    file.write_all_at(b"LOW", 0).expect("a byte of the header");
    assert!(matches!(read(id()), Err(Error::Damaged { .. })));
}

#[test]
fn a_page_that_was_removed_is_made_again() {
    let _turn = turn();
    let mut writer = Writer::create(Origin::Library).expect("a page");
    fs::remove_file(folder().join(id().to_string())).expect("the file");
    assert!(read(id()).is_err());
    writer.publish(Vec::new()).expect("the page");
    assert!(read(id()).is_ok());
}

/// The descriptors of this process whose file has a name that ends so.
fn descriptors(end: &str) -> Vec<i32> {
    let all = fs::read_dir("/proc/self/fd").expect("descriptors").flatten();
    let is_it = |entry: &fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().ends_with(end))
    };
    all.filter(is_it).filter_map(|e| e.file_name().to_string_lossy().parse().ok()).collect()
}

#[test]
fn a_file_that_took_the_number_of_a_page_is_neither_written_nor_closed() {
    let _turn = turn();
    let mut writer = Writer::create(Origin::Library).expect("a page");
    let name = format!("{}/{}", folder().display(), id());
    let number = descriptors(&name)[0];
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("precious");
    fs::write(&path, "precious").expect("a file");
    let file = fs::File::options().read(true).write(true).open(&path).expect("the file");
    // As a daemon that closes what it does not know, and opens its own.
    // SAFETY: the number is open; its owner is what is tested, and finds another file behind it.
    let mut taken = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::dup2(&file, &mut taken).expect("the number");
    std::mem::forget(taken);
    writer.publish(Vec::new()).expect("the page");
    drop(writer);
    assert_eq!(fs::read_to_string(&path).expect("the file"), "precious");
    assert_eq!(descriptors("/precious"), {
        let mut both = vec![file.as_raw_fd(), number];
        both.sort_unstable();
        both
    });
}

#[test]
fn what_a_page_costs_is_printed() {
    let _turn = turn();
    let mut writer = Writer::create(Origin::Library).expect("a page");
    for tenants in [2, 100, 400] {
        let tenants = (0..tenants).map(|n| tenant(&format!("/{n}"))).collect();
        let pagers = vec![PagerStatus { tenants, ..PagerStatus::default() }];
        const ROUNDS: u32 = 200;
        let began = std::time::Instant::now();
        (0..ROUNDS).for_each(|_| writer.publish(pagers.clone()).expect("the page"));
        let written = began.elapsed() / ROUNDS;
        let began = std::time::Instant::now();
        for _ in 0..ROUNDS {
            assert_eq!(read(id()).expect("the page").pagers, pagers);
        }
        let count = pagers[0].tenants.len();
        eprintln!(
            "{count} tenants: written in {written:?}, read in {:?}",
            began.elapsed() / ROUNDS
        );
    }
}
