//! Shared by the text formats: lines with their places, fields, numbers.
//!
//! Every line, the last one too, must end in a line break: without that rule, a trace cut off in
//! the middle of a number would be read as a smaller number. A format is then a [`LineParser`];
//! [`Text`] reads for it.

use super::error::{TraceError, TraceFault};
use super::input::Input;
use super::record::{Names, TraceRecord, parse_number};
use memchr::{memchr, memchr2};

/// How long a line may be, in bytes: a file that is no trace must not be gathered into one line of
/// the size of the file. Far above any real line; not tuned.
pub(super) const LINE_BYTES_MAX: usize = 1 << 20;

/// Bytes of a line or field that a message shows.
const SHOWN_BYTES: usize = 80;

/// What one format makes of a line.
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
pub(super) struct Text<P> {
    lines: Lines,
    names: Names,
    parser: P,
}

impl<P: LineParser> Text<P> {
    /// Reads the lines of `lines` from where it is.
    pub(super) fn new(lines: Lines, parser: P) -> Self {
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

    /// What it parses with.
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
pub(super) struct Lines {
    input: Input,
    /// The number of the current line, from 1; 0 before the first.
    line: u64,
    /// The offset of its first byte.
    byte_offset: u64,
    /// Its length with its line break: still in the buffer, as it has been lent out.
    lent: usize,
}

impl Lines {
    /// The lines of `input` from where it is, which is line 1.
    pub(super) const fn new(input: Input) -> Self {
        Self { input, line: 0, byte_offset: 0, lent: 0 }
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
        let line = &self.input.available()[..length];
        Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
    }

    /// `what` is wrong with the current line.
    pub(super) const fn at(&self, what: TraceFault) -> TraceError {
        TraceError { line: Some(self.line), byte_offset: self.byte_offset, what }
    }
}

/// The fields of a line: separated by commas, quoted with `"` where they hold some. A doubled quote
/// inside quotes is left as it is, since fields are compared and hashed here and never shown to
/// anyone.
#[derive(Debug)]
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
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        if rest.first() == Some(&b'"') {
            let mut end = 1;
            // A quote that is doubled goes on; one that is not ends the field.
            while let Some(place) = memchr(b'"', &rest[end..]) {
                end += place + 1;
                if rest.get(end) != Some(&b'"') {
                    let field = &rest[1..end - 1];
                    self.rest = rest[end..].strip_prefix(b",");
                    return Some(field);
                }
                end += 1;
            }
        }
        match memchr(b',', rest) {
            Some(comma) => {
                self.rest = Some(&rest[comma + 1..]);
                Some(&rest[..comma])
            }
            None => {
                self.rest = None;
                Some(rest)
            }
        }
    }
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
    use std::io::Cursor;

    fn fields(line: &str) -> Vec<String> {
        Fields::of(line.as_bytes()).map(shown).collect()
    }

    #[test]
    fn fields_are_split_at_commas_outside_quotes() {
        assert_eq!(fields("a,b,c"), ["a", "b", "c"]);
        assert_eq!(fields(""), [""]);
        assert_eq!(fields("a,"), ["a", ""]);
        assert_eq!(fields("\"a,b\",c"), ["a,b", "c"]);
        assert_eq!(fields("x,\"a\"\"b\",c"), ["x", "a\"\"b", "c"]);
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
        let input = Input::new(Cursor::new(b"one\r\n\ntwo\nthr".to_vec())).unwrap();
        let mut lines = Lines::new(input);
        assert_eq!(lines.advance().unwrap(), Some(b"one".as_slice()));
        assert_eq!(lines.advance().unwrap(), Some(b"".as_slice()));
        assert_eq!(lines.advance().unwrap(), Some(b"two".as_slice()));
        assert_eq!((lines.line, lines.byte_offset), (3, 6));
        assert!(matches!(lines.advance(), Err(TraceFault::Truncated)));
        assert_eq!((lines.line, lines.byte_offset), (4, 10));

        let mut endless = Lines::new(Input::new(std::io::repeat(b'x')).unwrap());
        assert!(matches!(endless.advance(), Err(TraceFault::LineTooLong { .. })));
    }
}
