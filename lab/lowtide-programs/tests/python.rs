//! The Python package for tests, without a wheel.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Whether there is a Python that can have it.
pub(crate) fn is_here() -> bool {
    let recent = "import sys; sys.exit(sys.version_info < (3, 11))";
    Command::new("python3").args(["-c", recent]).status().is_ok_and(|status| status.success())
}

/// Puts the package into a folder, as the wheel has it; the extension is that of a build.
pub(crate) fn package(built: &Path, folder: &Path) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/python/python/lowtide");
    let to = folder.join("lowtide");
    fs::create_dir_all(&to).expect("a folder");
    for entry in fs::read_dir(from).expect("the package") {
        let path = entry.expect("a name").path();
        if path.is_file() {
            fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("a copy");
        }
    }
    symlink(built.join("lib_lowtide.so"), to.join("_lowtide.abi3.so")).expect("a link");
}
