//! Where samples come from: processes that run, looked at from time to time.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lowtide_status::{Error, Pages};

use super::draw::Caption;
use super::error::TopError;
use super::model::navigation::Effect;
use super::model::processes::Processes;
use super::model::sample::{Sample, Seen};

/// Intervals that a key chooses from.
const INTERVALS_MS: [u64; 10] = [100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000];

/// Looks at all processes.
pub(crate) fn look() -> Result<(Sample, Option<String>), TopError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(from_pages(lowtide_status::list()?, now.as_nanos() as u64))
}

/// The process that an error is about: a page has its number as name.
fn pid_of(error: &Error) -> Option<u32> {
    let of_path = |path: &Path| path.file_name()?.to_str()?.parse().ok();
    match error {
        Error::Newer { pid, .. } | Error::Unfinished { pid } => Some(*pid),
        Error::Damaged { path, .. } | Error::Refused { path, .. } | Error::Io { path, .. } => {
            of_path(path)
        }
        _ => None,
    }
}

/// A sample of pages, and what is wrong with all of a folder.
fn from_pages(pages: Pages, at_ns: u64) -> (Sample, Option<String>) {
    let mut processes: Vec<Seen> = pages.live.into_iter().map(Seen::page).collect();
    let mut note = None;
    for error in pages.refused {
        match pid_of(&error) {
            Some(pid) => processes.push(Seen::unreadable(pid, error.to_string())),
            None => note = Some(error.to_string()),
        }
    }
    (Sample { at_ns, processes }, note)
}

/// Processes that run.
pub(crate) struct Source {
    interval: Duration,
    /// When the next sample is due.
    next: Instant,
    is_paused: bool,
    note: Option<String>,
}

impl Source {
    /// Looks now, and from now on.
    pub(crate) fn new(interval: Duration, processes: &mut Processes) -> Result<Self, TopError> {
        let mut source = Self { interval, next: Instant::now(), is_paused: false, note: None };
        source.pass(processes)?;
        Ok(source)
    }

    /// Until the next sample; `None` while it is paused.
    pub(crate) fn due(&self) -> Option<Duration> {
        (!self.is_paused).then(|| self.next.saturating_duration_since(Instant::now()))
    }

    /// Takes a sample, if one is due.
    pub(crate) fn pass(&mut self, processes: &mut Processes) -> Result<(), TopError> {
        let now = Instant::now();
        if now < self.next || self.is_paused {
            return Ok(());
        }
        // One that is late does not make the next one early.
        self.next = now + self.interval;
        let (sample, note) = look()?;
        self.note = note;
        processes.take(&sample);
        Ok(())
    }

    /// What a key wants of it.
    pub(crate) fn obey(&mut self, effect: Effect) {
        match effect {
            Effect::Pause => {
                self.is_paused ^= true;
                self.next = self.next.min(Instant::now());
            }
            Effect::More => self.change_interval(true),
            Effect::Less => self.change_interval(false),
            _ => {}
        }
    }

    fn change_interval(&mut self, is_longer: bool) {
        let now = self.interval.as_millis() as u64;
        let next = match is_longer {
            true => INTERVALS_MS.into_iter().find(|ms| *ms > now),
            false => INTERVALS_MS.into_iter().rev().find(|ms| *ms < now),
        };
        self.interval = Duration::from_millis(next.unwrap_or(now));
        self.next = self.next.min(Instant::now() + self.interval);
    }

    /// What the first and the last line say of it.
    pub(crate) fn caption(&self) -> Caption {
        Caption {
            source: format!("every {} s", self.interval.as_secs_f64()),
            is_paused: self.is_paused,
            note: self.note.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::processes::tests::page;
    use super::*;

    #[test]
    fn a_page_that_is_refused_is_a_row_and_a_folder_that_is_refused_a_note() {
        let refused = vec![
            Error::Newer { pid: 8, version: 9 },
            Error::Damaged { path: "/dev/shm/lowtide-0/12".into(), what: "it has no header" },
            Error::Refused { path: "/tmp/lowtide-0".into(), what: "belongs to user 1".into() },
        ];
        let pages = Pages { live: vec![page(7, 1, &[])], refused };
        let (sample, note) = from_pages(pages, 5);
        let rows: Vec<_> =
            sample.processes.iter().map(|seen| (seen.pid, seen.error.is_some())).collect();
        assert_eq!(rows, [(7, false), (8, true), (12, true)]);
        assert!(note.is_some_and(|note| note.contains("belongs to user 1")));
    }

    #[test]
    fn keys_change_the_interval_step_by_step() {
        let mut processes = Processes::default();
        let mut source = Source::new(Duration::from_secs(3), &mut processes).unwrap();
        source.change_interval(true);
        assert_eq!(source.interval, Duration::from_secs(5));
        for _ in 0..20 {
            source.change_interval(false);
        }
        assert_eq!(source.interval, Duration::from_millis(100));
    }
}
