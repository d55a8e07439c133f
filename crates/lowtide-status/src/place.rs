//! The folder of a user's pages: `lowtide-UID`, of mode 0700, in `/dev/shm`.
//!
//! Where `/dev/shm` takes nothing it is in `$XDG_RUNTIME_DIR`, and otherwise in `/tmp`. A reader
//! looks into all of them. Others may write into `/dev/shm` and `/tmp`, and make a folder of this
//! name first. So it is opened without following a link, and its owner and mode are compared
//! before anything is done there. One that is refused is an error and no reason to look elsewhere:
//! the user should know.

use crate::error::Error;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fchmod, fstat, mkdir, open, openat, unlinkat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Folders that may have that of a user, the best first.
///
/// The environment is read only where the first does not do: in a program under `lowtide run`
/// another thread may be about to change it.
pub(crate) fn bases() -> impl Iterator<Item = PathBuf> {
    let runtime = || std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = std::iter::once_with(runtime).flatten().filter(|path| path.is_absolute());
    std::iter::once("/dev/shm".into()).chain(runtime).chain(std::iter::once("/tmp".into()))
}

/// The effective user.
pub(crate) fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A folder of pages of this user.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    pub(crate) dir: OwnedFd,
}

/// Makes an error of a path.
pub(crate) fn io(path: &Path) -> impl Fn(Errno) -> Error {
    move |errno| Error::Io { path: path.to_owned(), source: errno.into() }
}

impl Place {
    /// Opens the folder of this user below `base`; none, where there is none.
    ///
    /// # Errors
    /// [`Error::Refused`] for one that is not this user's alone.
    pub(crate) fn open(base: &Path) -> Result<Option<Self>, Error> {
        let path = base.join(format!("lowtide-{}", user()));
        let refused = |what: String| Error::Refused { path: path.clone(), what };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = match open(&path, flags, Mode::empty()) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => return Ok(None),
            // The kernel reports a link as one of both.
            Err(Errno::LOOP | Errno::NOTDIR) if path.symlink_metadata().is_ok() => {
                return Err(refused("is a link or no folder".into()));
            }
            Err(Errno::NOTDIR) => return Ok(None),
            Err(Errno::ACCESS) if path.symlink_metadata().is_ok() => {
                return Err(refused("cannot be opened by this user".into()));
            }
            Err(Errno::ACCESS) => return Ok(None),
            Err(errno) => return Err(io(&path)(errno)),
        };
        let stat = fstat(&dir).map_err(io(&path))?;
        if stat.st_uid != user() {
            return Err(refused(format!("belongs to user {}, not to {}", stat.st_uid, user())));
        }
        if stat.st_mode & 0o077 != 0 {
            let mode = stat.st_mode & 0o777;
            return Err(refused(format!("can be used by others (mode {mode:03o})")));
        }
        Ok(Some(Self { path, dir }))
    }

    /// The same, and makes it where it is missing; none, where `base` takes no folder.
    ///
    /// # Errors
    /// As [`Place::open`].
    pub(crate) fn open_or_make(base: &Path) -> Result<Option<Self>, Error> {
        if let Some(place) = Self::open(base)? {
            return Ok(Some(place));
        }
        let path = base.join(format!("lowtide-{}", user()));
        let is_new = mkdir(&path, Mode::RWXU).is_ok();
        let place = Self::open(base)?;
        if let Some(place) = place.as_ref().filter(|_| is_new) {
            // A mask may have taken rights away.
            fchmod(&place.dir, Mode::RWXU).map_err(io(&path))?;
        }
        Ok(place)
    }

    /// Opens a file of it, with its owner and kind compared; none, where there is none.
    pub(crate) fn file(&self, name: &str) -> Result<Option<OwnedFd>, Error> {
        let path = self.path.join(name);
        let refused = |what: String| Error::Refused { path: path.clone(), what };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.dir, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(refused("is a link".into())),
            Err(errno) => return Err(io(&path)(errno)),
        };
        let stat = fstat(&file).map_err(io(&path))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(refused("is no file".into()));
        }
        if stat.st_uid != user() {
            return Err(refused(format!("belongs to user {}, not to {}", stat.st_uid, user())));
        }
        Ok(Some(file))
    }

    /// Removes a file of it. One that is gone already is well.
    pub(crate) fn remove(&self, name: &str) {
        let _ = unlinkat(&self.dir, name, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_folder_is_made_for_its_user_alone_and_another_is_refused_by_name() {
        let base = tempfile::tempdir().unwrap();
        assert!(Place::open(base.path()).unwrap().is_none());
        let place = Place::open_or_make(base.path()).unwrap().expect("a folder");
        let mode = fs::metadata(&place.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(Place::open(base.path()).unwrap().is_some());

        fs::set_permissions(&place.path, PermissionsExt::from_mode(0o750)).unwrap();
        let text = Place::open(base.path()).unwrap_err().to_string();
        assert!(text.contains("(mode 750)") && text.contains("lowtide-"), "{text}");

        fs::remove_dir(&place.path).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), &place.path).unwrap();
        let text = Place::open_or_make(base.path()).unwrap_err().to_string();
        assert!(text.contains("is a link or no folder"), "{text}");
        fs::remove_file(&place.path).unwrap();
        fs::write(&place.path, "").unwrap();
        assert!(matches!(Place::open_or_make(base.path()), Err(Error::Refused { .. })));
    }

    #[test]
    fn a_folder_of_another_user_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let place = Place::open_or_make(base.path()).unwrap().expect("a folder");
        if std::os::unix::fs::chown(&place.path, Some(54_321), None).is_err() {
            // Only root gives files away.
            return;
        }
        let text = Place::open(base.path()).unwrap_err().to_string();
        assert!(text.contains("belongs to user 54321"), "{text}");
    }

    #[test]
    fn links_and_pipes_are_no_pages() {
        let base = tempfile::tempdir().unwrap();
        let place = Place::open_or_make(base.path()).unwrap().expect("a folder");
        assert!(place.file("1").unwrap().is_none());
        symlink("/etc/passwd", place.path.join("1")).unwrap();
        assert!(place.file("1").unwrap_err().to_string().contains("is a link"));
        rustix::fs::mkdirat(&place.dir, "2", Mode::RWXU).unwrap();
        assert!(place.file("2").unwrap_err().to_string().contains("is no file"));
    }

    #[test]
    fn a_base_that_takes_nothing_is_passed_over() {
        assert!(Place::open_or_make(Path::new("/proc")).unwrap().is_none());
        assert!(Place::open_or_make(Path::new("/nowhere/at/all")).unwrap().is_none());
        assert!(Place::open_or_make(Path::new("/dev/null")).unwrap().is_none());
    }
}
