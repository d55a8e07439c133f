//! The kernel's page cache at work: `mm_filemap` events as ftrace's `trace_pipe`, trace-cmd or
//! `perf script` print them.
//!
//! ```text
//! COMM-PID [CPU] FLAGS SECONDS.MICROS: mm_filemap_get_pages: dev=8:1 ino=1f2e ofs=0-16383
//! COMM PID [CPU] SECONDS.MICROS: filemap:mm_filemap_add_to_page_cache: dev 8:1 ino 1f2e
//!     pfn=0x1a2b ofs=4096 order=0                                     (on the same line)
//! ```
//!
//! | event | becomes |
//! |---|---|
//! | `mm_filemap_get_pages` | `read` of the range: a read through the descriptor |
//! | `mm_filemap_map_pages` | `load` of the range: a fault mapped its page and those around |
//! | `mm_filemap_fault` | `load` of the page: a fault that had to look further |
//! | `mm_filemap_add_to_page_cache` | see below |
//! | `mm_filemap_delete_from_page_cache` | nothing: an eviction is no access |
//!
//! The first three approximate accesses (hits on pages that are mapped already are invisible to any
//! event). Additions are misses only. So **a trace that has accesses is read by its accesses, and
//! its additions are skipped**; in a trace that has none, as kernels before 6.11 record it,
//! each addition is taken as a `read` of its folio. Which of the two a trace is, is decided by its
//! first 64 KiB; where accesses begin to appear later, additions are skipped from there on.
//!
//! A file is the space `file:MAJ:MIN:INO`, the inode in hexadecimal as printed. The thread is the
//! process id of the prefix, the time is its time; lines without prefix have neither. Fields are
//! found by their names, in the older form (`name value`) and the newer (`name=value`) alike.
//! All other lines (comments, other events, notices of lost events) are skipped and counted.

use super::super::error::TraceFault;
use super::super::record::{Names, TraceRecord, parse_number};
use super::super::text::{LineParser, lines_of, parse_hex, parse_seconds, shown};
use super::{PAGE_BYTES, pages_of};
use crate::op::{OpKind, PageOp, Space, SpaceId};
use memchr::memmem::Finder;
use std::collections::HashMap;

/// The largest folio is one of 2^20 pages, which is far above what any kernel makes.
const ORDER_MAX: u64 = 20;

/// What an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    GetPages,
    MapPages,
    Fault,
    Add,
    Delete,
}

impl Event {
    fn of(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"get_pages" => Self::GetPages,
            b"map_pages" => Self::MapPages,
            b"fault" => Self::Fault,
            b"add_to_page_cache" => Self::Add,
            b"delete_from_page_cache" => Self::Delete,
            _ => return None,
        })
    }

    const fn is_access(self) -> bool {
        matches!(self, Self::GetPages | Self::MapPages | Self::Fault)
    }
}

/// What was passed over in a trace of page-cache events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Evictions.
    pub deletes: u64,
    /// Additions beside accesses.
    pub adds: u64,
    /// Lines that are neither: comments, other events.
    pub lines: u64,
    /// Of those, notices that the kernel lost events: the trace has holes.
    pub lost_notices: u64,
}

/// The identity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FileId {
    major: u32,
    minor: u32,
    inode: u64,
}

/// Reads lines.
#[derive(Debug)]
pub(in super::super) struct Filemap {
    prefix: Box<Finder<'static>>,
    files: HashMap<FileId, SpaceId>,
    /// Whether additions are accesses.
    adds_count: bool,
    skipped: Skipped,
}

impl Filemap {
    /// A reader for a trace that begins with `sample`.
    pub(in super::super) fn new(sample: &[u8]) -> Self {
        let prefix = Box::new(Finder::new("mm_filemap_"));
        let has_accesses = lines_of(sample)
            .any(|line| split(&prefix, line).is_some_and(|(_, event, _)| event.is_access()));
        Self {
            prefix,
            files: HashMap::new(),
            adds_count: !has_accesses,
            skipped: Skipped::default(),
        }
    }

    /// What was passed over so far.
    pub(in super::super) const fn skipped(&self) -> Skipped {
        self.skipped
    }

    fn space(&mut self, file: FileId, names: &mut Names) -> Result<SpaceId, TraceFault> {
        if let Some(&id) = self.files.get(&file) {
            return Ok(id);
        }
        let FileId { major, minor, inode } = file;
        let id = names
            .space(Space::file(format!("{major}:{minor}:{inode:x}")))
            .ok_or(TraceFault::TooManyNames)?;
        self.files.insert(file, id);
        Ok(id)
    }
}

/// A line as what stands before the event, the event, and its fields.
fn split<'a>(prefix: &Finder<'_>, line: &'a [u8]) -> Option<(&'a [u8], Event, &'a [u8])> {
    let begin = prefix.find(line)?;
    let rest = &line[begin + prefix.needle().len()..];
    let colon = memchr::memchr(b':', rest)?;
    Some((&line[..begin], Event::of(&rest[..colon])?, &rest[colon + 1..]))
}

/// The values of the fields that matter.
#[derive(Default)]
struct Values<'a> {
    dev: Option<&'a [u8]>,
    ino: Option<&'a [u8]>,
    ofs: Option<&'a [u8]>,
    order: Option<&'a [u8]>,
}

impl<'a> Values<'a> {
    fn of(fields: &'a [u8]) -> Self {
        let mut values = Self::default();
        let words = fields
            .split(|byte| matches!(byte, b' ' | b'=' | b'\t'))
            .filter(|word| !word.is_empty());
        let mut name: &[u8] = &[];
        for word in words {
            let value = match name {
                b"dev" => &mut values.dev,
                b"ino" => &mut values.ino,
                b"ofs" => &mut values.ofs,
                b"order" => &mut values.order,
                _ => {
                    name = word;
                    continue;
                }
            };
            *value = Some(word);
            name = &[];
        }
        values
    }

    fn file(&self) -> Option<FileId> {
        let dev = self.dev?;
        let colon = memchr::memchr(b':', dev)?;
        let number = |text| parse_number(text).and_then(|number| u32::try_from(number).ok());
        let (major, minor) = (number(&dev[..colon])?, number(&dev[colon + 1..])?);
        let inode = self.ino?;
        Some(FileId { major, minor, inode: parse_hex(inode.strip_prefix(b"0x").unwrap_or(inode))? })
    }

    /// First page and how many.
    fn pages(&self, event: Event) -> Option<(u64, u32)> {
        let ofs = self.ofs?;
        let (first, last) = match memchr::memchr(b'-', ofs) {
            Some(dash) => (parse_number(&ofs[..dash])?, parse_number(&ofs[dash + 1..])?),
            None => {
                let order = match self.order {
                    Some(text) if event == Event::Add => parse_number(text)?,
                    _ => 0,
                };
                let pages = 1_u64 << Some(order).filter(|order| *order <= ORDER_MAX)?;
                let first = parse_number(ofs)?;
                (first, first.checked_add(pages * PAGE_BYTES - 1)?)
            }
        };
        pages_of(first, last.checked_sub(first)?.checked_add(1)?)
    }
}

/// Time and thread of what stands before an event. What is not there, or not as expected, is
/// `None`.
fn time_and_thread(before: &[u8]) -> (Option<u64>, Option<u32>) {
    let before = before.strip_suffix(b"filemap:").unwrap_or(before).trim_ascii_end();
    let Some(before) = before.strip_suffix(b":") else { return (None, None) };
    let start = memchr::memrchr(b' ', before).map_or(0, |space| space + 1);
    let time_ns = parse_seconds(&before[start..]);
    // COMM may hold anything, so the processor's number in brackets is looked for from the right.
    let thread = memchr::memrchr(b'[', &before[..start]).and_then(|bracket| {
        let mut task = before[..bracket].trim_ascii_end();
        if task.last() == Some(&b')') {
            // The column of thread group ids, where it was requested.
            task = task[..memchr::memrchr(b'(', task)?].trim_ascii_end();
        }
        let digits = task.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        parse_number(&task[task.len() - digits..]).and_then(|pid| u32::try_from(pid).ok())
    });
    (time_ns, thread)
}

impl LineParser for Filemap {
    fn parse(&mut self, line: &[u8], names: &mut Names) -> Result<Option<TraceRecord>, TraceFault> {
        let Some((before, event, fields)) = split(&self.prefix, line) else {
            self.skipped.lines += 1;
            self.skipped.lost_notices += u64::from(line.windows(5).any(|word| word == b"[LOST"));
            return Ok(None);
        };
        self.adds_count &= !event.is_access();
        let kind = match event {
            Event::GetPages => OpKind::Read,
            Event::MapPages | Event::Fault => OpKind::Load,
            Event::Add if self.adds_count => OpKind::Read,
            Event::Add => {
                self.skipped.adds += 1;
                return Ok(None);
            }
            Event::Delete => {
                self.skipped.deletes += 1;
                return Ok(None);
            }
        };
        let values = Values::of(fields);
        let (Some(file), Some((page, pages))) = (values.file(), values.pages(event)) else {
            let expected = "an mm_filemap event with dev, ino and ofs (and order)";
            return Err(TraceFault::BadLine { text: shown(line), expected });
        };
        let (time_ns, thread) = time_and_thread(before);
        let op = PageOp { kind, space: self.space(file, names)?, page, pages };
        Ok(Some(TraceRecord { time_ns, thread, ..op.into() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Vec<TraceRecord>, Names, Skipped), TraceFault> {
        let (mut filemap, mut names) = (Filemap::new(text.as_bytes()), Names::default());
        let mut records = Vec::new();
        for line in text.lines() {
            records.extend(filemap.parse(line.as_bytes(), &mut names)?);
        }
        Ok((records, names, filemap.skipped()))
    }

    fn brief(record: &TraceRecord) -> (OpKind, u32, u64, u32) {
        (record.op.kind, record.op.space.0, record.op.page, record.op.pages)
    }

    #[test]
    fn accesses_become_reads_and_loads_and_additions_beside_them_nothing() {
        let (records, names, skipped) = read(
            "# tracer: nop\n\
             \x20  my - app-2-1234 [003] d..1. 100.000250: mm_filemap_get_pages: dev=8:1 ino=1F2e \
             ofs=0-16383\n\
             \x20  cat-77 (  70) [000] ..... 100.5: mm_filemap_add_to_page_cache: dev 8:1 ino \
             1f2e pfn=0x1 ofs=0 order=2\n\
             \x20  cat-77 (  70) [000] ..... 101.0: mm_filemap_map_pages: dev=253:0 ino=a \
             ofs=4096-8191\n\
             CPU:0 [LOST 17 EVENTS]\n\
             \x20  cat-77 (  70) [000] ..... 102.0: mm_filemap_fault: dev=8:1 ino=1f2e ofs=12288\n\
             \x20  cat-77 [000] ..... 103.0: mm_filemap_delete_from_page_cache: dev 8:1 ino 1f2e \
             pfn=0x1 ofs=0 order=0\n\
             \x20  cat-77 [000] ..... 104.0: sched_switch: prev_comm=cat\n",
        )
        .unwrap();
        let found: Vec<_> = records.iter().map(brief).collect();
        let want = [(OpKind::Read, 0, 0, 4), (OpKind::Load, 1, 1, 1), (OpKind::Load, 0, 3, 1)];
        assert_eq!(found, want);
        assert_eq!((records[0].time_ns, records[0].thread), (Some(100_000_250_000), Some(1234)));
        assert_eq!((records[1].time_ns, records[1].thread), (Some(101_000_000_000), Some(77)));
        assert_eq!(names.spaces(), [Space::file("8:1:1f2e"), Space::file("253:0:a")]);
        assert_eq!(skipped, Skipped { deletes: 1, adds: 1, lines: 3, lost_notices: 1 });
    }

    #[test]
    fn without_accesses_additions_are_reads_in_the_old_form_and_the_new() {
        let (records, _, skipped) = read(
            "cat 77/78 [000] 1.5: filemap:mm_filemap_add_to_page_cache: dev 0:24 ino 1f \
             page=0xffff pfn=0x2 ofs=8192\n\
             mm_filemap_add_to_page_cache: dev=0:24 ino=1f pfn=0x2 ofs=65536 order=4\n",
        )
        .unwrap();
        let found: Vec<_> = records.iter().map(brief).collect();
        assert_eq!(found, [(OpKind::Read, 0, 2, 1), (OpKind::Read, 0, 16, 16)]);
        assert_eq!((records[0].time_ns, records[0].thread), (Some(1_500_000_000), Some(78)));
        assert_eq!((records[1].time_ns, records[1].thread), (None, None));
        assert_eq!(skipped, Skipped::default());
    }

    #[test]
    fn accesses_that_appear_late_end_the_taking_of_additions() {
        let add = "mm_filemap_add_to_page_cache: dev=0:24 ino=1f pfn=0x2 ofs=0 order=0";
        let mut filemap = Filemap::new(add.as_bytes());
        let mut names = Names::default();
        let mut ops = |line: &str| filemap.parse(line.as_bytes(), &mut names).unwrap().is_some();
        assert!(ops(add));
        assert!(ops("mm_filemap_fault: dev=0:24 ino=1f ofs=0"));
        assert!(!ops(add));
    }

    #[test]
    fn events_without_a_place_are_refused() {
        for fields in [
            "",
            "dev=8:1 ino=a",
            "dev=8 ino=a ofs=0",
            "dev=8:1 ino=zz ofs=0",
            "dev=8:1 ino=a ofs=-4096",
            "dev=8:1 ino=a ofs=8191-0",
            "dev=8:1 ino=a ofs=0-18446744073709551615",
            "dev=8:1 ino=a ofs=18446744073709551615 order=0",
            "dev=8:1 ino=a ofs=0 order=63",
        ] {
            let line = format!("mm_filemap_add_to_page_cache: {fields}");
            assert!(matches!(read(&line), Err(TraceFault::BadLine { .. })), "{line}");
        }
    }
}
