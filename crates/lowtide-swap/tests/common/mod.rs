//! Pages with contents that their number determines, and a backing that fails as planned.
#![allow(dead_code, reason = "each test uses a part")]

use lowtide_swap::{Backing, PAGE_BYTES};
use std::collections::BTreeMap;
use std::io;
use std::sync::Mutex;

/// A generator of bits: xorshift.
pub(crate) struct Bits(u64);

impl Bits {
    pub(crate) fn new(seed: u64) -> Bits {
        let mut bits = Bits(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d);
        bits.next();
        bits
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 |= u64::from(self.0 == 0);
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n
    }
}

/// The page of a number: of one word, of text, of structures, random, or almost empty.
pub(crate) fn page(number: u64) -> Vec<u8> {
    let mut bits = Bits::new(number);
    let mut page = vec![0; PAGE_BYTES];
    match number % 5 {
        0 => page.chunks_mut(8).for_each(|word| word.copy_from_slice(&number.to_le_bytes())),
        1 => {
            let words = ["page ", "of ", "anonymous ", "memory ", "that ", "was ", "evicted, "];
            let text = (0..PAGE_BYTES).flat_map(|_| words[bits.below(7)].bytes());
            page.iter_mut().zip(text).for_each(|(to, from)| *to = from);
        }
        2 => {
            for (n, word) in page.chunks_mut(8).enumerate() {
                let value =
                    if n % 2 == 0 { 0x7f12_3400_0000 + bits.next() % 65536 } else { n as u64 };
                word.copy_from_slice(&value.to_le_bytes());
            }
        }
        3 => page.chunks_mut(8).for_each(|word| word.copy_from_slice(&bits.next().to_le_bytes())),
        _ => page[..8].copy_from_slice(&number.to_le_bytes()),
    }
    page
}

/// What an operation does instead of succeeding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// An error with this number, before anything was done.
    Error(i32),
    /// Interrupted; done at the next attempt.
    Interrupted,
    /// A part is done.
    Short,
    /// Done, with a bit that is wrong.
    Flip,
    /// Reported as done, and not done.
    Lost,
}

/// Which call it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Write,
    Read,
    Punch,
}

/// Memory in the place of a file. Operations are numbered from 0; those in the plan have trouble.
#[derive(Default)]
pub(crate) struct Planned {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    calls: Vec<Call>,
    plan: BTreeMap<usize, Trouble>,
}

impl Planned {
    pub(crate) fn with(plan: impl IntoIterator<Item = (usize, Trouble)>) -> Planned {
        let plan = plan.into_iter().collect();
        Planned { state: Mutex::new(State { plan, ..State::default() }) }
    }

    /// The calls until now.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.state.lock().expect("no panic").calls.clone()
    }

    /// Changes a byte behind the back of the user.
    pub(crate) fn flip(&self, at: usize) {
        self.state.lock().expect("no panic").bytes[at] ^= 1;
    }

    /// The next calls have trouble.
    pub(crate) fn plan_next(&self, trouble: impl IntoIterator<Item = Trouble>) {
        let mut state = self.state.lock().expect("no panic");
        let next = state.calls.len();
        state.plan.extend((next..).zip(trouble));
    }
}

impl State {
    fn call(&mut self, call: Call) -> io::Result<Option<Trouble>> {
        let trouble = self.plan.get(&self.calls.len()).copied();
        self.calls.push(call);
        match trouble {
            Some(Trouble::Error(number)) => Err(io::Error::from_raw_os_error(number)),
            Some(Trouble::Interrupted) => Err(io::ErrorKind::Interrupted.into()),
            other => Ok(other),
        }
    }
}

fn aligned(bytes: &[u8], offset: u64) {
    assert_eq!(bytes.as_ptr() as usize % 512, 0, "a buffer for direct I/O");
    assert_eq!(offset % 512, 0);
    assert_eq!(bytes.len() % 512, 0);
}

impl Backing for Planned {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        aligned(bytes, offset);
        let mut state = self.state.lock().expect("no panic");
        let trouble = state.call(Call::Write)?;
        let len = if trouble == Some(Trouble::Short) { bytes.len() / 2 } else { bytes.len() };
        let at = offset as usize;
        if state.bytes.len() < at + bytes.len() {
            state.bytes.resize(at + bytes.len(), 0);
        }
        if trouble != Some(Trouble::Lost) {
            state.bytes[at..at + len].copy_from_slice(&bytes[..len]);
        }
        if trouble == Some(Trouble::Flip) {
            state.bytes[at + len / 2] ^= 4;
        }
        Ok(len)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        aligned(bytes, offset);
        let mut state = self.state.lock().expect("no panic");
        let trouble = state.call(Call::Read)?;
        let at = (offset as usize).min(state.bytes.len());
        let most = bytes.len().min(state.bytes.len() - at);
        let len = if trouble == Some(Trouble::Short) { most / 2 } else { most };
        if trouble != Some(Trouble::Lost) {
            bytes[..len].copy_from_slice(&state.bytes[at..at + len]);
        }
        if trouble == Some(Trouble::Flip) && len > 0 {
            bytes[len / 2] ^= 4;
        }
        Ok(len)
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let mut state = self.state.lock().expect("no panic");
        state.call(Call::Punch)?;
        let end = ((offset + bytes) as usize).min(state.bytes.len());
        let start = (offset as usize).min(end);
        state.bytes[start..end].fill(0xee);
        Ok(())
    }
}
