//! The library as a part of this command, for installations that have no place for one
//! (`build.rs`).
//!
//! The dynamic linker loads files, so the bytes are written to one, once for each version: in the
//! user's cache, or where there is none in a folder of the user's own. What is loaded into every
//! program must be what this command has, so a file that is there is compared before it is used.
//! The path is used later, when programs start: so no other user may put anything else there, in
//! any folder on the way. Each belongs to root or to this user, and others may not write to it, or
//! may not take away what is not theirs (the sticky bit of `/tmp`). Root with the `HOME` of a user
//! does not use that user's cache.

use std::env;
use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use lowtide_run::elf::CLibrary;

/// The library for programs of glibc, and a name for its version.
#[cfg(embedded)]
const LIBRARY: Option<(&[u8], &str)> = Some((
    include_bytes!(concat!(env!("OUT_DIR"), "/liblowtide_preload.so")),
    env!("LOWTIDE_EMBEDDED_HASH"),
));
#[cfg(not(embedded))]
const LIBRARY: Option<(&[u8], &str)> = None;

/// The path of the file; `None` if this command has no library for these programs.
pub(super) fn file(of: CLibrary) -> Option<io::Result<PathBuf>> {
    let (bytes, version) = LIBRARY.filter(|_| of == CLibrary::Gnu)?;
    let mut last = None;
    for folder in folders() {
        match unpack(bytes, &folder.join(version), of.file()) {
            Ok(path) => return Some(Ok(path)),
            Err(error) => last = Some(error),
        }
    }
    Some(Err(last.unwrap_or_else(|| io::ErrorKind::NotFound.into())))
}

/// Where it may be, the best first.
fn folders() -> Vec<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let own = env::temp_dir().join(format!("lowtide-{}", geteuid().as_raw()));
    let named = [cache, absolute("XDG_RUNTIME_DIR")].into_iter().flatten();
    named.map(|folder| folder.join("lowtide")).chain([own]).collect()
}

/// Makes sure that the folder has the file with these bytes.
fn unpack(bytes: &[u8], folder: &Path, name: &str) -> io::Result<PathBuf> {
    for part in [folder.parent().unwrap_or(folder), folder] {
        if let Err(error) = DirBuilder::new().recursive(true).mode(0o700).create(part)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error);
        }
        let meta = fs::symlink_metadata(part)?;
        if !meta.is_dir() || meta.uid() != geteuid().as_raw() || meta.mode() & 0o022 != 0 {
            return Err(not_alone(part, "is not a folder of this user's alone"));
        }
    }
    // No part of this path is a link, which leads elsewhere later.
    let folder = &fs::canonicalize(folder)?;
    for part in folder.ancestors() {
        let meta = fs::symlink_metadata(part)?;
        let is_trusted = [0, geteuid().as_raw()].contains(&meta.uid());
        if !is_trusted || meta.mode() & 0o022 != 0 && meta.mode() & 0o1000 == 0 {
            return Err(not_alone(part, "is a folder in which others can replace what there is"));
        }
    }
    let path = folder.join(name);
    if fs::read(&path).is_ok_and(|found| found == bytes) {
        return Ok(path);
    }
    // Others may begin at the same time, and must not load a half.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.persist(&path)?;
    Ok(path)
}

fn not_alone(folder: &Path, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{} {why}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_loaded_is_what_the_command_has() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("lowtide/1");
        let path = unpack(b"library", &folder, "a.so").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"library");
        let first = fs::metadata(&path).unwrap().ino();
        assert_eq!(unpack(b"library", &folder, "a.so").unwrap(), path);
        assert_eq!(fs::metadata(&path).unwrap().ino(), first, "it is written once");
        fs::write(&path, b"another").unwrap();
        unpack(b"library", &folder, "a.so").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"library");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left behind");
    }

    #[test]
    fn a_folder_that_others_write_to_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(unpack(b"library", &open.join("1"), "a.so").is_err());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert!(unpack(b"library", &link, "a.so").is_err());
    }

    #[test]
    fn nothing_on_the_way_belongs_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let (cache, mode) = (dir.path().join("cache"), fs::Permissions::from_mode);
        let folder = cache.join("lowtide/1");
        unpack(b"library", &folder, "a.so").unwrap();
        for others in [0o777, 0o775] {
            fs::set_permissions(&cache, mode(others)).unwrap();
            let error = unpack(b"library", &folder, "a.so").unwrap_err();
            assert!(error.to_string().contains("cache is a folder in which others"), "{error}");
        }
        fs::set_permissions(&cache, mode(0o1777)).unwrap();
        unpack(b"library", &folder, "a.so").unwrap();
        fs::set_permissions(&cache, mode(0o755)).unwrap();
        // By a link that is the user's own, too.
        std::os::unix::fs::symlink(&cache, dir.path().join("link")).unwrap();
        let path = unpack(b"library", &dir.path().join("link/lowtide/1"), "a.so").unwrap();
        assert_eq!(path, fs::canonicalize(&folder).unwrap().join("a.so"));
        if geteuid().is_root() {
            std::os::unix::fs::chown(&cache, Some(12_345), None).unwrap();
            assert!(unpack(b"library", &folder, "a.so").is_err(), "root with a user's HOME");
        }
    }
}
