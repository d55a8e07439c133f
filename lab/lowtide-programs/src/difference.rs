//! What of two plays must be equal.

use crate::plan::Plan;
use crate::play::{End, Outcome};
use std::fmt::Write as _;

/// The exit code of a player that found a wrong byte.
const WRONG: i32 = 70;
/// Lines that are shown of each side.
const SHOWN: usize = 6;

/// In which respect two plays differ: a smaller plan must differ in the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Respect {
    /// A byte of the program's memory or of its file is wrong.
    Bytes,
    /// It does not end.
    Hang,
    /// It ends otherwise.
    End,
    /// It says something else.
    Output,
    /// It leaves other files.
    Files,
}

/// A difference, for people.
#[derive(Clone, Debug)]
pub struct Difference {
    /// In which respect.
    pub respect: Respect,
    /// It may only have been slow: some thread wanted to run.
    pub may_be_slow: bool,
    /// What is there, and what there should be.
    pub text: String,
}

/// Whether a player found a wrong byte.
fn is_wrong(outcome: &Outcome) -> bool {
    outcome.end == End::Code(WRONG) || outcome.lines.iter().any(|line| line.ends_with("WRONG"))
}

/// What only one of them says.
fn only(of: &[String], other: &[String]) -> Vec<String> {
    let mut left = other.to_vec();
    let mut all = Vec::new();
    for line in of {
        match left.iter().position(|known| known == line) {
            Some(at) => drop(left.swap_remove(at)),
            None => all.push(line.clone()),
        }
    }
    all
}

fn list(text: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(text, "  {title}:");
    for line in lines.iter().take(SHOWN) {
        let _ = writeln!(text, "    {line}");
    }
    if lines.len() > SHOWN {
        let _ = writeln!(text, "    and {} more", lines.len() - SHOWN);
    }
}

/// Lines whose content does not depend on time.
fn steady(plan: &Plan, lines: &[String]) -> Vec<String> {
    let is_steady = |line: &&String| !plan.is_cut_short() || line.starts_with("0.");
    lines.iter().filter(is_steady).cloned().collect()
}

/// A play that must be as the player says, alone: `None` if it is.
#[must_use]
pub fn is_sound(alone: &Outcome) -> Option<Difference> {
    let respect = match alone.end {
        End::Never { .. } => Respect::Hang,
        _ if is_wrong(alone) => Respect::Bytes,
        _ => return None,
    };
    let mut text = format!("  alone: {:?}\n", alone.end);
    list(&mut text, "wrong", &alone.lines);
    let may_be_slow = matches!(alone.end, End::Never { is_idle: false, .. });
    Some(Difference { respect, may_be_slow, text })
}

/// How a play differs from that of the same plan alone.
#[must_use]
pub fn compare(plan: &Plan, alone: &Outcome, with: &Outcome) -> Option<Difference> {
    let [said, should] = [with, alone].map(|outcome| steady(plan, &outcome.lines));
    let (more, fewer) = (only(&said, &should), only(&should, &said));
    let (complaints, missed) =
        (only(&with.complaints, &alone.complaints), only(&alone.complaints, &with.complaints));
    let respect = if matches!(with.end, End::Never { .. }) {
        Respect::Hang
    } else if is_wrong(with) {
        Respect::Bytes
    } else if with.end != alone.end {
        Respect::End
    } else if !more.is_empty() || !fewer.is_empty() || !complaints.is_empty() || !missed.is_empty()
    {
        Respect::Output
    } else if with.files != alone.files && !plan.is_cut_short() {
        Respect::Files
    } else {
        return None;
    };
    let mut text = String::new();
    match &with.end {
        End::Never { places, .. } => {
            let _ = writeln!(text, "  does not end; its threads:\n    {}", places.join("\n    "));
        }
        other => {
            let _ = writeln!(text, "  end: {other:?}, alone {:?}", alone.end);
        }
    }
    list(&mut text, "says", &more);
    list(&mut text, "should say", &fewer);
    list(&mut text, "complains", &complaints);
    list(&mut text, "should complain", &missed);
    list(&mut text, "lowtide says", &with.messages);
    if respect == Respect::Files {
        let _ = writeln!(text, "  files: {:?}\n  alone: {:?}", with.files, alone.files);
    }
    let may_be_slow = matches!(with.end, End::Never { is_idle: false, .. });
    Some(Difference { respect, may_be_slow, text })
}
