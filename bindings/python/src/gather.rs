//! Many rows in one call.
//!
//! A row is a range of bytes of the file; most lie in one page, some cross into the next. The parts
//! of all rows are brought into the order of their pages: pages that follow each other in the file
//! are read together, and a page that several rows want is looked up once after the other, while it
//! is there. The reads of a call overlap, up to the depth of the pager.
//!
//! A call for many rows is cut into rounds, between which Python's signal handlers run.

use lowtide::{Error, View};

/// Parts of rows in one round.
const ROUND: usize = 1 << 16;
/// Bits for the number of a part within its round.
const PART_BITS: u32 = 17;

/// Rows of one size, one after the other from an offset on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    /// Where the first row begins, in bytes.
    pub(crate) offset: u64,
    /// Bytes of a row, at least one.
    pub(crate) bytes: usize,
    /// Number of whole rows in the file.
    pub(crate) count: u64,
}

/// Why rows are not read.
pub(crate) enum Refused {
    /// There is no such row.
    Index(i64),
    /// The runtime's.
    Runtime(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Runtime(error)
    }
}

/// A part of a row that lies in one page.
#[derive(Clone, Copy)]
struct Part {
    from: u32,
    len: u32,
    to: usize,
}

impl Rows {
    /// The rows of a file of `len` bytes, from `offset` on.
    pub(crate) fn of(len: u64, offset: u64, bytes: usize) -> Self {
        Self { offset, bytes, count: len.saturating_sub(offset) / bytes.max(1) as u64 }
    }

    /// A row's number: as in Python, one below zero counts from the end.
    fn number(&self, index: i64) -> Result<u64, Refused> {
        let number = if index < 0 { index.checked_add_unsigned(self.count) } else { Some(index) };
        let number = number.and_then(|number| u64::try_from(number).ok());
        number.filter(|number| *number < self.count).ok_or(Refused::Index(index))
    }
}

/// Memory for the rounds of a call.
#[derive(Default)]
pub(crate) struct Gather {
    parts: Vec<Part>,
    /// The page, and the number of the part.
    keys: Vec<u64>,
    pages: Vec<u64>,
}

impl Gather {
    /// Copies rows of `view` into `out`, one after the other, for the first of `indices`. Returns
    /// how many: all, unless they are too many for one round.
    ///
    /// # Errors
    /// [`Refused`]. Some rows may have been copied.
    pub(crate) fn round(
        &mut self,
        view: &View,
        rows: &Rows,
        indices: &[i64],
        out: &mut [u8],
    ) -> Result<usize, Refused> {
        let page_bytes = view.page_size() as u64;
        let parts_of_row = (rows.bytes as u64).div_ceil(page_bytes) as usize + 1;
        if parts_of_row > ROUND / 2 {
            return self.long_row(view, rows, indices, out);
        }
        let count = indices.len().min(ROUND / parts_of_row);
        self.parts.clear();
        self.keys.clear();
        let (shift, mask) = (page_bytes.trailing_zeros(), page_bytes - 1);
        for (position, index) in indices[..count].iter().enumerate() {
            let start = rows.offset + rows.number(*index)? * rows.bytes as u64;
            let (mut at, end) = (start, start + rows.bytes as u64);
            while at < end {
                let from = at & mask;
                let len = (page_bytes - from).min(end - at);
                let to = position * rows.bytes + (at - start) as usize;
                self.keys.push((at >> shift) << PART_BITS | self.parts.len() as u64);
                self.parts.push(Part { from: from as u32, len: len as u32, to });
                at += len;
            }
        }
        self.keys.sort_unstable();
        self.pages.clear();
        self.pages.extend(self.keys.iter().map(|key| key >> PART_BITS));
        let (parts, keys) = (&self.parts, &self.keys);
        view.get_many(&self.pages, |index, bytes| {
            let Part { from, len, to } = parts[(keys[index] & ((1 << PART_BITS) - 1)) as usize];
            let (from, len) = (from as usize, len as usize);
            out[to..to + len].copy_from_slice(&bytes[from..from + len]);
        })?;
        Ok(count)
    }

    /// One row, which alone is as many pages as a round.
    fn long_row(
        &mut self,
        view: &View,
        rows: &Rows,
        indices: &[i64],
        out: &mut [u8],
    ) -> Result<usize, Refused> {
        let Some(first) = indices.first() else { return Ok(0) };
        let start = rows.offset + rows.number(*first)? * rows.bytes as u64;
        view.read_at(start, &mut out[..rows.bytes])?;
        Ok(1)
    }
}
