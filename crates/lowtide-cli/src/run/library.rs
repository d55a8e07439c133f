//! Where the libraries are that are loaded into programs: one for each C library. The nearest file
//! counts; a command that has a library in itself needs none.

use std::env;
use std::path::{Path, PathBuf};

use super::embedded;
use super::error::RunError;
use lowtide_host::itself;
use lowtide_run::elf::CLibrary;

/// A variable with the path of one, for those who keep it elsewhere.
const fn variable(of: CLibrary) -> &'static str {
    match of {
        CLibrary::Gnu => "LOWTIDE_PRELOAD",
        CLibrary::Musl => "LOWTIDE_PRELOAD_MUSL",
    }
}

/// How one is made.
const fn build(of: CLibrary) -> &'static str {
    match of {
        CLibrary::Gnu => "with `cargo build --release -p lowtide-preload` in lowtide's repository",
        CLibrary::Musl => "as docs/run-kernels.md in lowtide's repository says",
    }
}

/// Folders beside this command: of a build, of an installation.
const BESIDE: [&str; 3] = ["", "deps", "../lib/lowtide"];

/// The path of the library for programs of a C library, such that `LD_PRELOAD` can express it.
pub(crate) fn find(of: CLibrary) -> Result<PathBuf, RunError> {
    let variable = variable(of);
    let path = match env::var_os(variable) {
        Some(path) => named(of, Path::new(&path))?,
        None => match (beside(of, &itself::path()), embedded::file(of)) {
            (Err(_), Some(file)) => {
                file.map_err(|why| missing(of, format!("this command itself ({why})")))?
            }
            (found, _) => found?,
        },
    };
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.iter().any(|byte| *byte == b':' || byte.is_ascii_whitespace()) {
        return Err(RunError::LibraryPath { path, variable });
    }
    Ok(path)
}

fn missing(of: CLibrary, looked: String) -> RunError {
    RunError::NoLibrary { file: of.file(), looked, build: build(of), variable: variable(of) }
}

fn named(of: CLibrary, path: &Path) -> Result<PathBuf, RunError> {
    let found = path.canonicalize().ok().filter(|path| path.is_file());
    found.ok_or_else(|| missing(of, format!("{} ({})", variable(of), path.display())))
}

fn beside(of: CLibrary, command: &Path) -> Result<PathBuf, RunError> {
    let folder = command.parent().unwrap_or(Path::new("/"));
    let places = BESIDE.map(|place| folder.join(place));
    let found = places.iter().find_map(|place| {
        let path = place.join(of.file()).canonicalize().ok()?;
        path.is_file().then_some(path)
    });
    found.ok_or_else(|| {
        let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        missing(of, looked.join(", "))
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
        for (of, how) in [(CLibrary::Gnu, "cargo build"), (CLibrary::Musl, "run-kernels.md")] {
            let message = beside(of, &command).unwrap_err().to_string();
            assert!(message.contains(how) && message.contains(of.file()), "{message}");
            for place in ["lib/lowtide", "bin/deps", "bin"] {
                fs::create_dir_all(root.join(place)).unwrap();
                let library = root.join(place).join(of.file());
                fs::write(&library, "").unwrap();
                assert_eq!(beside(of, &command).unwrap(), library, "the nearest counts");
            }
            assert!(named(of, &root.join("none.so")).is_err());
        }
    }
}
