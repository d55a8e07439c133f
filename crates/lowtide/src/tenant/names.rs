//! The names of tenants: the engine knows groups by number only.

use super::TenantError;
use lowtide_core::{Engine, MemcgId};
use std::collections::HashMap;
use std::sync::Arc;

/// The names of all tenants of a pager. The root has none.
#[derive(Debug, Default)]
pub(crate) struct Names {
    of: HashMap<MemcgId, Arc<str>>,
    at: HashMap<(MemcgId, Arc<str>), MemcgId>,
}

/// Whether a name can be a step of a path.
pub(super) fn check(name: &str) -> Result<(), TenantError> {
    let problem = if name.is_empty() {
        "is empty"
    } else if name.contains('/') {
        "contains a slash, which separates the names of a path"
    } else if name.contains('\0') {
        "contains a NUL"
    } else {
        return Ok(());
    };
    Err(TenantError::InvalidName { name: name.to_owned(), problem })
}

impl Names {
    pub(super) fn insert(&mut self, id: MemcgId, parent: MemcgId, name: Arc<str>) {
        self.at.insert((parent, Arc::clone(&name)), id);
        self.of.insert(id, name);
    }

    /// Forgets a name; returns it.
    pub(super) fn remove(&mut self, id: MemcgId, parent: MemcgId) -> Option<Arc<str>> {
        let name = self.of.remove(&id)?;
        self.at.remove(&(parent, Arc::clone(&name)));
        Some(name)
    }

    pub(super) fn get(&self, id: MemcgId) -> Option<Arc<str>> {
        self.of.get(&id).cloned()
    }

    pub(super) fn find(&self, parent: MemcgId, name: &str) -> Option<MemcgId> {
        self.at.get(&(parent, Arc::from(name))).copied()
    }

    /// The names from below the root down to a group.
    pub(super) fn steps(&self, engine: &Engine, id: MemcgId) -> Vec<Arc<str>> {
        let upwards = std::iter::successors(Some(id), |&at| engine.parent(at));
        let mut steps: Vec<_> = upwards.filter_map(|at| self.of.get(&at).cloned()).collect();
        steps.reverse();
        steps
    }

    /// The path of a group, `/` for the root.
    pub(crate) fn path(&self, engine: &Engine, id: MemcgId) -> String {
        let steps = self.steps(engine, id);
        if steps.is_empty() {
            "/".to_owned()
        } else {
            steps.iter().flat_map(|s| ["/", s]).collect()
        }
    }
}
