//! What `/proc` says of a process.

use crate::layout::Header;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// What is used of a line of `/proc/PID/stat`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) pid: u32,
    pub(crate) name: String,
    /// It has ended, and its parent has not waited for it yet.
    pub(crate) has_ended: bool,
    pub(crate) major_faults: u64,
    /// Ticks from the start of the machine.
    pub(crate) start: u64,
}

impl Line {
    /// Reads a line. The name is in brackets and may have any byte in it.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let (pid, rest) = text.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(") ")?;
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        // The first is field 3.
        let field = |number: usize| words.get(number - 3)?.parse::<u64>().ok();
        // A first thread that has ended before others looks the same, but for their number.
        let has_ended = matches!(*words.first()?, "Z" | "X") && field(20)? <= 1;
        Some(Self {
            pid: pid.parse().ok()?,
            name: name.to_owned(),
            has_ended,
            major_faults: field(12)?,
            start: field(22)?,
        })
    }

    /// That of a process, if there is one.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }
}

/// When a process started, in clock ticks since the machine did; none, if there is no such process.
#[must_use]
pub fn start_ticks(pid: u32) -> Option<u64> {
    Line::of(pid).filter(|line| !line.has_ended).map(|line| line.start)
}

/// A name that comes from others, for a terminal: control characters would be commands there.
#[must_use]
pub fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A number in a file of lines such as `read_bytes: 4096`.
pub(crate) fn number(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().parse().ok()
}

/// The effective user of a process.
pub(crate) fn user_of(pid: u32) -> Option<u32> {
    let text = fs::read(format!("/proc/{pid}/status")).ok()?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The namespace of process numbers that this process is in. Zero, if it cannot be known.
pub(crate) fn space() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino())
}

/// What is known of the writer of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Lives,
    /// The process is gone, another has its number, or it has become another program.
    Dead,
    /// Its number means nothing here: it is in another namespace of process numbers.
    Elsewhere,
}

/// Whether the process that wrote a page still does.
pub(crate) fn life(pid: u32, header: &Header) -> Life {
    let here = space();
    if header.space != 0 && here != 0 && header.space != here {
        return Life::Elsewhere;
    }
    let is_same = Line::of(pid).is_some_and(|now| now.start == header.start && !now.has_ended);
    let writes = || fs::metadata(format!("/proc/{pid}/task/{}", header.writer)).is_ok();
    if is_same && writes() { Life::Lives } else { Life::Dead }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whatever_the_name_of_the_process_is() {
        let rest = "S 1 7 7 0 -1 4194304 95 0 3 0 0 0 0 0 20 0 2 0 4711 1";
        let line = Line::parse(format!("17 (a) S 9 (b) {rest}").as_bytes()).unwrap();
        assert_eq!((line.pid, line.name.as_str()), (17, "a) S 9 (b"));
        assert_eq!((line.major_faults, line.start, line.has_ended), (3, 4711, false));
        let ended = rest.replacen('S', "Z", 1);
        assert!(!Line::parse(format!("17 (a) {ended}").as_bytes()).unwrap().has_ended);
        let alone = ended.replacen("20 0 2", "20 0 1", 1);
        assert!(Line::parse(format!("17 (a) {alone}").as_bytes()).unwrap().has_ended);
        assert_eq!(Line::parse(b""), None);
        assert_eq!(Line::parse(b"17 (a) S 1"), None);
        assert_eq!(number("rchar: 3\nread_bytes: 12\n", "read_bytes"), Some(12));
    }

    #[test]
    fn this_process_lives_and_others_with_its_number_or_without_its_thread_do_not() {
        let pid = std::process::id();
        let start = Line::of(pid).unwrap().start;
        let header = Header::new(b"", 0, start, space());
        assert_eq!(life(pid, &header), Life::Lives);
        assert_eq!(life(pid, &Header { start: start + 1, ..header }), Life::Dead);
        assert_eq!(life(pid, &Header { writer: u32::MAX, ..header }), Life::Dead);
        assert_eq!(life(pid, &Header { space: 1, ..header }), Life::Elsewhere);
        assert_eq!(life(u32::MAX, &header), Life::Dead);
    }
}
