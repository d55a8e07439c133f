//! What plays need: the player, the file that all of them read, and the command under test.
//!
//! The player is built by the C compiler that links Rust programs, too. The command and its library
//! are built by cargo, in the profile of this program, unless a command is given.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use thiserror::Error;

/// Pages of the common file: as many as the player knows.
const FILE_PAGES: u64 = 2048;
const PAGE: usize = 4096;
/// The sources of the player, `plugin.c` apart.
const SOURCES: [&str; 9] = [
    "player.c",
    "model.c",
    "memory.c",
    "heap.c",
    "transfer.c",
    "process.c",
    "threads.c",
    "signals.c",
    "owned.c",
];

/// Why there can be no play.
#[derive(Debug, Error)]
pub enum StageError {
    /// A program does not start.
    #[error("{program} cannot be started: {source}")]
    Start {
        /// Which.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// Something does not build.
    #[error("{what} does not build:\n{said}")]
    Build {
        /// What.
        what: &'static str,
        /// What the compiler said.
        said: String,
    },
    /// A file cannot be made.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Paths of all that plays need, in a folder that goes with this.
#[derive(Debug)]
pub struct Stage {
    folder: tempfile::TempDir,
    /// The command under test.
    pub lowtide: PathBuf,
    /// A play may have mounts of its own.
    pub has_namespaces: bool,
}

fn run(command: &mut Command, what: &'static str) -> Result<(), StageError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|source| StageError::Start { program, source })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(StageError::Build { what, said })
}

/// The word of a page of this tag, as in `player/model.c`. Tags of the file compress.
fn word(tag: u64, at: u64) -> u64 {
    lowtide_workload::prng::mix64((tag << 16).wrapping_add(at / 64))
}

impl Stage {
    /// Builds what is missing, in a folder below `within`, which must be on a disk: what is in
    /// memory is not evicted.
    ///
    /// # Errors
    /// No compiler, no room, or a source that does not build.
    pub fn build(within: &Path, lowtide: Option<PathBuf>) -> Result<Self, StageError> {
        let file = |path: &Path| {
            let path = path.to_owned();
            |source| StageError::File { path, source }
        };
        fs::create_dir_all(within).map_err(file(within))?;
        let within = &within.canonicalize().map_err(file(within))?;
        let made = tempfile::Builder::new().prefix("programs-").tempdir_in(within);
        let folder = made.map_err(file(within))?;
        let lowtide = lowtide.map_or_else(build_command, Ok)?;
        // Plays have folders of their own.
        let lowtide = lowtide.canonicalize().map_err(file(&lowtide))?;
        let has_namespaces = Command::new("unshare").args(["--mount", "true"]).status();
        let has_namespaces = has_namespaces.is_ok_and(|status| status.success());
        let stage = Self { lowtide, folder, has_namespaces };
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("player");
        let common = ["-O1", "-g", "-pthread", "-Wall", "-Wextra", "-Werror"];
        let mut player = Command::new("cc");
        player.args(common).args(["-rdynamic", "-o"]).arg(stage.player());
        player.args(SOURCES.map(|name| sources.join(name))).arg("-ldl");
        run(&mut player, "the player")?;
        let mut plugin = Command::new("cc");
        plugin.args(common).args(["-shared", "-fPIC", "-o"]).arg(stage.plugin());
        run(plugin.arg(sources.join("plugin.c")), "the player's library")?;
        stage.make_data().map_err(file(&stage.data()))?;
        Ok(stage)
    }

    /// The common file, on the disk: pages that were not written yet cannot leave.
    fn make_data(&self) -> io::Result<()> {
        let data = fs::File::create(self.data())?;
        let mut page = [0_u8; PAGE];
        for number in 0..FILE_PAGES {
            let tag = 0x4000_0000 + (number << 1);
            for (at, to) in (0..).zip(page.chunks_exact_mut(8)) {
                to.copy_from_slice(&word(tag, at).to_le_bytes());
            }
            data.write_all_at(&page, number * PAGE as u64)?;
        }
        data.sync_all()
    }

    /// The player.
    #[must_use]
    pub fn player(&self) -> PathBuf {
        self.folder.path().join("player")
    }

    /// The library that a player opens.
    #[must_use]
    pub fn plugin(&self) -> PathBuf {
        self.folder.path().join("plugin.so")
    }

    /// The file that all plays read.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Where folders of plays are made.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// Builds the command and its library in the profile of this program, with the features that tests
/// of the workspace have: what these have built is not built again. An example brings those. With
/// `LOWTIDE_BUILT` in the environment all of it is there.
///
/// # Errors
/// Cargo does not start, or a source does not build.
pub fn build_command() -> Result<PathBuf, StageError> {
    let own = std::env::current_exe();
    let own = own.map_err(|source| StageError::File { path: PathBuf::new(), source })?;
    let is_profile = |folder: &&Path| folder.ends_with("release") || folder.ends_with("debug");
    let profile = own.ancestors().find(is_profile).unwrap_or(Path::new("target/debug")).to_owned();
    if std::env::var_os("LOWTIDE_BUILT").is_some() {
        return Ok(profile.join("lowtide"));
    }
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let mut build = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    build.args(["build", "-q", "--workspace", "--lib", "--bin", "lowtide", "--example", "maps"]);
    build.args(["--example", "guest", "--example", "mapped"]);
    build.arg("--manifest-path").arg(manifest);
    build.arg("--target-dir").arg(profile.parent().unwrap_or(Path::new("target")));
    if profile.ends_with("release") {
        build.arg("--release");
    }
    run(&mut build, "the command under test")?;
    Ok(profile.join("lowtide"))
}
