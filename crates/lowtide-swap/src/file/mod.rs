//! The file tier: pages in slots of a file without a name.
//!
//! The file is split into slots of 4 KiB and clusters of 64 slots (`clusters.rs`). Pages that are
//! written together get slots that follow each other, so they are one sequential write, and a later
//! read of one of them can bring its neighbours in the same request (`window.rs` decides how many).
//!
//! **A slot's life.** `write` takes free slots, writes, and only then returns them; if the write
//! fails, they are free again. `free` may come while another thread reads the slot, and the slot
//! may be used again at once: every use has a serial number, and what was read for one serial is
//! not given out as contents of another. A cluster that is wholly free is punched out of the file
//! by [`SwapFile::discard`], or used again before that.
//!
//! **A device that does not answer** is waited for by its [`Backing`], not longer than that likes.
//! The slots of a write that has timed out stay taken until that write cannot reach the device any
//! more, or it would overwrite what was stored there since. Until then nothing is written.
//!
//! **Contents** have a checksum (CRC-32) that stays in memory, and are verified when they are read:
//! a device that returns other bytes, or none, gives an error and never data.
//!
//! **Locks.** One, for the tables. No I/O and no hashing under it. Waiting for it is short: what
//! happens under it is bounded by the slots of one batch.

mod backing;
mod buffers;
mod clusters;
mod figures;
mod read;
mod slot;
mod together;
mod window;

pub use backing::{Backing, UnlinkedFile};
pub use buffers::AlignedBuffer;
pub use figures::FileStat;
pub use read::{Alone, Neighbours};
pub use slot::{CLUSTER_SLOTS, Slot};
pub use together::{Incoming, spans};
pub use window::ReadAhead;

use crate::codec::checksum;
use crate::error::{CreateError, WriteError};
use crate::lock::lock;
use crate::source::PAGE_BYTES;
use backing::write_all;
use buffers::Buffers;
use clusters::{Clusters, Contents};
use std::fmt;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// How long a write waits for slots that are being punched.
const PUNCH_WAIT: Duration = Duration::from_secs(1);

/// A page to be written.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// [`PAGE_BYTES`] bytes. Any alignment.
    pub bytes: &'a [u8],
    /// A word of the caller's, which [`Neighbours`] get when the page is read ahead: which page it
    /// is, for example.
    pub tag: u64,
}

/// A swap file. All methods may be called from all threads; those that read and write wait for the
/// device.
pub struct SwapFile<B: Backing = UnlinkedFile> {
    backing: B,
    table: Mutex<Clusters>,
    /// Clusters that were being punched are free.
    punched: Condvar,
    buffers: Buffers,
}

impl SwapFile<UnlinkedFile> {
    /// Creates a swap file of up to `slots` slots in a directory: without a name, for its owner
    /// only (mode 0600), past the page cache where file system and device allow that. It occupies
    /// space as pages are written, and disappears with the process in any case.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn create(dir: impl AsRef<Path>, slots: u32) -> Result<SwapFile, CreateError> {
        check(slots)?;
        let bytes = u64::from(slots) * PAGE_BYTES as u64;
        SwapFile::on(UnlinkedFile::create(dir.as_ref(), bytes)?, slots)
    }
}

impl<B: Backing> SwapFile<B> {
    /// A swap file of up to `slots` slots on something else than a file: a device of its own, or
    /// one that fails, for tests.
    ///
    /// # Errors
    /// [`CreateError::Slots`].
    pub fn on(backing: B, slots: u32) -> Result<SwapFile<B>, CreateError> {
        check(slots)?;
        Ok(SwapFile {
            backing,
            table: Mutex::new(Clusters::new(slots)),
            punched: Condvar::new(),
            buffers: Buffers::new(CLUSTER_SLOTS * PAGE_BYTES),
        })
    }

    /// What the slots are on.
    pub const fn backing(&self) -> &B {
        &self.backing
    }

    /// Writes pages, in as few requests as the free slots allow: one for each 64 pages while there
    /// are free clusters. Returns their slots in the order of the pages.
    ///
    /// The data is with the kernel or the device afterwards; nothing makes it durable, because the
    /// file ends with the process.
    ///
    /// # Errors
    /// [`WriteError`]: none of the pages was written, and no slot is taken.
    pub fn write(&self, pages: &[Outgoing<'_>]) -> Result<Vec<Slot>, WriteError> {
        if let Some(odd) = pages.iter().find(|page| page.bytes.len() != PAGE_BYTES) {
            return Err(WriteError::Size { bytes: odd.bytes.len() });
        }
        let contents =
            |page: &Outgoing<'_>| Contents { checksum: checksum(page.bytes), tag: page.tag };
        if !self.settle() {
            return Err(WriteError::NotAnswering);
        }
        let contents: Vec<Contents> = pages.iter().map(contents).collect();
        let slots = self.allocate(&contents)?;
        let mut done = 0;
        let mut requests = 0;
        let mut failed = None;
        while done < slots.len() && failed.is_none() {
            let run = run_length(&slots[done..]);
            failed = self.write_run(slots[done], &pages[done..done + run]).err();
            done += run;
            requests += 1;
        }
        let mut table = self.lock();
        table.stat.write_requests += requests;
        if let Some(error) = failed {
            table.stat.write_errors += 1;
            if error.is_late() {
                table.late.extend(slots.iter().map(|slot| slot.0));
            } else {
                slots.iter().for_each(|slot| table.abandon(slot.0));
            }
            return Err(error);
        }
        table.stat.written += slots.len() as u64;
        slots.iter().for_each(|slot| table.publish(slot.0));
        Ok(slots)
    }

    /// Frees the slots of writes that have timed out, when those cannot reach the device any more.
    /// Returns whether there is no such slot.
    fn settle(&self) -> bool {
        let mut table = self.lock();
        if !table.late.is_empty() && self.backing.is_settled() {
            std::mem::take(&mut table.late).into_iter().for_each(|slot| table.abandon(slot));
        }
        table.late.is_empty()
    }

    fn allocate(&self, contents: &[Contents]) -> Result<Vec<Slot>, WriteError> {
        let mut table = self.lock();
        loop {
            let free = table.free();
            if contents.len() > free as usize {
                table.stat.refused += 1;
                let (slots, wanted) = (table.slots(), contents.len());
                return Err(WriteError::Full { free, slots, wanted });
            }
            if contents.len() <= table.available() as usize {
                return Ok(table.allocate(contents).into_iter().map(Slot).collect());
            }
            // The rest is being punched, which ends soon, or the device does not answer.
            let waited = self.punched.wait_timeout(table, PUNCH_WAIT);
            let timeout;
            (table, timeout) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
            if timeout.timed_out() {
                return Err(WriteError::NotAnswering);
            }
        }
    }

    fn write_run(&self, first: Slot, pages: &[Outgoing<'_>]) -> Result<(), WriteError> {
        let bytes = pages.len() * PAGE_BYTES;
        let written = self.buffers.with(bytes, |buffer| {
            for (to, from) in buffer.chunks_exact_mut(PAGE_BYTES).zip(pages) {
                to.copy_from_slice(from.bytes);
            }
            write_all(&self.backing, buffer, first.offset())
        });
        written.map_err(|source| WriteError::Io { offset: first.offset(), bytes, source })
    }

    /// Frees a slot, which may be given to another page at once.
    ///
    /// # Panics
    /// When nothing is stored in it: it was freed twice, or comes from another file.
    pub fn free(&self, slot: Slot) {
        self.free_all(&[slot]);
    }

    /// Frees slots.
    ///
    /// # Panics
    /// As [`free`](SwapFile::free).
    pub fn free_all(&self, slots: &[Slot]) {
        let mut table = self.lock();
        for slot in slots {
            assert!(table.remove(slot.0), "{slot} is freed, and nothing is stored there");
        }
    }

    /// Punches up to `budget` clusters that are wholly free out of the file, so that the file
    /// system and the device have their space back. Returns how many it was. For a background
    /// thread: a call of the file system for each.
    ///
    /// A file system that cannot punch holes keeps the space until the slots are used again; this
    /// is counted ([`FileStat::punch_errors`]) and affects nothing else.
    pub fn discard(&self, budget: usize) -> usize {
        let mut done = 0;
        for _ in 0..budget {
            let Some((cluster, slot)) = self.lock().begin_punch() else { break };
            let bytes = (CLUSTER_SLOTS * PAGE_BYTES) as u64;
            let punched = self.backing.punch(Slot(slot).offset(), bytes);
            let mut table = self.lock();
            table.end_punch(cluster);
            match punched {
                Ok(()) => {
                    table.stat.punched += 1;
                    done += 1;
                }
                Err(_) => table.stat.punch_errors += 1,
            }
            drop(table);
            self.punched.notify_all();
        }
        done
    }

    /// Figures.
    #[must_use]
    pub fn stat(&self) -> FileStat {
        self.settle();
        let table = self.lock();
        FileStat { slots: table.slots(), used: table.used(), ..table.stat }
    }

    fn lock(&self) -> MutexGuard<'_, Clusters> {
        lock(&self.table)
    }
}

impl<B: Backing> fmt::Debug for SwapFile<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwapFile").field("stat", &self.stat()).finish_non_exhaustive()
    }
}

const fn check(slots: u32) -> Result<(), CreateError> {
    let most = Slot::MAX;
    if slots == 0 || slots > most { Err(CreateError::Slots { slots, most }) } else { Ok(()) }
}

/// Slots at the beginning that follow each other, at most a cluster of them.
fn run_length(slots: &[Slot]) -> usize {
    let follow = slots.windows(2).take_while(|pair| pair[1].0 == pair[0].0 + 1).count();
    (follow + 1).min(slots.len()).min(CLUSTER_SLOTS)
}
