//! Promise: databases that lock their files by record locks lose nothing beside lowtide, which maps
//! these files in the same process while another one writes.
//!
//! `proofs/databases/run` is the proof, with 10,000 transactions; this is a shorter form.

#![allow(clippy::print_stdout, reason = "says what is skipped, and what was played")]

use crate::python;
use std::path::Path;
use std::process::Command;

/// Of each database in each way.
const TRANSACTIONS: &str = "300";

/// What the proof says.
fn prove(folder: &Path, built: &Path, ways: &str, databases: &str) -> (bool, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proofs/databases/run");
    let mut proof = Command::new("python3");
    proof.arg(script).args(["--transactions", TRANSACTIONS, "--ways", ways]);
    proof.args(["--databases", databases]).arg("--dir").arg(folder);
    proof.env("PYTHONPATH", folder).env("LOWTIDE_PROFILE", built);
    let output = proof.output().expect("Python starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{said}{}", String::from_utf8_lossy(&output.stderr));
    (output.status.success(), said)
}

#[test]
fn databases_lose_nothing_beside_a_map() {
    if !python::is_here() {
        println!("SKIPPED: no Python 3.11");
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let built = lowtide_programs::stage::build_command().expect("what is tested");
    let built = built.parent().expect("a folder").canonicalize().expect("a folder");
    python::package(&built, folder.path());
    let (is_right, said) = prove(folder.path(), &built, "none,memmap2,c,python", "sqlite,lmdb,bdb");
    assert!(is_right, "{said}");
    let finds = || prove(folder.path(), &built, "closing", "sqlite").1.contains("LOST");
    assert!((0..20).any(|_| finds()), "a process that loses its locks is not found");
}
