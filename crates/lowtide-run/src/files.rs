//! What each process has of files: a part of its slot in the table of shares.
//!
//! Processes that share a budget may share files, too, and with them pages of the page cache. A few
//! files of a process have an entry in its slot: how many of its pages are charged, and where it
//! reads ahead. Others read the entry while the process writes it: each number is whole, and two of
//! them may be of two moments. Where no entry is left, a file is as if no other process had it.

use crate::shares::Table;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

/// Files of a process, and windows of a file, that others hear of.
const FILES: usize = 4;
const WINDOWS: usize = 2;

/// What a process has of a file. All zeroes is a free entry.
#[derive(Debug, Default)]
#[repr(C)]
struct OfFile {
    file: AtomicU64,
    pages: AtomicU64,
    windows: [[AtomicU64; 2]; WINDOWS],
}

/// Those of a slot.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct OfFiles([OfFile; FILES]);

impl OfFile {
    fn set(&self, pages: u64, windows: &[Range<u64>]) {
        self.pages.store(pages, Relaxed);
        let none = 0..0;
        for (at, [start, end]) in self.windows.iter().enumerate() {
            let window = windows.get(at).unwrap_or(&none);
            start.store(window.start, Relaxed);
            end.store(window.end, Relaxed);
        }
    }

    fn windows(&self) -> impl Iterator<Item = Range<u64>> {
        let windows =
            self.windows.iter().map(|[start, end]| start.load(Relaxed)..end.load(Relaxed));
        windows.filter(|window| !window.is_empty())
    }
}

impl OfFiles {
    pub(crate) fn clear(&self) {
        for entry in &self.0 {
            entry.set(0, &[]);
            entry.file.store(0, Relaxed);
        }
    }

    fn of(&self, file: u64) -> Option<&OfFile> {
        self.0.iter().find(|entry| entry.file.load(SeqCst) == file)
    }
}

/// The table, for threads that say what this process has of files.
#[derive(Debug, Default)]
pub struct Files {
    /// With this process's slot.
    table: Mutex<Option<(Arc<Table>, usize)>>,
}

impl Files {
    pub(crate) fn table(&self) -> Option<(Arc<Table>, usize)> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, table: Option<(Arc<Table>, usize)>) {
        *self.table.lock().unwrap_or_else(PoisonError::into_inner) = table;
    }

    /// Says how many pages of a file this process has, and where it reads ahead; `None` is that it
    /// has nothing of it any more. Returns the same of the others, added up: of several that end
    /// at a time, the last one hears that there is no other. A file's number is not 0, and the same
    /// in all processes.
    pub fn exchange(&self, file: u64, own: Option<(u64, &[Range<u64>])>) -> (u64, Vec<Range<u64>>) {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut pages, mut windows) = (0, Vec::new());
        let Some((table, slot)) = &*table else { return (pages, windows) };
        let mine = &table.slots()[*slot].files;
        match (own, mine.of(file).or_else(|| mine.of(0))) {
            (Some((pages, windows)), Some(entry)) => {
                entry.set(pages, windows);
                entry.file.store(file, SeqCst);
            }
            (None, Some(entry)) => entry.file.store(0, SeqCst),
            (_, None) => {}
        }
        for (at, other) in table.slots().iter().enumerate().skip(1) {
            if at != *slot
                && let Some(entry) = other.files.of(file)
                && table.is_taken(at)
            {
                pages += entry.pages.load(Relaxed);
                windows.extend(entry.windows());
            }
        }
        (pages, windows)
    }
}

#[cfg(test)]
#[expect(clippy::single_range_in_vec_init, reason = "lists of ranges, some of one")]
mod tests {
    use crate::shares::Shares;

    #[test]
    fn each_hears_what_the_others_have_as_long_as_they_live() {
        let dir = tempfile::tempdir().unwrap();
        let [first, second, third] =
            [(); 3].map(|()| Shares::open(&dir.path().join("table")).unwrap());
        assert_eq!(first.files().exchange(7, Some((10, &[1..5]))), (0, vec![]));
        assert_eq!(second.files().exchange(7, Some((20, &[8..9, 0..0]))), (10, vec![1..5]));
        assert_eq!(third.files().exchange(9, Some((3, &[]))), (0, vec![]), "another file");
        assert_eq!(third.files().exchange(7, Some((0, &[]))), (30, vec![1..5, 8..9]));
        assert_eq!(first.files().exchange(7, Some((11, &[]))), (20, vec![8..9]));
        second.files().exchange(7, None);
        assert_eq!(third.files().exchange(7, Some((0, &[]))), (11, vec![]));
        // A process that ends says nothing.
        let kept = std::sync::Arc::clone(first.files());
        drop(first);
        assert_eq!(third.files().exchange(7, Some((0, &[]))), (0, vec![]));
        assert_eq!(kept.exchange(7, Some((11, &[]))), (0, vec![]));
    }

    #[test]
    fn a_file_without_an_entry_is_heard_of_and_not_said() {
        let dir = tempfile::tempdir().unwrap();
        let [first, second] = [(); 2].map(|()| Shares::open(&dir.path().join("table")).unwrap());
        for file in 1..=super::FILES as u64 + 1 {
            first.files().exchange(file, Some((file, &[])));
            second.files().exchange(9, Some((9, &[])));
        }
        let last = super::FILES as u64 + 1;
        assert_eq!(second.files().exchange(last - 1, Some((0, &[]))).0, last - 1);
        assert_eq!(second.files().exchange(last, Some((0, &[]))).0, 0);
        assert_eq!(first.files().exchange(9, Some((0, &[]))).0, 9);
        // One that is given up makes room.
        first.files().exchange(1, None);
        first.files().exchange(last, Some((5, &[])));
        assert_eq!(second.files().exchange(last, Some((0, &[]))).0, 5);
    }
}
