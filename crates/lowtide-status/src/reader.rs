//! Reading the pages of this user, and removing those of dead processes.
//!
//! A page that is being written is read again. One whose process is gone is removed by the first
//! reader that sees it; should its number have been given out and a new page made just then, the
//! new writer makes it again with its next write.

use crate::error::Error;
use crate::layout::{HEADER, Header, Wrong};
use crate::place::{self, Place};
use crate::process::{self, Life, Line};
use crate::status::Status;
use rustix::fs::Dir;
use rustix::io::{Errno, pread};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

/// How often a page that is being written is read, and the pause between: a write takes a few
/// microseconds, unless its thread has no processor.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(2);

/// The pages of a user.
#[derive(Debug, Default)]
pub struct Pages {
    /// Of processes that live, by their numbers.
    pub live: Vec<Status>,
    /// Of processes that live, and cannot be read; and folders that are refused.
    pub refused: Vec<Error>,
}

/// All live pages of this user. Removes those of processes that are gone.
///
/// Costs some ten microseconds a page.
///
/// # Errors
/// [`Error::NoProc`]: without `/proc` no page can be judged.
pub fn list() -> Result<Pages, Error> {
    let mut pages = Pages::default();
    for base in place::bases() {
        match Place::open(&base) {
            Ok(Some(place)) => list_in(&place, &mut pages)?,
            Ok(None) => {}
            Err(error) => pages.refused.push(error),
        }
    }
    pages.live.sort_by_key(|status| status.pid);
    pages.live.dedup_by_key(|status| status.pid);
    Ok(pages)
}

/// The page of a process.
///
/// # Errors
/// That there is no such process, that it has no page or is another user's; that the page is of a
/// newer version or cannot be read.
pub fn read(pid: u32) -> Result<Status, Error> {
    let mut refused = None;
    for base in place::bases() {
        match Place::open(&base) {
            Ok(Some(place)) => {
                if let Some(status) = read_in(&place, pid)? {
                    return Ok(status);
                }
            }
            Ok(None) => {}
            Err(error) => refused = Some(error),
        }
    }
    need_proc()?;
    let Some(line) = Line::of(pid).filter(|line| !line.has_ended) else {
        return Err(Error::NoProcess { pid });
    };
    match process::user_of(pid) {
        Some(uid) if uid != place::user() => Err(Error::OtherUser { pid, uid }),
        _ => Err(refused.unwrap_or(Error::NotUnderLowtide { pid, program: line.name })),
    }
}

/// Without it no process could be seen to live.
fn need_proc() -> Result<(), Error> {
    let own = Line::of(std::process::id());
    own.filter(|line| line.pid == std::process::id()).map(|_| ()).ok_or(Error::NoProc)
}

fn list_in(place: &Place, pages: &mut Pages) -> Result<(), Error> {
    need_proc()?;
    let entries = Dir::read_from(&place.dir).map_err(place::io(&place.path))?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let number = |text: &str| text.parse::<u32>().ok();
        if let Some(pid) = number(&name) {
            match read_in(place, pid) {
                Ok(status) => pages.live.extend(status),
                Err(error) => pages.refused.push(error),
            }
        } else if name.strip_suffix(".new").and_then(number).is_some_and(|p| Line::of(p).is_none())
        {
            // Its process ended while it made its page.
            place.remove(&name);
        }
    }
    Ok(())
}

/// The page of a process in a folder, if it lives.
pub(crate) fn read_in(place: &Place, pid: u32) -> Result<Option<Status>, Error> {
    let name = pid.to_string();
    let path = place.path.join(&name);
    let Some(file) = place.file(&name)? else { return Ok(None) };
    need_proc()?;
    let damaged = |what| Error::Damaged { path: path.clone(), what };
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            thread::sleep(PAUSE);
        }
        let bytes = fill(&file, 0, HEADER).map_err(place::io(&path))?;
        let header = match Header::parse(&bytes) {
            Ok(header) => header,
            Err(Wrong::Newer(version)) => return newer(place, pid, version),
            Err(Wrong::Length) => return Err(damaged("its length is wrong")),
            Err(Wrong::Short | Wrong::Magic) => return Err(damaged("it has no header")),
        };
        match process::life(pid, &header) {
            Life::Lives => {}
            Life::Elsewhere => return Ok(None),
            Life::Dead => {
                place.remove(&name);
                return Ok(None);
            }
        }
        let text = fill(&file, HEADER, header.length as usize).map_err(place::io(&path))?;
        let again = fill(&file, 0, HEADER).map_err(place::io(&path))?;
        if again != bytes || !header.fits(&text) {
            continue;
        }
        let status = serde_json::from_slice::<Status>(&text);
        return status.map(Some).map_err(|_| damaged("its text is no status"));
    }
    Err(Error::Unfinished { pid })
}

/// A page of another format: its header cannot be believed, so all that is looked at is whether
/// there is a process.
fn newer(place: &Place, pid: u32, version: u32) -> Result<Option<Status>, Error> {
    if Line::of(pid).is_none() {
        place.remove(&pid.to_string());
        return Ok(None);
    }
    Err(Error::Newer { pid, version })
}

/// Some bytes, fewer at the end of the file.
fn fill(file: &OwnedFd, offset: usize, bytes: usize) -> Result<Vec<u8>, Errno> {
    let (mut buffer, mut filled) = (vec![0; bytes], 0);
    while filled < bytes {
        match pread(file, &mut buffer[filled..], (offset + filled) as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    buffer.truncate(filled);
    Ok(buffer)
}
