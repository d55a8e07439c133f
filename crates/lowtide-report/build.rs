//! The commit that the command is built from, for its results. A build outside of a repository has
//! none.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        println!("cargo::rustc-env=LOWTIDE_COMMIT={commit}");
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let said =
        Command::new("git").args(arguments).output().ok().filter(|said| said.status.success())?;
    Some(String::from_utf8(said.stdout).ok()?.trim().to_owned())
}
