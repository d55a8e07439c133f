//! What a page becomes before it is kept: one word, a compressed object, or itself.
//!
//! In this order, each tried only if the one before does not fit:
//!
//! 1. *same*: the page is one 8-byte word repeated. The last word is compared with the first one
//!    before all are, so a page that is not of this kind costs two loads.
//! 2. *lz4*: at most `shared_max` bytes, so that it shares a block with others.
//! 3. *raw*: the page itself.
//!
//! **Pages that do not compress** are recognized before lz4 has wasted its time on them, which
//! would be most of what storing them costs. 128 bytes are sampled: of random bytes, about a
//! hundred are different; of text, tables and pointers far fewer. A page with many is *dense*, but
//! it may still repeat itself, so density alone decides nothing: lz4 is left out only after it has
//! failed on the last [`CONFIRMED`] dense pages of this thread, is tried again on every
//! [`CHECK_EVERY`]th, and one success makes it begin again. So at most fifteen dense pages in a row
//! that would compress are kept raw, and a page that is not dense never is without a try.
//!
//! A store that packs tightly ([`Packing`]) has zstd in the place of lz4. In others, later and in
//! the background, lz4 and raw may become *zstd*, if that is in a smaller class
//! (`recompress.rs`). Order and thresholds: `docs/kernel/fault-and-writeback.md` C5, C6.
//!
//! What is kept of a page, whatever its form, has a checksum, CRC-32: of the *compressed* bytes,
//! because they are fewer. It is verified before they are decompressed, so a decompressor never
//! meets bytes that its compressor has not written. With the instructions that CPUs have for it,
//! CRC-32 takes half of the time of XXH3 (0.15 to 0.2 µs for 4 KiB, beside 0.4 to 0.6), and finds
//! every error within 32 bits.

use crate::cold::{self, Dictionary, Encoders};
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use std::cell::RefCell;

/// Bytes of a page that are sampled, and different values among them that make it dense. Of random
/// bytes 99 in 100 samples have at least 91; of doubles in [0, 1) half have.
const SAMPLE: usize = 128;
/// Places from which the sample is taken: few, because each is a line of the cache.
const SAMPLED_PARTS: usize = 16;
const DENSE: u32 = 90;
/// Dense pages in a row on which lz4 fails before it is left out.
const CONFIRMED: u32 = 8;
/// And then it is tried on every sixteenth.
const CHECK_EVERY: u32 = 16;

/// In which form the bytes of an object are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Lz4,
    Zstd,
    /// By zstd, with the dictionary of its kind.
    Common,
    Raw,
}

/// How pages are compressed when they are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Packing {
    /// By lz4: in a few microseconds.
    #[default]
    Quick,
    /// By zstd at its first level, or by lz4 without the feature `zstd`: by half smaller again, in
    /// about three times the time. What does not shrink to seven tenths does not compress.
    Tight,
}

/// The checksum of what is kept of a page.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// The word that a page consists of, if it is one.
pub(crate) fn same_filled(page: &[u8]) -> Option<u64> {
    let (words, rest) = page.as_chunks::<8>();
    let (first, last) = (words.first()?, words.last()?);
    let same = rest.is_empty() && first == last && words.iter().all(|word| word == first);
    same.then(|| u64::from_ne_bytes(*first))
}

/// Fills a page with a word.
pub(crate) fn fill(page: &mut [u8], word: u64) {
    let (words, _) = page.as_chunks_mut::<8>();
    words.fill(word.to_ne_bytes());
}

/// Buffers of one thread: a table for lz4, room for what it writes, and room for an object that is
/// copied out of its block.
pub(crate) struct Scratch {
    table: CompressTable,
    /// Dense pages since lz4 has compressed one.
    dense: u32,
    packed: Box<[u8]>,
    pub(crate) object: Box<[u8]>,
}

impl Scratch {
    fn new() -> Scratch {
        let bytes = |n| vec![0; n].into_boxed_slice();
        Scratch { table: CompressTable::small(), dense: 0, packed: bytes(0), object: bytes(0) }
    }

    /// Makes room for a page and its objects.
    fn make_room(&mut self, page_bytes: usize) {
        if self.object.len() < page_bytes {
            self.packed = vec![0; get_maximum_output_size(page_bytes)].into_boxed_slice();
            self.object = vec![0; page_bytes].into_boxed_slice();
        }
    }

    /// The form in which a page is kept, and its bytes: compressed to at most `most`, or itself.
    pub(crate) fn pack<'a>(
        &'a mut self,
        page: &'a [u8],
        most: usize,
        tight: Option<(&Encoders, Option<&Dictionary>)>,
    ) -> (Form, &'a [u8]) {
        let dense = is_dense(page);
        self.dense = self.dense.wrapping_add(u32::from(dense));
        if dense && self.dense > CONFIRMED && !self.dense.is_multiple_of(CHECK_EVERY) {
            return (Form::Raw, page);
        }
        let zstd = tight.filter(|_| cfg!(feature = "zstd"));
        let (form, len) = match zstd {
            Some((encoders, with)) => {
                let form = if with.is_some() { Form::Common } else { Form::Zstd };
                (form, encoders.pack(page, &mut self.packed[..most], with))
            }
            None => {
                let len = compress_into_with_table(page, &mut self.packed, &mut self.table);
                (Form::Lz4, len.ok())
            }
        };
        match len {
            Some(len) if len <= most => {
                self.dense = if dense { 0 } else { self.dense };
                (form, &self.packed[..len])
            }
            _ => (Form::Raw, page),
        }
    }
}

/// Whether a sample of a page has many different bytes.
fn is_dense(page: &[u8]) -> bool {
    // A byte for each value: these stores do not wait for each other.
    let mut seen = [0_u8; 256];
    for part in page.chunks_exact(page.len() / SAMPLED_PARTS) {
        for &byte in &part[..SAMPLE / SAMPLED_PARTS] {
            seen[usize::from(byte)] = 1;
        }
    }
    seen.iter().map(|&seen| u32::from(seen)).sum::<u32>() >= DENSE
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::new());
}

/// Registers the destructor of this thread's buffers, for which the C library may allocate: a
/// thread that must not allocate later calls this first.
pub fn register_thread_locals() {
    SCRATCH.with(|_| ());
}

/// Calls a function with the buffers of this thread, which have room for a page, or with new ones
/// where it has none: in a destructor of a thread that ends, or in a page source that is called by
/// a store.
pub(crate) fn with_scratch<T>(page_bytes: usize, f: impl FnOnce(&mut Scratch) -> T) -> T {
    let mut f = Some(f);
    let mut call = |scratch: &mut Scratch| {
        scratch.make_room(page_bytes);
        f.take().map(|f| f(scratch))
    };
    let own = SCRATCH.try_with(|own| own.try_borrow_mut().ok().and_then(|mut own| call(&mut own)));
    let done = own.ok().flatten().or_else(|| call(&mut Scratch::new()));
    done.expect("one of the two ways is taken")
}

/// Writes the page that an object is, if it is one.
#[must_use]
pub(crate) fn unpack(
    form: Form,
    object: &[u8],
    page: &mut [u8],
    with: Option<&Dictionary>,
) -> bool {
    let len = match form {
        Form::Lz4 => lz4_flex::block::decompress_into(object, page).ok(),
        Form::Zstd => cold::unpack(object, page, None),
        // Without its dictionary it cannot be read.
        Form::Common => with.and_then(|with| cold::unpack(object, page, Some(with))),
        Form::Raw if object.len() == page.len() => {
            page.copy_from_slice(object);
            Some(page.len())
        }
        Form::Raw => None,
    };
    len == Some(page.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::shared_max;
    use crate::source::PAGE_BYTES;

    const MOST: usize = shared_max(PAGE_BYTES);

    fn text() -> Vec<u8> {
        let words = (0..PAGE_BYTES).map(|n| b"evicted pages of "[n * n % 97 % 17]);
        words.collect()
    }

    #[test]
    fn a_page_of_one_word_is_that_word() {
        for word in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef] {
            let mut page = vec![9; PAGE_BYTES];
            fill(&mut page, word);
            assert_eq!(same_filled(&page), Some(word));
            for at in [0, 7, 8, 2048, PAGE_BYTES - 9, PAGE_BYTES - 1] {
                let mut other = page.clone();
                other[at] ^= 1;
                assert_eq!(same_filled(&other), None, "byte {at} differs");
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls zstd, which is C")]
    fn every_form_gives_the_page_back() {
        let page = text();
        let mut back = vec![0; PAGE_BYTES];
        let (form, packed) = with_scratch(PAGE_BYTES, |scratch| {
            let (form, packed) = scratch.pack(&page, MOST, None);
            (form, packed.to_vec())
        });
        assert_eq!(form, Form::Lz4);
        assert!(unpack(form, &packed, &mut back, None) && back == page);
        let mut cold = vec![0; PAGE_BYTES];
        let encoders = Encoders::new(cold::COLD, PAGE_BYTES);
        let len = encoders.pack(&page, &mut cold, None).expect("room");
        assert!(len < packed.len(), "zstd {len}, lz4 {}", packed.len());
        back.fill(0);
        assert!(unpack(Form::Zstd, &cold[..len], &mut back, None) && back == page);
        back.fill(0);
        assert!(unpack(Form::Raw, &page, &mut back, None) && back == page);
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls zstd, which is C")]
    fn bytes_that_are_no_page_are_refused() {
        let mut page = vec![0; PAGE_BYTES];
        for form in [Form::Lz4, Form::Zstd, Form::Raw] {
            assert!(!unpack(form, b"no page", &mut page, None), "{form:?}");
        }
        let short = lz4_flex::block::compress(&[7; 100]);
        assert!(!unpack(Form::Lz4, &short, &mut page, None), "a part of a page is no page");
    }

    #[test]
    fn a_thread_that_uses_its_buffers_gets_others() {
        let page = text();
        with_scratch(PAGE_BYTES, |outer| {
            let inner = with_scratch(PAGE_BYTES, |inner| inner.pack(&page, MOST, None).1.to_vec());
            assert_eq!(outer.pack(&page, MOST, None).1, inner);
        });
    }

    /// A page of sixteen pieces of 64 random bytes, each of them four times: dense, because another
    /// piece is at each place that is sampled, and lz4 finds the repetitions.
    fn repetitive(seed: u64) -> Vec<u8> {
        let pieces = random(seed);
        let piece = |n: usize| pieces[(n / 4 + n % 4 * 5) % 16 * 64..][..64].to_vec();
        (0..64).flat_map(piece).collect()
    }

    fn random(seed: u64) -> Vec<u8> {
        let mut state = seed;
        let byte = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..PAGE_BYTES).map(byte).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "hundreds of pages")]
    fn lz4_is_left_out_only_where_it_keeps_failing() {
        let mut scratch = Scratch::new();
        let lz4 = |scratch: &mut Scratch, page: &[u8]| {
            // Whether it was tried is seen by what it leaves.
            scratch.make_room(PAGE_BYTES);
            scratch.packed[0] = 0;
            let form = scratch.pack(page, MOST, None).0;
            (form, scratch.packed[0] != 0)
        };
        let tried = (1..=100).filter(|&n| lz4(&mut scratch, &random(n)).1).count();
        assert!((8 + 100 / 16 - 1..=8 + 100 / 16 + 1).contains(&tried), "{tried} of 100");
        assert_eq!(lz4(&mut scratch, &text()), (Form::Lz4, true), "it is not dense");
        let repetitive: Vec<Vec<u8>> = (1..200).map(repetitive).filter(|p| is_dense(p)).collect();
        assert!(repetitive.len() > 50, "{} pages", repetitive.len());
        let forms: Vec<Form> = repetitive.iter().map(|p| lz4(&mut scratch, p).0).collect();
        let first = forms.iter().position(|&form| form == Form::Lz4).expect("it is tried again");
        assert!(first < 16 && forms[first..].iter().all(|&form| form == Form::Lz4), "{forms:?}");
    }
}
