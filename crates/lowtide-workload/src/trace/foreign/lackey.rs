//! Every memory access of a program, as `valgrind --tool=lackey --trace-mem=yes` prints it.
//!
//! ```text
//! ==29122== Lackey, an example Valgrind tool
//! I  0401ab70,3        an instruction of 3 bytes is fetched
//!  L 1fff000658,8      8 bytes are loaded
//!  S 1fff000650,8      8 bytes are stored
//!  M 04226b90,4        4 bytes are loaded, changed and stored
//! ```
//!
//! Addresses are hexadecimal. They become pages of `anon:memory`, at address / 4096: fetches and
//! loads `load`, stores and changes `store` (one operation, as the processor's page walk sees one).
//! An address does not show whether it belongs to a file or a heap, so there is one space. An
//! access that crosses a page's end touches both pages. Every line is one operation, also when the
//! page is the same as before: counters count them all.
//!
//! Lackey writes its trace where Valgrind writes its messages. Those begin with `==`, `--` or `**`
//! and are skipped. There is no end mark, so a trace cut between two lines is a shorter trace.

use super::super::error::TraceFault;
use super::super::record::{Names, TraceRecord, parse_number};
use super::super::text::{LineParser, parse_hex, shown};
use super::pages_of;
use super::regions::Regions;
use crate::op::{OpKind, PageOp, SPACE_PAGES_MAX, Space};
use memchr::memrchr;

/// The most bytes that one access may have: far more than any processor's instruction moves.
const ACCESS_BYTES_MAX: u64 = 1 << 20;

/// Whether a line is a message of Valgrind's.
pub(in super::super) fn is_chatter(line: &[u8]) -> bool {
    matches!(line, [] | [b'=', b'=', ..] | [b'-', b'-', ..] | [b'*', b'*', ..])
}

/// Whether a line is an access.
pub(in super::super) fn is_access(line: &[u8]) -> bool {
    access(line).is_some()
}

/// What a line says: kind, address, bytes.
#[inline]
fn access(line: &[u8]) -> Option<(OpKind, u64, u64)> {
    let (kind, place) = match line {
        [b'I', b' ', b' ', place @ ..] | [b' ', b'L', b' ', place @ ..] => (OpKind::Load, place),
        [b' ', b'S' | b'M', b' ', place @ ..] => (OpKind::Store, place),
        _ => return None,
    };
    let comma = memrchr(b',', place)?;
    let bytes =
        parse_number(&place[comma + 1..]).filter(|bytes| (1..=ACCESS_BYTES_MAX).contains(bytes))?;
    Some((kind, parse_hex(&place[..comma])?, bytes))
}

/// Reads lines.
#[derive(Debug)]
pub(in super::super) struct Lackey {
    regions: Regions,
    second: Option<TraceRecord>,
}

impl Lackey {
    /// Nothing read yet.
    pub(in super::super) fn new() -> Self {
        Self { regions: Regions::new(Space::anon("memory")), second: None }
    }
}

impl LineParser for Lackey {
    #[inline]
    fn parse(&mut self, line: &[u8], names: &mut Names) -> Result<Option<TraceRecord>, TraceFault> {
        let Some((kind, address, bytes)) = access(line) else {
            let expected = "an access as Lackey prints it, such as ` L 1fff000658,8`";
            return if is_chatter(line) {
                Ok(None)
            } else {
                Err(TraceFault::BadLine { text: shown(line), expected })
            };
        };
        let (first, pages) = pages_of(address, bytes).ok_or_else(|| TraceFault::BadLine {
            text: shown(line),
            expected: "an access that ends below address 2^64",
        })?;
        let (space, page) = self.regions.place(first, names)?;
        // Only what crosses a multiple of 2^44 bytes goes on in another space.
        let here = u64::from(pages).min(SPACE_PAGES_MAX - page);
        if here < u64::from(pages) {
            let (space, page) = self.regions.place(first + here, names)?;
            let rest = PageOp { kind, space, page, pages: pages - here as u32 };
            self.second = Some(rest.into());
        }
        Ok(Some(PageOp { kind, space, page, pages: here as u32 }.into()))
    }

    #[inline]
    fn second(&mut self) -> Option<TraceRecord> {
        self.second.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(Vec<PageOp>, Names), TraceFault> {
        let (mut lackey, mut names) = (Lackey::new(), Names::default());
        let mut ops = Vec::new();
        for line in text.lines() {
            ops.extend(lackey.parse(line.as_bytes(), &mut names)?.map(|record| record.op));
            ops.extend(lackey.second().map(|record| record.op));
        }
        Ok((ops, names))
    }

    #[test]
    fn every_access_is_one_operation() {
        let (ops, names) = read(
            "==1== Lackey\nI  0401ab70,3\nI  0401ab73,5\n S 1fff000658,8\n\
             --1-- a warning\n L 1ffefffffc,8\n M 04226b90,4\n==1== Exit code: 0\n",
        )
        .unwrap();
        let found: Vec<_> = ops.iter().map(|op| (op.kind, op.page, op.pages)).collect();
        let want = [
            (OpKind::Load, 0x401a, 1),
            (OpKind::Load, 0x401a, 1),
            (OpKind::Store, 0x1ff_f000, 1),
            (OpKind::Load, 0x1ff_efff, 2),
            (OpKind::Store, 0x4226, 1),
        ];
        assert_eq!(found, want);
        assert_eq!(names.spaces(), [Space::anon("memory")]);
    }

    #[test]
    fn high_addresses_have_spaces_of_their_own() {
        let (ops, names) = read(" L 7fff00001000,8\n L 1000,8\n S fffffffffff,2\n").unwrap();
        let found: Vec<_> = ops.iter().map(|op| (op.space.0, op.page, op.pages)).collect();
        assert_eq!(found, [(0, 0xFFF0_0001, 1), (1, 1, 1), (1, 0xFFFF_FFFF, 1), (2, 0, 1)]);
        let spaces: Vec<_> = names.spaces().iter().map(Space::to_string).collect();
        assert_eq!(spaces, ["anon:memory-7", "anon:memory", "anon:memory-1"]);
    }

    #[test]
    fn lines_that_are_neither_access_nor_message_are_refused() {
        for line in [
            "I 0401ab70,3",
            " X 1,1",
            " L 1,0",
            " L 1",
            " L ,8",
            " L 1fff,1048577",
            " L 0x1,8",
            "hello",
        ] {
            assert!(read(line).is_err(), "{line}");
        }
        assert!(read(" L ffffffffffffffff,2").is_err(), "it ends beyond the last address");
    }
}
