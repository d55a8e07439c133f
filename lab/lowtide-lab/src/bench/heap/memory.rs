//! A heap: a region of lowtide behind guards, or memory behind a pointer.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use lowtide::Region;
use lowtide_experiments::programs::heap::PAGE;

use super::content::{CHECKED, WORDS, word};

/// Pages with the content of [`content`](super::content).
pub(crate) trait Heap: Clone + Send + 'static {
    /// Gives a page its content; it was not stored to yet.
    ///
    /// # Errors
    /// Those of the memory, as text.
    fn fill(&self, page: u64) -> Result<(), String>;

    /// Loads the words of a page at some indexes above 0, and the count of its stores, which is
    /// returned.
    ///
    /// # Errors
    /// Those of the memory, and a wrong word, as text.
    fn load(&self, page: u64, indexes: [usize; CHECKED]) -> Result<u64, String>;

    /// Stores to a page: counts one more. Returns the count before.
    ///
    /// # Errors
    /// Those of the memory, as text.
    fn store(&self, page: u64) -> Result<u64, String>;
}

/// Checks a word.
fn check(page: u64, index: usize, found: u64) -> Result<(), String> {
    let wanted = word(page, index);
    if found == wanted {
        return Ok(());
    }
    Err(format!("page {page} has {found:#x} at word {index}, and {wanted:#x} was stored"))
}

impl Heap for Region {
    fn fill(&self, page: u64) -> Result<(), String> {
        let mut guard = self.page_mut(page).map_err(|error| error.to_string())?;
        let (words, _) = guard.as_chunks_mut::<8>();
        for (index, bytes) in words.iter_mut().enumerate().skip(1) {
            *bytes = word(page, index).to_le_bytes();
        }
        Ok(())
    }

    fn load(&self, page: u64, indexes: [usize; CHECKED]) -> Result<u64, String> {
        let guard = self.page(page).map_err(|error| error.to_string())?;
        let (words, _) = guard.as_chunks::<8>();
        for index in indexes {
            check(page, index, u64::from_le_bytes(words[index]))?;
        }
        Ok(u64::from_le_bytes(words[0]))
    }

    fn store(&self, page: u64) -> Result<u64, String> {
        let mut guard = self.page_mut(page).map_err(|error| error.to_string())?;
        let (words, _) = guard.as_chunks_mut::<8>();
        let count = u64::from_le_bytes(words[0]);
        words[0] = (count + 1).to_le_bytes();
        Ok(count)
    }
}

/// Memory behind a pointer: pages of words that threads load and store as they like.
pub(crate) trait Words: Clone + Send + 'static {
    /// The words of a page.
    fn page(&self, page: u64) -> &[AtomicU64];
}

impl<W: Words> Heap for W {
    fn fill(&self, page: u64) -> Result<(), String> {
        for (index, to) in self.page(page).iter().enumerate().skip(1) {
            to.store(word(page, index), Relaxed);
        }
        Ok(())
    }

    fn load(&self, page: u64, indexes: [usize; CHECKED]) -> Result<u64, String> {
        let words = self.page(page);
        indexes.into_iter().try_for_each(|i| check(page, i, words[i].load(Relaxed)))?;
        Ok(words[0].load(Relaxed))
    }

    fn store(&self, page: u64) -> Result<u64, String> {
        Ok(self.page(page)[0].fetch_add(1, Relaxed))
    }
}

/// Memory of the process, for which the kernel decides what is where.
#[derive(Clone, Debug)]
pub(crate) struct Plain(Arc<[AtomicU64]>);

impl Plain {
    /// Pages of zeroes. All of them are touched.
    pub(crate) fn new(bytes: u64) -> Self {
        let words = bytes / PAGE * WORDS as u64;
        Self((0..words).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Words for Plain {
    fn page(&self, page: u64) -> &[AtomicU64] {
        let first = page as usize * WORDS;
        &self.0[first..first + WORDS]
    }
}
