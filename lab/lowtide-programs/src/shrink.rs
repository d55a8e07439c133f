//! Making a plan smaller that differs: leaves operations out, and makes numbers smaller, as long as
//! it differs in the same respect.
//!
//! Greedy: halves of a script first, then single operations, then arguments. A plan that differs
//! now and then is tried a few times before it counts as one that does not.

use crate::plan::{Op, Plan, Word};

/// Tries at most.
const TRIES: usize = 400;

/// The smallest plan found for which `differs` says yes.
pub fn shrink(plan: &Plan, mut differs: impl FnMut(&Plan) -> bool) -> Plan {
    let mut best = plan.clone();
    let mut tries = 0;
    'smaller: loop {
        for candidate in simpler(&best) {
            if tries == TRIES {
                break 'smaller;
            }
            tries += 1;
            if differs(&candidate) {
                best = candidate;
                continue 'smaller;
            }
        }
        break;
    }
    best
}

/// Plans that are simpler in one respect, the boldest first.
fn simpler(plan: &Plan) -> Vec<Plan> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Plan)| {
        let mut simpler = plan.clone();
        change(&mut simpler);
        while simpler.scripts.len() > 1 && simpler.scripts.last().is_some_and(Vec::is_empty) {
            simpler.scripts.pop();
        }
        if simpler != *plan {
            all.push(simpler);
        }
    };
    with(&|plan| plan.is_shm_full = false);
    // Whole scripts; the operation that begins one then does nothing.
    for number in 0..plan.scripts.len() {
        with(&|plan| plan.scripts[number].clear());
    }
    for (number, script) in plan.scripts.iter().enumerate() {
        let mut len = script.len() / 2;
        while len >= 1 {
            for from in (0..script.len()).step_by(len) {
                let to = (from + len).min(script.len());
                with(&|plan| drop(plan.scripts[number].drain(from..to)));
            }
            len /= 2;
        }
        if script.len() == 1 {
            with(&|plan| plan.scripts[number].clear());
        }
    }
    for (number, script) in plan.scripts.iter().enumerate() {
        for (at, op) in script.iter().enumerate() {
            for arg in 0..op.args.len() {
                for smaller in smaller(op, arg) {
                    with(&|plan| plan.scripts[number][at].args[arg] = Word::Number(smaller));
                }
            }
        }
    }
    all
}

/// Smaller numbers for an argument. A number of a script is its name, and a limit is as low as the
/// catalogue says: below, lowtide itself may need what is left.
fn smaller(op: &Op, arg: usize) -> Vec<u64> {
    let is_name = ["fork", "start", "thread"].contains(&op.name.as_str()) && arg == 0;
    match op.args[arg] {
        Word::Number(number) if !is_name && op.name != "limit" && number > 0 => {
            let mut all = vec![0, number / 2, number - number / 4];
            all.retain(|smaller| *smaller < number);
            all.dedup();
            all
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_matter_is_left_out() {
        let text = "max=1M threshold=64K: map 0 300 rw; store 0 0 300 8; fork 1 3; odd 0 1 2; \
                    check 0 5 9 / peer; unmap 0 30 60; peer / store 1 2 3 4";
        let plan: Plan = text.parse().expect("a plan");
        let differs = |plan: &Plan| {
            let is_large = |op: &Op| op.args.get(2).is_some_and(|arg| *arg > Word::Number(10));
            plan.has("fork", None) && plan.ops().any(|op| op.name == "unmap" && is_large(op))
        };
        let small = shrink(&plan, differs).to_string();
        assert_eq!(small, "max=1M threshold=64K: fork 1 0 / unmap 0 0 12");
    }

    #[test]
    fn a_limit_stays_as_high_as_it_was_drawn() {
        let text = "max=1M threshold=64K: map 0 300 rw; limit as 2054; limit files 12";
        let plan: Plan = text.parse().expect("a plan");
        let small = shrink(&plan, |plan| plan.has("limit", Some("as"))).to_string();
        assert_eq!(small, "max=1M threshold=64K: limit as 2054");
    }
}
