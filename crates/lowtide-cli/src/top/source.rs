//! Where samples come from: processes that run, looked at from time to time, or a recording.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lowtide_status::{Error, Pages};

use super::draw::Caption;
use super::error::TopError;
use super::model::navigation::Effect;
use super::model::processes::Processes;
use super::model::sample::{Sample, Seen};
use super::player::Player;
use super::recording::Recorder;

/// Intervals that a key chooses from.
const INTERVALS_MS: [u64; 10] = [100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000];
/// A recording is not drawn more often than this, however fast it is played.
const FRAME: Duration = Duration::from_millis(50);
/// How much faster or slower one key makes it.
const FASTER: f64 = 2.0;

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
pub(crate) struct Watch {
    interval: Duration,
    /// When the next sample is due.
    next: Instant,
    is_paused: bool,
    recorder: Option<Recorder>,
    /// Why there is no recorder any more.
    failure: Option<TopError>,
    note: Option<String>,
}

impl Watch {
    /// Looks now, and from now on.
    pub(crate) fn new(
        interval: Duration,
        recorder: Option<Recorder>,
        processes: &mut Processes,
    ) -> Result<Self, TopError> {
        let mut watch = Self {
            interval,
            next: Instant::now(),
            is_paused: false,
            recorder,
            failure: None,
            note: None,
        };
        watch.pass(processes)?;
        Ok(watch)
    }

    /// Takes a sample, if one is due. While it is paused the recording goes on, and the picture
    /// does not.
    fn pass(&mut self, processes: &mut Processes) -> Result<(), TopError> {
        let now = Instant::now();
        if now < self.next {
            return Ok(());
        }
        // One that is late does not make the next one early.
        self.next = now + self.interval;
        if self.is_paused && self.recorder.is_none() {
            return Ok(());
        }
        let (sample, note) = look()?;
        self.note = note;
        if let Some(recorder) = &mut self.recorder
            && let Err(error) = recorder.add(&sample)
        {
            self.recorder = None;
            self.failure = Some(error);
        }
        if !self.is_paused {
            processes.take(&sample);
        }
        Ok(())
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
}

/// Where samples come from.
pub(crate) enum Source {
    Watch(Watch),
    Player(Player),
}

impl Source {
    /// Until something will have changed; `None` if nothing will by itself.
    pub(crate) fn due(&self) -> Option<Duration> {
        match self {
            Self::Watch(watch) if watch.is_paused && watch.recorder.is_none() => None,
            Self::Watch(watch) => Some(watch.next.saturating_duration_since(Instant::now())),
            Self::Player(player) => player.due().map(|due| due.max(FRAME)),
        }
    }

    /// Lets time pass: `elapsed` since the call before.
    pub(crate) fn pass(
        &mut self,
        elapsed: Duration,
        processes: &mut Processes,
    ) -> Result<(), TopError> {
        match self {
            Self::Watch(watch) => watch.pass(processes),
            Self::Player(player) => player.pass(elapsed, processes),
        }
    }

    /// What a key wants of it.
    pub(crate) fn obey(
        &mut self,
        effect: Effect,
        processes: &mut Processes,
    ) -> Result<(), TopError> {
        match (self, effect) {
            (Self::Watch(watch), Effect::Pause) => {
                watch.is_paused ^= true;
                watch.next = watch.next.min(Instant::now());
            }
            (Self::Watch(watch), Effect::More) => watch.change_interval(true),
            (Self::Watch(watch), Effect::Less) => watch.change_interval(false),
            (Self::Player(player), Effect::Pause) => player.pause(),
            (Self::Player(player), Effect::More) => player.accelerate(FASTER),
            (Self::Player(player), Effect::Less) => player.accelerate(1.0 / FASTER),
            (Self::Player(player), Effect::Seek(seconds)) => player.seek(seconds, processes)?,
            (Self::Player(player), Effect::Begin) => player.begin(processes)?,
            (Self::Player(player), Effect::End) => player.end(processes)?,
            _ => {}
        }
        Ok(())
    }

    /// What the first and the last line say of it.
    pub(crate) fn caption(&self, at_ns: u64) -> Caption {
        match self {
            Self::Watch(watch) => {
                let recording = if watch.recorder.is_some() { "recording, " } else { "" };
                let seconds = watch.interval.as_secs_f64();
                let failure = watch.failure.as_ref().map(ToString::to_string);
                Caption {
                    source: format!("{recording}every {seconds} s"),
                    is_paused: watch.is_paused,
                    note: failure.or_else(|| watch.note.clone()),
                    place: None,
                }
            }
            Self::Player(player) => {
                let time = UNIX_EPOCH + Duration::from_nanos(at_ns);
                let time = humantime::format_rfc3339_seconds(time);
                let end = if player.is_at_end() { ", end" } else { "" };
                Caption {
                    source: format!("replay {time} x{}{end}", player.speed()),
                    is_paused: player.is_paused(),
                    note: None,
                    place: Some(player.place()),
                }
            }
        }
    }

    /// Ends it, and reports whether all was recorded.
    pub(crate) fn finish(self) -> Result<(), TopError> {
        match self {
            Self::Watch(Watch { failure: Some(failure), .. }) => Err(failure),
            Self::Watch(Watch { recorder: Some(recorder), .. }) => recorder.finish(),
            _ => Ok(()),
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
        let mut watch = Watch::new(Duration::from_secs(3), None, &mut processes).unwrap();
        watch.change_interval(true);
        assert_eq!(watch.interval, Duration::from_secs(5));
        for _ in 0..20 {
            watch.change_interval(false);
        }
        assert_eq!(watch.interval, Duration::from_millis(100));
    }
}
