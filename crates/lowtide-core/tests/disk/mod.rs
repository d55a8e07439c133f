//! Writers, flushers and devices around an engine: the smallest driver that can be throttled.
//!
//! Every page of every file is in memory from the start. A writer makes clean pages of its own file
//! dirty, one after the other, as fast as it is allowed to; a flusher for each device does the work
//! that the engine returns; a device writes a constant number of pages a second, in the order in
//! which they were begun. Time is virtual and passes by the millisecond.
#![allow(dead_code, reason = "every test binary uses a part of it")]

use lowtide_core::{
    DeviceId, Dirtier, Engine, EngineConfig, FlushReason, FlushWork, FolioId, LruType, MemcgId,
    Owner, Policy, SpaceId, Task,
};
use std::collections::VecDeque;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const ROOT: MemcgId = MemcgId::ROOT;
/// Pages that may be in flight on a device: as many as it writes in 50 ms and twice its latency,
/// but at least this many.
const IN_FLIGHT: u64 = 1024;
/// Pages of one file that are begun before it is another file's turn.
const SLICE: u64 = 64;
/// No pause may be longer.
const LONGEST_PAUSE: u64 = 200 * MS;

/// A device and its flusher.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) id: DeviceId,
    /// Pages a second; 0: it hangs.
    pub(crate) speed: u64,
    /// Milliseconds that a write takes at least.
    pub(crate) latency: u64,
    /// Writes fail.
    pub(crate) broken: bool,
    credit: u64,
    /// When each was begun.
    in_flight: VecDeque<(u64, FolioId)>,
    /// The writer whose file was written last.
    turn: usize,
    work: Option<FlushWork>,
    wakes_at: Option<u64>,
    /// Pieces of work done, by reason.
    pub(crate) works: Vec<FlushReason>,
    pub(crate) written: u64,
}

/// A task that writes a file of its own.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) space: SpaceId,
    disk: usize,
    /// Pages a millisecond at most.
    pub(crate) speed: u64,
    frames: std::ops::Range<u32>,
    next: u32,
    /// Dirty pages, the longest dirty first, and since when.
    dirty: VecDeque<(u64, FolioId)>,
    dirtier: Dirtier,
    sleeps_until: u64,
    again: bool,
    pub(crate) dirtied: u64,
    pub(crate) pauses: u64,
    pub(crate) paused: u64,
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) engine: Engine,
    pub(crate) now: u64,
    pub(crate) disks: Vec<Disk>,
    pub(crate) writers: Vec<Writer>,
    frames_used: u32,
}

impl Disk {
    /// Pages that may be begun.
    fn room(&self) -> u64 {
        let most = (self.speed * (50 + 2 * self.latency) / 1000).max(IN_FLIGHT);
        most.saturating_sub(self.in_flight.len() as u64)
    }
}

impl Rig {
    /// Memory of `pages` pages, without anything in it.
    pub(crate) fn new(pages: u32, exact: bool) -> Self {
        let config = EngineConfig {
            frames: pages,
            max: pages.into(),
            page_bytes: 4096,
            policy: Policy::MGLRU,
            cpus: 1,
        };
        let mut engine = Engine::new(&config).expect("the budget is big enough");
        engine.set_exact_dirty(exact);
        Self { engine, now: 0, disks: Vec::new(), writers: Vec::new(), frames_used: 0 }
    }

    /// Adds a device that writes `speed` pages a second.
    pub(crate) fn disk(&mut self, speed: u64) -> usize {
        self.disks.push(Disk {
            id: self.engine.add_device(self.now),
            speed,
            latency: 0,
            broken: false,
            credit: 0,
            in_flight: VecDeque::new(),
            turn: 0,
            work: None,
            wakes_at: Some(0),
            works: Vec::new(),
            written: 0,
        });
        self.disks.len() - 1
    }

    /// Adds a writer with a file of `pages` pages.
    pub(crate) fn writer(&mut self, group: MemcgId, disk: usize, pages: u32) -> usize {
        let space = self.engine.add_space(group);
        self.engine.set_device_of_space(space, self.disks[disk].id);
        let frames = self.frames_used..self.frames_used + pages;
        self.frames_used = frames.end;
        for frame in frames.clone() {
            self.engine.try_charge(group, 1).expect("the test leaves room");
            let owner = Owner { space, page: frame.into() };
            self.engine.insert(
                FolioId(frame),
                owner,
                0,
                LruType::File,
                group,
                None,
                Task::DESCRIPTOR,
            );
        }
        self.writers.push(Writer {
            space,
            disk,
            speed: 1000,
            next: frames.start,
            frames,
            dirty: VecDeque::new(),
            dirtier: Dirtier::default(),
            sleeps_until: 0,
            again: false,
            dirtied: 0,
            pauses: 0,
            paused: 0,
        });
        self.writers.len() - 1
    }

    /// Lets time pass. `look` sees every millisecond.
    pub(crate) fn run(&mut self, ms: u64, mut look: impl FnMut(&mut Self)) {
        for _ in 0..ms {
            self.now += MS;
            if self.now.is_multiple_of(lowtide_core::limits::PUBLISH_INTERVAL_NS) {
                self.engine.publish();
            }
            (0..self.writers.len()).for_each(|w| self.write(w));
            (0..self.disks.len()).for_each(|d| {
                self.flush(d);
                self.complete(d);
            });
            look(self);
        }
    }

    fn write(&mut self, w: usize) {
        for _ in 0..self.writers[w].speed {
            let writer = &mut self.writers[w];
            if self.now < writer.sleeps_until {
                return;
            }
            if !writer.again {
                let clean = |n: &u32| {
                    !self
                        .engine
                        .folio(FolioId(*n))
                        .expect("it is resident")
                        .flags()
                        .contains(lowtide_core::Flags::DIRTY)
                };
                let rest = (writer.next..writer.frames.end).chain(writer.frames.start..writer.next);
                // With nothing clean, a real writer would wait for memory.
                let Some(frame) = rest.into_iter().find(clean) else { return };
                writer.next =
                    if frame + 1 == writer.frames.end { writer.frames.start } else { frame + 1 };
                assert!(self.engine.set_dirty(FolioId(frame)));
                writer.dirty.push_back((self.now, FolioId(frame)));
                writer.dirtied += 1;
                if !self.engine.dirtied(&mut writer.dirtier, writer.space, 1) {
                    continue;
                }
            }
            let balance = self.engine.balance_dirty(&mut writer.dirtier, writer.space, self.now);
            writer.again = balance.again;
            assert!(!balance.again || balance.pause_ns.is_some(), "no writer spins");
            if let Some(pause) = balance.pause_ns {
                assert!((1..=LONGEST_PAUSE).contains(&pause), "a pause of {pause} ns");
                writer.sleeps_until = self.now + pause;
                writer.pauses += 1;
                writer.paused += pause;
            }
            if balance.wake_flusher {
                let disk = writer.disk;
                self.disks[disk].wakes_at = Some(self.now);
            }
        }
    }

    /// Wakes the flusher of a device.
    pub(crate) fn wake(&mut self, d: usize) {
        self.disks[d].wakes_at = Some(self.now);
    }

    fn flush(&mut self, d: usize) {
        let disk = &mut self.disks[d];
        if disk.work.is_none() && disk.wakes_at.is_none_or(|at| self.now < at) {
            return;
        }
        for _ in 0..100 {
            let disk = &mut self.disks[d];
            if disk.room() == 0 {
                return;
            }
            let Some(mut work) = disk.work else {
                self.engine.set_writing(disk.id, true);
                disk.work = self.engine.flusher_work(disk.id, self.now);
                match disk.work {
                    Some(work) => disk.works.push(work.reason),
                    None => {
                        self.engine.set_writing(disk.id, false);
                        disk.wakes_at = self.engine.next_flush(disk.id);
                        return;
                    }
                }
                continue;
            };
            let begun = self.submit(d, &work);
            work.pages -= begun.min(work.pages);
            let full = self.disks[d].room() == 0;
            self.disks[d].work = (work.pages > 0 && full).then_some(work);
        }
        panic!("the flusher goes round and round");
    }

    /// Begins to write pages that a piece of work is about, some of each file in turn. Returns how
    /// many.
    fn submit(&mut self, d: usize, work: &FlushWork) -> u64 {
        let disk = &mut self.disks[d];
        let mut begun = 0;
        for _ in 0..self.writers.len() {
            let most = (work.pages - begun).min(SLICE).min(disk.room());
            if most == 0 {
                break;
            }
            disk.turn = (disk.turn + 1) % self.writers.len();
            let writer = &mut self.writers[disk.turn];
            let group = self.engine.group_of_space(writer.space);
            if writer.disk != d || !self.engine.is_within(group, work.group.unwrap_or(ROOT)) {
                continue;
            }
            for _ in 0..most {
                let old =
                    |page: &mut (u64, FolioId)| work.older_than.is_none_or(|time| page.0 <= time);
                let Some((since, folio)) = writer.dirty.pop_front_if(old) else { break };
                if !self.engine.start_writeback(folio) {
                    // Dirty again while it is being written: the end of that write comes first.
                    writer.dirty.push_front((since, folio));
                    break;
                }
                if disk.broken {
                    self.engine.end_writeback(folio, false, Task::DESCRIPTOR);
                    writer.dirty.push_front((since, folio));
                    break;
                }
                disk.in_flight.push_back((self.now, folio));
                begun += 1;
            }
        }
        begun
    }

    fn complete(&mut self, d: usize) {
        let disk = &mut self.disks[d];
        disk.credit += disk.speed;
        while disk.credit >= 1000
            && let Some((_, folio)) =
                disk.in_flight.pop_front_if(|(begun, _)| *begun + disk.latency * MS <= self.now)
        {
            disk.credit -= 1000;
            disk.written += 1;
            self.engine.end_writeback(folio, true, Task::DESCRIPTOR);
        }
        // What it did not use is lost, but for what it had begun.
        disk.credit = disk.credit.min(1000 + disk.speed);
    }
}
