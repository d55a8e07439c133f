//! Loaded programs, as the engine calls them.
//!
//! [`Programs`] is a handle: one clone goes to the engine as [`LimitHooks`], another stays with the
//! operator, which reads [`status`](Programs::status) and fills maps. One
//! lock protects everything and is held for a run; nothing waits under it.
//!
//! A hook whose program fails has no opinion. One that fails [`FAILURES_MAX`] times in a row is
//! switched off and is not run again, until [`switch_on`](Programs::switch_on).

use crate::elf::{Linked, Object};
use crate::error::{LoadError, LoadFault, RunError};
use crate::helpers::Host;
use crate::hook::{Hook, proactive_answer, protection_answer, throttle_answer};
use crate::limits::FAILURES_MAX;
use crate::map::Map;
use crate::memory::{ARGUMENTS_ADDRESS, CONTEXT_ADDRESS, Memory};
use crate::ops::{self, Call};
use crate::types::World;
use crate::verify::verify;
use crate::vm::{self, Program};
use lowtide_core::hooks::{LimitHooks, LimitSnapshot, ReclaimRequest, ThrottleAnswer};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// The programs of one object, with their maps and data. Clones share everything.
#[derive(Clone)]
pub struct Programs {
    name: Arc<str>,
    license: Option<Arc<str>>,
    /// Its program about sleeping.
    throttle: Option<Hook>,
    /// Whether there is a program about reclaim in advance.
    proactive: bool,
    state: Arc<Mutex<State>>,
}

/// What is behind the lock.
struct State {
    loaded: [Option<Loaded>; Hook::ALL.len()],
    memory: Memory,
    host: Host,
}

/// A program and its history.
struct Loaded {
    program: Program,
    /// Where it was in the object.
    section: String,
    call: Call,
    runs: u64,
    failures: u64,
    in_a_row: u32,
    last: Option<RunError>,
    total_ns: u64,
    off: bool,
}

/// What became of one hook's program, since it was loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HookStatus {
    /// The hook.
    pub hook: Hook,
    /// Instruction slots, with the functions that the program may call.
    pub instructions: usize,
    /// How often it ran, failures included.
    pub runs: u64,
    /// How many runs failed.
    pub failures: u64,
    /// The error of the last run that failed.
    pub last_error: Option<RunError>,
    /// Nanoseconds that were reported by [`Programs::add_time`]. Nothing here reads a clock.
    pub total_ns: u64,
    /// Why the hook is not run any more, if it is not.
    pub switched_off: Option<SwitchedOff>,
}

/// Why a hook is not run any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("switched off after {failures} failing runs in a row; the last one: {last}")]
pub struct SwitchedOff {
    /// Failing runs in a row.
    pub failures: u32,
    /// The error of the last one.
    pub last: RunError,
}

/// An operation on a map that cannot be.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum MapError {
    /// No such map.
    #[error("{object} has no map {map}; it has: {}", known.join(", "))]
    NoMap {
        /// The object.
        object: String,
        /// The map.
        map: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// A key or value of another length.
    #[error("map {map} has {what}s of {expected} bytes, not of {found}")]
    Length {
        /// The map.
        map: String,
        /// `key` or `value`.
        what: &'static str,
        /// Bytes that it must have.
        expected: usize,
        /// Bytes that it has.
        found: usize,
    },
    /// No room for another key, or an index past the end of an array.
    #[error("map {map} has no room for this key; raise its max_entries")]
    Full {
        /// The map.
        map: String,
    },
    /// Elements of arrays cannot be removed.
    #[error("map {map} is an array; set the element to zeros instead of removing it")]
    Array {
        /// The map.
        map: String,
    },
}

impl Programs {
    /// Loads an object file that a compiler made for BPF, and verifies all its programs. `name` is
    /// for messages.
    ///
    /// Cost: linear in the object (functions that share instructions are looked at once each), and
    /// the memory of its maps.
    ///
    /// # Errors
    ///
    /// [`LoadError`], with the section, the instruction and the reason.
    pub fn load(bytes: &[u8], name: &str) -> Result<Self, LoadError> {
        Self::link(bytes, name).map_err(|what| LoadError { object: name.to_owned(), what })
    }

    fn link(bytes: &[u8], name: &str) -> Result<Self, LoadFault> {
        let object = Object::parse(bytes)?;
        let mut loaded = [const { None }; Hook::ALL.len()];
        for linked in object.programs {
            let Linked { hook, call, .. } = linked;
            let section = &linked.section[..];
            let world = World {
                constants: &linked.constants,
                maps: &object.maps,
                data: &object.data,
                call,
                answers: hook.answers(),
            };
            verify(&linked.code, linked.entry, &world).map_err(|(at, why)| {
                let (section, at) =
                    if at < linked.own { (section, at) } else { (".text", at - linked.own) };
                LoadFault::Refused { section: section.to_owned(), at, why }
            })?;
            let uses_stack = linked.code.iter().any(|insn| insn.dst == 10 || insn.src == 10);
            loaded[hook as usize] = Some(Loaded {
                program: Program {
                    code: linked.code,
                    entry: linked.entry,
                    context: match call {
                        Call::Snapshot => CONTEXT_ADDRESS,
                        Call::Operation { .. } => ARGUMENTS_ADDRESS,
                    },
                    uses_stack,
                },
                section: linked.section,
                call,
                runs: 0,
                failures: 0,
                in_a_row: 0,
                last: None,
                total_ns: 0,
                off: false,
            });
        }
        let mut throttles = Hook::THROTTLES.iter().filter_map(|&hook| {
            loaded[hook as usize].as_ref().map(|loaded: &Loaded| (hook, loaded.section.clone()))
        });
        let throttle = throttles.next();
        if let (Some((_, first)), Some((_, second))) = (&throttle, throttles.next()) {
            return Err(LoadFault::Twice { first: first.clone(), second });
        }
        let throttle = throttle.map(|(hook, _)| hook);
        let proactive = loaded[Hook::Proactive as usize].is_some();
        let maps = object.maps.into_iter().map(Map::new).collect();
        let state = State { loaded, memory: Memory::new(object.data, maps), host: Host::new() };
        Ok(Self {
            name: name.into(),
            license: object.license.map(Into::into),
            throttle,
            proactive,
            state: Arc::new(Mutex::new(state)),
        })
    }

    /// The name that the object was loaded with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The string of the object's section `license`. It has no consequences here.
    #[must_use]
    pub fn license(&self) -> Option<&str> {
        self.license.as_deref()
    }

    /// The hooks that there is a program for, each with its history.
    #[must_use]
    pub fn status(&self) -> Vec<HookStatus> {
        let state = self.lock();
        Hook::ALL
            .into_iter()
            .filter_map(|hook| {
                let loaded = state.loaded[hook as usize].as_ref()?;
                Some(HookStatus {
                    hook,
                    instructions: loaded.program.code.len(),
                    runs: loaded.runs,
                    failures: loaded.failures,
                    last_error: loaded.last,
                    total_ns: loaded.total_ns,
                    switched_off: loaded
                        .last
                        .filter(|_| loaded.off)
                        .map(|last| SwitchedOff { failures: loaded.in_a_row, last }),
                })
            })
            .collect()
    }

    /// Adds to a hook's time, as its caller measured it.
    pub fn add_time(&self, hook: Hook, ns: u64) {
        if let Some(loaded) = &mut self.lock().loaded[hook as usize] {
            loaded.total_ns = loaded.total_ns.saturating_add(ns);
        }
    }

    /// Switches a hook on again. Returns whether it was off.
    pub fn switch_on(&self, hook: Hook) -> bool {
        match &mut self.lock().loaded[hook as usize] {
            Some(loaded) => {
                loaded.in_a_row = 0;
                std::mem::take(&mut loaded.off)
            }
            None => false,
        }
    }

    /// The names of the maps.
    #[must_use]
    pub fn maps(&self) -> Vec<String> {
        self.lock().memory.maps.iter().map(|map| map.name.clone()).collect()
    }

    /// The value of a key; `None` if the map does not have it.
    ///
    /// # Errors
    ///
    /// If there is no such map, or the key has another length than the map's.
    pub fn map_get(&self, map: &str, key: &[u8]) -> Result<Option<Vec<u8>>, MapError> {
        self.with_map(map, key, |found| Ok(found.get(key).map(<[u8]>::to_vec)))
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    ///
    /// If there is no such map, key or value have another length than the map's, or there is no
    /// room.
    pub fn map_set(&self, map: &str, key: &[u8], value: &[u8]) -> Result<(), MapError> {
        self.with_map(map, key, |found| {
            length(found, "value", found.value_bytes, value)?;
            match found.update(key, value, 0) {
                0 => Ok(()),
                _ => Err(MapError::Full { map: map.to_owned() }),
            }
        })
    }

    /// Removes a key. Returns whether it was there.
    ///
    /// # Errors
    ///
    /// If there is no such map, it is an array, or the key has another length than the map's.
    pub fn map_remove(&self, map: &str, key: &[u8]) -> Result<bool, MapError> {
        self.with_map(map, key, |found| match found.delete(key) {
            0 => Ok(true),
            code if code == -crate::map::ENOENT => Ok(false),
            _ => Err(MapError::Array { map: map.to_owned() }),
        })
    }

    fn with_map<T>(
        &self,
        name: &str,
        key: &[u8],
        act: impl FnOnce(&mut Map) -> Result<T, MapError>,
    ) -> Result<T, MapError> {
        let mut state = self.lock();
        let maps = &mut state.memory.maps;
        let Some(at) = maps.iter().position(|map| map.name == name) else {
            let known = maps.iter().map(|map| map.name.clone()).collect();
            return Err(MapError::NoMap {
                object: self.name.to_string(),
                map: name.to_owned(),
                known,
            });
        };
        length(&maps[at], "key", maps[at].key_bytes, key)?;
        act(&mut maps[at])
    }

    /// Runs a hook's program; `None` without one, if it is off, or if it fails.
    fn call(&self, hook: Hook, snapshot: &LimitSnapshot) -> Option<(Call, u64)> {
        self.lock().run(hook, snapshot)
    }

    /// A run cannot panic, and the state is consistent after each of its steps: a lock that a panic
    /// elsewhere poisoned is as good as another.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn length(map: &Map, what: &'static str, expected: usize, found: &[u8]) -> Result<(), MapError> {
    if found.len() == expected {
        return Ok(());
    }
    Err(MapError::Length { map: map.name.clone(), what, expected, found: found.len() })
}

impl State {
    fn run(&mut self, hook: Hook, snapshot: &LimitSnapshot) -> Option<(Call, u64)> {
        let loaded = self.loaded[hook as usize].as_mut().filter(|loaded| !loaded.off)?;
        self.memory.set_context(snapshot);
        if loaded.call != Call::Snapshot {
            self.memory.set_arguments(ops::arguments(hook, snapshot));
        }
        self.host.now_ns = snapshot.now_ns;
        loaded.runs += 1;
        match vm::run(&loaded.program, &mut self.memory, &mut self.host) {
            Ok(r0) => {
                loaded.in_a_row = 0;
                Some((loaded.call, r0))
            }
            Err(error) => {
                loaded.failures += 1;
                loaded.in_a_row += 1;
                loaded.last = Some(error);
                loaded.off = loaded.in_a_row >= FAILURES_MAX;
                None
            }
        }
    }
}

impl LimitHooks for Programs {
    fn throttle(&mut self, snapshot: &LimitSnapshot) -> ThrottleAnswer {
        let answer = self.throttle.and_then(|hook| Some((hook, self.call(hook, snapshot)?)));
        answer.map_or(ThrottleAnswer::Default, |(hook, (call, r0))| throttle_answer(hook, call, r0))
    }

    fn wants_charges(&self) -> bool {
        self.throttle == Some(Hook::Charged)
    }

    fn below_low(&mut self, snapshot: &LimitSnapshot) -> Option<bool> {
        let (call, r0) = self.call(Hook::BelowLow, snapshot)?;
        protection_answer(call, r0)
    }

    fn below_min(&mut self, snapshot: &LimitSnapshot) -> Option<bool> {
        let (call, r0) = self.call(Hook::BelowMin, snapshot)?;
        protection_answer(call, r0)
    }

    fn is_proactive(&self) -> bool {
        self.proactive
    }

    fn proactive(&mut self, snapshot: &LimitSnapshot) -> u64 {
        self.call(Hook::Proactive, snapshot).map_or(0, |(_, r0)| proactive_answer(snapshot, r0))
    }

    /// In the order in which programs first asked; at most one request for each group, and at most
    /// [`REQUESTS_MAX`](crate::limits::REQUESTS_MAX).
    fn take_requests(&mut self) -> Vec<ReclaimRequest> {
        self.lock().host.requests.drain(..).collect()
    }

    fn online(&mut self, snapshot: &LimitSnapshot) {
        let _ = self.call(Hook::Online, snapshot);
    }

    fn offline(&mut self, snapshot: &LimitSnapshot) {
        let _ = self.call(Hook::Offline, snapshot);
    }
}

impl fmt::Debug for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hooks: Vec<_> = self.status().into_iter().map(|status| status.hook.section()).collect();
        f.debug_struct("Programs")
            .field("name", &self.name)
            .field("hooks", &hooks)
            .finish_non_exhaustive()
    }
}
