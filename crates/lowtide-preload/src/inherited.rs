//! Mappings of files that a child of `fork` has from its parent.
//!
//! A page stays in memory as long as any process maps it. So a child that uses what it inherited
//! would keep the parent's pages beyond the budget, and its own uncounted. It adopts what the
//! parent had adopted, before `fork` returns there (`/proc` says what is mapped; the files are
//! opened by their names) or a moment later:
//!
//! * Where the parent has mirrors, *before*, so that the budget is exact from the beginning. A
//!   `fork` of such a process takes about a millisecond longer.
//! * Otherwise a moment later, or with the first question: a child that becomes
//!   another program has gone by then. The addresses are known from the beginning, so what the
//!   program changes there is a question to the keeper, which answers it when it has adopted them.
//!
//! Where a file cannot be opened by its name, or another is there, the mapping is left to the
//! kernel.

use crate::interpose::Errno;
use crate::judge::{self, Verdict};
use crate::line::Question;
use crate::ranges::Entry;
use crate::{keeper, last, state};
use rustix::fs::{Mode, OFlags, fstat, major, minor, open};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// A child that becomes another program does so before.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);

/// In the child, before its program goes on: these addresses are adopted now, or will be.
pub(crate) fn begin(all: &[Entry], had_mirrors: bool) {
    let Some((state, _)) = state::get().filter(|_| !all.is_empty()) else { return };
    let _errno = Errno::save();
    for entry in all {
        if state.ranges.insert(&(entry.start..entry.end), entry.private).is_err() {
            break;
        }
    }
    if state.line.ask_or_start(Question::Inherit { now: had_mirrors }, keeper::begin).is_err() {
        // No thread: what was inherited is the kernel's.
        state.ranges.remove(&(0..usize::MAX));
    }
    last::prepare(state);
}

/// A mapping of a file, as /proc says.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) range: Range<usize>,
    pub(crate) offset: u64,
    /// Stores go to the file.
    pub(crate) is_stored: bool,
    pub(crate) is_private: bool,
    pub(crate) file: OwnedFd,
    pub(crate) path: Vec<u8>,
}

/// What of some addresses is a mapping of a file that can be adopted. The rest is not in the
/// result.
pub(crate) fn find(all: &[Entry]) -> Vec<Found> {
    let maps = std::fs::read("/proc/thread-self/maps").unwrap_or_default();
    let lines = maps.split(|byte| *byte == b'\n').filter_map(parse);
    let (mut found, mut at) = (Vec::new(), 0);
    for line in lines {
        while all.get(at).is_some_and(|entry| entry.end <= line.range.start) {
            at += 1;
        }
        let touching = all[at..].iter().take_while(|entry| entry.start < line.range.end);
        for entry in touching {
            let range = line.range.start.max(entry.start)..line.range.end.min(entry.end);
            found.extend(line.open(range));
        }
    }
    found
}

/// A line of `/proc/PID/maps` that names a file.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    range: Range<usize>,
    prot: i32,
    flags: i32,
    offset: u64,
    device: (u32, u32),
    number: u64,
    path: &'a [u8],
}

fn parse(line: &[u8]) -> Option<Line<'_>> {
    let path = line.iter().position(|byte| *byte == b'/')?;
    let mut words = std::str::from_utf8(&line[..path]).ok()?.split_ascii_whitespace();
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = words.next()?.split_once('-')?;
    let range = hex(start)? as usize..hex(end)? as usize;
    let rights = words.next()?.as_bytes();
    let bit = |at: usize, prot: i32| if rights.get(at)? != &b'-' { Some(prot) } else { Some(0) };
    let prot = bit(0, libc::PROT_READ)? | bit(1, libc::PROT_WRITE)? | bit(2, libc::PROT_EXEC)?;
    let flags = if rights.get(3)? == &b's' { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
    let offset = hex(words.next()?)?;
    let (high, low) = words.next()?.split_once(':')?;
    let device = (hex(high)? as u32, hex(low)? as u32);
    let number = words.next()?.parse().ok()?;
    Some(Line { range, prot, flags, offset, device, number, path: &line[path..] })
}

impl Line<'_> {
    /// A part of it, with its file, if that is the one that its path names now.
    fn open(&self, range: Range<usize>) -> Option<Found> {
        if !matches!(judge::of_flags(self.prot, self.flags), Verdict::Adopt(_)) {
            return None;
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = open(OsStr::from_bytes(self.path), flags, Mode::empty()).ok()?;
        let stat = fstat(&file).ok()?;
        let is_same =
            stat.st_ino == self.number && (major(stat.st_dev), minor(stat.st_dev)) == self.device;
        let offset = self.offset + (range.start - self.range.start) as u64;
        let is_stored = self.prot & libc::PROT_WRITE != 0;
        let is_private = self.flags == libc::MAP_PRIVATE;
        let path = self.path.to_vec();
        is_same.then_some(Found { range, offset, is_stored, is_private, file, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_sys::shared::{Rights, SharedMapping, Sharing};
    use std::fs::File;

    #[test]
    fn a_line_says_what_is_mapped() {
        let line = b"7f00a000-7f00c000 rw-s 00003000 fe:00 4711       /data/a file (deleted)";
        let line = parse(line).expect("a line");
        assert_eq!(line.range, 0x7f00_a000..0x7f00_c000);
        assert_eq!((line.prot, line.flags), (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED));
        assert_eq!((line.offset, line.device, line.number), (0x3000, (0xfe, 0), 4711));
        assert_eq!(line.path, b"/data/a file (deleted)");
        for none in [&b""[..], b"7f00a000-7f00c000 rw-p 00000000 00:00 0    [heap]", b"x /y"] {
            assert_eq!(parse(none), None);
        }
    }

    #[test]
    fn mappings_are_found_with_their_files_and_only_within_what_was_adopted() {
        let path = std::env::current_exe().expect("a path").canonicalize().expect("its name");
        let (file, len) = (File::open(&path).expect("this test"), 16 * 4096);
        let map = SharedMapping::map(&file, 4096, len, Rights::Read, Sharing::Shared, false);
        let mapping = map.expect("a mapping");
        let map = mapping.addresses();
        let entry = |start, end| Entry { start, end, private: false };
        let found = find(&[entry(4096, 8192), entry(map.start + 8192, map.end + 4096)]);
        // Other mappings of this program may lie behind it.
        let found = found.iter().find(|found| found.range.end == map.end).expect("it is found");
        assert_eq!(found.range, map.start + 8192..map.end);
        assert_eq!(found.offset, 4096 + 8192);
        assert!(!found.is_stored);
        assert_eq!(found.path, path.as_os_str().as_bytes());
        assert!(find(&[]).is_empty());
    }
}
