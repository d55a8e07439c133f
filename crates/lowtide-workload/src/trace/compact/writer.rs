//! Writes the compact format.

use super::super::error::WriteError;
use super::super::record::{Columns, Head, Names, TraceRecord, checked, checked_head};
use super::{
    BLOCK_BYTES, BLOCK_HEADER_BYTES, MAGIC, Memory, NAME_BYTES_MAX, TAG_OTHER_SPACE,
    TAG_OTHER_TENANT, TAG_OTHER_THREAD, TAG_PAGES, TAG_SPACE_NAME, TAG_TENANT_NAME, TAG_TIME,
    VERSION, flags, varint,
};
use std::io::Write;

/// Writes records in the compact format.
///
/// Buffers one block; [`finish`](Self::finish) writes it and the end mark, without which the trace
/// counts as truncated.
#[derive(Debug)]
pub struct CompactWriter<W> {
    output: W,
    columns: Columns,
    content: Vec<u8>,
    /// Records in the block, and in the blocks before it.
    records: u32,
    records_before: u64,
    memory: Memory,
    /// The number in the file of each space and tenant of the caller's tables, once it has one.
    spaces: Numbers,
    tenants: Numbers,
}

impl<W: Write> CompactWriter<W> {
    /// Starts a trace with what `head` says.
    ///
    /// # Errors
    /// [`WriteError::BadPage`]; [`WriteError::Io`] when the header cannot be written.
    pub fn new(mut output: W, head: impl Into<Head>) -> Result<Self, WriteError> {
        let Head { columns, page_bytes } = checked_head(head.into())?;
        let page = page_bytes.map_or(0, |bytes| bytes.ilog2() as u8);
        let mut header = MAGIC.to_vec();
        header.extend([VERSION, flags(columns), page, 0]);
        output.write_all(&checksummed(header))?;
        Ok(Self {
            output,
            columns,
            content: Vec::with_capacity(2 * BLOCK_BYTES),
            records: 0,
            records_before: 0,
            memory: Memory::default(),
            spaces: Numbers::default(),
            tenants: Numbers::default(),
        })
    }

    /// Writes one record, whose numbers refer to `names`: the same tables for all records, though
    /// they may grow. Optional values without a column are left out.
    ///
    /// # Errors
    /// A [`WriteError`]; nothing of the record is then written, except perhaps after
    /// [`WriteError::Io`].
    pub fn write(&mut self, record: &TraceRecord, names: &Names) -> Result<(), WriteError> {
        let columns = self.columns;
        let op = record.op;
        let (space, tenant) = match (self.spaces.get(op.space.0), record.tenant) {
            // What has a number has been checked.
            (Some(space), None) if op.range_is_possible() => (space, 0),
            _ => self.introduce(record, names)?,
        };
        let behind = self.memory.behind[space as usize];
        let thread = record.thread.map_or(0, |thread| u64::from(thread) + 1);
        let time_ns = record.time_ns.filter(|_| columns.time_ns);

        let mut tag = op.kind as u8;
        let mut when = |condition: bool, bit: u8| {
            tag |= if condition { bit } else { 0 };
            condition
        };
        let other_space = when(space != self.memory.space, TAG_OTHER_SPACE);
        let several_pages = when(op.pages != 1, TAG_PAGES);
        when(time_ns.is_some(), TAG_TIME);
        let other_thread = when(columns.thread && thread != self.memory.thread, TAG_OTHER_THREAD);
        let other_tenant = when(columns.tenant && tenant != self.memory.tenant, TAG_OTHER_TENANT);

        let content = &mut self.content;
        content.push(tag);
        if other_space {
            varint::put(content, u64::from(space));
            self.memory.space = space;
        }
        varint::put(content, varint::zigzag(op.page.wrapping_sub(behind) as i64));
        self.memory.behind[space as usize] = op.page + u64::from(op.pages);
        if several_pages {
            varint::put(content, u64::from(op.pages));
        }
        if let Some(time_ns) = time_ns {
            varint::put(content, varint::zigzag(time_ns.wrapping_sub(self.memory.time_ns) as i64));
            self.memory.time_ns = time_ns;
        }
        if other_thread {
            varint::put(content, thread);
            self.memory.thread = thread;
        }
        if other_tenant {
            varint::put(content, tenant);
            self.memory.tenant = tenant;
        }
        self.records += 1;
        if self.content.len() >= BLOCK_BYTES { self.close_block() } else { Ok(()) }
    }

    /// Checks a record, writes the names that it is the first to use, and returns the file's
    /// numbers of its space and (plus 1, 0 for none) its tenant.
    fn introduce(&mut self, record: &TraceRecord, names: &Names) -> Result<(u32, u64), WriteError> {
        let (space, tenant) = checked(record, names, self.columns)?;
        // Both names are checked before either is written: a block holds no name without a record
        // behind it.
        let new_space = match self.spaces.get(record.op.space.0) {
            Some(_) => None,
            None => Some(fitting(space.to_string())?),
        };
        let new_tenant = match (record.tenant, tenant) {
            (Some(id), Some(name)) if self.tenants.get(id.0).is_none() => {
                Some(fitting(name.to_owned())?)
            }
            _ => None,
        };
        if let Some(name) = new_space {
            put_name(&mut self.content, TAG_SPACE_NAME, &name);
            self.memory.behind.push(0);
            self.spaces.add(record.op.space.0);
        }
        if let (Some(name), Some(id)) = (new_tenant, record.tenant) {
            put_name(&mut self.content, TAG_TENANT_NAME, &name);
            self.tenants.add(id.0);
        }
        let space = self.spaces.get(record.op.space.0).unwrap_or_default();
        let tenant = record.tenant.and_then(|id| self.tenants.get(id.0));
        Ok((space, tenant.map_or(0, |tenant| u64::from(tenant) + 1)))
    }

    fn close_block(&mut self) -> Result<(), WriteError> {
        if self.content.is_empty() {
            return Ok(());
        }
        let mut header = Vec::with_capacity(BLOCK_HEADER_BYTES);
        // A block holds little more than `BLOCK_BYTES`.
        header.extend((self.content.len() as u32).to_le_bytes());
        header.extend(self.records.to_le_bytes());
        header.extend(crc32fast::hash(&self.content).to_le_bytes());
        self.output.write_all(&checksummed(header))?;
        self.output.write_all(&self.content)?;
        self.content.clear();
        self.records_before += u64::from(std::mem::take(&mut self.records));
        Ok(())
    }

    /// Writes what is buffered and the end mark, flushes, and gives the output back.
    ///
    /// # Errors
    /// [`WriteError::Io`] when the rest cannot be written.
    pub fn finish(mut self) -> Result<W, WriteError> {
        self.close_block()?;
        let mut end = vec![0; 8];
        end.extend(self.records_before.to_le_bytes());
        self.output.write_all(&checksummed(end))?;
        self.output.flush()?;
        Ok(self.output)
    }
}

fn fitting(name: String) -> Result<String, WriteError> {
    if name.len() > NAME_BYTES_MAX {
        return Err(WriteError::NameTooLong { bytes: name.len(), max: NAME_BYTES_MAX });
    }
    Ok(name)
}

fn put_name(content: &mut Vec<u8>, tag: u8, name: &str) {
    content.push(tag);
    varint::put(content, name.len() as u64);
    content.extend(name.as_bytes());
}

fn checksummed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

/// Numbers in order of first use.
#[derive(Debug, Default)]
struct Numbers {
    /// Indexed by the caller's number.
    of: Vec<Option<u32>>,
    used: u32,
}

impl Numbers {
    #[inline]
    fn get(&self, id: u32) -> Option<u32> {
        self.of.get(id as usize).copied().flatten()
    }

    fn add(&mut self, id: u32) {
        let id = id as usize;
        if self.of.len() <= id {
            self.of.resize(id + 1, None);
        }
        self.of[id] = Some(self.used);
        self.used += 1;
    }
}
