//! What threads pay for being over `high`: a built-in law, or a program.

use std::fs;
use std::path::Path;

use lowtide::{HighPolicy, Programs, Tenant, TenantPolicyError};

use crate::bench::args::BenchArgs;
use crate::bench::error::BenchError;

/// One law.
#[derive(Clone, Debug)]
pub(super) enum Law {
    /// One that lowtide has.
    Builtin(HighPolicy),
    /// A program, beside the kernel's law.
    Program {
        /// Its file's name, without what an object file's name ends with.
        name: String,
        /// The object file.
        object: Vec<u8>,
    },
}

impl Law {
    /// The laws asked for: all built-in ones unless said, and every program.
    ///
    /// # Errors
    /// Those of [`Law::programs`].
    pub(super) fn all(args: &BenchArgs) -> Result<Vec<Self>, BenchError> {
        let builtin = || HighPolicy::ALL.map(|(policy, _)| policy).to_vec();
        let mut policies: Vec<HighPolicy> = Vec::new();
        for policy in args.high_policy.clone().unwrap_or_else(builtin) {
            if !policies.contains(&policy) {
                policies.push(policy);
            }
        }
        let mut laws: Vec<Self> = policies.into_iter().map(Self::Builtin).collect();
        laws.extend(Self::programs(args)?);
        Ok(laws)
    }

    /// The programs asked for. Each is checked here, before anything is made.
    ///
    /// # Errors
    /// [`BenchError::Program`].
    pub(super) fn programs(args: &BenchArgs) -> Result<Vec<Self>, BenchError> {
        args.bpf.iter().map(|path| Self::program(path)).collect()
    }

    fn program(path: &Path) -> Result<Self, BenchError> {
        let refuse = |why: String| BenchError::Program { path: path.to_owned(), why };
        let object = fs::read(path).map_err(|source| refuse(source.to_string()))?;
        let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let name = file.strip_suffix(".o").unwrap_or(&file);
        let name = name.strip_suffix(".bpf").unwrap_or(name).to_owned();
        Programs::load(&object, &name).map_err(|source| refuse(source.to_string()))?;
        Ok(Self::Program { name, object })
    }

    /// The name in results.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Builtin(policy) => policy.to_string(),
            Self::Program { name, .. } => format!("bpf:{name}"),
        }
    }

    /// Puts a tenant under this law.
    ///
    /// # Errors
    /// [`BenchError::Tenant`].
    pub(super) fn apply(&self, tenant: &Tenant) -> Result<Option<Programs>, BenchError> {
        match self {
            Self::Builtin(policy) => {
                tenant.set_high_policy(*policy)?;
                Ok(None)
            }
            Self::Program { name, object } => {
                tenant.set_high_policy(HighPolicy::Overage)?;
                let programs = tenant.attach(object, name).map_err(|error| match error {
                    TenantPolicyError::Tenant(error) => BenchError::from(error),
                    error => BenchError::Program { path: name.into(), why: error.to_string() },
                })?;
                Ok(Some(programs))
            }
        }
    }
}
