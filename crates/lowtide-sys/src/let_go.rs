//! Closing a descriptor in the program's table without a lock of the program's.
//!
//! A process loses its POSIX locks on a file when it closes any descriptor of the file in the table
//! that has the locks (`fcntl(2)`). What can be in the [`room`] is there. The rest, descriptors of
//! views, is closed here, when no process has such a lock on the file. Until then it is kept, and
//! looked at again when the next one is closed.
//!
//! A lock of the program is another's than that of the open file, so `F_OFD_GETLK` shows it. One
//! that the program takes between that look and the close, in another thread, is lost. Only a lock
//! of ours on the file could keep it from doing so meanwhile, and other processes, too: their
//! attempts would fail for no reason of theirs (`docs/production.md`).

use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process;
use std::sync::Mutex;

use crate::locks::is_locked;
use crate::room;
use crate::threads::SignalsBlocked;

/// What is kept, and by which process.
static KEPT: Mutex<(u32, Vec<OwnedFd>)> = Mutex::new((0, Vec::new()));

/// Closes a descriptor, unless the program would lose a lock by that: then later. In the room it is
/// closed at once. Costs a system call, and one for each that is kept.
pub fn let_go(descriptor: impl Into<OwnedFd>) {
    let descriptor = descriptor.into();
    let has_lock =
        |descriptor: &OwnedFd| is_locked(descriptor, 0..i64::MAX as u64).unwrap_or(false);
    if room::is_inside() {
        return;
    }
    let is_kept = has_lock(&descriptor);
    // No handler of a signal closes one while this thread has the list. Where another thread has
    // it, or had it when this process was forked, the descriptor stays open for good.
    let _blocked = SignalsBlocked::all();
    match KEPT.try_lock() {
        Ok(mut kept) => {
            if mem::replace(&mut kept.0, process::id()) != process::id() {
                // Locks are not inherited, so none goes with these.
                kept.1.clear();
            }
            kept.1.retain(has_lock);
            if is_kept {
                kept.1.push(descriptor);
            }
        }
        Err(_) if is_kept => mem::forget(descriptor),
        Err(_) => {}
    }
}

/// A descriptor that is [let go](let_go) when it is dropped.
#[derive(Debug)]
pub struct LetGo(Option<OwnedFd>);

impl From<OwnedFd> for LetGo {
    fn from(descriptor: OwnedFd) -> Self {
        Self(Some(descriptor))
    }
}

impl AsFd for LetGo {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_ref().expect("it is there until the drop").as_fd()
    }
}

impl Drop for LetGo {
    fn drop(&mut self) {
        if let Some(descriptor) = self.0.take() {
            let_go(descriptor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FlockOperation, fcntl_lock};
    use std::fs::File;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_descriptor_is_closed_when_its_file_has_no_lock_of_the_program_any_more() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(named.path()).unwrap();
        let (file, second, third) = (open(), open(), open());
        let numbers = [second.as_raw_fd(), third.as_raw_fd()];
        let leads_here = |number: i32| {
            let path = format!("/proc/self/fd/{number}");
            std::fs::read_link(path).is_ok_and(|path| path == named.path())
        };
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        let_go(second);
        assert!(leads_here(numbers[0]));
        // The room's table is another's.
        let held = || {
            let look = |file: &File| Ok(fcntl_lock(file, FlockOperation::NonBlockingLockShared));
            room::bring(file.as_fd()).and_then(|file| file.with(look)).unwrap().is_err()
        };
        assert!(held(), "the lock was lost");
        fcntl_lock(&file, FlockOperation::Unlock).unwrap();
        assert!(!held());
        let_go(third);
        assert!(!leads_here(numbers[0]) && !leads_here(numbers[1]));
    }
}
