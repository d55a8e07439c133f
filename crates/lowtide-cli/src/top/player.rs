//! Plays a recording: a clock that runs as fast as one wants, and goes to any time.
//!
//! What is shown at a time depends on the minutes before it, since rates and lines are made of
//! them. A small step forward takes the samples between; any other step begins again, as many
//! samples earlier as a line has points.

use std::time::Duration;

use super::error::TopError;
use super::model::processes::Processes;
use super::model::trail::POINTS;
use super::recording::Recording;

/// Fastest and slowest.
const SPEEDS: (f64, f64) = (0.01, 10_000.0);

/// A recording, and the place in it.
pub(crate) struct Player {
    recording: Recording,
    /// The sample that is shown.
    at: usize,
    /// The time that is shown, which is between two samples: nanoseconds since 1970.
    clock_ns: u64,
    speed: f64,
    is_paused: bool,
}

impl Player {
    /// At the beginning.
    pub(crate) fn new(
        recording: Recording,
        speed: f64,
        processes: &mut Processes,
    ) -> Result<Self, TopError> {
        let clock_ns = recording.at_ns(0);
        let mut player = Self { recording, at: 0, clock_ns, speed, is_paused: false };
        player.show(0, processes)?;
        Ok(player)
    }

    fn bounds(&self) -> (u64, u64) {
        (self.recording.at_ns(0), self.recording.at_ns(self.recording.count() - 1))
    }

    /// Begins again, with the samples that lead to one.
    fn show(&mut self, number: usize, processes: &mut Processes) -> Result<(), TopError> {
        *processes = Processes::default();
        for number in number.saturating_sub(POINTS)..=number {
            processes.take(&self.recording.read(number)?);
        }
        self.at = number;
        Ok(())
    }

    /// Goes to a time.
    fn go(&mut self, clock_ns: u64, processes: &mut Processes) -> Result<(), TopError> {
        let (first, last) = self.bounds();
        self.clock_ns = clock_ns.clamp(first, last);
        let to = self.recording.by(self.clock_ns);
        if to < self.at || to - self.at > POINTS {
            return self.show(to, processes);
        }
        for number in self.at + 1..=to {
            processes.take(&self.recording.read(number)?);
        }
        self.at = to;
        Ok(())
    }

    /// Lets time pass, unless it is paused.
    pub(crate) fn pass(
        &mut self,
        elapsed: Duration,
        processes: &mut Processes,
    ) -> Result<(), TopError> {
        if self.is_paused || self.is_at_end() {
            return Ok(());
        }
        let passed = elapsed.as_nanos() as f64 * self.speed;
        self.go(self.clock_ns.saturating_add(passed as u64), processes)
    }

    /// Goes some seconds on, or back.
    pub(crate) fn seek(&mut self, seconds: f64, processes: &mut Processes) -> Result<(), TopError> {
        let by = Duration::from_secs_f64(seconds.abs()).as_nanos() as u64;
        let to = match seconds < 0.0 {
            true => self.clock_ns.saturating_sub(by),
            false => self.clock_ns.saturating_add(by),
        };
        self.go(to, processes)
    }

    /// Goes to the beginning.
    pub(crate) fn begin(&mut self, processes: &mut Processes) -> Result<(), TopError> {
        self.go(0, processes)
    }

    /// Goes to the end.
    pub(crate) fn end(&mut self, processes: &mut Processes) -> Result<(), TopError> {
        self.go(u64::MAX, processes)
    }

    /// Whether there is nothing more to be played.
    pub(crate) fn is_at_end(&self) -> bool {
        self.at + 1 == self.recording.count()
    }

    /// Until the next sample is due; `None` if none will be.
    pub(crate) fn due(&self) -> Option<Duration> {
        if self.is_paused || self.is_at_end() {
            return None;
        }
        let next = self.recording.at_ns(self.at + 1).saturating_sub(self.clock_ns);
        Some(Duration::from_nanos((next as f64 / self.speed) as u64))
    }

    /// Holds it, or lets it go on.
    pub(crate) const fn pause(&mut self) {
        self.is_paused = !self.is_paused;
    }

    /// Whether it is held.
    pub(crate) const fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Plays it faster, or more slowly.
    pub(crate) fn accelerate(&mut self, factor: f64) {
        self.speed = (self.speed * factor).clamp(SPEEDS.0, SPEEDS.1);
    }

    /// How much faster than it happened.
    pub(crate) const fn speed(&self) -> f64 {
        self.speed
    }

    /// Seconds since its beginning, and those of all of it.
    pub(crate) fn place(&self) -> (f64, f64) {
        let (first, last) = self.bounds();
        let seconds = |ns: u64| ns.saturating_sub(first) as f64 / 1e9;
        (seconds(self.clock_ns), seconds(last))
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::processes::tests::{page, sample};
    use super::super::recording::Recorder;
    use super::*;

    /// Ten minutes, a sample a second; the number of faults grows by the second's own number.
    fn recorded(speed: f64) -> (tempfile::TempDir, Player, Processes) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("recording.zst");
        let mut recorder = Recorder::create(&path).unwrap();
        for second in 1..=600_u64 {
            let faults = second * (second + 1) / 2;
            recorder.add(&sample(second, vec![page(7, second, &[("/", faults)])])).unwrap();
        }
        recorder.finish().unwrap();
        let mut processes = Processes::default();
        let recording = Recording::open(&path).unwrap();
        let player = Player::new(recording, speed, &mut processes).unwrap();
        (dir, player, processes)
    }

    /// The rate of faults, which is the second that is shown, and the points of the line.
    fn shown(processes: &Processes) -> (Option<f64>, usize) {
        let process = processes.with_pid(7).unwrap();
        (process.measures.faults, process.trail.last(usize::MAX).count())
    }

    #[test]
    fn time_passes_at_the_speed_of_the_player_and_stops_at_the_end() {
        let (_dir, mut player, mut processes) = recorded(10.0);
        assert_eq!(player.due(), Some(Duration::from_millis(100)));
        player.pass(Duration::from_secs(2), &mut processes).unwrap();
        assert_eq!(shown(&processes), (Some(21.0), 20));
        player.pause();
        player.pass(Duration::from_secs(2), &mut processes).unwrap();
        assert_eq!((shown(&processes).0, player.due()), (Some(21.0), None));
        player.pause();
        player.pass(Duration::from_secs(100), &mut processes).unwrap();
        assert_eq!((player.is_at_end(), player.due()), (true, None));
        assert_eq!(shown(&processes), (Some(600.0), POINTS));
    }

    #[test]
    fn a_place_looks_the_same_from_wherever_one_comes() {
        let (_dir, mut player, mut processes) = recorded(1.0);
        player.seek(399.0, &mut processes).unwrap();
        let from_begin = shown(&processes);
        assert_eq!(from_begin, (Some(400.0), POINTS));
        player.end(&mut processes).unwrap();
        player.seek(-200.0, &mut processes).unwrap();
        assert_eq!(shown(&processes), from_begin);
        assert_eq!(player.place(), (399.0, 599.0));
        player.seek(-1e6, &mut processes).unwrap();
        assert_eq!((player.place().0, shown(&processes).0), (0.0, None));
    }
}
