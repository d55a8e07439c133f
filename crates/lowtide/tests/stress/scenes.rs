//! Small scenes beside the storm: files that others replace, cut and make longer, folders that are
//! renamed, devices that stop answering.
//!
//! Each has files of its own, but the storm's pager, so that it meets locks, frames and threads
//! that others use.

use super::file::Came;
use super::operations::Hand;
use lowtide::advanced::OpenAdvanced as _;
use lowtide::{Error, OpenOptions};
use std::fs::{File, OpenOptions as FileOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Guards that one storm forgets: each takes a frame for good.
const MOST_FORGOTTEN: u64 = 2;

impl Hand<'_> {
    /// A name that no file ever had: one that could not be written is kept by the pager.
    pub(crate) fn scene(&self, name: &str) -> PathBuf {
        let number = self.storm.scenes.fetch_add(1, SeqCst);
        self.storm.dir.join(format!("{name}{}-{number}", self.thread))
    }

    fn page(&self) -> usize {
        self.storm.plan.page
    }

    /// Whether the device explains an error of a scene.
    fn explained(&self, error: &Error, how: &str) -> Came {
        let expected = matches!(
            error,
            Error::Read { .. }
                | Error::Write { .. }
                | Error::Timeout { .. }
                | Error::Grow { .. }
                | Error::Punch { .. }
                | Error::NameNotDurable { .. }
                | Error::OutOfBudget { .. }
        );
        assert!(expected && !self.storm.plan.behaviour.is_fair(), "{how}: {error}");
        Came::Refused
    }
}

/// Opens a file that others replace by renaming: length and bytes are of one file.
pub(crate) fn replace_and_open(hand: &mut Hand<'_>) -> Came {
    let (path, next) = (hand.scene("replaced"), hand.scene("next"));
    let page = hand.page();
    // Each has a length of its own, and its bytes say which.
    let put = |pages: usize| {
        std::fs::write(&next, vec![pages as u8; pages * page]).expect("the file can be written");
        std::fs::rename(&next, &path).expect("the file can be renamed");
    };
    put(1);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0_usize.. {
                if stop.load(SeqCst) {
                    break;
                }
                put(1 + round % 3);
            }
        });
        let mut came = Came::Done;
        let _ends = Ends(&stop);
        for _ in 0..12 {
            let view = hand.storm.pager.open(&path).expect("the file is always there");
            let pages = view.page_count();
            for page in 0..pages {
                match view.page(page) {
                    Ok(guard) => assert!(
                        guard.iter().all(|byte| u64::from(*byte) == pages),
                        "a view has the length of one file and the bytes of another"
                    ),
                    Err(error) => came = hand.explained(&error, "a read of a replaced file"),
                }
            }
        }
        came
    })
}

/// Ends a loop of another thread, also by a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Another descriptor makes the file shorter. Reads past its end fail, or show what was in
/// memory; nothing is made up.
pub(crate) fn cut_by_another(hand: &mut Hand<'_>) -> Came {
    let (path, page) = (hand.scene("cut"), hand.page());
    std::fs::write(&path, vec![7; 8 * page]).expect("the file can be written");
    let view = hand.storm.pager.open(&path).expect("the file is there");
    for _ in 0..3 {
        let _ = view.page(hand.rng.below(8));
    }
    let left = hand.rng.below(8 * page as u64);
    FileOptions::new()
        .write(true)
        .open(&path)
        .and_then(|f| f.set_len(left))
        .expect("it can be cut");
    for _ in 0..8 {
        let at = hand.rng.below(8);
        match view.page(at) {
            Ok(guard) => {
                let mine = left.saturating_sub(at * page as u64).min(page as u64) as usize;
                assert!(
                    guard[..mine].iter().all(|byte| *byte == 7),
                    "bytes that are left have changed"
                );
                // It may have been on its way into memory when the file was cut.
                let made_up = guard[mine..].iter().any(|byte| ![0, 7].contains(byte));
                assert!(!made_up, "bytes were made up");
            }
            Err(Error::Read { .. } | Error::OutOfRange { .. }) => {}
            Err(error) => return hand.explained(&error, "a read of a file that was cut"),
        }
    }
    match view.refresh_len() {
        Ok(len) => assert_eq!(len, left, "the length that is reported"),
        Err(error) => return hand.explained(&error, "a look at the length"),
    }
    Came::Done
}

/// Another descriptor appends. What was appended is read, and not zeroes.
pub(crate) fn grown_by_another(hand: &mut Hand<'_>) -> Came {
    let (path, page) = (hand.scene("grown"), hand.page());
    let order = hand.rng.below(u64::from(hand.storm.plan.files[0].order) + 1) as u8;
    let mut len = 1 + hand.rng.below(3 * page as u64);
    std::fs::write(&path, vec![9; len as usize]).expect("the file can be written");
    let view = OpenOptions::new()
        .folio_order(order)
        .open(&hand.storm.pager, &path)
        .expect("the file is there");
    let file = FileOptions::new().write(true).open(&path).expect("the file is there");
    for _ in 0..4 {
        // The last page is in memory, perhaps.
        if hand.rng.one_in(2) {
            let _ = view.page((len - 1) / page as u64);
        }
        let more = 1 + hand.rng.below(2 * page as u64);
        file.write_all_at(&vec![9; more as usize], len).expect("it can be appended to");
        len += more;
        let mut copy = vec![0; len as usize];
        match view.read_at(0, &mut copy) {
            Ok(()) => {
                let first = copy.iter().position(|byte| *byte != 9);
                assert!(
                    first.is_none(),
                    "byte {first:?} of {len} was appended, and reads as something else"
                );
            }
            Err(error) => return hand.explained(&error, "a read of a file that grows"),
        }
    }
    Came::Done
}

/// A store so far past the end that there is no room for it fails, and leaves file and view as
/// they were.
pub(crate) fn store_far_away(hand: &mut Hand<'_>) -> Came {
    let (path, page) = (hand.scene("far"), hand.page() as u64);
    std::fs::write(&path, vec![1; page as usize]).expect("the file can be written");
    let view = OpenOptions::new()
        .write(true)
        .open(&hand.storm.pager, &path)
        .expect("the file can be opened");
    let far = (page << 28) + page * (2 + hand.rng.below(1 << 20));
    let refused = view.write_at(far, b"x");
    let len = std::fs::metadata(&path).expect("the file is there").len();
    if refused.is_ok() {
        assert_eq!(len, far + 1);
    } else {
        assert_eq!(
            (len, view.len()),
            (page, page),
            "a store failed ({refused:?}) and changed the length"
        );
    }
    let came = match view.write_at(page, b"y").and_then(|()| view.flush()) {
        Ok(()) => Came::Done,
        Err(error) => hand.explained(&error, "an append after a store that failed"),
    };
    // Do not leave a sparse file of terabytes.
    drop(view);
    drop(File::create(&path));
    came
}

/// The folder of a new file is renamed before its first flush.
pub(crate) fn renamed_folder(hand: &mut Hand<'_>) -> Came {
    let (folder, moved) = (hand.scene("folder"), hand.scene("moved"));
    let _ = std::fs::remove_dir_all(&moved);
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let page = hand.page() as u64;
    let made =
        OpenOptions::new().create_with_len(4 * page).open(&hand.storm.pager, folder.join("new"));
    let view = match made {
        Ok(view) => view,
        Err(error) => {
            assert!(!hand.storm.plan.behaviour.is_fair(), "{error}");
            return Came::Refused;
        }
    };
    let stored = view.write_at(1, b"kept");
    std::fs::rename(&folder, &moved).expect("a folder can be renamed");
    match stored.and_then(|()| view.flush()) {
        Ok(()) => {
            let bytes = std::fs::read(moved.join("new")).expect("the file is there");
            assert_eq!(&bytes[1..5], b"kept");
            Came::Done
        }
        Err(error) => hand.explained(&error, "the flush of a file whose folder was renamed"),
    }
}

/// A device does not answer a read-ahead, and its file is closed: other files are opened, read and
/// closed all the same.
pub(crate) fn closed_while_a_read_hangs(hand: &mut Hand<'_>) -> Came {
    let storm = hand.storm;
    if !storm.plan.background {
        // The read-ahead would hang in this thread.
        return Came::NotNow;
    }
    let (path, other) = (hand.scene("hung"), hand.scene("other"));
    let page = hand.page();
    std::fs::write(&path, vec![3; 8 * page]).expect("the file can be written");
    std::fs::write(&other, vec![4; page]).expect("the file can be written");
    let view = storm.pager.open(&path).expect("the file is there");
    let gate = storm.device.hang_reads(path);
    // Whatever happens here, what hangs must be released.
    let _opens = Opens(&gate);
    std::thread::scope(|scope| {
        view.prefetch(0..8 * page as u64);
        let reader = scope.spawn(|| drop(storm.pager.open(&other).map(|v| v.page(0).map(drop))));
        let _ = reader.join();
        let closing = scope.spawn(move || drop(view));
        hand.post.also(", opens another file while the read hangs");
        let another = storm.pager.open(&other).expect("another file can be opened");
        let came = match another.page(0) {
            Ok(guard) => {
                assert!(guard.iter().all(|byte| *byte == 4));
                Came::Done
            }
            Err(error) => hand.explained(&error, "a read of another file"),
        };
        drop(another);
        gate.open();
        hand.post.also(", and waits for the close after it was released");
        let _ = closing.join();
        came
    })
}

/// Opens a gate at the end.
struct Opens<'a>(&'a lowtide::instruments::Gate);

impl Drop for Opens<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A guard is forgotten by a thread that ends. Its page stays forever, and does not delay threads
/// that do not change it.
pub(crate) fn forgotten_guard(hand: &mut Hand<'_>) -> Came {
    let storm = hand.storm;
    if storm.forgotten.fetch_add(1, SeqCst) >= MOST_FORGOTTEN {
        storm.forgotten.fetch_sub(1, SeqCst);
        return Came::NotNow;
    }
    let (path, page) = (hand.scene("forgotten"), hand.page() as u64);
    std::fs::write(&path, vec![5; 16 * page as usize]).expect("the file can be written");
    let view =
        OpenOptions::new().write(true).open(&storm.pager, &path).expect("the file can be opened");
    let kept = hand.rng.below(8);
    let forgets = || view.page(kept).map(std::mem::forget);
    let read =
        std::thread::scope(|scope| scope.spawn(forgets).join().expect("a read does not panic"));
    if let Err(error) = read {
        storm.forgotten.fetch_sub(1, SeqCst);
        return hand.explained(&error, "a read of a page that is to be held forever");
    }
    let others = || {
        view.write_at((kept + 1) * page, &vec![6; page as usize])?;
        view.punch(9 * page..11 * page)?;
        view.set_len(12 * page)?;
        view.revert(11 * page..12 * page)?;
        view.page(kept)
            .map(|guard| assert!(guard.iter().all(|byte| *byte == 5), "it shows what it showed"))?;
        view.flush()
    };
    others().map_or_else(
        |error| hand.explained(&error, "a file with a forgotten guard"),
        |()| Came::Done,
    )
}

/// Pages that cannot be written are discarded, while their neighbours leave memory and come back:
/// all of them are gone afterwards.
pub(crate) fn discard_unwritable(hand: &mut Hand<'_>) -> Came {
    let storm = hand.storm;
    let (path, page) = (hand.scene("unwritable"), hand.page());
    let pages = 24_u64;
    std::fs::write(&path, vec![1; pages as usize * page]).expect("the file can be written");
    let view =
        OpenOptions::new().write(true).open(&storm.pager, &path).expect("the file can be opened");
    storm.device.break_writes(path.clone());
    let dirty: Vec<u64> = (0..pages).filter(|_| hand.rng.one_in(3)).collect();
    let mut came = Came::Done;
    for at in 0..pages {
        let done = if dirty.contains(&at) {
            view.write_at(at * page as u64, &vec![2; page])
        } else {
            view.page(at).map(drop)
        };
        if let Err(error) = done {
            // The device is made to fail here, so the plan need not explain it.
            came = if matches!(error, Error::OutOfBudget { .. }) {
                Came::Refused
            } else {
                hand.explained(&error, "a scene")
            };
        }
    }
    match view.revert(0..u64::MAX) {
        Ok(_) => {
            for at in 0..pages {
                match view.page(at) {
                    Ok(guard) => assert!(
                        guard.iter().all(|byte| *byte == 1),
                        "page {at} was discarded, and holds what cannot be written; dirty were \
                         {dirty:?}"
                    ),
                    Err(error) => came = hand.explained(&error, "a read after a discard"),
                }
            }
        }
        Err(error) => came = hand.explained(&error, "a discard"),
    }
    storm.device.repair_writes(&path);
    came
}
