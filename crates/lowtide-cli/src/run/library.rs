//! Where the library is that is loaded into the program.

use std::env;
use std::path::{Path, PathBuf};

use super::error::RunError;
use crate::itself;

/// Its file.
const NAME: &str = "liblowtide_preload.so";
/// A variable with its path, for those who keep it elsewhere.
const VARIABLE: &str = "LOWTIDE_PRELOAD";
/// Folders beside this command: of a build, of an installation.
const BESIDE: [&str; 3] = ["", "deps", "../lib/lowtide"];

/// The library's path, such that `LD_PRELOAD` can express it.
pub(crate) fn find() -> Result<PathBuf, RunError> {
    let path = match env::var_os(VARIABLE) {
        Some(path) => named(Path::new(&path))?,
        None => beside(&itself::path())?,
    };
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.iter().any(|byte| b" :\t\n".contains(byte)) {
        return Err(RunError::LibraryPath { path });
    }
    Ok(path)
}

fn named(path: &Path) -> Result<PathBuf, RunError> {
    let found = path.canonicalize().ok().filter(|path| path.is_file());
    found.ok_or_else(|| RunError::NoLibrary { looked: format!("{VARIABLE} ({})", path.display()) })
}

fn beside(command: &Path) -> Result<PathBuf, RunError> {
    let folder = command.parent().unwrap_or(Path::new("/"));
    let places = BESIDE.map(|place| folder.join(place));
    let found = places.iter().find_map(|place| {
        let path = place.join(NAME).canonicalize().ok()?;
        path.is_file().then_some(path)
    });
    found.ok_or_else(|| {
        let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        RunError::NoLibrary { looked: looked.join(", ") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn it_is_found_beside_the_command_and_where_installations_put_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let command = root.join("bin/lowtide");
        fs::create_dir(root.join("bin")).unwrap();
        let message = beside(&command).unwrap_err().to_string();
        assert!(message.contains("cargo build"), "{message}");
        for place in ["lib/lowtide", "bin/deps", "bin"] {
            fs::create_dir_all(root.join(place)).unwrap();
            let library = root.join(place).join(NAME);
            fs::write(&library, "").unwrap();
            assert_eq!(beside(&command).unwrap(), library, "the nearest counts");
        }
        assert!(named(&root.join("none.so")).is_err());
    }
}
