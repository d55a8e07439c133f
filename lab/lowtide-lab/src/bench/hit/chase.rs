//! The two patterns of reading words at random places.
//!
//! The sum of the words read proves that the correct words were read: it is compared with the sum
//! computed from the words' definition.

use lowtide::{PageCursor, View};
use lowtide_bench::content::{WORD_BYTES, word};
use lowtide_workload::SplitMix64;

/// Odd, with bits everywhere: keeps a chain of words from closing into a short cycle.
const STRIDE: u64 = 0x9E37_79B9_7F4A_7C15;

/// Words that can be read one at a time.
pub(crate) trait Words {
    /// Why a read failed.
    type Error;

    /// The number of words.
    fn count(&self) -> u64;

    /// The word number `index`, which is below [`count`](Words::count).
    fn word(&mut self, index: u64) -> Result<u64, Self::Error>;
}

/// Words of a file, through a guard for each read.
pub(crate) struct ViewWords {
    view: View,
    count: u64,
}

/// Words of a page: `hit` uses pages of 4 KiB, like the pointer that it compares with. A constant,
/// so that the arithmetic is what a user's program would have.
const PAGE_WORDS: u64 = 4096 / WORD_BYTES as u64;

impl ViewWords {
    /// All whole words of `view`.
    pub(crate) fn new(view: View) -> Self {
        assert_eq!(view.page_size(), 4096, "`hit` builds its pager with pages of 4 KiB");
        Self { count: view.len() / WORD_BYTES as u64, view }
    }
}

impl ViewWords {
    /// The same words through a reader of this thread.
    pub(crate) fn by_reader(&self) -> ReaderWords<'_> {
        ReaderWords { reader: self.view.page_cursor(), count: self.count }
    }
}

/// Words of a file, through a reader that keeps its slot.
pub(crate) struct ReaderWords<'a> {
    reader: PageCursor<'a>,
    count: u64,
}

impl Words for ReaderWords<'_> {
    type Error = lowtide::Error;

    fn count(&self) -> u64 {
        self.count
    }

    #[inline(always)]
    fn word(&mut self, index: u64) -> Result<u64, lowtide::Error> {
        let page = self.reader.page(index / PAGE_WORDS)?;
        let start = (index % PAGE_WORDS) as usize * WORD_BYTES;
        let mut bytes = [0; WORD_BYTES];
        bytes.copy_from_slice(&page[start..start + WORD_BYTES]);
        Ok(u64::from_le_bytes(bytes))
    }
}

impl Words for ViewWords {
    type Error = lowtide::Error;

    fn count(&self) -> u64 {
        self.count
    }

    #[inline(always)]
    fn word(&mut self, index: u64) -> Result<u64, lowtide::Error> {
        let page = self.view.page(index / PAGE_WORDS)?;
        let start = (index % PAGE_WORDS) as usize * WORD_BYTES;
        let mut bytes = [0; WORD_BYTES];
        bytes.copy_from_slice(&page[start..start + WORD_BYTES]);
        Ok(u64::from_le_bytes(bytes))
    }
}

/// The words as they are defined, computed and not read.
pub(crate) struct Definition(pub(crate) u64);

impl Words for Definition {
    type Error = std::convert::Infallible;

    fn count(&self) -> u64 {
        self.0
    }

    #[inline(always)]
    fn word(&mut self, index: u64) -> Result<u64, Self::Error> {
        Ok(word(index))
    }
}

/// The choice of the next word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Determined by the last word.
    Dependent,
    /// Determined by a generator.
    Independent,
}

impl Pattern {
    pub(crate) const ALL: [Self; 2] = [Self::Dependent, Self::Independent];

    /// The name in results.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Dependent => "dependent",
            Self::Independent => "independent",
        }
    }

    /// Reads `accesses` words from a start that `seed` selects, and returns their sum.
    ///
    /// # Errors
    /// The first read that fails.
    pub(crate) fn walk<W: Words>(
        self,
        words: &mut W,
        accesses: u64,
        seed: u64,
    ) -> Result<u64, W::Error> {
        match self {
            Self::Dependent => dependent(words, accesses, seed),
            Self::Independent => independent(words, accesses, seed),
        }
    }
}

#[inline(never)]
fn dependent<W: Words>(words: &mut W, accesses: u64, seed: u64) -> Result<u64, W::Error> {
    let count = u128::from(words.count());
    let (mut at, mut sum) = (seed, 0_u64);
    for step in 0..accesses {
        let found = words.word(((u128::from(at) * count) >> 64) as u64)?;
        sum = sum.wrapping_add(found);
        at = found.wrapping_add(step.wrapping_mul(STRIDE));
    }
    Ok(sum)
}

#[inline(never)]
fn independent<W: Words>(words: &mut W, accesses: u64, seed: u64) -> Result<u64, W::Error> {
    let count = words.count();
    let mut rng = SplitMix64::new(seed);
    let mut sum = 0_u64;
    for _ in 0..accesses {
        sum = sum.wrapping_add(words.word(rng.below(count))?);
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::HashSet;

    struct Seen(RefCell<HashSet<u64>>, u64);

    impl Words for Seen {
        type Error = std::convert::Infallible;

        fn count(&self) -> u64 {
            self.1
        }

        fn word(&mut self, index: u64) -> Result<u64, Self::Error> {
            assert!(index < self.1);
            self.0.borrow_mut().insert(index);
            Ok(word(index))
        }
    }

    #[test]
    fn both_patterns_go_everywhere() {
        for pattern in Pattern::ALL {
            let mut seen = Seen(RefCell::default(), 1000);
            let sum = pattern.walk(&mut seen, 20_000, 7).unwrap();
            assert_eq!(seen.0.borrow().len(), 1000, "{}", pattern.name());
            assert_eq!(Ok(sum), pattern.walk(&mut Definition(1000), 20_000, 7));
        }
    }
}
