//! What the program has protected of memory that is kept, and what it has left out of core dumps.
//!
//! A copy of a block has the same protections (`memory.rs`). The kernel knows them, also those that
//! raw system calls have made, and says them in `/proc`. The file is opened at the beginning and
//! kept: a program that has confined itself since (`chroot`) has no `/proc`, or no descriptor left.
//! It is the file of the keeper's own thread, because that of a process whose first thread has
//! ended is empty.

use crate::blocks;
use crate::heap::READ_WRITE;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// The program has left some of it out of core dumps. The file that says what costs a look at all
/// page tables, so it is read only then.
static HAS_SECRETS: AtomicBool = AtomicBool::new(false);

/// From now on it matters what core dumps have.
pub(crate) fn note_secrets() {
    HAS_SECRETS.store(true, Ordering::Release);
}

/// A range that is not to be loaded from and stored to, or not in core dumps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Protection {
    range: Range<usize>,
    prot: i32,
    is_dumped: bool,
}

impl Protection {
    /// Protects what it has of other memory at the same addresses; whether the kernel did.
    /// Allocates nothing.
    pub(crate) fn apply(&self, to: &Range<usize>) -> bool {
        let part = self.range.start.max(to.start)..self.range.end.min(to.end);
        if part.is_empty() {
            return true;
        }
        if !self.is_dumped {
            blocks::dump(&part, false);
        }
        self.prot == READ_WRITE || blocks::protect(&part, self.prot)
    }
}

/// The kernel's lists of mappings.
pub(crate) struct Protections {
    maps: File,
    smaps: File,
}

impl Protections {
    /// Opens them. Called by the keeper, whose descriptors the program does not close.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub(crate) fn open() -> io::Result<Self> {
        let open = |name: &str| File::open(format!("/proc/thread-self/{name}"));
        Ok(Self { maps: open("maps")?, smaps: open("smaps")? })
    }

    /// Parts of a range that the program has protected.
    ///
    /// # Errors
    /// Those of `read(2)`.
    pub(crate) fn within(&self, range: &Range<usize>) -> io::Result<Vec<Protection>> {
        let has_secrets = HAS_SECRETS.load(Ordering::Acquire);
        let text = read(if has_secrets { &self.smaps } else { &self.maps })?;
        let mut found: Vec<Protection> = Vec::new();
        for line in text.lines() {
            if let Some((of, prot)) = mapping(line) {
                found.push(Protection { range: of, prot, is_dumped: true });
            } else if let (Some(last), Some(flags)) =
                (found.last_mut(), line.strip_prefix("VmFlags:"))
            {
                last.is_dumped = !flags.split(' ').any(|flag| flag == "dd");
            }
        }
        let is_special = |one: &Protection| one.prot != READ_WRITE || !one.is_dumped;
        found.retain(|one| {
            one.range.start < range.end && range.start < one.range.end && is_special(one)
        });
        Ok(found)
    }
}

fn read(file: &File) -> io::Result<String> {
    let (mut text, mut piece, mut at) = (Vec::new(), [0; 16 << 10], 0);
    loop {
        match file.read_at(&mut piece, at)? {
            0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
            count => {
                text.extend_from_slice(&piece[..count]);
                at += count as u64;
            }
        }
    }
}

/// Addresses and rights, if a line has them.
fn mapping(line: &str) -> Option<(Range<usize>, i32)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let bits = [(b'r', libc::PROT_READ), (b'w', libc::PROT_WRITE), (b'x', libc::PROT_EXEC)];
    let has = |(at, (letter, _)): &(usize, (u8, i32))| rest.as_bytes().get(*at) == Some(letter);
    let prot = bits.into_iter().enumerate().filter(has).fold(0, |all, (_, (_, bit))| all | bit);
    Some((start..end, prot))
}
