//! Shared by the text formats: lines with their places, fields, numbers.
//!
//! Every line, the last one too, must end in a line break: without that rule, a trace cut off in
//! the middle of a number would be read as a smaller number. A format is then a [`LineParser`];
//! [`Text`] reads for it.
//!
//! Fields are quoted as CSV quotes them, with one restriction: a line break ends a line even inside
//! quotes, as no name may contain one. So a quote that is never closed spoils one line and not all
//! lines after it.

use super::buffer::Buffer;
use super::error::{TraceError, TraceFault};
use super::record::{Names, TraceRecord, parse_number};
use memchr::{memchr, memchr2};
use std::borrow::Cow;
use std::io::Read;

/// The length limit of a line, in bytes: a file that is no trace must not be gathered into one line
/// of the size of the file. Far above any real line; not tuned.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Bytes of a line or field that a message shows.
const SHOWN_BYTES: usize = 80;

/// The parser of a text format.
pub(super) trait LineParser {
    /// The record of a line without its line break; `None` for a line that is no access.
    fn parse(&mut self, line: &[u8], names: &mut Names) -> Result<Option<TraceRecord>, TraceFault>;

    /// The second record of the line parsed last, if it has one.
    #[inline]
    fn second(&mut self) -> Option<TraceRecord> {
        None
    }
}

/// A reader of a text format.
#[derive(Debug)]
pub(super) struct Text<P, R> {
    lines: Lines<R>,
    names: Names,
    parser: P,
}

impl<P: LineParser, R: Read> Text<P, R> {
    /// Reads the next lines of `lines`.
    pub(super) fn new(lines: Lines<R>, parser: P) -> Self {
        Self { lines, names: Names::default(), parser }
    }

    /// The next record; `None` at the end.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<TraceRecord>, TraceError> {
        if let Some(second) = self.parser.second() {
            return Ok(Some(second));
        }
        loop {
            let parsed = match self.lines.advance() {
                Ok(Some(line)) => self.parser.parse(line, &mut self.names),
                Ok(None) => return Ok(None),
                Err(fault) => Err(fault),
            };
            match parsed {
                Ok(None) => {}
                Ok(Some(record)) if record.op.range_is_possible() => return Ok(Some(record)),
                Ok(Some(TraceRecord { op, .. })) => {
                    return Err(self
                        .lines
                        .at(TraceFault::TooFar { page: op.page, pages: op.pages }));
                }
                Err(fault) => return Err(self.lines.at(fault)),
            }
        }
    }

    /// The names seen so far.
    pub(super) const fn names(&self) -> &Names {
        &self.names
    }

    /// The parser.
    pub(super) const fn parser(&self) -> &P {
        &self.parser
    }

    /// The offset of the line read last.
    pub(super) const fn byte_offset(&self) -> u64 {
        self.lines.byte_offset
    }
}

/// Lines with their places.
#[derive(Debug)]
pub(super) struct Lines<R> {
    input: Buffer<R>,
    /// The number of the current line, from 1; 0 before the first.
    line: u64,
    /// The offset of its first byte.
    byte_offset: u64,
    /// Its length with its line break: still in the buffer, as it has been lent out.
    lent: usize,
}

impl<R> Lines<R> {
    /// The lines of `input`, whose next byte is in line 1.
    pub(super) const fn new(input: Buffer<R>) -> Self {
        Self { input, line: 0, byte_offset: 0, lent: 0 }
    }

    /// `what` is wrong with the current line.
    pub(super) const fn at(&self, what: TraceFault) -> TraceError {
        TraceError { line: Some(self.line), byte_offset: self.byte_offset, what }
    }
}

impl<R: Read> Lines<R> {
    /// Goes to the next line that is not empty, and lends it out as [`advance`](Self::advance)
    /// does.
    pub(super) fn advance_to_text(&mut self) -> Result<Option<&[u8]>, TraceFault> {
        while let Some(line) = self.advance()? {
            if !line.is_empty() {
                return Ok(Some(self.current()));
            }
        }
        Ok(None)
    }

    /// Goes to the next line and lends it out without its line break (`\n` or `\r\n`); `None` at
    /// the end.
    #[inline]
    pub(super) fn advance(&mut self) -> Result<Option<&[u8]>, TraceFault> {
        self.input.consume(std::mem::take(&mut self.lent));
        self.line += 1;
        self.byte_offset = self.input.offset();
        let mut searched = 0;
        let length = loop {
            let available = self.input.available();
            if let Some(place) = memchr(b'\n', &available[searched..]) {
                break searched + place;
            }
            searched = available.len();
            if searched >= LINE_BYTES_MAX {
                return Err(TraceFault::LineTooLong { max: LINE_BYTES_MAX });
            }
            if self.input.more().map_err(|source| TraceFault::Io { source })? == 0 {
                return if searched == 0 { Ok(None) } else { Err(TraceFault::Truncated) };
            }
        };
        self.lent = length + 1;
        Ok(Some(self.current()))
    }

    /// The line lent out.
    #[inline]
    fn current(&self) -> &[u8] {
        without_return(&self.input.available()[..self.lent - 1])
    }
}

/// The lines of a sample, without their line breaks.
pub(super) fn lines_of(sample: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    sample.split(|&byte| byte == b'\n').map(without_return)
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The fields of a line: separated by commas, and quoted with `"` if they contain some. A doubled
/// quote inside quotes is one quote. Text after the closing quote belongs to the field. So does a
/// quote that is not closed, and the field ends at the next comma.
#[derive(Clone, Debug)]
pub(super) struct Fields<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Fields<'a> {
    /// Those of `line`.
    #[inline]
    pub(super) const fn of(line: &'a [u8]) -> Self {
        Self { rest: Some(line) }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Cow<'a, [u8]>;

    #[inline]
    fn next(&mut self) -> Option<Cow<'a, [u8]>> {
        let rest = self.rest?;
        let quoted = rest.strip_prefix(b"\"").and_then(closing_quote);
        let searched = quoted.map_or(0, |closing| closing + 2);
        let comma = memchr(b',', &rest[searched..]).map(|place| searched + place);
        let (field, rest) = match comma {
            Some(comma) => (&rest[..comma], Some(&rest[comma + 1..])),
            None => (rest, None),
        };
        self.rest = rest;
        Some(match quoted {
            Some(closing) => unquoted(&field[1..=closing], &field[closing + 2..]),
            None => Cow::Borrowed(field),
        })
    }
}

/// The place of the quote that ends a field: the first that is not doubled. `text` begins after the
/// opening quote.
fn closing_quote(text: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let quote = from + memchr(b'"', &text[from..])?;
        if text.get(quote + 1) != Some(&b'"') {
            return Some(quote);
        }
        from = quote + 2;
    }
}

/// A field by its text between the quotes, and the text after them.
fn unquoted<'a>(inside: &'a [u8], after: &'a [u8]) -> Cow<'a, [u8]> {
    if after.is_empty() && memchr(b'"', inside).is_none() {
        return Cow::Borrowed(inside);
    }
    let mut field = Vec::with_capacity(inside.len() + after.len());
    let mut quotes = 0;
    for &byte in inside {
        quotes += usize::from(byte == b'"');
        // Every second quote is the double of the one before.
        if byte != b'"' || quotes % 2 == 1 {
            field.push(byte);
        }
    }
    field.extend(after);
    Cow::Owned(field)
}

/// Bytes for a message: readable whatever they are, and cut when they are long.
pub(super) fn shown(bytes: &[u8]) -> String {
    match bytes.get(..SHOWN_BYTES) {
        Some(start) if bytes.len() > SHOWN_BYTES => format!("{}…", String::from_utf8_lossy(start)),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

/// A field as a whole number up to `max`.
#[inline]
pub(super) fn number(column: &'static str, field: &[u8], max: u64) -> Result<u64, TraceFault> {
    match parse_number(field) {
        Some(number) if number <= max => Ok(number),
        _ => Err(TraceFault::BadNumber { column, text: shown(field), max }),
    }
}

/// Parses a hexadecimal number without prefix. `None` when it is not one or does not fit.
#[inline]
pub(super) fn parse_hex(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |number, &byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            _ => return None,
        };
        (number >> 60 == 0).then_some(number << 4 | u64::from(digit))
    })
}

/// Parses decimal seconds, such as `12` or `12.000345`, into nanoseconds. Digits beyond the ninth
/// are dropped.
pub(super) fn parse_seconds(text: &[u8]) -> Option<u64> {
    const SECOND_NS: u64 = 1_000_000_000;
    let (whole, fraction) = match memchr2(b'.', b',', text) {
        Some(point) => (&text[..point], &text[point + 1..]),
        None => (text, b"0".as_slice()),
    };
    let kept = &fraction[..fraction.len().min(9)];
    if fraction.is_empty() || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let scale = 10_u64.pow(9 - kept.len() as u32);
    parse_number(whole)?.checked_mul(SECOND_NS)?.checked_add(parse_number(kept)? * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(line: &str) -> Vec<String> {
        Fields::of(line.as_bytes()).map(|field| shown(&field)).collect()
    }

    #[test]
    fn fields_are_split_at_commas_outside_quotes() {
        assert_eq!(fields("a,b,c"), ["a", "b", "c"]);
        assert_eq!(fields(""), [""]);
        assert_eq!(fields("a,"), ["a", ""]);
        assert_eq!(fields("\"a,b\",c"), ["a,b", "c"]);
        assert_eq!(fields("x,\"a\"\"b\",c"), ["x", "a\"b", "c"]);
        assert_eq!(fields("\"\",\"\"\"\",\"a\"\"\"\"b,\""), ["", "\"", "a\"\"b,"]);
        assert_eq!(fields("\"a\"b,\"c\"d"), ["ab", "cd"]);
        assert_eq!(fields("a\"b\",c"), ["a\"b\"", "c"]);
        assert_eq!(fields("\"never closed,c"), ["\"never closed", "c"]);
    }

    #[test]
    fn numbers_that_do_not_fit_are_none() {
        assert_eq!(parse_hex(b"1fff000658"), Some(0x1f_ff00_0658));
        assert_eq!(parse_hex(b"ffffffffffffffff"), Some(u64::MAX));
        assert_eq!(parse_hex(b"10000000000000000"), None);
        assert_eq!((parse_hex(b""), parse_hex(b"0x1")), (None, None));
        assert_eq!(parse_seconds(b"12"), Some(12_000_000_000));
        assert_eq!(parse_seconds(b"12.000345"), Some(12_000_345_000));
        assert_eq!(parse_seconds(b"0.1234567891"), Some(123_456_789));
        assert_eq!(parse_seconds(b"20000000000"), None);
        assert_eq!(
            (parse_seconds(b""), parse_seconds(b"1."), parse_seconds(b"1.x")),
            (None, None, None)
        );
    }

    #[test]
    fn lines_have_places_and_endless_ones_are_refused() {
        let mut lines = Lines::new(Buffer::over(b"one\r\n\ntwo\nthr".as_slice()));
        assert_eq!(lines.advance().unwrap(), Some(b"one".as_slice()));
        assert_eq!(lines.advance().unwrap(), Some(b"".as_slice()));
        assert_eq!(lines.advance().unwrap(), Some(b"two".as_slice()));
        assert_eq!((lines.line, lines.byte_offset), (3, 6));
        assert!(matches!(lines.advance(), Err(TraceFault::Truncated)));
        assert_eq!((lines.line, lines.byte_offset), (4, 10));

        let mut endless = Lines::new(Buffer::over(std::io::repeat(b'x')));
        assert!(matches!(endless.advance(), Err(TraceFault::LineTooLong { .. })));
    }
}
