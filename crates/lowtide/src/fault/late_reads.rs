//! How many frames the reads of each device have that missed their deadline (`late.rs`).

use crate::space::Space;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Frames that late reads have, by device.
#[derive(Debug, Default)]
pub(crate) struct LateReads {
    /// Of all devices: a miss looks at nothing else where all is well.
    all: AtomicU64,
    of: Mutex<HashMap<u64, u64>>,
}

impl LateReads {
    pub(crate) fn begin(&self, device: u64, frames: u64) {
        *lowtide_pin::sync::lock(&self.of).entry(device).or_default() += frames;
        self.all.fetch_add(frames, SeqCst);
    }

    pub(crate) fn end(&self, device: u64, frames: u64) {
        let mut of = lowtide_pin::sync::lock(&self.of);
        let left = of.get_mut(&device).expect("a late read ends after it has begun");
        *left -= frames;
        if *left == 0 {
            of.remove(&device);
        }
        self.all.fetch_sub(frames, SeqCst);
    }

    pub(crate) fn of(&self, space: &Space) -> u64 {
        if self.all.load(SeqCst) == 0 {
            return 0;
        }
        let device = space.backing.key().device;
        lowtide_pin::sync::lock(&self.of).get(&device).copied().unwrap_or(0)
    }
}
