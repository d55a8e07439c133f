//! What a thread of a proof stores through: a view, or a pointer.
//!
//! A file that is mapped is stored to byte by byte, as a program does that has a plain pointer, and
//! made durable by flushes of the map. It keeps its length, and nothing is punched or discarded: a
//! map has no calls for that.
//!
//! | way | after a kill the file has | after a power cut |
//! |---|---|---|
//! | `userfault` | what was flushed, and any part of the rest | the same |
//! | `pagecache` | all stores | not played: the kernel writes, past the disk of a proof |
//!
//! # Safety
//!
//! A file of a proof is used by its pager alone while it is mapped. Threads reach its bytes as
//! atomics, each within the map, and the map lives as long as the access.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering::Relaxed};

use lowtide::map::{MapMode, MapMut, MapOptions};
use lowtide::{Error, Pager, View};

/// See the module documentation.
#[derive(Clone, Copy, Debug)]
pub enum Access<'a> {
    /// Calls of a view.
    View(&'a View),
    /// Loads and stores of a pointer.
    Map(&'a Mapped),
}

/// A file behind a pointer that is stored to.
#[derive(Debug)]
pub struct Mapped {
    map: MapMut,
    first: AtomicPtr<u8>,
}

impl Mapped {
    /// Maps a whole file, which is as long as it will be.
    ///
    /// # Errors
    /// The kernel's, or that the way is not possible here.
    pub fn open(pager: &Pager, path: &Path, way: MapMode) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        // SAFETY: no one but this pager uses the file while it is mapped.
        let mut map = unsafe { MapOptions::new().mode(way).map_mut(pager, &file) }?;
        let first = AtomicPtr::new(map.as_mut_ptr());
        Ok(Self { map, first })
    }

    /// The bytes of a range.
    ///
    /// # Panics
    /// When it is not in the map.
    fn bytes(&self, range: Range<u64>) -> impl Iterator<Item = &AtomicU8> {
        assert!(range.end <= self.map.len() as u64, "{range:?} is not in a map of {:?}", self.map);
        let first = self.first.load(Relaxed);
        // SAFETY: each address is in the map, which lives as long as the reference, and is reached
        // through atomics alone.
        range.map(move |at| unsafe { AtomicU8::from_ptr(first.wrapping_add(at as usize)) })
    }
}

impl Access<'_> {
    /// Bytes of the file.
    pub fn len(self) -> u64 {
        match self {
            Self::View(view) => view.len(),
            Self::Map(mapped) => mapped.map.len() as u64,
        }
    }

    /// Whether the file has no bytes.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Stores bytes.
    ///
    /// # Errors
    /// Those of the view.
    pub fn write_at(self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        match self {
            Self::View(view) => view.write_at(offset, bytes),
            Self::Map(mapped) => {
                let to = mapped.bytes(offset..offset + bytes.len() as u64);
                to.zip(bytes).for_each(|(to, byte)| to.store(*byte, Relaxed));
                Ok(())
            }
        }
    }

    /// Loads bytes.
    ///
    /// # Errors
    /// Those of the view.
    pub fn read_at(self, offset: u64, to: &mut [u8]) -> Result<(), Error> {
        match self {
            Self::View(view) => view.read_at(offset, to),
            Self::Map(mapped) => {
                let from = mapped.bytes(offset..offset + to.len() as u64);
                from.zip(to).for_each(|(from, to)| *to = from.load(Relaxed));
                Ok(())
            }
        }
    }

    /// Makes all that was stored before durable.
    ///
    /// # Errors
    /// Those of the device.
    pub fn flush(self) -> io::Result<()> {
        match self {
            Self::View(view) => Ok(view.flush()?),
            Self::Map(mapped) => mapped.map.flush(),
        }
    }

    /// The same, of a range.
    ///
    /// # Errors
    /// Those of the device.
    pub fn flush_range(self, range: Range<u64>) -> io::Result<()> {
        match self {
            Self::View(view) => Ok(view.flush_range(range)?),
            Self::Map(mapped) => mapped.map.flush_range(range.start as usize..range.end as usize),
        }
    }
}
