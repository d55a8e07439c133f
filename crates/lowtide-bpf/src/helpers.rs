//! Helpers: the calls that a program may make to its host.
//!
//! Numbers are the kernel's where the kernel has the helper; our own begin at 4096, far above the
//! kernel's. Kernel functions, which objects call by name, get numbers of ours. Nothing here waits,
//! allocates or reads a clock: the time is the snapshot's.

use crate::error::RunFault;
use crate::limits::{HELPER_COST, KEY_BYTES_MAX, REQUESTS_MAX, VALUE_BYTES_MAX};
use crate::map::{EAGAIN, EINVAL};
use crate::memory::{CONTEXT_ADDRESS, Memory};
use lowtide_core::hooks::ReclaimRequest;

/// A helper, named as in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Helper {
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    Ktime = 5,
    RequestReclaim = 4096,
    /// Our own: the snapshot of an operation's group.
    LimitOf = 4097,
    /// The kernel's function `bpf_mem_cgroup_usage`.
    UsageOf = 4098,
}

impl Helper {
    /// The helper of a number.
    pub(crate) const fn of(number: i32) -> Option<Self> {
        match number {
            1 => Some(Self::MapLookup),
            2 => Some(Self::MapUpdate),
            3 => Some(Self::MapDelete),
            5 => Some(Self::Ktime),
            4096 => Some(Self::RequestReclaim),
            4097 => Some(Self::LimitOf),
            4098 => Some(Self::UsageOf),
            _ => None,
        }
    }

    /// The helper that stands for a kernel function.
    pub(crate) fn of_function(name: &str) -> Option<Self> {
        (name == "bpf_mem_cgroup_usage").then_some(Self::UsageOf)
    }

    /// How many arguments it reads, from `r1` on.
    pub(crate) const fn arguments(self) -> u8 {
        match self {
            Self::Ktime => 0,
            Self::LimitOf | Self::UsageOf => 1,
            Self::MapLookup | Self::MapDelete | Self::RequestReclaim => 2,
            Self::MapUpdate => 4,
        }
    }

    /// Whether the argument is an operation's group.
    pub(crate) const fn wants_group(self) -> bool {
        matches!(self, Self::LimitOf | Self::UsageOf)
    }

    /// Whether the first argument is a map and the second a key.
    pub(crate) const fn wants_map(self) -> bool {
        matches!(self, Self::MapLookup | Self::MapUpdate | Self::MapDelete)
    }
}

/// The state that helpers act on, besides memory.
pub(crate) struct Host {
    /// The snapshot's time.
    pub now_ns: u64,
    /// Requests not taken yet; at most [`REQUESTS_MAX`].
    pub requests: Vec<ReclaimRequest>,
    /// Room for a key and a value.
    scratch: Box<[u8]>,
}

impl Host {
    pub(crate) fn new() -> Self {
        Self {
            now_ns: 0,
            requests: Vec::with_capacity(REQUESTS_MAX),
            scratch: vec![0; (KEY_BYTES_MAX + VALUE_BYTES_MAX) as usize].into(),
        }
    }

    /// One request for each group: another for the same group adds to it.
    fn request(&mut self, group: u64, pages: u64) -> i64 {
        if pages == 0 {
            return -EINVAL;
        }
        if let Some(waiting) = self.requests.iter_mut().find(|r| r.group == group) {
            waiting.pages = waiting.pages.saturating_add(pages);
        } else if self.requests.len() < REQUESTS_MAX {
            self.requests.push(ReclaimRequest { group, pages });
        } else {
            return -EAGAIN;
        }
        0
    }
}

/// Calls a helper with `r1` to `r4`. Returns `r0` and what the call cost.
pub(crate) fn call(
    helper: Helper,
    args: [u64; 4],
    memory: &mut Memory,
    host: &mut Host,
) -> Result<(u64, u32), RunFault> {
    let mut cost = HELPER_COST;
    let result = match helper {
        Helper::MapLookup => {
            let map = memory.map_of(args[0])?;
            cost += memory.maps[map].key_bytes as u32 / 16;
            memory.lookup(map, args[1])?
        }
        Helper::MapUpdate => {
            let map = memory.map_of(args[0])?;
            let (key_bytes, value_bytes) =
                (memory.maps[map].key_bytes, memory.maps[map].value_bytes);
            cost += (key_bytes + value_bytes) as u32 / 16;
            // Key and value may themselves lie in maps.
            let (key, value) = host.scratch.split_at_mut(KEY_BYTES_MAX as usize);
            let (key, value) = (&mut key[..key_bytes], &mut value[..value_bytes]);
            key.copy_from_slice(memory.read(args[1], key_bytes)?);
            value.copy_from_slice(memory.read(args[2], value_bytes)?);
            memory.maps[map].update(key, value, args[3]) as u64
        }
        Helper::MapDelete => {
            let map = memory.map_of(args[0])?;
            let key_bytes = memory.maps[map].key_bytes;
            cost += key_bytes as u32 / 16;
            let key = &mut host.scratch[..key_bytes];
            key.copy_from_slice(memory.read(args[1], key_bytes)?);
            memory.maps[map].delete(key) as u64
        }
        Helper::Ktime => host.now_ns,
        Helper::LimitOf => {
            memory.check_group(args[0])?;
            CONTEXT_ADDRESS
        }
        Helper::UsageOf => {
            memory.check_group(args[0])?;
            memory.usage_bytes()
        }
        Helper::RequestReclaim => host.request(args[0], args[1]) as u64,
    };
    Ok((result, cost))
}
