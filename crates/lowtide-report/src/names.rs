//! Names on the command line, with a suggestion for an unknown one.

use lowtide::{HighPolicy, Policy};
use lowtide_workload::nearest;

/// A policy, as in `--policy`.
///
/// # Errors
/// The error of the name, with the nearest known one.
pub fn policy(text: &str) -> Result<Policy, String> {
    text.parse().map_err(|error: lowtide::PolicyError| {
        let end = text.find('+').unwrap_or(text.len());
        let (name, switches) = text.split_at(end);
        let known = Policy::builtin().map(|(policy, _)| policy.to_string());
        error.to_string() + &hint(name, switches, known)
    })
}

/// A throttle policy of `memory.high`, as in `--high-policy`.
///
/// # Errors
/// The error of the name, with the nearest known one.
pub fn high_policy(text: &str) -> Result<HighPolicy, String> {
    let known = HighPolicy::ALL.map(|(policy, _)| policy.to_string());
    text.parse::<HighPolicy>().map_err(|error| error.to_string() + &hint(text, "", known))
}

/// `did you mean`, if a known name is close to the given one; `rest` follows the name.
fn hint(given: &str, rest: &str, known: impl IntoIterator<Item = String>) -> String {
    let known: Vec<String> = known.into_iter().collect();
    match nearest(&given.to_ascii_lowercase(), known.iter().map(String::as_str)) {
        Some(near) if near != given => format!("; did you mean `{near}{rest}`?"),
        _ => String::new(),
    }
}

/// The items of a list, each once, in order. Notes each item that occurs more than once.
pub fn once<T: PartialEq + Clone>(
    items: &[T],
    name: impl Fn(&T) -> String,
    mut note: impl FnMut(String),
) -> Vec<T> {
    let mut found: Vec<T> = Vec::with_capacity(items.len());
    let mut twice: Vec<T> = Vec::new();
    for item in items {
        if !found.contains(item) {
            found.push(item.clone());
        } else if !twice.contains(item) {
            note(format!("{} is named more than once; it has one row", name(item)));
            twice.push(item.clone());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_answered_with_the_name_that_was_meant() {
        assert_eq!(policy("MGLRU").unwrap(), policy("mglru").unwrap());
        assert_eq!(policy("Mglru-7.1+s10").unwrap(), policy("mglru-7.1+S10").unwrap());
        for (given, meant) in
            [("mglur", "`mglru`"), ("mglr-7.1+S10", "`mglru-7.1+S10`"), ("LRo", "`lru`")]
        {
            let error = policy(given).unwrap_err();
            assert!(error.contains(&format!("did you mean {meant}?")), "{error}");
        }
        assert!(!policy("mglru+S99").unwrap_err().contains("did you mean"));
        assert!(!policy("postgresql").unwrap_err().contains("did you mean"));
    }

    #[test]
    fn a_throttle_policy_has_a_nearest_name_too() {
        let error = high_policy("stall-det").unwrap_err();
        assert!(error.contains("did you mean `stall-debt`?"), "{error}");
        assert!(high_policy("overage").is_ok());
    }

    #[test]
    fn what_is_named_twice_is_taken_once_and_noted_once() {
        let mut notes = Vec::new();
        assert_eq!(once(&[3, 1, 3, 3], ToString::to_string, |note| notes.push(note)), [3, 1]);
        assert_eq!(notes, ["3 is named more than once; it has one row"]);
    }
}
