//! Drawing a plan from a seed.
//!
//! Every plan has a different set of themes (that is the idea of a swarm): a program that never
//! forks finds other bugs than one that does little else. Budgets are one to three MiB, and areas
//! together are larger, so that pages leave.
//!
//! The order of the draws is the meaning of a seed: a seed is good for one commit only, and a plan
//! is filed as text.

use crate::catalogue::{Arg, ENDS, KINDS_OF_OPERATIONS, Kind, Place, Theme};
use crate::plan::{Op, Plan, Word};
use lowtide_workload::SplitMix64;

/// Scripts of a plan at most.
const SCRIPTS: u64 = 6;
/// Pages of an area at most.
const PAGES: u64 = 500;
/// Pages of the common file that a mapping may begin at.
const OFFSETS: u64 = 1024;
/// Areas that most operations are about: few, so that they meet.
const SLOTS: u64 = 4;

struct Draw {
    rng: SplitMix64,
    themes: Vec<Theme>,
    /// Of a hundred stores, how many do not compress.
    noise: u32,
}

impl Draw {
    fn arg(&mut self, arg: Arg) -> Word {
        Word::Number(match arg {
            Arg::Slot => self.rng.below(SLOTS),
            Arg::Pages if self.rng.percent(60) => self.rng.range(100, PAGES),
            Arg::Pages => self.rng.by_magnitude(1, PAGES),
            Arg::From if self.rng.percent(40) => 0,
            Arg::From => self.rng.below(PAGES),
            Arg::Count if self.rng.percent(40) => PAGES,
            Arg::Count => self.rng.by_magnitude(1, PAGES),
            Arg::Offset => self.rng.below(OFFSETS),
            Arg::Tag => {
                let is_noise = self.rng.percent(self.noise);
                2 * self.rng.range(1, 100_000) + u64::from(is_noise)
            }
            Arg::Number(least, most) => self.rng.range(least, most),
            Arg::Script => 0,
            Arg::Word(words) => return Word::Name(self.rng.one_of(words).into()),
        })
    }

    fn op(&mut self, kind: &Kind) -> Op {
        let mut op = Op { name: kind.name.into(), args: Vec::new() };
        for arg in kind.args {
            let arg = self.arg(*arg);
            op.args.push(arg);
        }
        // Every fourth page would be noise: areas of whole noise have no room in a small budget.
        if op.name == "store"
            && let [_, _, Word::Number(count), Word::Number(tag)] = op.args.as_mut_slice()
            && *tag % 2 == 1
        {
            *count = (*count).min(60);
        }
        op
    }

    fn kind(&mut self, may_be: impl Fn(&Kind) -> bool) -> &'static Kind {
        let fits = |kind: &&Kind| self.themes.contains(&kind.theme) && may_be(kind);
        let weight: u64 = KINDS_OF_OPERATIONS.iter().filter(fits).map(|kind| kind.weight).sum();
        let mut left = self.rng.below(weight);
        let fits = |kind: &&Kind| self.themes.contains(&kind.theme) && may_be(kind);
        for kind in KINDS_OF_OPERATIONS.iter().filter(fits) {
            if left < kind.weight {
                return kind;
            }
            left -= kind.weight;
        }
        unreachable!("the draw is below the sum of the weights")
    }

    /// Areas that a script begins with.
    fn beginning(&mut self) -> Vec<Op> {
        let mut ops = Vec::new();
        for slot in 0..self.rng.range(1, 3) {
            let is_memory = |kind: &Kind| ["map", "heap", "file"].contains(&kind.name);
            let kind = self.kind(is_memory);
            let mut op = self.op(kind);
            op.args[0] = Word::Number(slot);
            op.args[1] = Word::Number(self.rng.range(100, PAGES));
            if kind.name == "map" {
                op.args[2] = Word::Name("rw".into());
            }
            ops.push(op);
            let tag = self.arg(Arg::Tag);
            let count = if matches!(tag, Word::Number(tag) if tag % 2 == 1) { 60 } else { PAGES };
            let numbers = [slot, 0, count].map(Word::Number);
            ops.push(Op { name: "store".into(), args: [&numbers[..], &[tag]].concat() });
        }
        ops
    }

    fn end(&mut self, is_first: bool) -> Op {
        let how = self.rng.one_of(&ENDS);
        // A child is waited for by its parent, and begins nothing of its own by then.
        let how = if !is_first && ["last", "exec"].contains(&how) { "_exit" } else { how };
        let args = vec![Word::Name(how.into()), Word::Number(self.rng.below(64))];
        Op { name: "end".into(), args }
    }
}

/// Which thread of execution plays a script.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Actor {
    Main,
    Child,
    Thread,
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut draw = Draw {
            rng: SplitMix64::new(seed).fork(0x5052_4F47),
            themes: vec![Theme::Memory],
            noise: 0,
        };
        for theme in &Theme::ALL[1..] {
            if draw.rng.percent(40) {
                draw.themes.push(*theme);
            }
        }
        draw.noise = draw.rng.one_of(&[0, 0, 10, 50]);
        let mut actors = vec![Actor::Main];
        let has_children = draw.themes.contains(&Theme::Children);
        let has_threads = draw.themes.contains(&Theme::Threads);
        if has_children || has_threads {
            for _ in 0..draw.rng.range(1, SCRIPTS - 1) {
                let is_thread = has_threads && (!has_children || draw.rng.percent(50));
                actors.push(if is_thread { Actor::Thread } else { Actor::Child });
            }
        }
        let is_alone = !actors.contains(&Actor::Thread) && !has_threads;
        let mut scripts: Vec<Vec<Op>> = Vec::new();
        for actor in &actors {
            scripts.push(draw.script(*actor, is_alone));
        }
        for (number, actor) in actors.iter().enumerate().skip(1) {
            // Few levels: each begins something of an earlier one.
            let parent = if draw.rng.percent(60) { 0 } else { draw.rng.below(number as u64) };
            let name = match actor {
                Actor::Thread => "thread",
                _ if draw.rng.percent(60) => "fork",
                _ => "start",
            };
            let mut args = vec![Word::Number(number as u64)];
            if name == "fork" {
                args.push(Word::Number(draw.rng.one_of(&[0, 0, 1, 4])));
            }
            let script = &mut scripts[parent as usize];
            let at = draw.rng.below(script.len() as u64 + 1) as usize;
            script.insert(at, Op { name: name.into(), args });
        }
        for (number, actor) in actors.iter().enumerate() {
            let (is_main, is_thread) = (number == 0, *actor == Actor::Thread);
            if draw.rng.percent(if is_main { 45 } else { 12 }) && !is_thread {
                let mut end = draw.end(is_main);
                if end.says("last") || end.says("exec") {
                    // They name a script: its last one, which nothing else has begun.
                    scripts_of_its_own(&mut draw, &mut scripts, &mut end, is_alone);
                }
                if draw.rng.percent(75) {
                    scripts[number].push(Op { name: "join".into(), args: Vec::new() });
                }
                scripts[number].push(end);
            }
        }
        let max = draw.rng.one_of(&[1, 1, 1, 2, 3]);
        let threshold = draw.rng.one_of(&[64, 64, 256, 1024]);
        Self { max, threshold, is_shm_full: draw.rng.percent(4), scripts }
    }
}

/// A script for a thread or a program that goes on after `main`.
fn scripts_of_its_own(draw: &mut Draw, scripts: &mut Vec<Vec<Op>>, end: &mut Op, is_alone: bool) {
    end.args[1] = Word::Number(scripts.len() as u64);
    let actor = if end.says("exec") { Actor::Main } else { Actor::Thread };
    let script = draw.script(actor, is_alone && actor == Actor::Main);
    scripts.push(script);
}

impl Draw {
    fn script(&mut self, actor: Actor, is_alone: bool) -> Vec<Op> {
        // A child has its parent's areas.
        let mut ops = if actor == Actor::Child && self.rng.percent(70) {
            Vec::new()
        } else {
            self.beginning()
        };
        let steps = self.rng.by_magnitude(1, 20);
        for _ in 0..steps {
            let kind = self.kind(|kind| match kind.place {
                Place::Any => true,
                Place::Process => actor != Actor::Thread,
                Place::Alone => is_alone,
            });
            let op = self.op(kind);
            ops.push(op);
        }
        ops
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_operation_and_every_word_is_drawn() {
        let mut drawn = HashSet::new();
        for seed in 0..4000 {
            for op in Plan::draw(seed).ops() {
                drawn.insert(op.name.clone());
                drawn.extend(op.args.iter().filter_map(|arg| match arg {
                    Word::Name(name) => Some(format!("{} {name}", op.name)),
                    Word::Number(_) => None,
                }));
            }
        }
        for kind in &KINDS_OF_OPERATIONS {
            assert!(drawn.contains(kind.name), "{}", kind.name);
            for arg in kind.args {
                let Arg::Word(words) = arg else { continue };
                for word in *words {
                    assert!(drawn.contains(&format!("{} {word}", kind.name)), "{word}");
                }
            }
        }
        for end in ENDS {
            assert!(drawn.contains(&format!("end {end}")), "{end}");
        }
    }
}
