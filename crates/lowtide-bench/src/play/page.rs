//! Reads of whole pages: `random-read` and `scan`.

use std::hint::black_box;

use lowtide_report::tally::Tally;
use lowtide_workload::PageOp;
use lowtide_workload::block::verify_page;

use crate::access::DataAccess;
use crate::content::{BLOCK_SEED, Content};
use crate::thread_pool::Player;

/// Bytes of a cache line. In a file of unknown content, one byte of each line is touched, so that
/// the data is really read.
const LINE_BYTES: usize = 64;

/// One thread of reads.
pub struct PagePlayer<D, S> {
    access: D,
    stream: S,
    page_bytes: usize,
    content: Content,
    offsets: Vec<u64>,
}

impl<D: DataAccess, S: Iterator<Item = PageOp> + Send> PagePlayer<D, S> {
    /// A player of `stream`, whose operations are on single pages of `page_bytes`.
    pub fn new(access: D, stream: S, page_bytes: usize, content: Content) -> Self {
        Self { access, stream, page_bytes, content, offsets: Vec::new() }
    }
}

impl<D: DataAccess, S: Iterator<Item = PageOp> + Send> Player for PagePlayer<D, S> {
    fn step(&mut self, most: u64, tally: &mut Tally) -> u64 {
        let page_bytes = self.page_bytes;
        let content = self.content;
        let ops = usize::try_from(most).unwrap_or(usize::MAX);
        self.offsets.clear();
        self.offsets.extend(self.stream.by_ref().take(ops).map(|op| op.page * page_bytes as u64));
        tally.asked_bytes += (page_bytes * self.offsets.len()) as u64;
        let done = match self.offsets.as_slice() {
            [] => return 0,
            &[offset] => {
                self.access.load(offset, page_bytes, |bytes| check(content, offset, bytes, tally))
            }
            offsets => self.access.load_many(offsets, page_bytes, |index, bytes| {
                check(content, offsets[index], bytes, tally);
            }),
        };
        if let Err(error) = done {
            tally.fail(&format_args!("page {}: {error}", self.offsets[0] / page_bytes as u64));
        }
        self.offsets.len() as u64
    }
}

#[inline]
fn check(content: Content, offset: u64, bytes: &[u8], tally: &mut Tally) {
    if content == Content::Unknown {
        black_box(bytes.iter().step_by(LINE_BYTES).fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
    } else {
        tally.check(verify_page(offset / bytes.len().max(1) as u64, BLOCK_SEED, bytes));
    }
}
