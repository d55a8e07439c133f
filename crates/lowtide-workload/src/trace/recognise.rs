//! Recognising the format of a trace by its content.
//!
//! A file's name is not reliable, so a format is recognised by the first bytes of what is left
//! after decompression:
//!
//! * `compact` has a magic. One damaged byte in it does not hide it: the reader then reports the
//!   damage.
//! * The text formats are recognised by their first line that is neither blank nor a comment: a
//!   header of our columns, a header with an object's identity, seven fields with `Read` or `Write`
//!   as the fourth, a Lackey access.
//! * `filemap` text is recognised by the name of one of its events anywhere in the sample, because
//!   other events and comments may come first.
//! * `oracle-general` has neither magic nor text. It is what is left when the first records are
//!   plausible as a whole: times that do not fall, sizes above 0, next accesses that are in the
//!   future or never.

use super::compact::MAGIC;
use super::csv;
use super::foreign::{lackey, msr, object_csv, oracle};
use super::format::Format;
use super::record::{OPTIONAL, REQUIRED};
use super::text::{Fields, lines_of};

/// Bytes, after decompression, by which a format is recognised.
pub(super) const SAMPLE_BYTES: usize = 64 << 10;

impl Format {
    /// The format that content beginning with `sample` is in. `whole` says that nothing follows.
    pub(super) fn of_sample(sample: &[u8], whole: bool) -> Option<Self> {
        let (magic, rest) = (MAGIC.len() / 2, MAGIC.len());
        if sample.get(..magic) == Some(&MAGIC[..magic])
            || sample.get(magic..rest).is_some_and(|half| half == &MAGIC[magic..])
        {
            return Some(Self::Compact);
        }
        // The sample may end in the middle of a line, which says nothing.
        let text = match sample.iter().rposition(|&byte| byte == b'\n') {
            Some(last) if !whole => &sample[..=last],
            _ => sample,
        };
        let mut lines = lines_of(text);
        let first = lines.clone().find(|line| !line.is_empty()).unwrap_or_default();
        // Our own header may have comments before it.
        let uncommented = lines.clone().find(|line| !line.is_empty() && !line.starts_with(b"#"));
        if object_csv::is_header(first) {
            Some(Self::ObjectCsv)
        } else if is_own(uncommented.unwrap_or_default()) {
            Some(Self::Csv)
        } else if msr::is_record(first) {
            Some(Self::Msr)
        } else if lines.find(|line| !lackey::is_chatter(line)).is_some_and(lackey::is_access) {
            Some(Self::Lackey)
        } else if memchr::memmem::find(text, b"mm_filemap_").is_some() {
            Some(Self::Filemap)
        } else if oracle::is_plausible(sample) {
            Some(Self::OracleGeneral)
        } else {
            None
        }
    }
}

/// Whether any field is one of our columns, or the line is a record whose header is missing: the
/// reader says what is wrong.
fn is_own(line: &[u8]) -> bool {
    csv::is_record(line)
        || Fields::of(line)
            .any(|field| REQUIRED.iter().chain(&OPTIONAL).any(|name| name.as_bytes() == &*field))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<Format> {
        Format::of_sample(text.as_bytes(), true)
    }

    #[test]
    fn text_is_recognised_by_its_first_line() {
        assert_eq!(of("op,space,page,pages\n"), Some(Format::Csv));
        assert_eq!(of("\n\nthread,op,page,pages,space\r\n"), Some(Format::Csv));
        assert_eq!(of("# page_bytes: 1024\nop,space,page,pages\n"), Some(Format::Csv));
        assert_eq!(of("time,id,size\n1,2,3\n"), Some(Format::ObjectCsv));
        assert_eq!(of("128166372003061629,hm,0,Read,8192,4096,100\n"), Some(Format::Msr));
        assert_eq!(of("==1== Lackey\n--1-- warning\nI  04,3\n"), Some(Format::Lackey));
        assert_eq!(of(" S 1fff000658,8\n"), Some(Format::Lackey));
        let event = "x-1 [000] 1.5: mm_filemap_fault: dev=8:1 ino=a ofs=0\n";
        assert_eq!(of(&format!("# tracer: nop\n#\n{event}")), Some(Format::Filemap));
        for none in ["", "\n", "hello\n", "a,b,c\n", "{\"op\": 1}\n", "==1== Lackey\n"] {
            assert_eq!(of(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_damaged_magic_is_still_one() {
        for at in 0..MAGIC.len() {
            let mut magic = MAGIC;
            magic[at] ^= 0x20;
            assert_eq!(Format::of_sample(&magic, true), Some(Format::Compact), "byte {at}");
        }
    }

    #[test]
    fn half_a_line_at_the_end_of_the_sample_decides_nothing() {
        let sample = b"==1== chatter\nI  0";
        assert_eq!(Format::of_sample(sample, false), None);
        assert_eq!(Format::of_sample(b"==1== chatter\nI  0,1", true), Some(Format::Lackey));
    }
}
