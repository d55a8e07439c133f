//! The file by which the processes of a program share one budget (`lowtide-run/shares.rs`): its
//! name, and what killed programs have left of theirs.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use lowtide_sys::locks::is_locked;
use rustix::fs::{Access, FlockOperation, Mode, OFlags, access, flock, open};
use rustix::process::geteuid;

/// Folders in memory, or that are emptied now and then.
const FOLDERS: [&str; 2] = ["/dev/shm", "/tmp"];

/// A name for the file, which the first process that keeps a mapping makes; `None` where there is
/// no folder for it. Removes what is left of programs that were killed.
pub(crate) fn name() -> Option<PathBuf> {
    let may = |folder: &&&str| access(**folder, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    let folder = Path::new(FOLDERS.iter().find(may)?);
    remove_left(folder);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    Some(folder.join(format!("{}{}-{since:x}", prefix(), std::process::id())))
}

fn prefix() -> String {
    format!("lowtide-run-{}-", geteuid().as_raw())
}

/// Removes files that no process has a share in. One that comes to use it makes it again.
fn remove_left(folder: &Path) {
    let prefix = prefix();
    let is_ours = |name: &OsStr| name.as_encoded_bytes().starts_with(prefix.as_bytes());
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if is_ours(&entry.file_name()) {
            let _ = remove_unused(&entry.path());
        }
    }
}

fn remove_unused(path: &Path) -> std::io::Result<()> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = fs::File::from(open(path, flags, Mode::empty())?);
    // While it has this lock, no process takes a share.
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    let meta = file.metadata()?;
    if meta.uid() == geteuid().as_raw() && !is_locked(&file, 0..meta.len().max(1))? {
        fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowtide_sys::locks::try_lock;

    #[test]
    fn what_no_process_uses_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(format!("{}{name}", prefix()));
        for name in ["used", "unused"] {
            fs::write(path(name), [0; 64]).unwrap();
        }
        fs::write(dir.path().join("another"), "").unwrap();
        let used = fs::File::options().write(true).open(path("used")).unwrap();
        assert!(try_lock(&used, 7..8).unwrap());
        remove_left(dir.path());
        assert!(path("used").exists() && !path("unused").exists());
        assert!(dir.path().join("another").exists());
    }
}
