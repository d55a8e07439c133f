//! `cargo install` takes programs from a build and leaves libraries behind, and `lowtide run` needs
//! one. So where the command is installed, the library is built first and becomes a part of it
//! ([decision 21](../../docs/decisions/0021-one-file.md)). In a clone, both are built together and
//! the command finds the library beside itself.
//!
//! `LOWTIDE_EMBED` overrides that, for those who make packages: the path of a library that is built
//! already, or nothing at all for a command without one.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::error::Error;
use std::fs;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::process::Command;

const FILE: &str = "liblowtide_preload.so";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-env-changed=LOWTIDE_EMBED");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(embedded)");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo names no folder")?);
    let home = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo names no package")?);
    let neighbour = home.join("../lowtide-preload");
    let in_clone = neighbour.join("Cargo.toml").is_file();
    let library = match env::var_os("LOWTIDE_EMBED") {
        Some(path) if path.is_empty() => return Ok(()),
        Some(path) => PathBuf::from(path),
        None if in_clone && !is_installed() => return Ok(()),
        None => build(&out.join("embed"), &home, in_clone.then_some(&neighbour))?,
    };
    println!("cargo::rerun-if-changed={}", library.display());
    let bytes = fs::read(&library).map_err(|e| format!("{}: {e}", library.display()))?;
    let mut hash = DefaultHasher::new();
    hash.write(&bytes);
    fs::write(out.join(FILE), bytes)?;
    println!("cargo::rustc-env=LOWTIDE_EMBEDDED_HASH={:016x}", hash.finish());
    println!("cargo::rustc-cfg=embedded");
    Ok(())
}

/// Whether cargo was started to install: what it is building for is in none of its variables.
fn is_installed() -> bool {
    let parent = std::os::unix::process::parent_id();
    let line = fs::read(format!("/proc/{parent}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).skip(1).any(|word| word == b"install")
}

/// Builds the library in a workspace of its own, since cargo has this one locked. Returns its path.
fn build(folder: &Path, home: &Path, source: Option<&PathBuf>) -> Result<PathBuf, Box<dyn Error>> {
    let version = env::var("CARGO_PKG_VERSION")?;
    let place = match source {
        Some(path) => format!("path = {:?}", path.canonicalize()?),
        None => format!("version = \"={version}\""),
    };
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("src/lib.rs"), "")?;
    let manifest = format!(
        "[workspace]\n[package]\nname = \"embed\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [dependencies]\nlowtide-preload = {{ {place} }}\n\
         [profile.release]\nlto = \"thin\"\ncodegen-units = 4\npanic = \"unwind\"\n"
    );
    fs::write(folder.join("Cargo.toml"), manifest)?;
    // The versions that the command is built with. What is not needed here is dropped.
    let locks = [home.join("Cargo.lock"), home.join("../../Cargo.lock")];
    if let Some(lock) = locks.iter().find(|lock| lock.is_file()) {
        fs::copy(lock, folder.join("Cargo.lock"))?;
    }
    let (cargo, target) = (env::var_os("CARGO").ok_or("no cargo")?, env::var("TARGET")?);
    let built = folder.join("target");
    let output = Command::new(cargo)
        .args(["build", "--release", "-p", "lowtide-preload", "--target", &target])
        .arg("--manifest-path")
        .arg(folder.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&built)
        .output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the library of `lowtide run` cannot be built:\n{text}").into());
    }
    Ok(built.join(target).join("release").join(FILE))
}
