//! The threads of this process, as `/proc` lists them. Allocates nothing that is not ours: the C
//! library's functions for folders would use the program's allocator.

use rustix::fs::{Mode, OFlags, RawDir, SeekFrom, open, seek};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The folder with a folder for each thread.
pub(crate) struct Tasks(OwnedFd);

impl Tasks {
    /// Opens it, in the calling thread's table.
    pub(crate) fn open() -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        open("/proc/self/task", flags, Mode::empty()).ok().map(Self)
    }

    /// Calls a function with the number of each thread until it returns something.
    ///
    /// # Errors
    /// The list cannot be read.
    pub(crate) fn find<T>(
        &self,
        mut f: impl FnMut(i32) -> Option<T>,
    ) -> rustix::io::Result<Option<T>> {
        let mut buffer = [MaybeUninit::<u8>::uninit(); 2048];
        seek(&self.0, SeekFrom::Start(0))?;
        let mut all = RawDir::new(&self.0, &mut buffer);
        while let Some(entry) = all.next() {
            // The folder itself, and the one above, have no number.
            let number = entry?.file_name().to_str().ok().and_then(|name| name.parse().ok());
            if let Some(found) = number.and_then(&mut f) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

impl AsFd for Tasks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_is_listed_each_time() {
        let tasks = Tasks::open().expect("the threads");
        let is_listed = |wanted| {
            let found = tasks.find(|number| (number == wanted).then_some(()));
            found.expect("a list").is_some()
        };
        std::thread::scope(|scope| {
            let own = scope.spawn(|| is_listed(crate::own::number()));
            assert!(own.join().expect("the thread"));
        });
        assert!(is_listed(crate::own::number()) && !is_listed(0));
    }
}
