//! What is in each page, as a number: the model that finds lost updates.
//!
//! ```text
//!            stored                write began           written
//!   latest ──────────► frame ──────────────────► writing ───────► device
//!              ▲                                                    │
//!              └────────────────────── arrived ─────────────────────┘
//! ```
//!
//! Every store makes a new version, and versions only grow. A frame holds a version of one page; the device holds one of each. A write takes the version that the
//! frame holds when it begins: a store during the write may or may not reach the device, and a kernel must not rely on it. Whoever
//! reads must see the latest version, a frame that is freed must hold what the device holds, and giving a page up is a store of zeros that is
//! everywhere at once.

use crate::machine::PageEvent;
use crate::memory::ObjectId;
use lowtide_core::FolioId;

/// What is known of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Truth {
    /// Version stored last.
    pub(super) latest: u64,
    /// Version on the device.
    pub(super) device: u64,
    /// Version on its way to the device.
    writing: u64,
    /// Version that zeros are.
    zeros: u64,
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

/// All pages and frames. See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Contents {
    objects: Vec<Vec<Truth>>,
    frames: Vec<Option<Held>>,
    /// When something last happened to what is in each frame, in nanoseconds.
    events: Vec<u64>,
    versions: u64,
}

impl Contents {
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
            PageEvent::Stored => {
                self.versions += 1;
                let version = self.versions;
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
            }
            PageEvent::Released => {}
            PageEvent::Written => self.entry(object, page).device = truth.writing,
            PageEvent::WriteFailed => self.entry(object, page).write_failures += 1,
        }
        Ok(())
    }

    /// A page was evicted.
    ///
    /// # Errors
    /// When the device does not have what was in it.
    pub(super) fn freed(&mut self, object: ObjectId, page: u64, frame: FolioId) -> Result<(), String> {
        let (truth, held) = (self.truth(object, page), self.held(object, page, frame));
        self.hold(frame, None);
        if held == Some(truth.latest) && truth.device == truth.latest {
            return Ok(());
        }
        let Truth { latest, device, .. } = truth;
        Err(format!(
            "page {page} of {object:?} went with {held:?}; the latest version is {latest}, on the device is {device}"
        ))
    }

    /// A page was given up.
    pub(super) fn given_up(&mut self, object: ObjectId, page: u64) {
        self.versions += 1;
        let version = self.versions;
        let truth = self.entry(object, page);
        *truth = Truth { latest: version, device: version, zeros: version, ..*truth };
    }
}
