//! A way without an engine: pages that are in memory are counted, and dropped in the order of their
//! addresses while there are too many.
//!
//! # Safety
//!
//! Addresses are those of adopted mappings: the program announces each change of them before it
//! happens, and waits. Removing entries of page tables of a shared mapping, or of a private one to
//! which nothing was stored, loses nothing; `fadvise(DONTNEED)` drops clean pages only.

#![allow(unsafe_code)]

use crate::way::{Figures, Subject, Way};
use rustix::mm::Advice;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::num::NonZeroU64;
use std::ops::Range;
use std::time::Duration;

/// Pages that are looked at, and dropped, at a time.
const CHUNK: usize = 512;
const LEAST: Duration = Duration::from_millis(1);
const MOST: Duration = Duration::from_millis(50);

/// The way.
#[derive(Debug)]
pub(crate) struct Trim {
    figures: Figures,
    high: u64,
    page: usize,
    next: u64,
    parts: BTreeMap<u64, Vec<Subject>>,
    hand: (u64, usize),
    pause: Duration,
}

impl Trim {
    /// A budget.
    pub(crate) fn new(max_bytes: u64, high: Option<u64>) -> Self {
        Self {
            figures: Figures { max_bytes, ..Figures::default() },
            high: high.unwrap_or(max_bytes - max_bytes / 16).min(max_bytes),
            page: rustix::param::page_size(),
            next: 0,
            parts: BTreeMap::new(),
            hand: (0, 0),
            pause: LEAST,
        }
    }

    /// Which pages of a chunk are in memory.
    fn present(&self, start: usize, len: usize) -> usize {
        let mut seen = [0_u8; CHUNK];
        // SAFETY: a byte for each page of a range that is mapped.
        if unsafe { libc::mincore(start as *mut c_void, len, seen.as_mut_ptr()) } != 0 {
            return 0;
        }
        seen.iter().filter(|page| **page & 1 != 0).count()
    }

    fn chunks(&self) -> Vec<(u64, usize, usize)> {
        let mut all = Vec::new();
        for (number, parts) in &self.parts {
            for part in parts {
                let step = CHUNK * self.page;
                let starts = part.range.clone().step_by(step);
                all.extend(starts.map(|start| (*number, start, step.min(part.range.end - start))));
            }
        }
        all
    }

    fn drop_pages(&self, number: u64, start: usize, len: usize) {
        let Some(parts) = self.parts.get(&number) else { return };
        let Some(part) = parts.iter().find(|part| part.range.contains(&start)) else { return };
        // SAFETY: the module's header.
        let _ = unsafe { rustix::mm::madvise(start as *mut c_void, len, Advice::LinuxDontNeed) };
        let offset = part.offset + (start - part.range.start) as u64;
        let advice = rustix::fs::Advice::DontNeed;
        let _ = rustix::fs::fadvise(&*part.file, offset, NonZeroU64::new(len as u64), advice);
    }
}

impl Way for Trim {
    fn adopt(&mut self, subject: &Subject) -> Result<u64, String> {
        self.next += 1;
        self.parts.insert(self.next, vec![subject.clone()]);
        Ok(self.next)
    }

    fn forget(&mut self, number: u64, range: &Range<usize>) {
        let Some(parts) = self.parts.get_mut(&number) else { return };
        let mut rest = Vec::new();
        for part in parts.drain(..) {
            if part.range.start < range.start {
                let end = part.range.end.min(range.start);
                rest.push(Subject { range: part.range.start..end, ..part.clone() });
            }
            if part.range.end > range.end {
                let start = part.range.start.max(range.end);
                let offset = part.offset + (start - part.range.start) as u64;
                rest.push(Subject { range: start..part.range.end, offset, ..part });
            }
        }
        *parts = rest;
        if parts.is_empty() {
            self.parts.remove(&number);
        }
    }

    fn tick(&mut self) -> Duration {
        let chunks = self.chunks();
        let present: Vec<usize> =
            chunks.iter().map(|(_, start, len)| self.present(*start, *len)).collect();
        let mut resident = present.iter().sum::<usize>() as u64 * self.page as u64;
        self.figures.rounds += 1;
        self.figures.peak_bytes = self.figures.peak_bytes.max(resident);
        let first = chunks.partition_point(|(number, start, _)| (*number, *start) < self.hand);
        let all = (first..chunks.len()).chain(0..first);
        let mut busy = false;
        for index in all {
            if resident <= self.high {
                break;
            }
            let (number, start, len) = chunks[index];
            if present[index] > 0 {
                self.drop_pages(number, start, len);
                let gone = present[index].saturating_sub(self.present(start, len)) as u64;
                resident -= gone * self.page as u64;
                self.figures.dropped_pages += gone;
                busy = true;
            }
            self.hand = (number, start + 1);
        }
        self.figures.resident_bytes = resident;
        self.pause = if busy { LEAST } else { (self.pause * 2).min(MOST) };
        self.pause
    }

    fn figures(&mut self) -> Figures {
        self.tick();
        self.figures
    }
}
