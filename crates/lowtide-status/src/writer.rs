//! Writing the page of this process.
//!
//! The file is made under another name with its first text, and renamed: a reader never sees one
//! that is not complete, and what an earlier program of the same process left is replaced. From
//! then on it is written in place, so a process that has changed its root still writes it, and no
//! name is looked up. Where the page was removed, because a reader in another container took it
//! for that of a dead process, it is made again, unless another is there by then.

use crate::error::Error;
use crate::held::{self, Held};
use crate::layout::{HEADER, Header, TEXT_MAX};
use crate::place::{self, Place};
use crate::process::{self, Line};
use crate::status::{Origin, PagerStatus, Status, VERSION};
use lowtide_core::counters::ProcessStat;
use rustix::fs::{AtFlags, Mode, OFlags, fchmod, open, openat, renameat, statat, unlinkat};
use rustix::io::{Errno, fcntl_dupfd_cloexec, pread, pwrite};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Writes the page of this process; dropping it removes the page.
///
/// The thread that writes is named in the page: when it ends, the page counts as dead. So it is
/// always the same thread that writes, and one that lives as long as the page. If it is the first
/// thread of a process, a page that an `execve(2)` leaves is not seen to be old.
#[derive(Debug)]
pub struct Writer {
    /// The folder, and its path.
    dir: Held,
    path: PathBuf,
    page: Held,
    /// `stat` and `io` of this process in `/proc`.
    stat: Held,
    io: Option<Held>,
    pid: u32,
    start: u64,
    space: u64,
    origin: Origin,
    sequence: u64,
    text: Vec<u8>,
}

impl Writer {
    /// Makes the page of this process, with no pager in it.
    ///
    /// # Errors
    /// [`Error::NoProc`], [`Error::NoPlace`], [`Error::Refused`], or what the file system says. No
    /// page is there then, and nothing else is changed.
    pub fn create(origin: Origin) -> Result<Self, Error> {
        for base in place::bases() {
            match Place::open_or_make(&base)? {
                Some(place) => return Self::create_in(place, origin),
                None => continue,
            }
        }
        Err(Error::NoPlace)
    }

    pub(crate) fn create_in(place: Place, origin: Origin) -> Result<Self, Error> {
        let pid = std::process::id();
        let of_proc = |name: &str| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            Held::new(open(format!("/proc/self/{name}"), flags, Mode::empty())?)
        };
        let stat = of_proc("stat").map_err(|_| Error::NoProc)?;
        let line = line_of(&stat).filter(|line| line.pid == pid).ok_or(Error::NoProc)?;
        let name = pid.to_string();
        let path = place.path.join(&name);
        let page = Held::new(fresh(&place.dir, &name).map_err(place::io(&path))?);
        let mut writer = Self {
            dir: Held::new(place.dir).map_err(place::io(&place.path))?,
            page: page.map_err(place::io(&path))?,
            path,
            stat,
            io: of_proc("io").ok(),
            pid,
            start: line.start,
            space: process::space(),
            origin,
            sequence: 0,
            text: Vec::new(),
        };
        let new = format!("{name}.new");
        let written = writer.publish(Vec::new());
        let (dir, _) = writer.dir.get().ok_or(Error::NoPlace)?;
        let renamed =
            written.and_then(|()| renameat(dir, &new, dir, &name).map_err(place::io(&writer.path)));
        if renamed.is_err() {
            let _ = unlinkat(dir, &new, AtFlags::empty());
        }
        renamed.map(|()| writer)
    }

    /// What is known of this process, with some pagers.
    #[must_use]
    pub fn status(&self, pagers: Vec<PagerStatus>) -> Status {
        let line = line_of(&self.stat).unwrap_or_default();
        let io = self.io.as_ref().and_then(text_of).unwrap_or_default();
        let io = String::from_utf8_lossy(&io);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Status {
            version: VERSION,
            lowtide: env!("CARGO_PKG_VERSION").into(),
            pid: self.pid,
            start_ticks: self.start,
            program: line.name,
            origin: self.origin,
            written_ns: u64::try_from(now.as_nanos()).unwrap_or(u64::MAX),
            stat: ProcessStat {
                major_faults: line.major_faults,
                device_read_bytes: process::number(&io, "read_bytes").unwrap_or_default(),
                device_write_bytes: process::number(&io, "write_bytes").unwrap_or_default(),
            },
            pagers,
        }
    }

    /// Writes what some pagers do, with what is known of the process.
    ///
    /// Costs ten system calls, and as much time as serialising it takes.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub fn publish(&mut self, pagers: Vec<PagerStatus>) -> Result<(), Error> {
        let mut status = self.status(pagers);
        self.write(&mut status)
    }

    /// Writes a status. Tenants for which there is no room are counted in `tenants_left_out`.
    ///
    /// # Errors
    /// [`Error::TooLarge`]: there are more pagers than a page takes. Those of the file system: the
    /// page is not complete then, and readers say so. Later calls may succeed.
    pub fn write(&mut self, status: &mut Status) -> Result<(), Error> {
        if std::process::id() != self.pid {
            // A child of `fork(2)`: the page is its parent's.
            return Ok(());
        }
        fit(status, &mut self.text)?;
        let stat = match self.page.get() {
            Some((_, stat)) => stat,
            None => return self.make_again(status),
        };
        if stat.st_nlink == 0 { self.make_again(status) } else { self.put() }
    }

    /// Writes the text in place.
    fn put(&mut self) -> Result<(), Error> {
        let Some((page, _)) = self.page.get() else { return Ok(()) };
        let io = place::io(&self.path);
        // A write that failed has left it odd.
        let busy = (self.sequence + 1) | 1;
        let header = |sequence| Header::new(&self.text, sequence, self.start, self.space);
        pwrite_all(page.as_fd(), &header(busy).to_bytes(), 0).map_err(&io)?;
        pwrite_all(page.as_fd(), &self.text, HEADER as u64).map_err(&io)?;
        pwrite_all(page.as_fd(), &header(busy + 1).to_bytes(), 0).map_err(&io)?;
        self.sequence = busy + 1;
        Ok(())
    }

    /// The page has no name any more, or the program has closed its descriptor.
    fn make_again(&mut self, status: &mut Status) -> Result<(), Error> {
        let name = self.pid.to_string();
        let place = match self.dir.get() {
            Some((dir, _)) => {
                let is_closed = self.page.get().is_none();
                if !is_closed && statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
                    let what = "is the page of a process in another container".into();
                    return Err(Error::Refused { path: self.path.clone(), what });
                }
                let dir = fcntl_dupfd_cloexec(dir, 3).map_err(place::io(&self.path))?;
                Place { path: self.folder().to_owned(), dir }
            }
            None => {
                let base = self.folder().parent().unwrap_or(Path::new("/"));
                Place::open_or_make(base)?.ok_or(Error::NoPlace)?
            }
        };
        *self = Self::create_in(place, self.origin)?;
        self.write(status)
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let Some((dir, _)) = self.dir.get().filter(|_| std::process::id() == self.pid) else {
            return;
        };
        let name = self.pid.to_string();
        let now = statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW);
        if now.is_ok_and(|now| held::of(&now) == self.page.file()) {
            let _ = unlinkat(dir, &name, AtFlags::empty());
        }
    }
}

/// A new file, under the name that it has until it is complete.
fn fresh(dir: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    let new = format!("{name}.new");
    let _ = unlinkat(&dir, &new, AtFlags::empty());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = openat(&dir, &new, flags, mode)?;
    // A mask may have taken rights away.
    fchmod(&file, mode)?;
    Ok(file)
}

fn pwrite_all(file: impl AsFd, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match pwrite(&file, bytes, offset) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(written) => (bytes, offset) = (&bytes[written..], offset + written as u64),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The text of a small file of `/proc`.
fn text_of(file: &Held) -> Option<Vec<u8>> {
    let (file, _) = file.get()?;
    let mut text = vec![0; 1024];
    let len = pread(file, &mut text, 0).ok()?;
    text.truncate(len);
    Some(text)
}

fn line_of(stat: &Held) -> Option<Line> {
    Line::parse(&text_of(stat)?)
}

/// Serialises a status, with as many tenants as a page takes: the first of each pager.
fn fit(status: &mut Status, text: &mut Vec<u8>) -> Result<(), Error> {
    let mut write = |status: &Status| {
        text.clear();
        // Numbers and strings: nothing of it cannot be written.
        serde_json::to_writer(&mut *text, status).map_or(usize::MAX, |()| text.len())
    };
    loop {
        let bytes = write(status);
        if bytes <= TEXT_MAX {
            return Ok(());
        }
        let most = status.pagers.iter().map(|pager| pager.tenants.len()).max().unwrap_or_default();
        if most == 0 {
            return Err(Error::TooLarge { bytes });
        }
        // By their mean size this many fit; one less, should that be no fewer.
        let keep = (most * TEXT_MAX / bytes).min(most - 1);
        for pager in &mut status.pagers {
            let left_out = pager.tenants.len().saturating_sub(keep);
            pager.tenants.truncate(keep);
            pager.tenants_left_out += left_out as u64;
        }
    }
}
