//! The file of a warm restart: which pages of which files were in memory.
//!
//! ```text
//!   "lowtide warm 1\n"   bytes of a page   files
//!   each file:   device, inode, length, time of change   path   active pages   other pages
//!   checksum (CRC-32) of all before
//! ```
//!
//! Numbers have seven bits a byte (LEB128), and pages are runs: pages that are left out, and pages
//! that follow. A page that lies alone takes two to three bytes, so 100 GiB of such pages take some
//! 60 MiB, and files of which all is in memory a few bytes. The path is for messages alone: what a
//! file is called says nothing of its contents.

use super::error::{Foreign, WarmError};
use rustix::process::{Resource, getrlimit};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: &[u8] = b"lowtide warm 1\n";
const CHECKSUM: usize = 4;
/// No list is longer: a foreign file is not read to its end.
const BYTES_MAX: u64 = 1 << 30;

/// What a file was when its list was made. Another one has other pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) len: u64,
    /// Nanoseconds since 1970, which wrap.
    pub(super) changed: u64,
}

/// Pages of one file, as runs in the order of the file, encoded: there may be millions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Runs(Vec<u8>);

impl Runs {
    /// The runs. One that no file of `pages` pages has is an error, and the last item.
    fn checked(&self, pages: u64) -> impl Iterator<Item = Result<Range<u64>, Foreign>> + '_ {
        let (mut rest, mut at) = (Rest(&self.0), 0_u64);
        let mut next = move || {
            let start = at.checked_add(rest.number()?).ok_or(Foreign::Damaged)?;
            let end = start.checked_add(rest.number()?).filter(|&end| end <= pages && end > start);
            at = end.ok_or(Foreign::Damaged)?;
            Ok((start..at, rest.0.is_empty()))
        };
        let mut is_over = self.0.is_empty();
        std::iter::from_fn(move || {
            let next = (!is_over).then(&mut next)?;
            is_over = next.as_ref().map_or(true, |(_, is_last)| *is_last);
            Some(next.map(|(run, _)| run))
        })
    }

    /// The runs, which were checked when they were read.
    pub(super) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.checked(u64::MAX).map_while(Result::ok)
    }

    pub(super) fn count(&self) -> u64 {
        self.iter().map(|run| run.end - run.start).sum()
    }
}

/// Makes runs of pages that come in their order.
#[derive(Debug, Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    /// The page past the last run that is written.
    at: u64,
    open: Range<u64>,
}

impl Writer {
    pub(super) fn push(&mut self, page: u64) {
        if self.open.end == page && !self.open.is_empty() {
            self.open.end += 1;
        } else {
            self.write();
            self.open = page..page + 1;
        }
    }

    fn write(&mut self) {
        let Range { start, end } = std::mem::take(&mut self.open);
        if start < end {
            put(&mut self.bytes, start - self.at);
            put(&mut self.bytes, end - start);
            self.at = end;
        }
    }

    pub(super) fn finish(mut self) -> Runs {
        self.write();
        Runs(self.bytes)
    }
}

/// What was in memory of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileList {
    pub(super) path: PathBuf,
    pub(super) version: Version,
    /// Those that the policy had among the active ones, and the others.
    pub(super) pages: [Runs; 2],
}

impl FileList {
    pub(super) fn is_empty(&self) -> bool {
        self.pages.iter().all(|runs| runs.0.is_empty())
    }
}

/// By the numbers of the device and of the inode.
pub(super) type Lists = HashMap<(u64, u64), Arc<FileList>>;

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// What is left to decode.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn number(&mut self) -> Result<u64, Foreign> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or(Foreign::Damaged)?;
            self.0 = rest;
            if shift == 63 && byte > 1 {
                break;
            }
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Foreign::Damaged)
    }

    fn bytes(&mut self) -> Result<&[u8], Foreign> {
        let len = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Foreign::Damaged)?;
        self.0 = rest;
        Ok(bytes)
    }
}

pub(super) fn encode(lists: &Lists, page_bytes: u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    put(&mut bytes, page_bytes);
    put(&mut bytes, lists.len() as u64);
    for ((device, inode), list) in lists {
        let FileList { path, version, pages: [active, others] } = &**list;
        for number in [*device, *inode, version.len, version.changed] {
            put(&mut bytes, number);
        }
        for part in [path.as_os_str().as_bytes(), &active.0, &others.0] {
            put(&mut bytes, part.len() as u64);
            bytes.extend(part);
        }
    }
    let checksum = crc32fast::hash(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

pub(super) fn decode(bytes: &[u8], page_bytes: u64) -> Result<Lists, Foreign> {
    let (bytes, checksum) = bytes.split_last_chunk::<CHECKSUM>().ok_or(Foreign::Other)?;
    let content = bytes.strip_prefix(MAGIC).ok_or(Foreign::Other)?;
    if crc32fast::hash(bytes).to_le_bytes() != *checksum {
        return Err(Foreign::Damaged);
    }
    let mut rest = Rest(content);
    let made_with = rest.number()?;
    if made_with != page_bytes {
        return Err(Foreign::PageBytes { made_with, page_bytes });
    }
    let mut lists = Lists::new();
    for _ in 0..rest.number()? {
        let key = (rest.number()?, rest.number()?);
        let version = Version { len: rest.number()?, changed: rest.number()? };
        let path = PathBuf::from(OsStr::from_bytes(rest.bytes()?));
        let pages = [Runs(rest.bytes()?.to_vec()), Runs(rest.bytes()?.to_vec())];
        let end = version.len.div_ceil(page_bytes);
        pages.iter().flat_map(|runs| runs.checked(end)).try_for_each(|run| run.map(drop))?;
        lists.insert(key, Arc::new(FileList { path, version, pages }));
    }
    if rest.0.is_empty() { Ok(lists) } else { Err(Foreign::Damaged) }
}

/// Reads a file of lists; there are none where it does not exist.
pub(super) fn read(path: &Path, page_bytes: u64) -> Result<Lists, WarmError> {
    let failed = |source| WarmError::Read { path: path.to_owned(), source };
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Lists::new()),
        opened => opened.map_err(failed)?,
    };
    let mut bytes = Vec::new();
    // A device or a pipe may have no end.
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(WarmError::Foreign { path: path.to_owned(), why: Foreign::Other });
    }
    file.take(BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
    decode(&bytes, page_bytes).map_err(|why| WarmError::Foreign { path: path.to_owned(), why })
}

/// Writes a file of lists, in the place of one that is there: as a whole, or not at all.
pub(super) fn write(path: &Path, lists: &Lists, page_bytes: u64) -> Result<(), WarmError> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let bytes = encode(lists, page_bytes);
    let write = || {
        // The kernel ends a process that writes past its limit.
        if getrlimit(Resource::Fsize).current.is_some_and(|limit| bytes.len() as u64 > limit) {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        // What a process that was killed has left is written over, and nothing that one writes now.
        let mut file = File::options().create(true).append(true).open(&new)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(io::Error::from_raw_os_error(libc::EBUSY)),
            locked => locked?,
        }
        // Another process may just have made it its list.
        if Path::metadata(&new)?.ino() != file.metadata()?.ino() {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        }
        let written = file
            .set_len(0)
            .and_then(|()| file.write_all(&bytes))
            .and_then(|()| file.sync_all())
            .and_then(|()| std::fs::rename(&new, path));
        written.inspect_err(|_| drop(std::fs::remove_file(&new)))
    };
    write().map_err(|source| WarmError::Write { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Lists {
        let runs = |runs: &[Range<u64>]| {
            let mut writer = Writer::default();
            runs.iter().cloned().flatten().for_each(|page| writer.push(page));
            writer.finish()
        };
        let version = Version { len: 1 << 40, changed: u64::MAX };
        let one = FileList {
            path: "/a/path".into(),
            version,
            pages: [runs(&[0..1, 7..1000]), runs(&[1..7, (1 << 28) - 1..1 << 28])],
        };
        let empty = FileList { path: "/b".into(), version, pages: Default::default() };
        Lists::from([((5, 9), Arc::new(one)), ((5, 10), Arc::new(empty))])
    }

    #[test]
    fn lists_come_back_and_pages_of_another_size_do_not() {
        let bytes = encode(&some(), 4096);
        let lists = decode(&bytes, 4096).unwrap();
        assert_eq!(lists, some());
        let [active, others] = &lists[&(5, 9)].pages;
        assert_eq!(active.iter().collect::<Vec<_>>(), [0..1, 7..1000]);
        assert_eq!((active.count(), others.count()), (994, 7));
        assert!(matches!(decode(&bytes, 1024), Err(Foreign::PageBytes { made_with: 4096, .. })));
    }

    #[test]
    fn bytes_that_are_cut_changed_or_others_are_refused() {
        let bytes = encode(&some(), 4096);
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len], 4096).is_err(), "{len} bytes");
            let mut changed = bytes.clone();
            changed[len] ^= 1 << (len % 8);
            assert!(decode(&changed, 4096).is_err(), "byte {len}");
        }
        assert!(matches!(decode(b"something else", 4096), Err(Foreign::Other)));
    }

    #[test]
    fn no_bytes_with_a_right_checksum_are_a_list_by_chance() {
        let mut random = random_numbers(7);
        let mut whole = 0;
        for _ in 0..20_000 {
            let mut bytes = encode(&some(), 4096);
            bytes.truncate(bytes.len() - CHECKSUM);
            for _ in 0..=random() % 4 {
                let at = MAGIC.len() + random() as usize % (bytes.len() - MAGIC.len());
                bytes[at] = random() as u8;
            }
            let checksum = crc32fast::hash(&bytes);
            bytes.extend(checksum.to_le_bytes());
            if let Ok(lists) = decode(&bytes, 4096) {
                // Whatever it says, it says of pages that a file of that length has.
                let ends = |list: &Arc<FileList>| {
                    let end = list.version.len.div_ceil(4096);
                    list.pages.iter().flat_map(Runs::iter).all(|run| run.end <= end)
                };
                assert!(lists.values().all(ends));
                whole += 1;
            }
        }
        assert!(whole > 0, "some changes are of paths and times");
    }

    /// Numbers, the same each time.
    fn random_numbers(mut seed: u64) -> impl FnMut() -> u64 {
        move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        }
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_and_what_was_left_by_a_killed_one_is_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("warm");
        assert!(read(&path, 4096).unwrap().is_empty(), "no file is no list");
        std::fs::write(dir.path().join("warm.new"), b"half of it").unwrap();
        write(&path, &some(), 4096).unwrap();
        assert_eq!(read(&path, 4096).unwrap(), some());
        let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        let held = File::create(dir.path().join("warm.new")).unwrap();
        held.lock().unwrap();
        let refused = write(&path, &Lists::new(), 4096).unwrap_err().to_string();
        assert!(refused.contains("warm") && refused.contains("busy"), "{refused}");
        assert_eq!(read(&path, 4096).unwrap(), some());
        let missing = write(&dir.path().join("no/warm"), &some(), 4096).unwrap_err().to_string();
        assert!(missing.contains("no/warm"), "{missing}");
        std::fs::write(&path, b"lowtide warm 1\nand then nothing").unwrap();
        assert!(read(&path, 4096).unwrap_err().to_string().contains("damaged"));
    }
}
