//! The files of a proof. The run's lock is on a file beside them, because the pagers lock these
//! themselves.

use std::path::{Path, PathBuf};

/// The file, and what becomes the next. Removed on drop.
#[derive(Debug)]
pub struct Files {
    /// The file.
    pub now: PathBuf,
    /// What becomes the next, while it is made.
    pub next: PathBuf,
}

impl Files {
    /// Names beside that of a run's lock.
    pub fn beside(path: &Path) -> Self {
        Self { now: path.with_extension("disk"), next: path.with_extension("image") }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.now);
        let _ = std::fs::remove_file(&self.next);
    }
}
