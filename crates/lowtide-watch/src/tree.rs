//! Which processes a `lowtide run` has started.
//!
//! The number of the process that `lowtide run` became is in the environment of everything that it
//! starts under lowtide. A program may write over its environment, to show another title, say. So
//! a process also belongs to the tree if one of its ancestors does, and once known it stays.

use lowtide_status::{Status, list};
use std::collections::BTreeSet;
use std::fs;
use std::sync::Mutex;

/// The variable with the number of the first process.
const VARIABLE: &str = "LOWTIDE_RUN_PID";
/// Ancestors that are looked at.
const DEPTH: usize = 64;

/// The processes of one `lowtide run`.
#[derive(Debug)]
pub(crate) struct Tree {
    first: u32,
    /// Number and start.
    known: Mutex<BTreeSet<(u32, u64)>>,
}

impl Tree {
    pub(crate) fn new(first: u32) -> Self {
        Self { first, known: Mutex::default() }
    }

    /// The pages of its processes.
    pub(crate) fn pages(&self) -> Vec<Status> {
        let Ok(pages) = list() else { return Vec::new() };
        let mut known = self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut all = pages.live;
        let mut belongs = |page: &Status| {
            let is_one = known.contains(&(page.pid, page.start_ticks))
                || page.pid == self.first
                || self.has_variable(page.pid)
                || self.descends(page.pid);
            if is_one {
                known.insert((page.pid, page.start_ticks));
            }
            is_one
        };
        all.retain(&mut belongs);
        known.retain(|(pid, _)| all.iter().any(|page| page.pid == *pid));
        all
    }

    fn has_variable(&self, pid: u32) -> bool {
        let wanted = format!("{VARIABLE}={}", self.first);
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
    }

    fn descends(&self, pid: u32) -> bool {
        let parents = std::iter::successors(Some(pid), |&at| parent(at));
        parents.skip(1).take(DEPTH).any(|parent| parent == self.first)
    }
}

fn parent(pid: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok().filter(|parent| *parent > 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_belongs_to_the_one_whose_number_its_environment_has_and_to_its_ancestors() {
        let mut child = Command::new("sleep");
        let mut child = child.arg("1000").env(VARIABLE, "4711").spawn().expect("a process");
        // Until it has become `sleep`, its environment is this one's.
        while !Tree::new(4711).has_variable(child.id()) {
            std::thread::yield_now();
        }
        assert!(!Tree::new(471).has_variable(child.id()));
        assert!(Tree::new(std::process::id()).descends(child.id()));
        assert!(!Tree::new(child.id()).descends(std::process::id()));
        child.kill().expect("its end");
        child.wait().expect("its end");
    }
}
