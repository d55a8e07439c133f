//! Opening and closing: one file at a time, whatever happens to its name, and nothing that waits
//! for a device holds up the files of another.

use crate::common::{Dir, byte_at, make_file};
use lowtide::advanced::OpenAdvanced as _;
use lowtide::instruments::{Gate, Inject, InjectOp, Request, Verdict};
use lowtide::{Error, OpenError, OpenOptions, Pager, Size};
use std::fs::File;
use std::io::{self, BufRead, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;

fn pager() -> Pager {
    Pager::builder().max(Size::mib(1)).build().unwrap()
}

fn writing() -> OpenOptions {
    OpenOptions::new().write(true)
}

#[test]
fn an_open_beside_renames_is_of_one_file() {
    let dir = Dir::new();
    let name = dir.path().join("current");
    std::fs::write(&name, vec![1; PAGE as usize]).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // File n has n pages of the byte n.
            for round in 0..2000_u64 {
                let n = 1 + round % 3;
                let new = dir.path().join("new");
                std::fs::write(&new, vec![n as u8; (n * PAGE) as usize]).unwrap();
                std::fs::rename(&new, &name).unwrap();
            }
            done.store(true, SeqCst);
        });
        let pager = pager();
        while !done.load(SeqCst) {
            let view = OpenOptions::new().lock(false).open(&pager, &name).unwrap();
            let bytes = view.read_to_vec(0..view.len()).unwrap();
            assert!(
                bytes.iter().all(|b| u64::from(*b) * PAGE == view.len()),
                "length of one, bytes of another"
            );
        }
    });
}

#[test]
fn a_pipe_is_refused_at_once() {
    let dir = Dir::new();
    let path = dir.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let error = pager().open(&path).unwrap_err();
    assert!(matches!(error, OpenError::Kind { .. }), "{error}");
    assert_eq!(io::Error::from(error).kind(), ErrorKind::InvalidInput);
}

#[test]
fn of_several_that_create_a_new_file_one_succeeds() {
    let dir = Dir::new();
    let (pager, path) = (pager(), dir.path().join("new"));
    let made = std::thread::scope(|scope| {
        let create = || OpenOptions::new().create_new_with_len(PAGE).open(&pager, &path);
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(create)).collect();
        let made: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let refused = made.iter().filter_map(|made| made.as_ref().err());
        assert!(refused.clone().all(|e| e.kind() == ErrorKind::AlreadyExists));
        assert_eq!(refused.count(), 7);
        made.into_iter().find_map(Result::ok).unwrap()
    });
    assert_eq!(made.len(), PAGE);
}

#[test]
fn a_file_without_a_name_is_opened_written_flushed_and_closed() {
    let dir = Dir::new();
    let pager = pager();
    let mut file = tempfile::tempfile_in(dir.path()).unwrap();
    file.write_all(b"before").unwrap();
    let view =
        writing().create_with_len(PAGE).open_file(&pager, file.try_clone().unwrap()).unwrap();
    assert_eq!(view.read_to_vec(0..6).unwrap(), b"before");
    view.write_at(3 * PAGE, b"behind").unwrap();
    view.flush().unwrap();
    view.close().unwrap();
    let mut end = [0; 6];
    file.read_exact_at(&mut end, 3 * PAGE).unwrap();
    assert_eq!(&end, b"behind");
    assert_eq!(pager.stat().memory.current, 0);
    // What appends, appends; a view writes at its offset.
    let path = dir.path().join("log");
    let appending = File::options().append(true).create(true).open(&path).unwrap();
    let view = writing().create_with_len(100).open_file(&pager, appending).unwrap();
    view.write_at(10, b"here").unwrap();
    view.close().unwrap();
    assert_eq!(
        (std::fs::read(&path).unwrap().len(), &std::fs::read(&path).unwrap()[10..14]),
        (100, &b"here"[..])
    );
}

#[test]
fn a_descriptor_says_which_file_and_the_options_say_what_for() {
    let dir = Dir::new();
    let path = make_file(&dir, PAGE);
    for (given, write) in [
        (File::options().read(true).open(&path), true),
        (File::options().write(true).open(&path), false),
        (File::options().write(true).open(&path), true),
    ] {
        let pager = pager();
        let view = OpenOptions::new().write(write).open_file(&pager, given.unwrap()).unwrap();
        assert_eq!(view.page(0).unwrap()[9], byte_at(9));
        assert_eq!(view.write_at(9, &[byte_at(9)]).is_ok(), write);
        view.close().unwrap();
    }
}

#[test]
fn a_file_with_more_pages_than_can_be_numbered_is_refused() {
    // Of memory: file systems on disks have shorter files.
    let file =
        File::from(rustix::fs::memfd_create("huge", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    let pager = pager();
    for (bytes, write) in [(4 << 50, false), ((4 << 50) + 1, true), (i64::MAX as u64, true)] {
        file.set_len(bytes).unwrap();
        let open = OpenOptions::new().write(write).open_file(&pager, file.try_clone().unwrap());
        let error = open.expect_err("it is too large");
        assert!(
            matches!(error, OpenError::TooLarge { bytes: b, limit, .. } if b == bytes && limit < b)
        );
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
    }
    let (dir, bytes) = (Dir::new(), (4 << 50) + 1);
    let error =
        OpenOptions::new().create_with_len(bytes).open(&pager, dir.path().join("new")).unwrap_err();
    assert!(matches!(error, OpenError::TooLarge { .. }), "{error}");
    assert!(!dir.path().join("new").exists(), "nothing was created");
    file.set_len(PAGE).unwrap();
    drop(OpenOptions::new().open_file(&pager, file).unwrap().page(0).unwrap());
    pager.validate().unwrap();
}

#[test]
fn a_lock_is_asked_for_as_long_as_wanted_while_other_files_are_opened() {
    let dir = Dir::new();
    let path = make_file(&dir, PAGE);
    let (pager, other) = (pager(), Pager::builder().max(Size::mib(1)).build().unwrap());
    let holder = writing().open(&other, &path).unwrap();
    let error = writing().lock_timeout(Duration::ZERO).open(&pager, &path).unwrap_err();
    assert!(
        matches!(error, OpenError::Locked { waited: Duration::ZERO, .. })
            && error.kind() == ErrorKind::WouldBlock,
        "{error}"
    );
    assert!(error.to_string().contains("died"), "{error}");
    std::thread::scope(|scope| {
        let patient = writing().lock_timeout(Duration::MAX);
        let (pager, path) = (&pager, &path);
        let waiting = scope.spawn(move || patient.open(pager, path));
        // These need not wait for it: they would forever.
        for _ in 0..20 {
            drop(
                OpenOptions::new()
                    .create_with_len(PAGE)
                    .open(pager, dir.path().join("free"))
                    .unwrap(),
            );
        }
        assert!(!waiting.is_finished());
        drop(holder);
        waiting.join().unwrap().unwrap().write_at(0, b"mine").unwrap();
    });
}

#[test]
fn readers_notice_what_others_wrote_while_the_lock_changed_hands() {
    let dir = Dir::new();
    let path = make_file(&dir, 4 * PAGE);
    let pager = pager();
    let reader = pager.open(&path).unwrap();
    drop(reader.page(1).unwrap());
    // Another process has the lock for a moment when the reader's is exchanged for the writer's, or
    // does not ask.
    let other = File::options().write(true).open(&path).unwrap();
    other.write_all_at(b"theirs", PAGE).unwrap();
    other.write_all_at(b"appended", 4 * PAGE).unwrap();
    let writer = writing().open(&pager, &path).unwrap();
    assert_eq!(writer.len(), 4 * PAGE + 8);
    assert_eq!(&reader.page(1).unwrap()[..6], b"theirs");
    drop(writer);
    pager.validate().unwrap();
}

/// As a reader's lock is lost, when another process takes it first while it is exchanged, or when
/// it was not requested.
#[test]
fn an_open_that_gets_the_lock_for_reading_sees_what_others_wrote_before() {
    let dir = Dir::new();
    let path = make_file(&dir, 4 * PAGE);
    let (pager, other) = (pager(), pager());
    let without = OpenOptions::new().lock(false).open(&pager, &path).unwrap();
    drop(without.page(1).unwrap());
    let theirs = writing().open(&other, &path).unwrap();
    theirs.write_at(PAGE, b"theirs").unwrap();
    theirs.set_len(5 * PAGE).unwrap();
    theirs.close().unwrap();
    let with = pager.open(&path).unwrap();
    assert_eq!(&with.page(1).unwrap()[..6], b"theirs");
    assert_eq!(with.len(), 5 * PAGE);
    let refused = writing().lock_timeout(Duration::ZERO).open(&other, &path);
    assert!(matches!(refused, Err(OpenError::Locked { .. })), "{refused:?}");
    pager.validate().unwrap();
}

/// A file that cannot be made as long as it should be.
struct Short;

impl Inject for Short {
    fn before(&self, request: &Request<'_>) -> Verdict {
        match request.op {
            InjectOp::Extend => Verdict::Fail(io::Error::from_raw_os_error(libc::ENOSPC)),
            _ => Verdict::Pass,
        }
    }
}

#[test]
fn files_that_cannot_be_made_leave_no_descriptors() {
    let dir = Dir::new();
    let folder = dir.path().canonicalize().unwrap();
    let pager = Pager::builder().max(Size::mib(1)).inject(Arc::new(Short));
    let pager = pager.build().unwrap();
    for n in 0..20 {
        let error =
            OpenOptions::new().create_with_len(PAGE).open(&pager, folder.join(format!("{n}")));
        assert!(matches!(error, Err(OpenError::SetLen { .. })), "{error:?}");
    }
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let open = open.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    let left: Vec<_> = open.filter(|target| target.starts_with(&folder)).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Reads of files whose name ends with "hung" begin when the gate is opened.
struct Hung(Gate);

impl Inject for Hung {
    fn before(&self, request: &Request<'_>) -> Verdict {
        if request.op == InjectOp::Read && request.path.ends_with("hung") {
            Verdict::Hang(self.0.clone())
        } else {
            Verdict::Pass
        }
    }
}

#[test]
fn a_read_that_hangs_stops_no_other_file_and_no_pager_from_closing() {
    let dir = Dir::new();
    let gate = Gate::new();
    let build = || {
        let builder = Pager::builder().max(Size::mib(1)).inject(Arc::new(Hung(gate.clone())));
        builder.io_timeout(Duration::from_millis(300)).build().unwrap()
    };
    let (path, fine) = (dir.path().join("hung"), make_file(&dir, 8 * PAGE));
    std::fs::write(&path, vec![7; 64 * PAGE as usize]).unwrap();
    for drop_the_pager in [false, true] {
        let pager = build();
        let view = pager.open(&path).unwrap();
        view.prefetch(0..8 * PAGE);
        // Until the read is on its way nothing hangs yet.
        let begun = Instant::now();
        while !view.is_resident(0)
            && pager.stat().memory.current == 0
            && begun.elapsed().as_secs() < 60
        {
            std::thread::yield_now();
        }
        let begun = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(move || drop(view));
            for _ in 0..20 {
                let other = writing().open(&pager, &fine).unwrap();
                other.write_at(0, &[byte_at(0)]).unwrap();
                other.close().unwrap();
            }
        });
        // The file is as good as closed: another pager may write it.
        drop(writing().open(&self::pager(), &path).unwrap());
        if drop_the_pager {
            drop(pager);
            assert!(begun.elapsed() < Duration::from_secs(60), "deadlines are kept");
            continue;
        }
        // When the device answers, what was left behind is cleared up.
        gate.open();
        let begun = Instant::now();
        while pager.stat().memory.current > 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "the pages stay");
            std::thread::yield_now();
        }
        pager.validate().unwrap();
        break;
    }
}

#[test]
fn a_pager_is_dropped_while_a_read_hangs() {
    let dir = Dir::new();
    let gate = Gate::new();
    let path = dir.path().join("hung");
    std::fs::write(&path, vec![7; 64 * PAGE as usize]).unwrap();
    let builder = Pager::builder().max(Size::mib(1)).inject(Arc::new(Hung(gate.clone())));
    let pager = builder.io_timeout(Duration::from_millis(200)).build().unwrap();
    let view = pager.open(&path).unwrap();
    view.prefetch(0..8 * PAGE);
    let begun = Instant::now();
    while pager.stat().memory.current == 0 && begun.elapsed().as_secs() < 60 {
        std::thread::yield_now();
    }
    // Returns at all: the gate is closed.
    drop((view, pager));
    gate.open();
}

#[test]
fn a_forgotten_guard_is_in_no_later_pagers_way() {
    let dir = Dir::new();
    let path = make_file(&dir, 64 * PAGE);
    for _ in 0..20 {
        let pager = Pager::builder()
            .max(Size::mib(1))
            .memory_timeout(Duration::from_millis(100))
            .build()
            .unwrap();
        let view = writing().open(&pager, &path).unwrap();
        view.write_at(0, &[byte_at(0)]).unwrap();
        std::mem::forget(view.page(0).unwrap());
    }
}

#[test]
fn a_cursor_reads_writes_and_seeks_as_a_file_does() {
    let dir = Dir::new();
    let pager = pager();
    let path = dir.path().join("text");
    let view = OpenOptions::new().create_with_len(0).open(&pager, &path).unwrap();
    let mut cursor = view.cursor();
    for i in 0..5000 {
        writeln!(cursor, "line {i}").unwrap();
    }
    assert_eq!(cursor.stream_position().unwrap(), view.len());
    cursor.rewind().unwrap();
    let mut first = String::new();
    cursor.read_line(&mut first).unwrap();
    assert_eq!((first.as_str(), cursor.stream_position().unwrap()), ("line 0\n", 7));
    // A store through the same cursor is seen by its next read, and goes where the position is.
    cursor.write_all(b"LINE").unwrap();
    cursor.seek(SeekFrom::Current(-4)).unwrap();
    let mut word = [0; 6];
    cursor.read_exact(&mut word).unwrap();
    assert_eq!(&word, b"LINE 1");
    let lines: Vec<_> = view.cursor().lines().map(Result::unwrap).collect();
    assert_eq!(
        (lines.len(), lines[1].as_str(), lines[4999].as_str()),
        (5000, "LINE 1", "line 4999")
    );
    cursor.seek(SeekFrom::End(-2)).unwrap();
    let mut rest = Vec::new();
    assert_eq!(cursor.read_to_end(&mut rest).unwrap(), 2);
    assert!(cursor.seek(SeekFrom::Current(-1 << 40)).is_err());
    // Through the traits of files, short at the end.
    let mut buf = [0; 10];
    assert_eq!(FileExt::read_at(&view, &mut buf, view.len() - 3).unwrap(), 3);
    assert_eq!(FileExt::read_at(&view, &mut buf, u64::MAX - 20).unwrap(), 0);
    assert_eq!(view.read_clamped(view.len() + 1, &mut buf).unwrap(), 0);
    let error = FileExt::read_exact_at(&view, &mut buf, view.len() - 3).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    FileExt::write_all_at(&view, b"end", view.len()).unwrap();
    view.flush().unwrap();
    assert!(
        File::from(view.as_fd().try_clone_to_owned().unwrap()).metadata().unwrap().len()
            == view.len()
    );
    view.close().unwrap();
    assert!(std::fs::read(&path).unwrap().ends_with(b"end"));
}

#[test]
fn closing_reports_what_dropping_only_logs() {
    struct Full;
    impl Inject for Full {
        fn before(&self, request: &Request<'_>) -> Verdict {
            match request.op {
                InjectOp::Write => Verdict::Fail(io::Error::from_raw_os_error(libc::ENOSPC)),
                _ => Verdict::Pass,
            }
        }
    }
    let dir = Dir::new();
    let path = make_file(&dir, PAGE);
    let pager = Pager::builder().max(Size::mib(1)).inject(Arc::new(Full)).build().unwrap();
    let view = writing().open(&pager, &path).unwrap();
    view.write_at(0, b"x").unwrap();
    let error = view.close().unwrap_err();
    assert!(matches!(error, Error::Write { .. }), "{error}");
    let error = io::Error::from(error);
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    let inner = error.get_ref().unwrap().downcast_ref::<Error>().unwrap();
    assert_eq!(inner.raw_os_error(), Some(libc::ENOSPC));
}

#[test]
fn a_hole_reads_as_zeroes_and_takes_no_room_on_disk() {
    let dir = Dir::new();
    for order in [0, 3] {
        let (pager, path) = (pager(), dir.path().join("holes"));
        std::fs::write(&path, vec![7; 64 * PAGE as usize + 100]).unwrap();
        let view = writing().folio_order(order).open(&pager, &path).unwrap();
        let len = view.len();
        let mut expected = vec![7; len as usize];
        let blocks = || std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap());
        let before = blocks();
        for (round, range) in [5..6, 100..3 * PAGE, 8 * PAGE..40 * PAGE, 50 * PAGE + 1..u64::MAX]
            .into_iter()
            .enumerate()
        {
            // Partly in memory, partly dirty.
            view.read_at(0, &mut vec![0; 30 * PAGE as usize]).unwrap();
            view.write_at(10 * PAGE, &expected[10 * PAGE as usize..12 * PAGE as usize]).unwrap();
            view.punch(range.clone()).unwrap();
            expected[range.start as usize..range.end.min(len) as usize].fill(0);
            assert!(view.read_to_vec(0..len).unwrap() == expected, "order {order}, round {round}");
        }
        view.flush().unwrap();
        assert!(std::fs::read(&path).unwrap() == expected);
        assert!(blocks() < before, "{} blocks, {before} before", blocks());
        let guard = view.page(20).unwrap();
        assert!(matches!(view.punch(0..len), Err(Error::HeldHere { .. })));
        drop(guard);
        pager.validate().unwrap();
    }
}
