//! A file of metrics, for the `textfile` collector of node_exporter.
//!
//! It is written under another name in the same folder and renamed, so a collector sees an old
//! text or a new one and never a part of one.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write metrics to {}: {source}; give a file in a folder that this user may write",
    path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// The kernel's error.
    pub source: io::Error,
}

/// Writes the file, in one step for readers.
///
/// # Errors
/// [`FileError`]; the file is as it was.
pub fn replace(path: &Path, text: &str) -> Result<(), FileError> {
    let failed = |source| FileError { path: path.to_owned(), source };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if path.is_dir() {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    // Collectors read names that end with `.prom`: this one does not.
    let mut new = tempfile::Builder::new()
        .prefix(".lowtide-")
        .permissions(Permissions::from_mode(0o644))
        .tempfile_in(folder.unwrap_or(Path::new(".")))
        .map_err(failed)?;
    new.write_all(text.as_bytes()).map_err(failed)?;
    new.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_is_replaced_and_others_may_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.prom");
        replace(&path, "one").unwrap();
        replace(&path, "two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o444, 0o444);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
        let missing = dir.path().join("no/a.prom");
        let text = replace(&missing, "").unwrap_err().to_string();
        assert!(text.contains("no/a.prom"), "{text}");
        assert!(replace(dir.path(), "").is_err(), "a folder is no file");
    }
}
