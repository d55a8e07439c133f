//! The memory that a program can address.
//!
//! An address is virtual: the upper 32 bits name a region, the lower 32 an offset in it. So no
//! address of the process is ever in a register, equal runs compute equal numbers, and a check is
//! one look at the region and one at the length.
//!
//! | region | what | |
//! |---|---|---|
//! | 0 | nothing: null and small numbers | |
//! | 1 | the context, 0 behind its last field | read |
//! | 2 | stack frames, the first at the top, down to the one that runs | read, write |
//! | 3 | arguments of an operation | read |
//! | 4 | the group of an operation: a name for helpers, no memory | |
//! | 16… | sections of global data | read; write unless constant |
//! | 256… | values of maps | read, write |
//! | 4096… | maps themselves: names for helpers, no memory | |

use crate::error::RunFault;
use crate::limits::{CONTEXT_BYTES, FRAME_BYTES, FRAMES_MAX};
use crate::map::Map;
use crate::ops::ARGUMENTS_MAX;
use lowtide_core::hooks::LimitSnapshot;

const CONTEXT: u32 = 1;
const STACK: u32 = 2;
const ARGUMENTS: u32 = 3;
const GROUP: u32 = 4;
const DATA: u32 = 16;
const VALUES: u32 = 256;
const HANDLES: u32 = 4096;

/// Bytes of all stack frames.
const STACK_BYTES: u32 = FRAME_BYTES * FRAMES_MAX;

/// The address of the context.
pub(crate) const CONTEXT_ADDRESS: u64 = (CONTEXT as u64) << 32;

/// The address of an operation's arguments.
pub(crate) const ARGUMENTS_ADDRESS: u64 = (ARGUMENTS as u64) << 32;

/// The value that names an operation's group.
const GROUP_ADDRESS: u64 = (GROUP as u64) << 32;

/// The frame pointer of the program itself.
pub(crate) const STACK_TOP: u64 = (STACK as u64) << 32 | STACK_BYTES as u64;

/// The address of an offset in a section of global data.
pub(crate) const fn data_address(section: usize, offset: u32) -> u64 {
    (DATA as u64 + section as u64) << 32 | offset as u64
}

/// The value that names a map.
pub(crate) const fn map_handle(map: usize) -> u64 {
    (HANDLES as u64 + map as u64) << 32
}

/// A section of global data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Data {
    pub name: String,
    pub bytes: Vec<u8>,
    pub writable: bool,
}

/// Everything that a program can address.
pub(crate) struct Memory {
    context: [u8; CONTEXT_BYTES],
    /// An operation's, the group first.
    arguments: [u8; 8 * ARGUMENTS_MAX],
    /// Bytes that the snapshot's group uses.
    usage_bytes: u64,
    stack: Box<[u8; STACK_BYTES as usize]>,
    /// Lowest valid offset of the stack.
    stack_low: u32,
    pub(crate) data: Vec<Data>,
    pub(crate) maps: Vec<Map>,
}

impl Memory {
    pub(crate) fn new(data: Vec<Data>, maps: Vec<Map>) -> Self {
        Self {
            context: [0; CONTEXT_BYTES],
            arguments: [0; 8 * ARGUMENTS_MAX],
            usage_bytes: 0,
            stack: Box::new([0; STACK_BYTES as usize]),
            stack_low: STACK_BYTES,
            data,
            maps,
        }
    }

    /// Makes the snapshot the context.
    pub(crate) fn set_context(&mut self, snapshot: &LimitSnapshot) {
        let LimitSnapshot {
            size,
            reason,
            group,
            level,
            page_bytes,
            usage,
            max,
            high,
            low,
            min,
            elow,
            emin,
            swap_usage,
            swap_max,
            stall_rate,
            psi_some_us,
            psi_full_us,
            psi_some_avg10,
            psi_full_avg10,
            task,
            task_debt_ns,
            nr_over_high,
            since_refault_ns,
            overage_delay_ns,
            default_delay_ns,
            hz,
            now_ns,
        } = *snapshot;
        self.usage_bytes = usage.saturating_mul(page_bytes.into());
        let pair = |first: u32, second: u32| u64::from(first) | u64::from(second) << 32;
        let words = [
            pair(size, reason),
            group,
            pair(level, page_bytes),
            usage,
            max,
            high,
            low,
            min,
            elow,
            emin,
            swap_usage,
            swap_max,
            stall_rate,
            psi_some_us,
            psi_full_us,
            pair(psi_some_avg10, psi_full_avg10),
            task,
            task_debt_ns,
            nr_over_high,
            since_refault_ns,
            overage_delay_ns,
            default_delay_ns,
            hz,
            now_ns,
        ];
        const { assert!(size_of_val_of_words::<24>() == size_of::<LimitSnapshot>()) };
        for (to, word) in self.context.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Sets the arguments of an operation behind its group.
    pub(crate) fn set_arguments(&mut self, arguments: [u64; ARGUMENTS_MAX - 1]) {
        let all = std::iter::once(GROUP_ADDRESS).chain(arguments);
        for (to, word) in self.arguments.chunks_exact_mut(8).zip(all) {
            to.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Bytes that the snapshot's group uses.
    pub(crate) const fn usage_bytes(&self) -> u64 {
        self.usage_bytes
    }

    /// Refuses what is not the name of the operation's group.
    pub(crate) const fn check_group(&self, name: u64) -> Result<(), RunFault> {
        if name == GROUP_ADDRESS { Ok(()) } else { Err(RunFault::NotAGroup) }
    }

    /// Opens the first `frames` stack frames, and clears the last of them if the program uses stack
    /// at all.
    #[inline]
    pub(crate) fn open_frames(&mut self, frames: u32, clear: bool) {
        self.stack_low = STACK_BYTES - frames * FRAME_BYTES;
        if clear {
            let low = self.stack_low as usize;
            self.stack[low..low + FRAME_BYTES as usize].fill(0);
        }
    }

    /// The map that a value names.
    pub(crate) fn map_of(&self, handle: u64) -> Result<usize, RunFault> {
        let map = (handle >> 32).wrapping_sub(HANDLES.into()) as usize;
        if handle as u32 == 0 && map < self.maps.len() { Ok(map) } else { Err(RunFault::NotAMap) }
    }

    /// The address of a key's value in a map; 0 if it is not there.
    pub(crate) fn lookup(&self, map: usize, key: u64) -> Result<u64, RunFault> {
        let m = &self.maps[map];
        let key = self.read(key, m.key_bytes)?;
        Ok(m.lookup(key).map_or(0, |offset| (VALUES as u64 + map as u64) << 32 | u64::from(offset)))
    }

    /// Bytes to read.
    #[inline]
    pub(crate) fn read(&self, address: u64, bytes: usize) -> Result<&[u8], RunFault> {
        let (region, offset) = ((address >> 32) as u32, address as u32);
        let at = offset as usize;
        let found = match region {
            CONTEXT => self.context.get(at..at + bytes),
            ARGUMENTS => self.arguments.get(at..at + bytes),
            STACK if offset >= self.stack_low => self.stack.get(at..at + bytes),
            DATA..VALUES => {
                self.data.get((region - DATA) as usize).and_then(|d| d.bytes.get(at..at + bytes))
            }
            VALUES..HANDLES => {
                self.maps.get((region - VALUES) as usize).and_then(|m| m.read(offset, bytes))
            }
            _ => None,
        };
        found.ok_or_else(|| denied(region, offset, bytes))
    }

    /// Bytes to write.
    #[inline]
    pub(crate) fn write(&mut self, address: u64, bytes: usize) -> Result<&mut [u8], RunFault> {
        let (region, offset) = ((address >> 32) as u32, address as u32);
        let at = offset as usize;
        let found = match region {
            CONTEXT | ARGUMENTS => return Err(RunFault::ReadOnly),
            STACK if offset >= self.stack_low => self.stack.get_mut(at..at + bytes),
            DATA..VALUES => match self.data.get_mut((region - DATA) as usize) {
                Some(d) if !d.writable => return Err(RunFault::ReadOnly),
                Some(d) => d.bytes.get_mut(at..at + bytes),
                None => None,
            },
            VALUES..HANDLES => {
                self.maps.get_mut((region - VALUES) as usize).and_then(|m| m.write(offset, bytes))
            }
            _ => None,
        };
        found.ok_or_else(|| denied(region, offset, bytes))
    }

    /// A little-endian number of `N` bytes.
    #[inline]
    pub(crate) fn load<const N: usize>(&self, address: u64) -> Result<u64, RunFault> {
        let mut word = [0; 8];
        word[..N].copy_from_slice(self.read(address, N)?);
        Ok(u64::from_le_bytes(word))
    }

    /// Stores the low `N` bytes of a number, little-endian.
    #[inline]
    pub(crate) fn store<const N: usize>(
        &mut self,
        address: u64,
        value: u64,
    ) -> Result<(), RunFault> {
        self.write(address, N)?.copy_from_slice(&value.to_le_bytes()[..N]);
        Ok(())
    }
}

/// Bytes of `N` words.
const fn size_of_val_of_words<const N: usize>() -> usize {
    N * size_of::<u64>()
}

#[cold]
const fn denied(region: u32, offset: u32, bytes: usize) -> RunFault {
    if region == 0 { RunFault::Null { offset } } else { RunFault::OutOfBounds { bytes } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Memory {
        let data = |writable| Data { name: "d".into(), bytes: vec![7; 12], writable };
        Memory::new(vec![data(false), data(true)], Vec::new())
    }

    #[test]
    fn behind_the_fields_the_context_reads_as_0() {
        let mut m = memory();
        m.set_context(&LimitSnapshot { now_ns: u64::MAX, ..LimitSnapshot::default() });
        let size = size_of::<LimitSnapshot>() as u64;
        assert_eq!(m.load::<8>(CONTEXT_ADDRESS + size - 8), Ok(u64::MAX));
        for at in (size..CONTEXT_BYTES as u64).step_by(8) {
            assert_eq!(m.load::<8>(CONTEXT_ADDRESS + at), Ok(0));
        }
        assert_eq!(
            m.load::<8>(CONTEXT_ADDRESS + CONTEXT_BYTES as u64 - 7),
            Err(RunFault::OutOfBounds { bytes: 8 })
        );
        assert_eq!(m.store::<1>(CONTEXT_ADDRESS, 0), Err(RunFault::ReadOnly));
    }

    #[test]
    fn the_stack_ends_with_the_frame_that_runs() {
        let mut m = memory();
        m.open_frames(1, true);
        assert!(m.store::<8>(STACK_TOP - 512, 1).is_ok());
        assert_eq!(m.store::<8>(STACK_TOP - 513, 1), Err(RunFault::OutOfBounds { bytes: 8 }));
        assert_eq!(m.store::<8>(STACK_TOP - 7, 1), Err(RunFault::OutOfBounds { bytes: 8 }));
        m.open_frames(2, true);
        assert_eq!(m.load::<8>(STACK_TOP - 512), Ok(1), "the caller's frame stays");
        assert!(m.store::<8>(STACK_TOP - 1024, 1).is_ok());
        m.open_frames(1, false);
        m.open_frames(2, true);
        assert_eq!(m.load::<8>(STACK_TOP - 1024), Ok(0), "a frame begins with zeros");
    }

    #[test]
    fn constant_data_cannot_be_written_and_data_end_where_they_end() {
        let mut m = memory();
        assert_eq!(m.load::<4>(data_address(0, 8)), Ok(0x0707_0707));
        assert_eq!(m.store::<4>(data_address(0, 0), 1), Err(RunFault::ReadOnly));
        assert_eq!(m.store::<4>(data_address(1, 8), 1), Ok(()));
        assert_eq!(m.store::<4>(data_address(1, 9), 1), Err(RunFault::OutOfBounds { bytes: 4 }));
        assert_eq!(m.load::<1>(data_address(2, 0)), Err(RunFault::OutOfBounds { bytes: 1 }));
    }

    #[test]
    fn null_and_what_is_near_it_is_told_apart_from_other_errors() {
        let mut m = memory();
        assert_eq!(m.load::<8>(8), Err(RunFault::Null { offset: 8 }));
        assert_eq!(m.store::<1>(0, 1), Err(RunFault::Null { offset: 0 }));
        assert_eq!(m.load::<8>(u64::MAX), Err(RunFault::OutOfBounds { bytes: 8 }));
        assert_eq!(m.load::<8>(map_handle(0)), Err(RunFault::OutOfBounds { bytes: 8 }));
    }
}
