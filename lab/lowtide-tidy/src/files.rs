//! The files of the repository that are written by hand.

use std::fs;
use std::path::{Path, PathBuf};

/// A file and what is in it.
#[derive(Debug)]
pub struct Text {
    /// Path from the root of the repository, with `/` between its parts.
    pub path: String,
    /// The whole content.
    pub content: String,
}

impl Text {
    /// The end of the name, after its last dot.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.path.rsplit_once('.').map_or("", |(_, kind)| kind)
    }

    /// The folder of the file.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        let path = root().join(&self.path);
        path.parent().map(Path::to_owned).unwrap_or_default()
    }
}

/// Where the repository begins.
///
/// # Panics
/// If the crate was moved out of the repository.
#[must_use]
pub fn root() -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    dir.join("../..").canonicalize().expect("the repository is two levels above this crate")
}

/// All of them: sources, documents, manifests and scripts.
///
/// # Panics
/// If a file cannot be read, or if there are suspiciously few.
#[must_use]
pub fn texts() -> Vec<Text> {
    let mut all = Vec::new();
    collect(&root(), &root(), &mut all);
    assert!(all.len() > 300, "the repository has hundreds of files, found {}", all.len());
    all.sort_by(|a, b| a.path.cmp(&b.path));
    all
}

fn collect(root: &Path, dir: &Path, into: &mut Vec<Text>) {
    for entry in fs::read_dir(dir).expect("a folder of the repository") {
        let path = entry.expect("an entry of a folder").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let kind = path.extension().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && (!name.starts_with('.') || name == ".ci") {
                collect(root, &path, into);
            }
        } else if ["rs", "md", "toml", "c", "h", "sh", "py", "pyi"].contains(&kind.as_str())
            || name == "run"
        {
            let inside = path.strip_prefix(root).expect("it was found below the root");
            let content = fs::read_to_string(&path).expect("a text");
            into.push(Text { path: inside.to_string_lossy().into_owned(), content });
        }
    }
}
