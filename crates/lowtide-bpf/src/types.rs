//! The contents of registers, as far as they are certain.
//!
//! One state for each instruction holds the contents of each register on every path there. Where
//! paths meet, contents that differ become [`Ty::Any`], about which nothing is claimed. States only
//! ever lose knowledge, so the walk ends. The stack is not followed: a value read from there is
//! `Any`. A rejection therefore means that the instruction fails, or breaks a rule, on each path
//! that the walk finds to it.
//!
//! A looked-up value may be null until it is compared with 0. The comparison is a fact about every
//! copy of the address: copies are recognised by the call that they came from.

use crate::error::Refusal;
use crate::helpers::Helper;
use crate::isa::*;
use crate::limits::{CONTEXT_BYTES, FRAME_BYTES};
use crate::map::MapDef;
use crate::memory::Data;
use crate::ops::Call;
use crate::verify::{Refused, successors};
use std::collections::BTreeMap;

/// What a 64-bit constant was resolved to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Constant {
    /// A map, by number.
    Map(usize),
    /// An offset in a section of global data.
    Data(usize, u32),
}

/// What is around the program.
pub(crate) struct World<'a> {
    /// By the slot of the constant.
    pub constants: &'a BTreeMap<usize, Constant>,
    pub maps: &'a [MapDef],
    pub data: &'a [Data],
    /// How the program is called.
    pub call: Call,
    /// Whether it returns something.
    pub answers: bool,
}

/// The contents of a register. Offsets are `None` if they are not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ty {
    /// Nothing was written to it.
    Nothing,
    /// Something; nothing is claimed.
    Any,
    /// A number.
    Number,
    /// An address in the context.
    Context(Option<i64>),
    /// An address in an operation's arguments.
    Arguments(Option<i64>),
    /// An operation's group.
    Group,
    /// An address on the stack, from the frame pointer.
    Stack(Option<i64>),
    /// An address in a map's value, from the call at slot `call`.
    Value { map: usize, off: Option<i64>, call: usize, maybe_null: bool },
    /// An address in global data.
    Data { section: usize, off: Option<i64> },
    /// A map.
    Map(usize),
}

impl Ty {
    fn join(self, other: Self) -> Self {
        let same = |a: Option<i64>, b: Option<i64>| if a == b { a } else { None };
        match (self, other) {
            (a, b) if a == b => a,
            (Self::Context(a), Self::Context(b)) => Self::Context(same(a, b)),
            (Self::Arguments(a), Self::Arguments(b)) => Self::Arguments(same(a, b)),
            (Self::Stack(a), Self::Stack(b)) => Self::Stack(same(a, b)),
            (Self::Data { section: s, off: a }, Self::Data { section: t, off: b }) if s == t => {
                Self::Data { section: s, off: same(a, b) }
            }
            (
                Self::Value { map: m, off: a, call, maybe_null: x },
                Self::Value { map: n, off: b, call: other, maybe_null: y },
            ) if m == n && call == other => {
                Self::Value { map: m, off: same(a, b), call, maybe_null: x && y }
            }
            _ => Self::Any,
        }
    }

    const fn is_address(self) -> bool {
        matches!(
            self,
            Self::Context(_)
                | Self::Arguments(_)
                | Self::Group
                | Self::Stack(_)
                | Self::Value { .. }
                | Self::Data { .. }
                | Self::Map(_)
        )
    }

    /// The address moved by a known distance, or an unknown one.
    fn moved(self, by: Option<i64>) -> Self {
        let add = |off: Option<i64>| off.and_then(|off| off.checked_add(by?));
        match self {
            Self::Context(off) => Self::Context(add(off)),
            Self::Arguments(off) => Self::Arguments(add(off)),
            Self::Stack(off) => Self::Stack(add(off)),
            Self::Data { section, off } => Self::Data { section, off: add(off) },
            Self::Value { map, off, call, maybe_null } => {
                Self::Value { map, off: add(off), call, maybe_null }
            }
            Self::Nothing | Self::Any | Self::Number | Self::Group | Self::Map(_) => Self::Any,
        }
    }
}

type State = [Ty; REGISTERS as usize];

/// The third look, at the function that begins at `start`.
pub(crate) fn check(
    code: &[Insn],
    start: usize,
    is_program: bool,
    world: &World<'_>,
) -> Result<(), Refused> {
    let mut first = [Ty::Nothing; REGISTERS as usize];
    if is_program {
        first[1] = match world.call {
            Call::Snapshot => Ty::Context(Some(0)),
            Call::Operation { .. } => Ty::Arguments(Some(0)),
        };
    } else {
        // A caller may pass anything, and the callee may look at registers that its caller did not
        // set.
        first = [Ty::Any; REGISTERS as usize];
    }
    first[10] = Ty::Stack(Some(0));
    let mut states: BTreeMap<usize, State> = BTreeMap::from([(start, first)]);
    let mut open = vec![start];
    while let Some(at) = open.pop() {
        let state = states[&at];
        // Knowledge is only lost, so what is refused now may be allowed later: judge at the end.
        let after = step(code, at, state, world).unwrap_or([Ty::Any; REGISTERS as usize]);
        for (nth, to) in successors(code, at).enumerate() {
            let arriving = branched(code[at], after, nth == 1);
            let known = states.get(&to).copied();
            let joined =
                known.map_or(arriving, |known| std::array::from_fn(|i| known[i].join(arriving[i])));
            if known != Some(joined) {
                states.insert(to, joined);
                open.push(to);
            }
        }
    }
    for (&at, &state) in &states {
        // What a hook without an answer leaves in r0 means nothing.
        if is_program && code[at].is_exit() && !world.answers {
            continue;
        }
        let after = step(code, at, state, world).map_err(|why| (at, why))?;
        if is_program && code[at].is_exit() && after[0].is_address() {
            return Err((at, Refusal::AddressReturned));
        }
    }
    Ok(())
}

/// The result of a comparison with null.
fn branched(insn: Insn, mut state: State, jumped: bool) -> State {
    if !insn.is_jump() || insn.is_goto() {
        return state;
    }
    let with_null = insn.op & REG == 0 && insn.imm == 0 && insn.class() == JMP;
    let operation = insn.op & OPERATION;
    for register in [insn.dst, insn.src] {
        let Ty::Value { call, maybe_null: true, .. } = state[usize::from(register)] else {
            continue;
        };
        let is_null = match operation {
            JEQ if with_null => jumped,
            JNE if with_null => !jumped,
            // Any other comparison may be a test in disguise.
            _ => false,
        };
        for held in &mut state {
            match held {
                Ty::Value { call: other, maybe_null, .. } if *other == call => {
                    if is_null {
                        *held = Ty::Number;
                    } else {
                        *maybe_null = false;
                    }
                }
                _ => {}
            }
        }
    }
    state
}

/// One instruction: the registers after it, or why it cannot be.
fn step(code: &[Insn], at: usize, mut state: State, world: &World<'_>) -> Result<State, Refusal> {
    let insn = code[at];
    let get = |state: &State, register: u8| match state[usize::from(register)] {
        Ty::Nothing => Err(Refusal::Uninitialised { register }),
        ty => Ok(ty),
    };
    let dst = usize::from(insn.dst);
    let by_register = insn.op & REG != 0;
    match insn.class() {
        class @ (ALU | ALU64) => {
            let operation = insn.op & OPERATION;
            let b = match operation {
                NEG | END => Ty::Number,
                _ if by_register => get(&state, insn.src)?,
                _ => Ty::Number,
            };
            if operation == MOV {
                let whole = class == ALU64 && insn.off == 0;
                state[dst] = if whole || !b.is_address() { b } else { Ty::Any };
                return Ok(state);
            }
            let a = get(&state, insn.dst)?;
            let by = (!by_register).then_some(i64::from(insn.imm));
            state[dst] = computed(a, b, class, operation, by);
        }
        LD => {
            state[dst] = match world.constants.get(&at) {
                Some(&Constant::Map(map)) => Ty::Map(map),
                Some(&Constant::Data(section, off)) => Ty::Data { section, off: Some(off.into()) },
                None => Ty::Number,
            };
        }
        LDX => {
            let from = get(&state, insn.src)?;
            access(from, insn.src, insn.off, insn.width(), false, world)?;
            // Addresses are never stored in maps or data, and there are none in the context.
            state[dst] = match from {
                Ty::Stack(_) | Ty::Any | Ty::Arguments(None) => Ty::Any,
                Ty::Arguments(Some(base)) if base + i64::from(insn.off) == 0 => {
                    if insn.width() == 8 { Ty::Group } else { Ty::Any }
                }
                _ => Ty::Number,
            };
        }
        class @ (ST | STX) => {
            let to = get(&state, insn.dst)?;
            access(to, insn.dst, insn.off, insn.width(), true, world)?;
            if class == STX {
                let value = get(&state, insn.src)?;
                if value.is_address() && matches!(to, Ty::Value { .. } | Ty::Data { .. }) {
                    return Err(Refusal::AddressEscapes);
                }
                if insn.op & MODE == ATOMIC && insn.imm & FETCH != 0 {
                    let old = if insn.imm == COMPARE_EXCHANGE { 0 } else { usize::from(insn.src) };
                    state[old] =
                        if matches!(to, Ty::Stack(_) | Ty::Any) { Ty::Any } else { Ty::Number };
                }
            }
        }
        _ if insn.is_exit() => {
            get(&state, 0)?;
        }
        _ if insn.is_call() => {
            let result =
                if insn.src == CALL_LOCAL { Ty::Any } else { helper(insn.imm, at, &state, world)? };
            state[0] = result;
            state[1..6].fill(Ty::Nothing);
        }
        _ if insn.is_goto() => {}
        _ => {
            get(&state, insn.dst)?;
            if by_register {
                get(&state, insn.src)?;
            }
        }
    }
    Ok(state)
}

/// What an operation makes of two values; `by` is the second where it is a constant.
fn computed(a: Ty, b: Ty, class: u8, operation: u8, by: Option<i64>) -> Ty {
    match (a, b) {
        (Ty::Number, Ty::Number) => Ty::Number,
        (a, Ty::Number) if a.is_address() && class == ALU64 && operation == ADD => a.moved(by),
        (a, Ty::Number) if a.is_address() && class == ALU64 && operation == SUB => {
            a.moved(by.map(|by| -by))
        }
        (Ty::Number, b) if b.is_address() && class == ALU64 && operation == ADD => b.moved(None),
        _ => Ty::Any,
    }
}

/// Whether `bytes` bytes at `ty + off` can be accessed.
fn access(
    ty: Ty,
    register: u8,
    off: i16,
    bytes: u64,
    write: bool,
    world: &World<'_>,
) -> Result<(), Refusal> {
    // The first byte, if it is known and the access does not lie within `low..high`.
    let beside = |base: Option<i64>, low: i64, high: i64| {
        let first = base?.checked_add(off.into())?;
        (first < low || first.checked_add(bytes as i64)? > high).then_some(first)
    };
    match ty {
        Ty::Nothing => Err(Refusal::Uninitialised { register }),
        Ty::Any => Ok(()),
        Ty::Number => Err(Refusal::NotAnAddress { register }),
        Ty::Map(_) => Err(Refusal::MapAsMemory { register }),
        Ty::Group => Err(Refusal::GroupAsMemory { register }),
        Ty::Arguments(_) if write => Err(Refusal::ContextWrite),
        Ty::Arguments(base) => {
            let Call::Operation { arguments } = world.call else {
                return Err(Refusal::NotAnAddress { register });
            };
            let bytes = 8 * arguments as i64;
            match beside(base, 0, bytes) {
                Some(offset) => Err(Refusal::ContextBounds { offset, bytes: bytes as u64 }),
                None => Ok(()),
            }
        }
        Ty::Context(_) if write => Err(Refusal::ContextWrite),
        Ty::Context(base) => match beside(base, 0, CONTEXT_BYTES as i64) {
            Some(offset) => Err(Refusal::ContextBounds { offset, bytes: CONTEXT_BYTES as u64 }),
            None => Ok(()),
        },
        Ty::Stack(base) => match beside(base, -i64::from(FRAME_BYTES), 0) {
            Some(offset) => Err(Refusal::StackBounds { offset }),
            None => Ok(()),
        },
        Ty::Value { maybe_null: true, .. } => Err(Refusal::MaybeNull),
        Ty::Value { map, off: base, .. } => {
            let bytes = world.maps[map].value_bytes.into();
            match beside(base, 0, bytes) {
                Some(offset) => Err(Refusal::ValueBounds { offset, bytes: bytes as u64 }),
                None => Ok(()),
            }
        }
        Ty::Data { section, .. } if write && !world.data[section].writable => {
            Err(Refusal::ConstantWrite)
        }
        Ty::Data { section, off: base } => {
            let bytes = world.data[section].bytes.len() as i64;
            match beside(base, 0, bytes) {
                Some(offset) => Err(Refusal::DataBounds { offset, bytes: bytes as u64 }),
                None => Ok(()),
            }
        }
    }
}

/// A helper's arguments and result.
fn helper(number: i32, at: usize, state: &State, world: &World<'_>) -> Result<Ty, Refusal> {
    let Some(helper) = Helper::of(number) else { return Err(Refusal::UnknownHelper { number }) };
    for register in 1..=helper.arguments() {
        if state[usize::from(register)] == Ty::Nothing {
            return Err(Refusal::Uninitialised { register });
        }
    }
    if helper.wants_group() {
        return match state[1] {
            Ty::Group | Ty::Any if helper == Helper::LimitOf => Ok(Ty::Context(Some(0))),
            Ty::Group | Ty::Any => Ok(Ty::Number),
            _ => Err(Refusal::NotAGroup { number }),
        };
    }
    if !helper.wants_map() {
        return Ok(Ty::Number);
    }
    let map = match state[1] {
        Ty::Map(map) => map,
        Ty::Any => return Ok(Ty::Any),
        _ => return Err(Refusal::NotAMap { number, register: 1 }),
    };
    let def = &world.maps[map];
    access(state[2], 2, 0, def.key_bytes.into(), false, world)?;
    if helper == Helper::MapUpdate {
        access(state[3], 3, 0, def.value_bytes.into(), false, world)?;
    }
    Ok(if helper == Helper::MapLookup {
        Ty::Value { map, off: Some(0), call: at, maybe_null: true }
    } else {
        Ty::Number
    })
}
