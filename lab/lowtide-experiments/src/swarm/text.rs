//! Plans as text: the grammar that `plan.rs` shows.

use std::fmt;
use std::str::FromStr;

use lowtide_core::{DirtyLimits, DirtyShare};
use lowtide_sim::spec::{DeviceSpec, FaultPath};
use lowtide_workload::SpaceKind;

use super::plan::{Fault, PAGE, Pattern, Plan, PlanError, SpacePlan, ThreadPlan};

impl fmt::Display for SpacePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.name(), self.pages)
    }
}

impl fmt::Display for ThreadPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { space, mapped, writes, syncs, frees, sleeps, pages, think_ns, ops, .. } = self;
        let pattern = self.pattern.name();
        write!(f, "{space}:{pattern}:m{mapped}:w{writes}:s{syncs}:f{frees}:z{sleeps}:p{pages}")?;
        write!(f, ":t{think_ns}:o{ops}")?;
        // What most plans do without is written where there is some.
        for (letter, rate) in self.rare() {
            if rate > 0 {
                write!(f, ":{letter}{rate}")?;
            }
        }
        Ok(())
    }
}

/// A fault with the operation that it comes with.
struct At(u64, Fault);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, value) = self.1.parts();
        write!(f, "{}:{name}:{value}", self.0)
    }
}

/// A share of memory: a number is percent, one with a `b` bytes.
struct Share(DirtyShare);

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            DirtyShare::Percent(percent) => write!(f, "{percent}"),
            DirtyShare::Bytes(bytes) => write!(f, "{bytes}b"),
        }
    }
}

impl FromStr for Share {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(match text.strip_suffix('b') {
            Some(bytes) => DirtyShare::Bytes(bytes.parse()?),
            None => DirtyShare::Percent(text.parse()?),
        }))
    }
}

fn list<T: fmt::Display>(items: impl Iterator<Item = T>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(",")
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed={};cpus={};", self.seed, self.cpus)?;
        if self.page != PAGE {
            write!(f, "page={};", self.page)?;
        }
        write!(f, "budget={};", self.budget)?;
        if self.room != self.budget {
            write!(f, "room={};", self.room)?;
        }
        write!(f, "memory={};", if self.whole { "whole" } else { "group" })?;
        if self.walks != 1 {
            write!(f, "walks={};", self.walks)?;
        }
        write!(f, "device={};", self.device)?;
        write!(f, "readahead={};around={};policy={};", self.readahead, self.around, self.policy)?;
        if self.path != FaultPath::default() {
            write!(f, "path={};", self.path)?;
        }
        if let Some(DirtyLimits { background, hard, .. }) = self.dirty {
            write!(f, "dirty={}:{};", Share(background), Share(hard))?;
        }
        if self.exact {
            write!(f, "figures=exact;")?;
        }
        if self.large {
            write!(f, "folios=large;")?;
        }
        write!(f, "processes={};spaces={};", self.processes, list(self.spaces.iter()))?;
        write!(f, "threads={};", list(self.threads.iter()))?;
        if !self.faults.is_empty() {
            write!(f, "faults={};", list(self.faults.iter().map(|&(at, fault)| At(at, fault))))?;
        }
        if let Some(bug) = self.bug {
            write!(f, "bug={bug};")?;
        }
        write!(f, "check={}", self.check)
    }
}

impl FromStr for SpacePlan {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (kind, pages) = text.split_once(':').ok_or(())?;
        let kind =
            [SpaceKind::File, SpaceKind::Anon].into_iter().find(|k| k.name() == kind).ok_or(())?;
        Ok(Self { kind, pages: pages.parse().map_err(drop)? })
    }
}

impl FromStr for ThreadPlan {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let parts: Vec<&str> = text.split(':').collect();
        let [space, pattern, m, w, s, f, z, p, t, o, rare @ ..] = parts.as_slice() else {
            return Err(());
        };
        fn number<T: FromStr>(part: &str, letter: char) -> Result<T, ()> {
            part.strip_prefix(letter).and_then(|digits| digits.parse().ok()).ok_or(())
        }
        let mut thread = Self {
            space: space.parse().map_err(drop)?,
            pattern: Pattern::ALL.into_iter().find(|known| known.name() == *pattern).ok_or(())?,
            mapped: number(m, 'm')?,
            writes: number(w, 'w')?,
            syncs: number(s, 's')?,
            frees: number(f, 'f')?,
            sleeps: number(z, 'z')?,
            pages: number(p, 'p')?,
            think_ns: number(t, 't')?,
            ops: number(o, 'o')?,
            drops: 0,
            resizes: 0,
            parts: 0,
            lazy: 0,
        };
        for part in rare {
            let rate = thread.rare_mut(part.chars().next().ok_or(())?).ok_or(())?;
            *rate = part[1..].parse().map_err(drop)?;
        }
        Ok(thread)
    }
}

impl FromStr for At {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let parts: Vec<&str> = text.split(':').collect();
        let &[at, name, value] = parts.as_slice() else { return Err(()) };
        let fault = Fault::of(name, value.parse().map_err(drop)?).ok_or(())?;
        Ok(Self(at.parse().map_err(drop)?, fault))
    }
}

/// The parts of a plan's text by key, each taken once.
struct Parts<'a>(Vec<(&'a str, &'a str)>);

impl Parts<'_> {
    fn optional<T>(
        &mut self,
        key: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, PlanError> {
        let Some(at) = self.0.iter().position(|(known, _)| *known == key) else { return Ok(None) };
        let (_, value) = self.0.remove(at);
        let wrong = || PlanError::Value { key: key.into(), value: value.into() };
        read(value).map(Some).ok_or_else(wrong)
    }

    fn need<T>(
        &mut self,
        key: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, PlanError> {
        self.optional(key, read)?.ok_or(PlanError::Missing(key))
    }

    fn number<T: FromStr>(&mut self, key: &'static str) -> Result<T, PlanError> {
        self.need(key, |text| text.parse().ok())
    }
}

fn items<T: FromStr>(text: &str) -> Option<Vec<T>> {
    text.split(',').map(|item| item.parse().ok()).collect()
}

impl FromStr for Plan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let parts = text.trim().split(';').filter(|part| !part.is_empty());
        let parts: Result<_, _> = parts
            .map(|part| part.split_once('=').ok_or_else(|| PlanError::Part(part.into())))
            .collect();
        let mut parts = Parts(parts?);
        let budget = parts.number("budget")?;
        let plan = Self {
            seed: parts.number("seed")?,
            cpus: parts.number("cpus")?,
            page: parts.optional("page", |text| text.parse().ok())?.unwrap_or(PAGE),
            budget,
            room: parts.optional("room", |text| text.parse().ok())?.unwrap_or(budget),
            whole: parts.need("memory", |text| match text {
                "whole" => Some(true),
                "group" => Some(false),
                _ => None,
            })?,
            walks: parts.optional("walks", |text| text.parse().ok())?.unwrap_or(1),
            device: parts.need("device", |text| DeviceSpec::names().find(|name| *name == text))?,
            readahead: parts.number("readahead")?,
            around: parts.number("around")?,
            policy: parts.number("policy")?,
            path: parts.optional("path", |text| text.parse().ok())?.unwrap_or_default(),
            dirty: parts.optional("dirty", |text| {
                let (background, hard) = text.split_once(':')?;
                let [Share(background), Share(hard)] =
                    [background.parse().ok()?, hard.parse().ok()?];
                Some(DirtyLimits::new(background, hard))
            })?,
            exact: parts
                .optional("figures", |text| (text == "exact").then_some(true))?
                .unwrap_or(false),
            large: parts
                .optional("folios", |text| (text == "large").then_some(true))?
                .unwrap_or(false),
            processes: parts.number("processes")?,
            spaces: parts.need("spaces", items)?,
            threads: parts.need("threads", items)?,
            faults: parts
                .optional("faults", items::<At>)?
                .unwrap_or_default()
                .into_iter()
                .map(|At(at, fault)| (at, fault))
                .collect(),
            bug: parts.optional("bug", |text| text.parse().ok())?,
            check: parts.number("check")?,
        };
        if let Some((key, value)) = parts.0.first() {
            return Err(PlanError::Part(format!("{key}={value}")));
        }
        plan.validate()?;
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swarm::sabotage::Bug;

    #[test]
    fn a_plan_survives_being_written_and_read() {
        for seed in 0..500 {
            let mut plan = Plan::draw(seed);
            plan.bug = (seed % 2 == 0).then_some(Bug::NoProtect);
            plan.validate().unwrap();
            assert_eq!(plan.to_string().parse::<Plan>().as_ref(), Ok(&plan), "{plan}");
            assert!(
                !plan.to_string().contains([' ', '\'', '"']),
                "it is one word for a shell: {plan}"
            );
        }
    }

    #[test]
    fn what_is_wrong_with_a_plan_is_said() {
        let plan = Plan { dirty: None, ..Plan::draw(1) }.to_string();
        let changed = |from: &str, to: &str| {
            let at = plan.find(from).unwrap();
            let end = plan[at..].find(';').map_or(plan.len(), |end| at + end);
            format!("{}{to}{}", &plan[..at], &plan[end..]).parse::<Plan>().unwrap_err().to_string()
        };
        assert!(changed("cpus=", "cpus=0").contains("from 1 to 64"));
        assert!(changed("cpus=", "cpus=x").contains("`x` is not a value of `cpus`"));
        assert!(changed("cpus=", "").contains("no `cpus`"));
        assert!(changed("budget=", "budget=31").contains("from"));
        assert!(changed("around=", "around=3").contains("around"));
        assert!(changed("device=", "device=floppy").contains("floppy"));
        assert!(changed("check=", "check=1;dirty=30:20").contains("30 %"));
        assert!(changed("check=", "check=1;dirty=1").contains("`1` is not a value of `dirty`"));
        assert!(changed("cpus=", "cpus=1;tail").contains("`tail` is not a part"));
        assert!(changed("cpus=", "cpus=1;wings=2").contains("`wings=2` is not a part"));
    }
}
