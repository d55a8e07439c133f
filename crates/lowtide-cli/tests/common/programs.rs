//! Programs that map files, alone and under `lowtide run`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use super::text;

pub(crate) const MIB: usize = 1 << 20;
/// Bytes of the file, and the budget: a quarter.
pub(crate) const FILE: usize = 32 * MIB;
pub(crate) const BUDGET: &str = "8M";

/// The program of these tests, `examples/maps.rs` of lowtide-programs. Building it builds the
/// library too, beside the command under test. With `LOWTIDE_BUILT` in the environment all of it is
/// there: where each test is a process, each would ask Cargo.
pub(crate) fn maps() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let command = Path::new(super::path());
        let profile = command.parent().unwrap();
        let maps = profile.join("examples/maps");
        if std::env::var_os("LOWTIDE_BUILT").is_some() {
            return maps;
        }
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
        let mut build = Command::new(env!("CARGO"));
        // With the features that `cargo test --workspace` has, so that nothing is built twice.
        build.args(["build", "-q", "--workspace", "--lib"]);
        let examples = ["maps", "sandboxed", "refused", "reads", "waits", "watched", "constructor"];
        for example in examples {
            build.args(["--example", example]);
        }
        build.arg("--manifest-path").arg(manifest);
        build.arg("--target-dir").arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            build.arg("--release");
        }
        let built = build.status().expect("cargo starts");
        assert!(built.success(), "the library does not build");
        maps
    })
}

/// A command with the environment of a user who has not heard of lowtide.
pub(crate) fn plain(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_remove("LD_PRELOAD").stdin(Stdio::null());
    command
}

pub(crate) fn maps_with(args: &[&str]) -> Output {
    plain(maps()).args(args).output().unwrap()
}

/// `lowtide run` with these options and this program.
pub(crate) fn run(options: &[&str], program: &[&str]) -> Command {
    maps();
    let mut command = plain(super::path());
    command.arg("run").args(options).arg("--").args(program);
    command
}

/// A command in a sandbox that refuses these calls (`examples/refused.rs` of lowtide-programs),
/// with its arguments alone.
pub(crate) fn without(calls: &[&str], command: &Command) -> Command {
    let mut sandbox = plain(maps().with_file_name("refused"));
    sandbox.args(calls).arg("--").arg(command.get_program()).args(command.get_args());
    sandbox
}

pub(crate) struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    /// A folder with the file, on a disk: in a temporary file system there is nothing to drop.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let files = Self { dir };
        assert!(maps_with(&["make", files.data().as_str(), &FILE.to_string()]).status.success());
        files
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn data(&self) -> String {
        self.path("data")
    }

    /// Runs the program within the budget; what came out, and the summaries.
    pub(crate) fn within(&self, options: &[&str], program: &[&str]) -> (Output, Vec<Value>) {
        let summary = self.path("summary");
        let all = [&["--max", BUDGET, "--json", "--summary", &summary], options].concat();
        let output = run(&all, program).output().unwrap();
        let lines = fs::read_to_string(&summary).unwrap_or_default();
        let lines = lines.lines().map(|line| serde_json::from_str(line).expect("a line of JSON"));
        (output, lines.collect())
    }
}

/// Both ended well, and with the same output.
pub(crate) fn same(with: &Output, without: &Output) {
    assert!(without.status.success(), "{}", text(&without.stderr));
    assert!(with.status.success(), "{}", text(&with.stderr));
    assert_eq!(text(&with.stdout), text(&without.stdout));
}
