//! Scenarios of an injector: every verdict, in every kind of request.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::super::{Completion, Gate, Inject, InjectOp, IoEngine, Options, Request, Verdict};
use super::world::{Disk, Memory, PAGE, anon, content, drain, errno, open_with, sync, write_runs};
use crate::fault_sites::{FaultSite, FaultSites};

/// The verdict on a request by its kind and the page that it begins at.
type Plan = Box<dyn Fn(InjectOp, u64) -> Verdict + Send + Sync>;

/// Returns the verdicts of a plan, and records the requests.
struct Script {
    plan: Plan,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    begun: u64,
    /// Ends, by kind, page and error number.
    ended: HashMap<(InjectOp, u64, Option<i32>), u64>,
    paths: Vec<PathBuf>,
}

impl Script {
    fn new(plan: impl Fn(InjectOp, u64) -> Verdict + Send + Sync + 'static) -> Arc<Script> {
        Arc::new(Script { plan: Box::new(plan), seen: Mutex::default() })
    }

    fn ended(&self, op: InjectOp, page: u64, errno: Option<i32>) -> u64 {
        *self.seen.lock().unwrap().ended.get(&(op, page, errno)).unwrap_or(&0)
    }

    fn options(self: &Arc<Script>) -> Options {
        Options { inject: Some(self.clone()), ..Options::default() }
    }

    /// Every request that got a verdict has ended, and all were of one file.
    fn check_pairs(&self) {
        let seen = self.seen.lock().unwrap();
        assert_eq!(seen.begun, seen.ended.values().sum(), "one end for each beginning");
        assert!(seen.paths.iter().all(|path| *path == *anon()));
    }
}

impl Inject for Script {
    fn before(&self, request: &Request<'_>) -> Verdict {
        let mut seen = self.seen.lock().unwrap();
        seen.begun += 1;
        seen.paths.push(request.path.to_owned());
        drop(seen);
        (self.plan)(request.op, request.offset / PAGE as u64)
    }

    fn after(&self, request: &Request<'_>, result: Result<(), i32>) {
        let page = request.offset / PAGE as u64;
        *self.seen.lock().unwrap().ended.entry((request.op, page, result.err())).or_default() += 1;
    }
}

fn eio() -> Verdict {
    Verdict::Fail(io::Error::from_raw_os_error(libc::EIO))
}

pub(super) fn a_failure_replaces_the_transfer(engine: IoEngine) {
    let script = Script::new(|op, page| match op {
        InjectOp::Read | InjectOp::Write if page != 1 => Verdict::Pass,
        _ => eio(),
    });
    let Some(backend) = open_with(engine, script.options()) else { return };
    let (memory, disk) = (Memory::new(3 * PAGE), Disk::new(3 * PAGE));
    for (kind, file, fd) in disk.each() {
        memory.bytes_mut(0, 3 * PAGE).fill(0xEE);
        assert_eq!(
            backend.read_one(&anon(), memory.read(fd, 0, 0, PAGE, 0)).unwrap() as usize,
            PAGE,
            "{kind}"
        );
        let failed = backend.read_one(&anon(), memory.read(fd, PAGE as u64, PAGE, PAGE, 0));
        assert_eq!(errno(failed), Some(libc::EIO), "{kind}");

        let mut batch = backend.batch(&anon());
        for page in 0..3 {
            batch.push(memory.read(fd, (page * PAGE) as u64, page * PAGE, PAGE, page as u64));
        }
        assert_eq!(batch.in_flight(), 3, "{kind}: a failed read is in flight until it is returned");
        let failed: Vec<u64> = drain(&mut batch)
            .iter()
            .filter(|ended| ended.result.is_err())
            .map(|ended| ended.user)
            .collect();
        assert_eq!(failed, [1], "{kind}");
        assert!(
            memory.bytes(PAGE, PAGE).iter().all(|&byte| byte == 0xEE),
            "{kind}: memory was touched"
        );

        let run = memory.write(fd, PAGE as u64, &[PAGE], PAGE, 0);
        assert_eq!(
            backend.write_run(run.clone()).unwrap_err().raw_os_error(),
            Some(libc::EIO),
            "{kind}"
        );
        assert!(write_runs(&backend, vec![run]).remove(0).is_err(), "{kind}");
        assert_eq!(sync(&backend, fd).unwrap_err().raw_os_error(), Some(libc::EIO), "{kind}");
        for len in [2 * PAGE as u64, 10 * PAGE as u64] {
            let changed = backend.set_len(&anon(), file, len);
            assert_eq!(changed.unwrap_err().raw_os_error(), Some(libc::EIO), "{kind}");
            assert_eq!(
                file.metadata().unwrap().len(),
                3 * PAGE as u64,
                "{kind}: its length changed"
            );
        }
        let punched = backend.punch(&anon(), file, PAGE as u64..2 * PAGE as u64);
        assert_eq!(punched.unwrap_err().raw_os_error(), Some(libc::EIO), "{kind}");
        let named = backend.sync_name(&anon(), || panic!("{kind}: the directory was synced"));
        assert_eq!(named.unwrap_err().raw_os_error(), Some(libc::EIO), "{kind}");
        file.read_exact_at(memory.bytes_mut(0, PAGE), PAGE as u64).unwrap();
        assert!(
            memory.bytes(0, PAGE) == content(PAGE as u64, PAGE),
            "{kind}: the file was touched"
        );
    }
    let kinds = disk.each().count() as u64;
    assert_eq!(script.ended(InjectOp::Read, 1, Some(libc::EIO)), 2 * kinds);
    assert_eq!(script.ended(InjectOp::Write, 1, Some(libc::EIO)), 2 * kinds);
    assert_eq!(script.ended(InjectOp::Read, 0, None), 2 * kinds);
    script.check_pairs();
}

pub(super) fn short_transfers_are_continued(engine: IoEngine) {
    let script =
        Script::new(|_, page| if page < 8 { Verdict::Short(512) } else { Verdict::Short(0) });
    let sites = Arc::<FaultSites>::default();
    let options = Options { sites: sites.clone(), ..script.options() };
    let Some(backend) = open_with(engine, options) else { return };
    let (memory, disk) = (Memory::new(8 * PAGE), Disk::new(16 * PAGE));
    for (kind, _, fd) in disk.each() {
        let mut batch = backend.batch(&anon());
        for page in 0..8 {
            batch.push(memory.read(fd, (page * PAGE) as u64, page * PAGE, PAGE, 0));
        }
        assert!(
            drain(&mut batch).iter().all(|ended| *ended.result.as_ref().unwrap() as usize == PAGE),
            "{kind}"
        );
        assert!(memory.bytes(0, 8 * PAGE) == content(0, 8 * PAGE), "{kind}");

        memory.bytes_mut(0, 8 * PAGE).reverse();
        let from: Vec<usize> = (0..8).map(|page| page * PAGE).collect();
        backend.write_run(memory.write(fd, 0, &from, PAGE, 0)).unwrap();
        let found = &std::fs::read(disk.path()).unwrap()[..8 * PAGE];
        assert!(found == memory.bytes(0, 8 * PAGE), "{kind}");
        disk.opened[0].1.write_all_at(&content(0, 8 * PAGE), 0).unwrap();
        disk.opened[0].1.sync_all().unwrap();

        let full = backend.write_run(memory.write(fd, 8 * PAGE as u64, &[0], PAGE, 0)).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WriteZero, "{kind}: a device that takes nothing");
        let end = backend.read_one(&anon(), memory.read(fd, 8 * PAGE as u64, 0, PAGE, 0));
        assert_eq!(end.unwrap(), 0, "{kind}: the file ends there");
    }
    let counts: HashMap<_, _> = sites.counts().into_iter().collect();
    let kinds = disk.each().count() as u64;
    assert_eq!(counts[&FaultSite::ShortReadContinued], 8 * kinds);
    assert_eq!(counts[&FaultSite::ShortWriteContinued], kinds);
    script.check_pairs();
}

pub(super) fn a_late_request_holds_up_no_other(engine: IoEngine) {
    let script = Script::new(|_, page| match page {
        0 => Verdict::Later(Duration::from_millis(30)),
        1 => Verdict::Later(Duration::ZERO),
        _ => Verdict::Pass,
    });
    let Some(backend) = open_with(engine, script.options()) else { return };
    let (memory, disk) = (Memory::new(4 * PAGE), Disk::new(4 * PAGE));
    for (kind, _, fd) in disk.each() {
        let begin = Instant::now();
        let mut writer = backend.writer();
        let mut ended: Vec<Completion> = Vec::new();
        for page in 0..4 {
            writer.push(memory.write(fd, (page * PAGE) as u64, &[page * PAGE], PAGE, page as u64));
        }
        writer.wait(3, None, &mut ended);
        // On a machine that is slow enough the others may take as long.
        let in_time = begin.elapsed() < Duration::from_millis(30);
        if in_time {
            assert!(ended.iter().all(|ended| ended.user != 0), "{kind}: it was to wait");
        }
        writer.wait(4, None, &mut ended);
        assert_eq!((ended.len(), writer.in_flight()), (4, 0), "{kind}");
        assert!(begin.elapsed() >= Duration::from_millis(30), "{kind}: it did not wait");
        assert!(
            !in_time || ended.last().is_some_and(|last| last.user == 0),
            "{kind}: it was overtaken"
        );
        disk.opened[0].1.write_all_at(&content(0, 4 * PAGE), 0).unwrap();

        let late = backend.read_one(&anon(), memory.read(fd, 0, 0, PAGE, 0));
        assert_eq!(late.unwrap() as usize, PAGE, "{kind}");
    }
    script.check_pairs();
}

pub(super) fn waiting_for_a_hanging_device_ends(engine: IoEngine) {
    let gate = Gate::new();
    let theirs = gate.clone();
    let script = Script::new(move |op, page| match (op, page) {
        (InjectOp::Write, 0) => Verdict::Hang(theirs.clone()),
        (InjectOp::Sync, _) => Verdict::Later(Duration::from_millis(20)),
        _ => Verdict::Pass,
    });
    let Some(backend) = open_with(engine, script.options()) else { return };
    let (memory, disk) = (Memory::new(2 * PAGE), Disk::new(2 * PAGE));
    let (_, _, fd) = disk.each().next().unwrap();
    let mut writer = backend.writer();
    let mut ended: Vec<Completion> = Vec::new();
    for page in 0..2 {
        writer.push(memory.write(fd, (page * PAGE) as u64, &[page * PAGE], PAGE, page as u64));
    }
    while ended.is_empty() {
        writer.wait(2, Some(Duration::from_millis(1)), &mut ended);
    }
    assert_eq!(ended.pop().unwrap().user, 1, "only the other one can have ended");
    writer.wait(1, Some(Duration::from_millis(5)), &mut ended);
    assert!(ended.is_empty());
    assert_eq!((writer.in_flight(), writer.bytes_in_flight()), (1, PAGE as u64));
    writer.push_sync(&anon(), fd, 7);
    writer.wait(1, None, &mut ended);
    assert_eq!(ended.pop().unwrap().user, 7, "a sync is not behind it");
    assert_eq!(script.ended(InjectOp::Write, 0, None), 0);
    gate.open();
    writer.wait(1, None, &mut ended);
    assert!(ended[0].result.is_ok() && ended[0].user == 0);
    script.check_pairs();
}

pub(super) fn a_device_that_never_answers_can_be_abandoned(engine: IoEngine) {
    let script = Script::new(|_, _| Verdict::Later(Duration::MAX));
    let Some(backend) = open_with(engine, script.options()) else { return };
    let (memory, disk) = (Memory::new(PAGE), Disk::new(PAGE));
    let (_, _, fd) = disk.each().next().unwrap();
    backend.writer().abandon();
    assert!(!backend.is_abandoned(), "nothing was in flight");
    let mut writer = backend.writer();
    writer.push(memory.write(fd, 0, &[0], PAGE, 0));
    writer.wait(1, Some(Duration::from_millis(2)), &mut Vec::new());
    writer.abandon();
    assert!(backend.is_abandoned());
    // The next writer has a ring, or threads, of its own.
    let mut writer = backend.writer();
    writer.push(memory.write(fd, u64::MAX, &[0], PAGE, 5));
    let mut ended = Vec::new();
    writer.wait(1, None, &mut ended);
    assert_eq!(ended[0].user, 5);
    drop(writer);
    drop(backend);
}
