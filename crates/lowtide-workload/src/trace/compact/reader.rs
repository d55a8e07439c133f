//! Reads the compact format.
//!
//! A block is checked as a whole before any of it is used, then decoded in place, entry by entry.

use super::super::error::{TraceError, TraceFault};
use super::super::input::Input;
use super::super::record::{
    Names, TenantId, TraceRecord, name_is_possible, page_is_possible, parse_space,
};
use super::{
    BLOCK_BYTES_MAX, BLOCK_HEADER_BYTES, END_BYTES, HEADER_BYTES, MAGIC, Memory, NAME_BYTES_MAX,
    TAG_KIND, TAG_OTHER_SPACE, TAG_OTHER_TENANT, TAG_OTHER_THREAD, TAG_PAGES, TAG_SPACE_NAME,
    TAG_TENANT_NAME, TAG_TIME, VERSION, varint,
};
use crate::op::{OpKind, PageOp, SpaceId};

/// What follows the checks of a block says that the writer was at fault, not the storage.
const MALFORMED: &str =
    "a block whose checksum is right does not say anything possible; its writer is at fault";

/// A reader of a compact trace.
#[derive(Debug)]
pub(in super::super) struct Reader {
    input: Input,
    page_bytes: Option<u64>,
    names: Names,
    memory: Memory,
    /// Bits of a tag that may be set.
    tags: u8,
    /// Content of the current block that is still in `input`, and where in it the next entry is.
    block_bytes: usize,
    at: usize,
    /// Records left in the block, and how many there were in all blocks so far.
    left: u32,
    records: u64,
    ended: bool,
}

impl Reader {
    /// Reads the header from `input`.
    ///
    /// # Errors
    /// A [`TraceError`] when it is cut, damaged, or of a later version.
    pub(in super::super) fn new(mut input: Input) -> Result<Self, TraceError> {
        let header = take_checked::<HEADER_BYTES>(&mut input, "the header")?;
        let at = |what| TraceError { line: None, byte_offset: 0, what };
        if header[..MAGIC.len()] != MAGIC {
            return Err(at(TraceFault::Damaged {
                what: "it does not begin as a compact trace does",
            }));
        }
        let [version, columns, page, rest] = [header[8], header[9], header[10], header[11]];
        let known = TAG_TIME | TAG_OTHER_THREAD | TAG_OTHER_TENANT;
        let page_bytes = match (version, page) {
            (1..=VERSION, 0) => Some(None),
            (2..=VERSION, shift) => {
                1_u64.checked_shl(shift.into()).filter(|&b| page_is_possible(b)).map(Some)
            }
            _ => None,
        };
        let Some(page_bytes) = page_bytes.filter(|_| columns & !known == 0 && rest == 0) else {
            return Err(at(TraceFault::Version { found: version, known: VERSION }));
        };
        Ok(Self {
            input,
            page_bytes,
            names: Names::default(),
            memory: Memory::default(),
            tags: TAG_KIND | TAG_OTHER_SPACE | TAG_PAGES | columns,
            block_bytes: 0,
            at: 0,
            left: 0,
            records: 0,
            ended: false,
        })
    }

    /// The next record; `None` past the end mark.
    #[inline]
    pub(in super::super) fn next(&mut self) -> Result<Option<TraceRecord>, TraceError> {
        while self.left == 0 {
            if self.ended {
                return Ok(None);
            }
            self.next_block()?;
        }
        self.left -= 1;
        match self.record() {
            Some(record) => Ok(Some(record)),
            None => Err(self.damaged(MALFORMED)),
        }
    }

    /// Bytes of a page, if the trace says.
    pub(in super::super) const fn page_bytes(&self) -> Option<u64> {
        self.page_bytes
    }

    /// The names seen so far.
    pub(in super::super) const fn names(&self) -> &Names {
        &self.names
    }

    /// The offset of the next entry.
    pub(in super::super) const fn byte_offset(&self) -> u64 {
        self.input.offset() + self.at as u64
    }

    /// Decodes a record and the names before it. `None` when the content makes no sense.
    #[inline]
    fn record(&mut self) -> Option<TraceRecord> {
        let (content, at, memory) =
            (self.input.available().get(..self.block_bytes)?, &mut self.at, &mut self.memory);
        let tag = loop {
            let tag = *content.get(*at)?;
            *at += 1;
            if tag & TAG_KIND < TAG_SPACE_NAME {
                break tag;
            }
            name(tag, content, at, &mut self.names, &mut memory.behind)?;
        };
        if tag & !self.tags != 0 {
            return None;
        }
        let kind = OpKind::ALL[usize::from(tag & TAG_KIND)];
        if tag & TAG_OTHER_SPACE != 0 {
            memory.space = u32::try_from(varint::take(content, at)?).ok()?;
        }
        let behind = memory.behind.get_mut(memory.space as usize)?;
        let page = behind.wrapping_add(varint::unzigzag(varint::take(content, at)?) as u64);
        let pages = match tag & TAG_PAGES {
            0 => 1,
            _ => u32::try_from(varint::take(content, at)?).ok()?,
        };
        let op = PageOp { kind, space: SpaceId(memory.space), page, pages };
        if !op.range_is_possible() {
            return None;
        }
        *behind = page + u64::from(pages);
        let time_ns = match tag & TAG_TIME {
            0 => None,
            _ => {
                let difference = varint::unzigzag(varint::take(content, at)?);
                memory.time_ns = memory.time_ns.wrapping_add(difference as u64);
                Some(memory.time_ns)
            }
        };
        if tag & TAG_OTHER_THREAD != 0 {
            memory.thread = varint::take(content, at).filter(|&thread| thread <= 1 << 32)?;
        }
        if tag & TAG_OTHER_TENANT != 0 {
            let known = self.names.tenants().len() as u64;
            memory.tenant = varint::take(content, at).filter(|&tenant| tenant <= known)?;
        }
        Some(TraceRecord {
            op,
            time_ns,
            thread: memory.thread.checked_sub(1).map(|thread| thread as u32),
            tenant: memory.tenant.checked_sub(1).map(|tenant| TenantId(tenant as u32)),
        })
    }

    /// Leaves the block, which must be used up, and checks the next, or the end mark.
    #[cold]
    fn next_block(&mut self) -> Result<(), TraceError> {
        if self.at != self.block_bytes {
            return Err(self.damaged(MALFORMED));
        }
        self.input.consume(self.block_bytes);
        (self.block_bytes, self.at) = (0, 0);

        // The end mark is longer than the header of a block and begins with zeroes, which no block
        // has.
        self.fill(8)?;
        if self.input.available()[..8] == [0; 8] {
            return self.end();
        }
        let offset = self.input.offset();
        let header = take_checked::<BLOCK_HEADER_BYTES>(&mut self.input, "the header of a block")?;
        let number = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let (bytes, records, crc) = (number(0) as usize, number(4), number(8));
        let at = |what| TraceError {
            line: None,
            byte_offset: offset,
            what: TraceFault::Damaged { what },
        };
        if bytes > BLOCK_BYTES_MAX || bytes == 0 {
            return Err(at(MALFORMED));
        }
        self.fill(bytes)?;
        if crc32fast::hash(&self.input.available()[..bytes]) != crc {
            return Err(at("the checksum of the block does not match"));
        }
        self.block_bytes = bytes;
        self.left = records;
        self.records += u64::from(records);
        Ok(())
    }

    fn end(&mut self) -> Result<(), TraceError> {
        let offset = self.input.offset();
        let end = take_checked::<END_BYTES>(&mut self.input, "the end mark")?;
        let [_, _, _, _, _, _, _, _, records @ .., _, _, _, _] = end;
        if u64::from_le_bytes(records) != self.records {
            let what = "the end mark counts other records than there were; blocks are missing";
            return Err(TraceError {
                line: None,
                byte_offset: offset,
                what: TraceFault::Damaged { what },
            });
        }
        if self.input.fill(1).map_err(|source| self.fault(TraceFault::Io { source }))? {
            return Err(self.damaged("something follows the end mark"));
        }
        self.ended = true;
        Ok(())
    }

    fn fill(&mut self, wanted: usize) -> Result<(), TraceError> {
        match self.input.fill(wanted) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.fault(TraceFault::NoEnd)),
            Err(source) => Err(self.fault(TraceFault::Io { source })),
        }
    }

    fn damaged(&self, what: &'static str) -> TraceError {
        self.fault(TraceFault::Damaged { what })
    }

    fn fault(&self, what: TraceFault) -> TraceError {
        TraceError { line: None, byte_offset: self.byte_offset(), what }
    }
}

/// Takes a name into the tables.
#[cold]
fn name(
    tag: u8,
    content: &[u8],
    at: &mut usize,
    names: &mut Names,
    behind: &mut Vec<u64>,
) -> Option<()> {
    let bytes = usize::try_from(varint::take(content, at)?)
        .ok()
        .filter(|&bytes| bytes <= NAME_BYTES_MAX)?;
    let text = str::from_utf8(content.get(*at..*at + bytes)?).ok()?;
    *at += bytes;
    // A name that comes twice would get one number here and two at the writer.
    let (known, id) = match tag {
        TAG_SPACE_NAME => {
            let known = names.spaces().len();
            let id = names.space(parse_space(text)?)?.0;
            behind.push(0);
            (known, id)
        }
        TAG_TENANT_NAME => {
            let known = names.tenants().len();
            (known, names.tenant(Some(text).filter(|name| name_is_possible(name))?)?.0)
        }
        _ => return None,
    };
    (id as usize == known).then_some(())
}

/// Takes `N` bytes of which the last four are the checksum of the others.
fn take_checked<const N: usize>(
    input: &mut Input,
    what: &'static str,
) -> Result<[u8; N], TraceError> {
    let at = |byte_offset, what| TraceError { line: None, byte_offset, what };
    let offset = input.offset();
    input.fill(N).map_err(|source| at(offset, TraceFault::Io { source }))?;
    let Some(&bytes) = input.available().first_chunk::<N>() else {
        return Err(at(offset, TraceFault::NoEnd));
    };
    let (content, crc) = bytes.split_at(N - 4);
    if crc32fast::hash(content).to_le_bytes() != crc {
        return Err(at(offset, TraceFault::DamagedPart { part: what }));
    }
    input.consume(N);
    Ok(bytes)
}
