//! Reads the exchange format as text, one record at a time.
//!
//! [`Text`] splits the lines; this file has the header and the parser of a line. A trace usually
//! stays in one space for long runs, so the last space is compared before any table look-up.

use super::super::buffer::Buffer;
use super::super::error::{TraceError, TraceFault};
use super::super::record::{
    Names, OPTIONAL, REQUIRED, TenantId, TraceRecord, name_is_possible, page_is_possible,
    parse_space,
};
use super::super::text::{Fields, LineParser, Lines, Text, number, shown};
use super::{PAGE_COMMENT, SAMPLE_COMMENT};
use crate::op::{OpKind, PageOp, SpaceId};
use std::borrow::Cow;
use std::io::Read;

/// Columns that a trace can have.
const COLUMNS_MAX: usize = REQUIRED.len() + OPTIONAL.len();
/// The mark that some programs write before text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// An iterator over the records of a trace, in constant memory but for the names.
///
/// Ends after the last record or after the first error.
///
/// ```
/// use lowtide_workload::trace::Reader;
///
/// let text = "op,space,page,pages\nread,file:index,17,1\n";
/// let mut reader = Reader::new(text.as_bytes())?;
/// for record in reader.by_ref() {
///     assert_eq!(record?.op.page, 17);
/// }
/// assert_eq!(reader.names().spaces()[0].to_string(), "file:index");
/// # Ok::<(), lowtide_workload::trace::TraceError>(())
/// ```
#[derive(Debug)]
pub struct Reader<R> {
    text: Text<Records, R>,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the comments and the header from `input`.
    ///
    /// # Errors
    /// A [`TraceError`] when there is no header, it is not one of the format's, or a comment before
    /// it states an impossible page.
    pub fn new(input: R) -> Result<Self, TraceError> {
        Self::of(Lines::new(Buffer::over(input)))
    }

    /// Reads the comments and the header from `lines`.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub(in super::super) fn of(mut lines: Lines<R>) -> Result<Self, TraceError> {
        match Records::after_head(&mut lines) {
            Ok(records) => Ok(Self { text: Text::new(lines, records), ended: false }),
            Err(fault) => Err(lines.at(fault)),
        }
    }

    /// Bytes of a page, if the trace states it.
    #[must_use]
    pub fn page_bytes(&self) -> Option<u64> {
        self.text.parser().page_bytes
    }

    /// For how many pages one in the trace stands, and how many neighbours are in it together:
    /// powers of two, and 1 where it does not say.
    #[must_use]
    pub fn sampled(&self) -> (u64, u64) {
        self.text.parser().sampled
    }

    /// The spaces and tenants seen so far. Records refer to them by number.
    #[must_use]
    pub fn names(&self) -> &Names {
        self.text.names()
    }

    /// The offset, in the text, of the line read last.
    #[must_use]
    pub fn byte_offset(&self) -> u64 {
        self.text.byte_offset()
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<TraceRecord, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.text.next().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

impl<R: Read> std::iter::FusedIterator for Reader<R> {}

/// The parser of the lines after the header.
#[derive(Debug)]
struct Records {
    page_bytes: Option<u64>,
    sampled: (u64, u64),
    header: Header,
    /// The text and number of the previous record's space.
    last_space: Option<(Vec<u8>, SpaceId)>,
}

impl Records {
    /// Reads up to the header.
    fn after_head<R: Read>(lines: &mut Lines<R>) -> Result<Self, TraceFault> {
        let (mut page_bytes, mut sampled) = (None, (1, 1));
        let mut is_first = true;
        while let Some(mut line) = lines.advance_to_text()? {
            if std::mem::take(&mut is_first) {
                line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
            }
            if !line.starts_with(b"#") {
                let header = Header::parse(line)?;
                return Ok(Self { page_bytes, sampled, header, last_space: None });
            }
            let first = Fields::of(&line[1..]).next().unwrap_or_default();
            if let Some(said) = sample_comment(&first) {
                sampled = said;
            }
            if let Some(said) = page_comment(&first)?
                && page_bytes.replace(said).is_some()
            {
                return Err(TraceFault::PageTwice);
            }
        }
        Err(TraceFault::NoHeader)
    }

    fn space(&mut self, text: &[u8], names: &mut Names) -> Result<SpaceId, TraceFault> {
        match &self.last_space {
            Some((last, id)) if last == text => Ok(*id),
            _ => {
                let id = space(names, text)?;
                self.last_space = Some((text.to_vec(), id));
                Ok(id)
            }
        }
    }
}

impl LineParser for Records {
    fn parse(&mut self, line: &[u8], names: &mut Names) -> Result<Option<TraceRecord>, TraceFault> {
        if line.is_empty() {
            return Ok(None);
        }
        let header = self.header;
        let mut columns = [const { Cow::Borrowed([].as_slice()) }; COLUMNS_MAX];
        let mut found = 0;
        for field in Fields::of(line) {
            if let Some(column) = columns.get_mut(found) {
                *column = field;
            }
            found += 1;
        }
        if found != header.columns {
            return Err(TraceFault::FieldCount { expected: header.columns, found });
        }
        let field = |column: usize| &*columns[column];

        let kind = parse_op(field(header.op))?;
        let page = number("page", field(header.page), u64::MAX)?;
        let pages = number("pages", field(header.pages), u64::from(u32::MAX))? as u32;
        if pages == 0 {
            return Err(TraceFault::NoPages);
        }
        let optional = |column: &'static str, place: Option<usize>, max| match place.map(field) {
            None | Some([]) => Ok(None),
            Some(text) => number(column, text, max).map(Some),
        };
        let time_ns = optional("time_ns", header.time_ns, u64::MAX)?;
        let thread =
            optional("thread", header.thread, u64::from(u32::MAX))?.map(|thread| thread as u32);
        let tenant = match header.tenant.map(field) {
            None | Some([]) => None,
            Some(text) => Some(tenant(names, text)?),
        };
        let space = self.space(field(header.space), names)?;
        let op = PageOp { kind, space, page, pages };
        Ok(Some(TraceRecord { op, time_ns, thread, tenant }))
    }
}

/// One page in how many is in the trace, and how many neighbours together, if a comment says so.
fn sample_comment(comment: &[u8]) -> Option<(u64, u64)> {
    let text = std::str::from_utf8(comment).ok()?;
    let rest = text.trim().strip_prefix(SAMPLE_COMMENT)?.trim_start().strip_prefix(':')?;
    let rest = rest.trim().strip_prefix("1 in")?;
    let (pages, together) = rest.split_once("by").unwrap_or((rest, "1"));
    let power = |text: &str| text.trim().parse().ok().filter(|n: &u64| n.is_power_of_two());
    Some((power(pages)?, power(together)?))
}

/// The page that a comment says; `None` for a comment about anything else.
fn page_comment(comment: &[u8]) -> Result<Option<u64>, TraceFault> {
    let rest = comment.trim_ascii().strip_prefix(PAGE_COMMENT.as_bytes()).map(<[u8]>::trim_ascii);
    let Some(value) = rest.and_then(|rest| rest.strip_prefix(b":")).map(<[u8]>::trim_ascii) else {
        return Ok(None);
    };
    match number(PAGE_COMMENT, value, u64::MAX) {
        Ok(bytes) if page_is_possible(bytes) => Ok(Some(bytes)),
        _ => Err(TraceFault::BadPage { text: shown(value) }),
    }
}

/// Where each column is.
#[derive(Clone, Copy, Debug)]
struct Header {
    columns: usize,
    op: usize,
    space: usize,
    page: usize,
    pages: usize,
    time_ns: Option<usize>,
    thread: Option<usize>,
    tenant: Option<usize>,
}

impl Header {
    fn parse(line: &[u8]) -> Result<Self, TraceFault> {
        let names = || Fields::of(line);
        let columns = names().count();
        if is_record(line) {
            return Err(TraceFault::HeaderMissing { fields: columns });
        }
        if let Some(name) = names()
            .find(|name| !REQUIRED.iter().chain(&OPTIONAL).any(|known| known.as_bytes() == &**name))
        {
            return Err(TraceFault::UnknownColumn { column: shown(&name) });
        }
        let find = |column: &'static str| {
            let mut places = names().enumerate().filter(|(_, name)| &**name == column.as_bytes());
            let place = places.next().map(|(place, _)| place);
            if places.next().is_some() {
                Err(TraceFault::DuplicateColumn { column })
            } else {
                Ok(place)
            }
        };
        let need = |column| find(column)?.ok_or(TraceFault::MissingColumn { column });
        Ok(Self {
            columns,
            op: need("op")?,
            space: need("space")?,
            page: need("page")?,
            pages: need("pages")?,
            time_ns: find("time_ns")?,
            thread: find("thread")?,
            tenant: find("tenant")?,
        })
    }
}

/// Whether a line is a record with its columns in the usual order: the beginning of a trace without
/// header.
pub(in super::super) fn is_record(line: &[u8]) -> bool {
    let mut fields = Fields::of(line);
    let (op, space) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
    OpKind::ALL.iter().any(|kind| kind.name().as_bytes() == &*op)
        && (space.starts_with(b"file:") || space.starts_with(b"anon:"))
}

fn parse_op(field: &[u8]) -> Result<OpKind, TraceFault> {
    OpKind::ALL
        .into_iter()
        .find(|kind| kind.name().as_bytes() == field)
        .ok_or_else(|| TraceFault::UnknownOp { text: shown(field) })
}

fn space(names: &mut Names, field: &[u8]) -> Result<SpaceId, TraceFault> {
    let bad = || TraceFault::BadSpace { text: shown(field) };
    let written = str::from_utf8(field).map_err(|_| bad())?;
    match names.known_space(written) {
        Some(id) => Ok(id),
        None => names.space(parse_space(written).ok_or_else(bad)?).ok_or(TraceFault::TooManyNames),
    }
}

fn tenant(names: &mut Names, field: &[u8]) -> Result<TenantId, TraceFault> {
    match str::from_utf8(field) {
        Ok(name) if name_is_possible(name) => names.tenant(name).ok_or(TraceFault::TooManyNames),
        _ => Err(TraceFault::BadTenant { text: shown(field) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Space;
    use proptest::prelude::*;
    use std::io;

    const HEADER: &str = "op,space,page,pages\n";

    fn read_all(input: &str) -> Result<Vec<TraceRecord>, TraceError> {
        Reader::new(input.as_bytes())?.collect()
    }

    fn fails(input: &str) -> (u64, u64, TraceFault) {
        let error = read_all(input).expect_err(input);
        (error.line.unwrap(), error.byte_offset, error.what)
    }

    #[test]
    fn comments_before_the_header_may_say_the_page() {
        let reader = |text: &'static str| Reader::new(text.as_bytes());
        let said = "# made by hand, on a \
            Sunday\n\n#page_bytes:1024\r\nop,space,page,pages\nread,file:a,0,1\n";
        assert_eq!(reader(said).unwrap().page_bytes(), Some(1024));
        assert_eq!(reader(said).unwrap().count(), 1);
        assert_eq!(reader(HEADER).unwrap().page_bytes(), None);
        for (text, word) in [
            ("# page_bytes: 1000\nop,space,page,pages\n", "power of two"),
            ("# page_bytes: 4K\nop,space,page,pages\n", "`4K` is not a page size"),
            ("# page_bytes: 512\n# page_bytes: 512\nop,space,page,pages\n", "line 2"),
            ("# page_bytes: 512\n", "must be the header"),
        ] {
            let error = reader(text).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn a_trace_without_header_is_told_which_it_needs() {
        for (line, header) in [
            ("read,file:a,0,1\n", "`op,space,page,pages` before it"),
            ("store,anon:heap,0,1,77,2\n", "`op,space,page,pages,time_ns,thread` before it"),
        ] {
            let error = read_all(line).unwrap_err().to_string();
            assert!(error.contains("line 1") && error.contains(header), "{error}");
        }
    }

    #[test]
    fn columns_may_come_in_any_order_and_optional_values_may_be_empty() {
        let input = "tenant,pages,page,space,thread,op,time_ns\n\
                     web,2,7,file:a,3,read,99\n\
                     ,1,0,\"anon:b,c\",,store,\n";
        let mut reader = Reader::new(input.as_bytes()).unwrap();
        let records: Vec<TraceRecord> = reader.by_ref().map(Result::unwrap).collect();
        assert_eq!(
            records,
            [
                TraceRecord {
                    op: PageOp { kind: OpKind::Read, space: SpaceId(0), page: 7, pages: 2 },
                    time_ns: Some(99),
                    thread: Some(3),
                    tenant: Some(TenantId(0)),
                },
                PageOp { kind: OpKind::Store, space: SpaceId(1), page: 0, pages: 1 }.into(),
            ]
        );
        assert_eq!(reader.names().spaces(), [Space::file("a"), Space::anon("b,c")]);
        assert_eq!(reader.names().tenants(), ["web"]);
    }

    #[test]
    fn bad_headers_are_named_at_line_one() {
        assert!(matches!(fails(""), (1, 0, TraceFault::NoHeader)));
        assert!(matches!(
            fails("op,space,page\n"),
            (1, 0, TraceFault::MissingColumn { column: "pages" })
        ));
        assert!(matches!(
            fails("op,space,page,pages,op\n"),
            (1, 0, TraceFault::DuplicateColumn { column: "op" })
        ));
        let (1, 0, TraceFault::UnknownColumn { column }) = fails("op,space,page,pages,color\n")
        else {
            panic!("unknown column expected");
        };
        assert_eq!(column, "color");
        assert!(matches!(fails("op,space,page,pages"), (1, 0, TraceFault::Truncated)));
        assert_eq!(read_all(HEADER).unwrap(), []);
    }

    #[test]
    fn bad_lines_are_named_with_line_and_byte() {
        let good = "read,file:a,1,1\n";
        for line in [
            "red,file:a,1,1",
            "read,file:,1,1",
            "read,disk:a,1,1",
            "read,a,1,1",
            "read,file:a,-1,1",
            "read,file:a,+1,1",
            "read,file:a,,1",
            "read,file:a,1,0",
            "read,file:a,1,4294967296",
            "read,file:a,18446744073709551615,1",
            "read,file:a,18446744073709551616,1",
            "read,file:a,1",
            "read,file:a,1,1,1",
            "read,\"file:a,1,1",
        ] {
            for (ending, width) in [("\n", 1), ("\r\n", 2)] {
                let input = format!("{HEADER}{good}{good}{line}\n{good}").replace('\n', ending);
                let (at_line, byte, what) = fails(&input);
                let expected = HEADER.len() + 2 * good.len() + 3 * (width - 1);
                assert_eq!((at_line, byte as usize), (4, expected), "{line}{ending:?}: {what}");
            }
        }
    }

    #[test]
    fn blank_lines_are_skipped_and_counted() {
        for ending in ["\n", "\r\n"] {
            let text = "\nop,space,page,pages\n\nread,file:a,1,1\n\n\nred,file:a,1,1\n"
                .replace('\n', ending);
            let (line, byte, what) = fails(&text);
            assert!(matches!(what, TraceFault::UnknownOp { .. }), "{what}");
            assert_eq!(line, 7);
            assert_eq!(byte as usize, text.find("red,").unwrap());
        }
    }

    #[test]
    fn endless_lines_are_refused_before_they_fill_the_memory() {
        let endless = || io::BufReader::new(io::repeat(b'x'));
        let error = Reader::new(endless()).expect_err("an endless header");
        assert!(matches!(error.what, TraceFault::LineTooLong { .. }));

        let line = format!("{HEADER}read,\"file:a");
        let mut reader = Reader::new(line.as_bytes().chain(io::repeat(b','))).unwrap();
        let error = reader.next().and_then(Result::err).expect("an endless field");
        assert!(matches!(error.what, TraceFault::LineTooLong { .. }));
        assert_eq!(error.line, Some(2));
    }

    #[test]
    fn a_quote_that_is_never_closed_is_an_error_of_its_own_line() {
        let quote = format!("{HEADER}read,\"file:a,1,1\n");
        let lines = io::repeat(b'\n');
        let mut reader = Reader::new(io::BufReader::new(quote.as_bytes().chain(lines))).unwrap();
        let error = reader.next().and_then(Result::err).expect("an open field");
        assert!(matches!(error.what, TraceFault::BadSpace { .. }), "{error}");
        assert_eq!(error.line, Some(2));
    }

    #[test]
    fn quotes_are_taken_off_and_doubled_ones_halved() {
        let text = "op,\"space\",page,pages\nread,\"file:a\"\"b\"\",c\",\"1\",1\n";
        let mut reader = Reader::new(text.as_bytes()).unwrap();
        assert_eq!(reader.next().unwrap().unwrap().op.page, 1);
        assert_eq!(reader.names().spaces(), [Space::file("a\"b\",c")]);
    }

    #[test]
    fn a_byte_order_mark_before_the_first_line_is_skipped() {
        for comment in ["", "# page_bytes: 512\n"] {
            let text = format!("\u{FEFF}{comment}{HEADER}read,file:a,7,1\n");
            let reader = Reader::new(text.as_bytes()).unwrap();
            assert_eq!(reader.page_bytes(), (!comment.is_empty()).then_some(512));
            assert_eq!(reader.map(|record| record.unwrap().op.page).collect::<Vec<_>>(), [7]);
        }
    }

    #[test]
    fn faults_say_what_was_found() {
        let line = |line: &str| fails(&format!("{HEADER}{line}\n")).2.to_string();
        assert!(line("red,file:a,1,1").contains("`red`"));
        assert!(
            line("read,file:a,x,1").contains("`page`") && line("read,file:a,x,1").contains("`x`")
        );
        assert!(line("read,file:a,1,0").contains("`pages` is 0"));
        assert!(line("read,disk:a,1,1").contains("file:NAME"));
        assert!(line("read,file:a,18446744073709551615,1").contains("2^32"));
        assert!(line("read,file:a,4294967295,2").contains("2^32"));
        assert!(line("read,file:a,1").contains("3 fields"));
    }

    #[test]
    fn a_trace_cut_anywhere_never_reads_as_a_whole_different_one() {
        let whole = "op,space,page,pages,tenant\nread,file:a,12,34,x\nwrite,\"anon:b\",567,8,\n";
        let records = read_all(whole).unwrap();
        for cut in 0..whole.len() {
            match read_all(&whole[..cut]) {
                // Cut between lines, what is left is a whole trace and a prefix.
                Ok(prefix) => {
                    assert!(whole[..cut].ends_with('\n'));
                    assert_eq!(prefix, records[..prefix.len()]);
                }
                Err(error) => assert!(!whole[..cut].ends_with('\n'), "cut at {cut}: {error}"),
            }
        }
    }

    #[test]
    fn the_iterator_ends_after_an_error() {
        let input = format!("{HEADER}red,file:a,1,1\nread,file:a,1,1\n");
        let mut reader = Reader::new(input.as_bytes()).unwrap();
        assert!(reader.next().is_some_and(|record| record.is_err()));
        assert!(reader.next().is_none());
    }

    #[test]
    fn a_failing_input_is_reported_where_it_failed() {
        struct Fails;
        impl Read for Fails {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("medium error"))
            }
        }
        let start = format!("{HEADER}read,file:a,1,1\n");
        let input = io::BufReader::new(start.as_bytes().chain(Fails));
        let mut reader = Reader::new(input).unwrap();
        assert!(reader.next().is_some_and(|record| record.is_ok()));
        let error = reader.next().and_then(Result::err).expect("an error");
        assert!(matches!(error.what, TraceFault::Io { .. }));
        assert_eq!((error.line, error.byte_offset as usize), (Some(3), start.len()));
        assert!(error.to_string().contains("medium error"));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, with_header: bool) {
            let mut input = if with_header { HEADER.as_bytes().to_vec() } else { Vec::new() };
            input.extend(bytes);
            if let Ok(reader) = Reader::new(input.as_slice()) {
                prop_assert!(reader.count() <= input.len());
            }
        }
    }
}
