//! One replay of the tape, for one policy at one size.

use super::curve::{Gap, Point};
use super::next_use::NextUse;
use super::player::{MakePlayer, PlayerError, System};
use super::run::MrcError;
use super::tape::{Effect, Record, Tape};
use super::watch::Watch;
use super::words::Chunk;
use crate::baseline::{ArcCache, Baseline, Cache, Clock, Lru, NEVER, Opt, S3Fifo, Sieve};
use std::num::NonZeroU32;

/// The result of one size.
pub(super) enum Outcome {
    Measured(Point),
    Refused(Gap),
}

/// A tape, with the data needed to replay it.
pub(super) struct Replay<'a> {
    pub(super) tape: &'a Tape,
    /// Needed for OPT only.
    pub(super) next_use: Option<&'a NextUse>,
    pub(super) watch: &'a Watch<'a>,
}

impl Replay<'_> {
    pub(super) const fn point(&self, pages: u64, misses: u64) -> Point {
        Point { pages, accesses: self.tape.accesses(), misses }
    }

    /// Replays the whole tape for one policy at one size.
    pub(super) fn measure(&self, system: &System<'_>, pages: u64) -> Result<Outcome, MrcError> {
        let misses = match system {
            System::Baseline(baseline) => {
                // Capacity for more pages than exist changes nothing.
                let capacity = pages.min(u64::from(self.tape.distinct())) as u32;
                let Some(capacity) = NonZeroU32::new(capacity) else {
                    let reason =
                        "a budget of no pages cannot hold the page that is accessed".to_owned();
                    return Ok(self.refused(pages, reason, 0));
                };
                self.play_baseline(*baseline, capacity)?
            }
            System::Player { make, .. } => match self.play_player(*make, pages)? {
                Ok(misses) => misses,
                Err(Refused { error, played }) => {
                    return Ok(self.refused(pages, error.to_string(), played));
                }
            },
        };
        Ok(Outcome::Measured(self.point(pages, misses)))
    }

    fn refused(&self, pages: u64, reason: String, played: u64) -> Outcome {
        // Skipped records count as done, so that progress reaches its end.
        self.watch.count(self.tape.len() - played);
        Outcome::Refused(Gap { pages, reason })
    }

    fn play_baseline(&self, baseline: Baseline, capacity: NonZeroU32) -> Result<u64, MrcError> {
        let pages = self.tape.distinct();
        // One copy of the loop for each policy, with the policy inlined.
        match baseline {
            Baseline::Lru => self.play_cache(Lru::new(pages, capacity)),
            Baseline::Clock => self.play_cache(Clock::new(pages, capacity)),
            Baseline::Sieve => self.play_cache(Sieve::new(pages, capacity)),
            Baseline::S3Fifo => self.play_cache(S3Fifo::new(pages, capacity)),
            Baseline::Arc => self.play_cache(ArcCache::new(pages, capacity)),
            Baseline::Opt => match self.next_use {
                Some(next_use) => self.play_opt(Opt::new(pages, capacity), next_use),
                None => self
                    .play_opt(Opt::new(pages, capacity), &NextUse::watched(self.tape, self.watch)?),
            },
        }
    }

    fn play_cache(&self, mut cache: impl Cache) -> Result<u64, MrcError> {
        let words = self.tape.words();
        let mut room = Chunk::default();
        let mut misses = 0;
        for index in 0..words.chunks() {
            let chunk = words.chunk(index, &mut room)?;
            for &word in chunk {
                misses += u64::from(play(&mut cache, Record::from_word(word), NEVER));
            }
            self.watch.played(chunk.len())?;
        }
        Ok(misses)
    }

    fn play_opt(&self, mut cache: Opt, next_use: &NextUse) -> Result<u64, MrcError> {
        let words = self.tape.words();
        let (mut room, mut next_room) = (Chunk::default(), Chunk::default());
        let (mut misses, mut start) = (0, 0);
        for index in 0..words.chunks() {
            let chunk = words.chunk(index, &mut room)?;
            for (&word, next) in chunk.iter().zip(next_use.chunk(index, start, &mut next_room)?) {
                misses += u64::from(play(&mut cache, Record::from_word(word), next));
            }
            start += chunk.len() as u64;
            self.watch.played(chunk.len())?;
        }
        Ok(misses)
    }

    /// The inner error is the player's.
    fn play_player(
        &self,
        make: &MakePlayer<'_>,
        pages: u64,
    ) -> Result<Result<u64, Refused>, MrcError> {
        let mut player = match make(pages) {
            Ok(player) => player,
            Err(error) => return Ok(Err(Refused { error, played: 0 })),
        };
        let words = self.tape.words();
        let mut room = Chunk::default();
        let (mut misses, mut played) = (0, 0);
        for index in 0..words.chunks() {
            let chunk = words.chunk(index, &mut room)?;
            for &word in chunk {
                let record = Record::from_word(word);
                let (space, page) = self.tape.origin(record.page());
                match player.play(record.kind(), space, page) {
                    Ok(hit) => misses += u64::from(!hit && record.effect() == Effect::Access),
                    Err(error) => return Ok(Err(Refused { error, played })),
                }
            }
            played += chunk.len() as u64;
            self.watch.played(chunk.len())?;
        }
        Ok(Ok(misses))
    }
}

/// A player failed.
struct Refused {
    error: PlayerError,
    /// Records that were counted as played before.
    played: u64,
}

/// Plays a record and returns whether it missed.
#[inline]
fn play(cache: &mut impl Cache, record: Record, next: u64) -> bool {
    match record.effect() {
        Effect::Access => !cache.access(record.page(), next),
        Effect::Remove => {
            cache.remove(record.page());
            false
        }
        Effect::Nothing => false,
    }
}
