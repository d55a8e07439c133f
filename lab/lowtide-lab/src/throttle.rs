//! The throttle policies of `high` that `lowtide-lab bench` and `lowtide-lab sim` compare: built
//! in, or an eBPF program.
//!
//! A program is loaded once when the options are parsed, so that an error is reported before any
//! work starts. Each run loads it again, because a program keeps state in its maps.

use std::fs;
use std::path::{Path, PathBuf};

use lowtide::HighPolicy;
use lowtide_bpf::Programs;
use thiserror::Error;

/// An eBPF program that cannot be used.
#[derive(Debug, Error)]
#[error("cannot use the program {}: {why}; {ADVICE}", path.display())]
pub(crate) struct ProgramError {
    /// Its file.
    pub(crate) path: PathBuf,
    pub(crate) why: String,
}

/// What to do about a program that cannot be used.
const ADVICE: &str = "give --bpf an object file made by clang with --target=bpf";

impl ProgramError {
    /// What is wrong, and what to do.
    pub(crate) fn parts(&self) -> (String, &'static str) {
        (format!("cannot use the program {}: {}", self.path.display(), self.why), ADVICE)
    }
}

#[derive(Clone, Debug)]
pub(crate) enum ThrottlePolicy {
    /// A built-in policy.
    Builtin(HighPolicy),
    /// An eBPF program, on top of the kernel's policy.
    Program {
        /// The name of its file, without the extension.
        name: String,
        /// The object file.
        object: Vec<u8>,
    },
}

impl Default for ThrottlePolicy {
    fn default() -> Self {
        Self::Builtin(HighPolicy::default())
    }
}

impl ThrottlePolicy {
    /// The selected policies, by default all built-in ones, and every program.
    ///
    /// # Errors
    /// Those of [`ThrottlePolicy::programs`].
    pub(crate) fn all(
        policies: Option<&[HighPolicy]>,
        bpf: &[PathBuf],
    ) -> Result<Vec<Self>, ProgramError> {
        let builtin = HighPolicy::ALL.map(|(policy, _)| policy);
        let mut throttles: Vec<Self> = Vec::new();
        let mut seen: Vec<HighPolicy> = Vec::new();
        for &policy in policies.unwrap_or(&builtin) {
            if !seen.contains(&policy) {
                seen.push(policy);
                throttles.push(Self::Builtin(policy));
            }
        }
        throttles.extend(Self::programs(bpf)?);
        Ok(throttles)
    }

    /// The programs in these files.
    ///
    /// # Errors
    /// [`ProgramError`] for the first that cannot be read or loaded.
    pub(crate) fn programs(bpf: &[PathBuf]) -> Result<Vec<Self>, ProgramError> {
        bpf.iter().map(|path| Self::program(path)).collect()
    }

    fn program(path: &Path) -> Result<Self, ProgramError> {
        let refuse = |why: String| ProgramError { path: path.to_owned(), why };
        let object = fs::read(path).map_err(|source| refuse(source.to_string()))?;
        let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let name = file.strip_suffix(".o").unwrap_or(&file);
        let name = name.strip_suffix(".bpf").unwrap_or(name).to_owned();
        Programs::load(&object, &name).map_err(|source| refuse(source.to_string()))?;
        Ok(Self::Program { name, object })
    }

    /// The name in results.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Builtin(policy) => policy.to_string(),
            Self::Program { name, .. } => format!("bpf:{name}"),
        }
    }

    /// Whether it is a program.
    pub(crate) const fn is_program(&self) -> bool {
        matches!(self, Self::Program { .. })
    }

    /// The policy of lowtide itself; for a program, the kernel's.
    pub(crate) const fn builtin(&self) -> HighPolicy {
        match self {
            Self::Builtin(policy) => *policy,
            Self::Program { .. } => HighPolicy::Overage,
        }
    }
}
