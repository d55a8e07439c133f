//! What is in each page, as a number: the model that finds lost updates.
//!
//! ```text
//!            stored            write began          written          flushed
//!   latest ─────────► frame ──────────────► writing ───────► device ────────► durable
//!              ▲                                               │          (`medium.rs`)
//!              └──────────────────── arrived ──────────────────┘
//! ```
//!
//! Every store makes a new version, and versions only grow. A store to a part of a page keeps the
//! rest, so the frame must hold the latest version before it; so must a page whose end is filled
//! with zeros because its file ends in it. A frame holds a version of one page; the device holds
//! one of each. A write takes the version that the frame holds when it begins: a store during the
//! write may or may not reach the device, and a kernel must not rely on it. A reader must see the
//! latest version, a frame that is freed must hold what the device holds, and giving a page up is a
//! store of zeros that is everywhere at once, though not durable.
//!
//! A sync that ends well *acknowledges* what had been stored before it began: that much every power
//! cut must leave. What it leaves is the contents of the files that the next machine begins with.

use lowtide_core::FolioId;
use lowtide_sim::machine::{FlushEvent, PageEvent};
use lowtide_sim::memory::ObjectId;
use lowtide_workload::SplitMix64;

use super::medium::{Medium, Survival};

/// What is known of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Truth {
    /// Version stored last.
    pub(super) latest: u64,
    /// Version on the device, in its cache at least.
    pub(super) device: u64,
    /// The last version that a sync reported as durable.
    acknowledged: u64,
    /// Version on its way to the device.
    writing: u64,
    /// Version that zeros are.
    zeros: u64,
    /// Version of a heap that its program has freed lazily.
    freed: Option<u64>,
    /// Writes of it that failed.
    pub(super) write_failures: u64,
    /// Reads of it that failed.
    pub(super) read_failures: u64,
}

/// What is in a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    object: ObjectId,
    page: u64,
    version: u64,
}

/// The effects of power cuts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cuts {
    /// How many there were.
    pub(super) all: u64,
    /// Those that came while the device had something that was not durable.
    pub(super) behind: u64,
    /// Those that left the newest of one page, and not of its neighbour.
    pub(super) torn: u64,
    /// Pages of which something newer was stored than is there.
    pub(super) dropped: u64,
    /// Pages of which something acknowledged is there.
    pub(super) kept: u64,
}

/// All pages and frames. See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Contents {
    objects: Vec<Vec<Truth>>,
    frames: Vec<Option<Held>>,
    /// When something last happened to what is in each frame, in nanoseconds.
    events: Vec<u64>,
    /// The page of each version, beginning with version 1.
    versions: Vec<(ObjectId, u64)>,
    medium: Medium,
    pub(super) cuts: Cuts,
}

impl Contents {
    /// A version of a page that is new.
    fn new_version(&mut self, object: ObjectId, page: u64) -> u64 {
        self.versions.push((object, page));
        self.versions.len() as u64
    }

    /// What is known of a page.
    pub(super) fn truth(&self, object: ObjectId, page: u64) -> Truth {
        self.objects
            .get(object.0 as usize)
            .and_then(|pages| pages.get(page as usize))
            .copied()
            .unwrap_or_default()
    }

    /// Pages of an object of which anything is known, by number.
    pub(super) fn pages(&self, object: ObjectId) -> &[Truth] {
        self.objects.get(object.0 as usize).map_or(&[], Vec::as_slice)
    }

    fn entry(&mut self, object: ObjectId, page: u64) -> &mut Truth {
        let (object, page) = (object.0 as usize, page as usize);
        if object >= self.objects.len() {
            self.objects.resize_with(object + 1, Vec::new);
        }
        let pages = &mut self.objects[object];
        if page >= pages.len() {
            pages.resize(page + 1, Truth::default());
        }
        &mut pages[page]
    }

    /// When something last happened to what is in a frame.
    pub(super) fn last_event(&self, frame: FolioId) -> u64 {
        self.events.get(frame.index()).copied().unwrap_or(0)
    }

    fn hold(&mut self, frame: FolioId, held: Option<Held>) {
        if frame.index() >= self.frames.len() {
            self.frames.resize(frame.index() + 1, None);
        }
        self.frames[frame.index()] = held;
    }

    /// The version in a frame, if it holds that page at all.
    fn held(&self, object: ObjectId, page: u64, frame: FolioId) -> Option<u64> {
        let held = self.frames.get(frame.index()).copied().flatten()?;
        (held.object == object && held.page == page).then_some(held.version)
    }

    /// Something happened to a page.
    ///
    /// # Errors
    /// What a reader, or the device, sees instead of the latest version.
    pub(super) fn on(
        &mut self,
        event: PageEvent,
        object: ObjectId,
        page: u64,
        frame: FolioId,
        now: u64,
    ) -> Result<(), String> {
        if frame.index() >= self.events.len() {
            self.events.resize(frame.index() + 1, 0);
        }
        self.events[frame.index()] = now;
        let truth = self.truth(object, page);
        let holds = |version| Some(Held { object, page, version });
        match event {
            PageEvent::Zeroed => self.hold(frame, holds(truth.zeros)),
            PageEvent::Arrived => self.hold(frame, holds(truth.device)),
            PageEvent::ReadFailed => {
                self.entry(object, page).read_failures += 1;
                self.hold(frame, None);
            }
            // The requested zeros have been counted as a version already (`resized`).
            PageEvent::TailZeroed => self.hold(frame, holds(truth.latest)),
            PageEvent::Patched if self.held(object, page, frame) != Some(truth.latest) => {
                let held = self.held(object, page, frame);
                return Err(format!(
                    "a part of page {page} of {object:?} is stored on {held:?} instead of version \
                     {}",
                    truth.latest
                ));
            }
            PageEvent::Stored | PageEvent::Patched => {
                let version = self.new_version(object, page);
                self.entry(object, page).latest = version;
                self.hold(frame, holds(version));
            }
            PageEvent::Loaded => {
                let held = self.held(object, page, frame);
                if held != Some(truth.latest) {
                    return Err(format!(
                        "a reader of page {page} of {object:?} sees {held:?} instead of version {}",
                        truth.latest
                    ));
                }
            }
            PageEvent::WriteBegan => {
                let Some(version) = self.held(object, page, frame) else {
                    return Err(format!(
                        "page {page} of {object:?} is written from {frame:?}, which has another"
                    ));
                };
                self.entry(object, page).writing = version;
                self.medium.began(object, page, version);
            }
            PageEvent::Released => {}
            PageEvent::Written => {
                self.entry(object, page).device = truth.writing;
                self.medium.ended(object, page, truth.writing);
            }
            PageEvent::WriteFailed => self.entry(object, page).write_failures += 1,
        }
        Ok(())
    }

    /// A page was evicted.
    ///
    /// # Errors
    /// When the device does not have what was in it.
    pub(super) fn freed(
        &mut self,
        object: ObjectId,
        page: u64,
        frame: FolioId,
    ) -> Result<(), String> {
        let (truth, held) = (self.truth(object, page), self.held(object, page, frame));
        self.hold(frame, None);
        if held == Some(truth.latest) && truth.device == truth.latest {
            return Ok(());
        }
        let Truth { latest, device, .. } = truth;
        Err(format!(
            "page {page} of {object:?} went with {held:?}; the latest version is {latest}, on the \
             device is {device}"
        ))
    }

    /// A page of a heap was freed lazily, as it is now.
    pub(super) fn freed_lazily(&mut self, object: ObjectId, page: u64) {
        let truth = self.entry(object, page);
        truth.freed = Some(truth.latest);
    }

    /// Reclaim has dropped a page that was freed lazily: it is zeros from now on.
    ///
    /// # Errors
    /// When it was stored to since.
    pub(super) fn lazily_dropped(
        &mut self,
        object: ObjectId,
        page: u64,
        frame: FolioId,
    ) -> Result<(), String> {
        let (truth, held) = (self.truth(object, page), self.held(object, page, frame));
        self.hold(frame, None);
        if held != Some(truth.latest) || truth.freed != held {
            return Err(format!(
                "page {page} of {object:?} was dropped with {held:?}; its program has freed {:?}, \
                 and the latest version is {}",
                truth.freed, truth.latest
            ));
        }
        self.given_up(object, page, false);
        Ok(())
    }

    /// A page was given up: of a file, or of a heap, of which the device has nothing.
    pub(super) fn given_up(&mut self, object: ObjectId, page: u64, of_file: bool) {
        let version = self.new_version(object, page);
        let truth = self.entry(object, page);
        *truth = Truth { latest: version, device: version, zeros: version, ..*truth };
        if of_file {
            self.medium.began(object, page, version);
            self.medium.ended(object, page, version);
        }
    }

    /// A part of a page is to become zeros: the one that its file ends in, or has ended in.
    pub(super) fn tail_to_be_zeroed(&mut self, object: ObjectId, page: u64) {
        let version = self.new_version(object, page);
        self.entry(object, page).latest = version;
    }

    /// A planted bug: what is in a frame is anything but what was read.
    pub(super) fn garble(&mut self, frame: FolioId) {
        self.hold(frame, None);
    }

    /// A planted bug: the device still has an old version of a page.
    pub(super) fn keep_on_device(&mut self, object: ObjectId, page: u64, version: u64) {
        self.entry(object, page).device = version;
    }

    /// Something happened to a flush of the device's cache.
    pub(super) fn flush(&mut self, event: FlushEvent, number: u64) {
        match event {
            FlushEvent::Began => self.medium.flush_began(number),
            FlushEvent::Ended => self.medium.flush_ended(number, true),
            FlushEvent::Failed(_) => self.medium.flush_ended(number, false),
        }
    }

    /// The pages of an object whose latest version is not durable.
    pub(super) fn volatile(&self, object: ObjectId) -> impl Iterator<Item = (u64, Truth)> {
        let pages = (0..).zip(self.pages(object).iter().copied());
        pages.filter(move |&(page, truth)| self.medium.durable(object, page) != truth.latest)
    }

    /// A sync of an object ended. `before` is what was volatile when it began; `well`: it reported
    /// no failure, so all of that is acknowledged.
    ///
    /// # Errors
    /// What the device was not given though no write of it failed, or what it need not keep though
    /// it is acknowledged.
    pub(super) fn synced(
        &mut self,
        object: ObjectId,
        before: &[(u64, Truth)],
        well: bool,
    ) -> Result<(), String> {
        for &(page, then) in before {
            let now = self.truth(object, page);
            let (latest, durable) = (then.latest, self.medium.durable(object, page));
            let lost = |what, version| {
                Err(format!(
                    "{object:?} was synced, and page {page} is {what} as of {version} and not \
                     {latest}"
                ))
            };
            if now.device < latest && now.write_failures == then.write_failures {
                return lost("on the device", now.device);
            }
            if well && durable < latest {
                return lost("durable", durable);
            }
            if well {
                let truth = self.entry(object, page);
                truth.acknowledged = truth.acknowledged.max(latest);
            }
        }
        Ok(())
    }

    /// The power goes, and comes back: what memory held is lost, and something is left of each page
    /// of these files. Each file has its number of pages; the blocks behind them were given back to
    /// the file system, so pages that come there later begin with zeros.
    ///
    /// # Errors
    /// What is left though it must not be.
    pub(super) fn cut(&mut self, files: &[(ObjectId, u64)], seed: u64) -> Result<(), String> {
        let mut rng = SplitMix64::new(seed);
        let survival = Survival::draw(&mut rng);
        let mut cuts = Cuts {
            all: self.cuts.all + 1,
            behind: self.cuts.behind + u64::from(self.medium.is_behind()),
            ..self.cuts
        };
        let mut left = Vec::new();
        let mut behind = Vec::new();
        let mut torn = false;
        for &(object, end) in files {
            // Whether the page before is as new as it could be, if there was a choice.
            let mut neighbour = None;
            for (page, truth) in (0..).zip(self.pages(object)) {
                if page >= end {
                    behind.push((object, page));
                    continue;
                }
                let (version, newest) = self.medium.survivor(object, page, survival, &mut rng);
                let Truth { latest, acknowledged, .. } = *truth;
                if version < acknowledged {
                    return Err(format!(
                        "the power went, and page {page} of {object:?} is {version}; \
                         {acknowledged} was acknowledged"
                    ));
                }
                if version > 0 && self.versions[version as usize - 1] != (object, page) {
                    return Err(format!(
                        "the power went, and page {page} of {object:?} is {version}, which is of \
                         another page"
                    ));
                }
                torn |= matches!((neighbour, newest), (Some(a), Some(b)) if a != b);
                neighbour = newest;
                cuts.dropped += u64::from(version < latest);
                cuts.kept += u64::from(acknowledged > 0);
                left.push((object, page, version));
            }
        }
        for (object, page) in behind {
            left.push((object, page, self.new_version(object, page)));
        }
        cuts.torn += u64::from(torn);
        self.medium.restart(left.iter().copied());
        let old = std::mem::take(&mut self.objects);
        for (object, page, version) in left {
            let acknowledged = old[object.0 as usize][page as usize].acknowledged;
            *self.entry(object, page) =
                Truth { latest: version, device: version, acknowledged, ..Truth::default() };
        }
        self.frames.clear();
        self.events.clear();
        self.cuts = cuts;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: ObjectId = ObjectId(0);
    const FRAME: FolioId = FolioId(0);

    fn stored(contents: &mut Contents, page: u64) {
        for event in [PageEvent::Stored, PageEvent::WriteBegan, PageEvent::Written] {
            contents.on(event, FILE, page, FRAME, 0).unwrap();
        }
    }

    #[test]
    fn what_a_flush_did_not_keep_must_not_be_acknowledged() {
        let mut contents = Contents::default();
        stored(&mut contents, 0);
        let before: Vec<_> = contents.volatile(FILE).collect();
        assert_eq!(before.len(), 1);
        assert!(
            contents.synced(FILE, &before, true).unwrap_err().contains("durable as of 0 and not 1")
        );
        assert_eq!(contents.synced(FILE, &before, false), Ok(()), "it was not reported as durable");
        contents.flush(FlushEvent::Began, 1);
        contents.flush(FlushEvent::Ended, 1);
        assert_eq!(contents.synced(FILE, &before, true), Ok(()));
        assert_eq!(contents.volatile(FILE).count(), 0);
    }

    #[test]
    fn a_power_cut_finds_what_was_acknowledged_too_early() {
        let cut = |acknowledged, seed| {
            let mut contents = Contents::default();
            stored(&mut contents, 0);
            contents.entry(FILE, 0).acknowledged = acknowledged;
            contents.cut(&[(FILE, 8)], seed).map(|()| contents.truth(FILE, 0))
        };
        let lost = (0..100).filter(|&seed| cut(1, seed).is_err()).count();
        assert!((20..80).contains(&lost), "some cuts keep the page, some do not: {lost} of 100");
        let left: Vec<Truth> = (0..100).map(|seed| cut(0, seed).unwrap()).collect();
        assert!(left.iter().all(|truth| truth.latest == truth.device && truth.latest <= 1));
        assert!([0, 1].iter().all(|version| left.iter().any(|truth| truth.latest == *version)));
    }
}
