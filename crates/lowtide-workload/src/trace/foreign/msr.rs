//! Block accesses of Microsoft Research Cambridge's servers: seven columns without a header.
//!
//! ```text
//! Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime
//! 128166372003061629,hm,0,Read,8192,4096,100
//! ```
//!
//! Time is in ticks of 100 ns, `Type` is `Read` or `Write`, `Offset` and `Size` are bytes. Every
//! volume is a space `file:HOST.DISK`; a page is a 4 KiB block of it, and unaligned ends touch both
//! pages.

use super::super::error::TraceFault;
use super::super::record::{Names, TraceRecord};
use super::super::text::{Fields, LineParser, number, shown};
use super::{PAGE_BYTES, pages_of};
use crate::op::{OpKind, PageOp, Space, SpaceId};
use std::borrow::Cow;

const COLUMNS: usize = 7;
const TICK_NS: u64 = 100;

/// The fields of a line, if it has as many as it must have.
fn columns(line: &[u8]) -> Option<[Cow<'_, [u8]>; COLUMNS]> {
    let mut fields = Fields::of(line);
    let mut columns = [const { Cow::Borrowed([].as_slice()) }; COLUMNS];
    for column in &mut columns {
        *column = fields.next()?;
    }
    fields.next().is_none().then_some(columns)
}

fn kind_of(column: &[u8]) -> Option<OpKind> {
    if column.eq_ignore_ascii_case(b"read") {
        Some(OpKind::Read)
    } else if column.eq_ignore_ascii_case(b"write") {
        Some(OpKind::Write)
    } else {
        None
    }
}

/// Whether a line is such an access.
pub(in super::super) fn is_record(line: &[u8]) -> bool {
    columns(line).is_some_and(|columns| {
        kind_of(&columns[3]).is_some() && number("", &columns[4], u64::MAX).is_ok()
    })
}

/// Reads lines.
#[derive(Debug, Default)]
pub(in super::super) struct Msr {
    /// The host and disk of the line before, and their space: a file is mostly of one volume.
    last: Option<(Vec<u8>, Vec<u8>, SpaceId)>,
}

impl Msr {
    fn space(
        &mut self,
        host: &[u8],
        disk: &[u8],
        names: &mut Names,
    ) -> Result<SpaceId, TraceFault> {
        if let Some((last_host, last_disk, space)) = &self.last
            && (last_host.as_slice(), last_disk.as_slice()) == (host, disk)
        {
            return Ok(*space);
        }
        let bad = |field: &[u8]| TraceFault::BadLine {
            text: shown(field),
            expected: "a host and disk number",
        };
        let (Ok(host_name), Ok(disk_number)) = (str::from_utf8(host), str::from_utf8(disk)) else {
            return Err(bad(host));
        };
        if host_name.is_empty() || host_name.contains('\r') || disk_number.parse::<u32>().is_err() {
            return Err(bad(&[host, b",", disk].concat()));
        }
        let space = Space::file(format!("{host_name}.{disk_number}"));
        let space = names.space(space).ok_or(TraceFault::TooManyNames)?;
        self.last = Some((host.to_vec(), disk.to_vec(), space));
        Ok(space)
    }
}

impl LineParser for Msr {
    fn parse(&mut self, line: &[u8], names: &mut Names) -> Result<Option<TraceRecord>, TraceFault> {
        if line.is_empty() {
            return Ok(None);
        }
        let [time, host, disk, kind, offset, size, _response] = columns(line).ok_or_else(|| {
            TraceFault::FieldCount { expected: COLUMNS, found: Fields::of(line).count() }
        })?;
        let kind = kind_of(&kind)
            .ok_or_else(|| TraceFault::BadLine { text: shown(&kind), expected: "Read or Write" })?;
        let time_ns = number("Timestamp", &time, u64::MAX / TICK_NS)? * TICK_NS;
        let offset = number("Offset", &offset, u64::MAX)?;
        let bytes = number("Size", &size, u64::from(u32::MAX))?;
        let (page, pages) = pages_of(offset, bytes)
            .ok_or(TraceFault::TooFar { page: offset / PAGE_BYTES, pages: 1 })?;
        let op = PageOp { kind, space: self.space(&host, &disk, names)?, page, pages };
        Ok(Some(TraceRecord { time_ns: Some(time_ns), ..op.into() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_spaces_and_unaligned_ends_touch_both_pages() {
        let (mut msr, mut names) = (Msr::default(), Names::default());
        let mut parse = |line: &str| msr.parse(line.as_bytes(), &mut names).unwrap().unwrap();
        let first = parse("128166372003061629,hm,0,Read,4095,2,100");
        assert_eq!(first.time_ns, Some(12_816_637_200_306_162_900));
        assert_eq!((first.op.kind, first.op.page, first.op.pages), (OpKind::Read, 0, 2));
        let second = parse("128166372003061630,hm,1,Write,8192,512,1");
        assert_eq!((second.op.kind, second.op.page, second.op.pages), (OpKind::Write, 2, 1));
        assert_eq!((first.op.space, second.op.space), (SpaceId(0), SpaceId(1)));
        assert_eq!(names.spaces(), [Space::file("hm.0"), Space::file("hm.1")]);
    }

    #[test]
    fn lines_that_are_no_access_are_refused() {
        let fails = |line: &str| {
            assert!(
                Msr::default().parse(line.as_bytes(), &mut Names::default()).is_err(),
                "{line}"
            );
        };
        fails("1,hm,0,Read,8192,4096");
        fails("1,hm,0,Fetch,8192,4096,0");
        fails("1,hm,x,Read,8192,4096,0");
        fails("1,,0,Read,8192,4096,0");
        fails("1,hm,0,Read,-1,4096,0");
        fails("18446744073709551615,hm,0,Read,0,4096,0");
        fails("1,hm,0,Read,18446744073709551615,4096,0");
    }
}
