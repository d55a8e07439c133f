//! What a writer does after it made pages dirty: usually nothing, sometimes a short sleep.
//!
//! A look at the domains costs more than making a page dirty, so a task looks only after a number
//! of pages, which depends on the result of its last look: while no writer is held back, about the
//! square root of the distance to the threshold; later, as many as its next sleep should be for. In
//! addition some task looks whenever all tasks together have made many pages dirty.
//!
//! A look ([`Engine::balance_dirty`]) takes the domain that slows the writer down most, and from
//! its position and the wb's rate computes the *period* that the pages should have taken. The time
//! since the last pause counts as part of it, so a task that computes between its writes sleeps
//! less or not at all, and may save up to a second of such time for a burst.
//!
//! At the limit the rate is 0. The writer then sleeps for the longest pause, and looks again. It
//! goes on when there is room, or when its own wb has nothing left to write: then other wbs fill
//! the domain, and this device should not stand still for them. Source: B4, B5.
//!
//! How exact the limits are: with exact figures the writers of a wb look after a sixteenth of the
//! hard limit together at the latest, and the flusher is woken as soon as any domain is above its
//! background limit. So a limit is exceeded by at most a sixteenth of it and by what each writer
//! makes dirty in one go. With published figures the behaviour is the kernel's: changes between two
//! publications go unnoticed.

use super::bandwidth::{Evidence, INTERVAL, task_rate};
use super::pause::{self, HZ, LONGEST, MS};
use super::position::Position;
use super::scale::Domain;
use super::wb::{DeviceId, FEWEST_UNCHECKED, Throttled};
use crate::engine::Engine;
use crate::units::{MemcgId, MemcgSlot, SpaceId};

/// Pages after which a task looks for the first time.
const FIRST_LOOK: u64 = 32;
/// The same while there is too much.
const LOOK_OFTEN: u64 = 8;

/// The state of a task that writes. One for each thread and engine.
#[derive(Clone, Copy, Debug)]
pub struct Dirtier {
    /// Pages made dirty and not accounted for yet.
    nr_dirtied: u64,
    /// Pages that are accounted for at a time.
    nr_dirtied_pause: u64,
    /// When the last pause ended, or would have, in ms.
    paused_when: Option<u64>,
    /// Pages that the pause in progress is for.
    owed: u64,
}

impl Default for Dirtier {
    fn default() -> Self {
        Self { nr_dirtied: 0, nr_dirtied_pause: FIRST_LOOK, paused_when: None, owed: 0 }
    }
}

impl Dirtier {
    /// Pages that the task may still make dirty before it has to look; at least one. For drivers
    /// that make many pages dirty at once.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.nr_dirtied_pause.saturating_sub(self.nr_dirtied).max(1)
    }
}

/// What a writer has to do. See [`Engine::balance_dirty`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Balance {
    /// Wake the flusher of the device.
    pub wake_flusher: bool,
    /// Sleep for this many nanoseconds, at most 200 ms. Waking early does no harm.
    pub pause_ns: Option<u64>,
    /// Call [`Engine::balance_dirty`] again after the pause: the limit has been reached. A
    /// driver that finds the device dead may go on without.
    pub again: bool,
}

/// A domain, and how a wb stands in it.
#[derive(Clone, Copy, Debug)]
struct Standing {
    domain: Domain,
    position: Position,
    ratio: u64,
}

impl Engine {
    /// A task made clean pages of a space dirty ([`Engine::set_dirty`] returned true). Returns
    /// whether it has to call [`Engine::balance_dirty`]: before it makes more pages dirty, and
    /// while it holds nothing that other threads wait for. Cheap.
    pub fn dirtied(&mut self, dirtier: &mut Dirtier, space: SpaceId, pages: u64) -> bool {
        let Some((device, slot)) = self.place_of(space) else { return false };
        dirtier.nr_dirtied += pages;
        let wb = self.wb_mut(slot, device);
        let mut look_after = dirtier.nr_dirtied_pause;
        if wb.exceeded {
            look_after = look_after.min(LOOK_OFTEN);
        }
        wb.unchecked += pages;
        let wb_is_due = wb.unchecked >= wb.check_every;
        self.dirty.unchecked += pages;
        if wb_is_due || self.dirty.unchecked >= self.dirty.check_every {
            self.dirty.unchecked = 0;
            return true;
        }
        // Some task has to account for the pages of tasks that are gone.
        let taken = self.dirty.left.min(look_after.saturating_sub(dirtier.nr_dirtied));
        self.dirty.left -= taken;
        dirtier.nr_dirtied += taken;
        dirtier.nr_dirtied >= look_after
    }

    /// What a task must do for the pages that it made dirty. `now` is in nanoseconds.
    ///
    /// The caller does what the [`Balance`] says: wakes the flusher, sleeps, calls again. Cost:
    /// O(groups below the domains that the space is in).
    pub fn balance_dirty(&mut self, dirtier: &mut Dirtier, space: SpaceId, now: u64) -> Balance {
        self.dirty.tell_time(now);
        dirtier.owed += std::mem::take(&mut dirtier.nr_dirtied);
        let Some((device, slot)) = self.place_of(space) else {
            dirtier.owed = 0;
            return Balance::default();
        };
        let domains: Vec<_> = self.domains(slot).collect();
        self.set_check_intervals(device, slot, &domains);
        let writing = self.dirty.device(device).writing;
        let above = domains.iter().any(|domain| self.sees_background(domain));
        let now = now / MS;
        if domains.iter().all(|domain| domain.state.unclean() <= domain.thresholds.freerun) {
            self.wb_mut(slot, device).exceeded = false;
            let look_after = domains.iter().map(|domain| poll_after(domain.gap())).min();
            *dirtier = Dirtier {
                nr_dirtied_pause: look_after.unwrap_or(1),
                paused_when: Some(now),
                ..Dirtier::default()
            };
            return Balance { wake_flusher: !writing && above, ..Balance::default() };
        }
        let standing = self.hardest(device, slot, &domains, now);
        let (pause, again) = self.pause(dirtier, device, slot, standing, now);
        if let Some(ticks) = pause {
            let ns = ticks * MS;
            self.memcgs[slot].dirty.throttled.add(Throttled {
                pauses: 1,
                pause_ns: ns,
                longest_ns: ns,
            });
        }
        Balance { wake_flusher: !writing, pause_ns: pause.map(|ticks| ticks * MS), again }
    }

    /// A task that writes is gone. Other tasks will account for its pages.
    pub fn dirtier_gone(&mut self, dirtier: Dirtier) {
        self.dirty.left += dirtier.nr_dirtied + dirtier.owed;
    }

    /// The pauses imposed on writers of a group and of those below it. Cost: O(groups
    /// below).
    ///
    /// # Panics
    /// When the group is gone.
    #[must_use]
    pub fn throttled(&self, id: MemcgId) -> Throttled {
        let mut sum = Throttled::default();
        for group in self.below(id) {
            sum.add(self.memcgs[group].dirty.throttled);
        }
        sum
    }

    /// Whether the flusher is woken as soon as a domain is above its background limit. A writer
    /// that sees old figures of a group does not check that; the flusher is then woken above
    /// freerun.
    fn sees_background(&self, domain: &Domain) -> bool {
        self.sees_exactly(domain.of) && domain.over_background()
    }

    /// Sets after how many pages of all tasks some task looks again.
    fn set_check_intervals(&mut self, device: DeviceId, slot: MemcgSlot, domains: &[Domain]) {
        let all = domains.last().expect("the root is a domain");
        self.dirty.check_every = (all.thresholds.hard / 32).max(FEWEST_UNCHECKED);
        let tightest = domains.iter().map(|domain| domain.thresholds.hard).min();
        let exact = self.dirty.exact;
        let wb = self.wb_mut(slot, device);
        wb.unchecked = 0;
        wb.check_every =
            if exact { tightest.map_or(1, |hard| (hard / 16).max(1)) } else { u64::MAX };
    }

    /// Finds the domain that slows a wb's writers down most, and brings the wb's rates up to date.
    fn hardest(
        &mut self,
        device: DeviceId,
        slot: MemcgSlot,
        domains: &[Domain],
        now: u64,
    ) -> Standing {
        let standings: Vec<_> =
            domains.iter().map(|domain| self.standing(device, slot, *domain)).collect();
        let exceeded = standings.iter().any(|standing| {
            let Standing { domain, position, .. } = standing;
            position.wb_unclean > position.wb_thresh && position.unclean > domain.thresholds.hard
        });
        let hardest = *standings.iter().min_by_key(|s| s.ratio).expect("the root is a domain");
        for domain in domains {
            self.memcgs[domain.of].dirty.falling.update(domain, now);
        }
        let wb = self.wb_mut(slot, device);
        wb.exceeded = exceeded;
        let seen = Evidence {
            ratio: hardest.ratio,
            below_setpoint: hardest.position.unclean < hardest.position.setpoint(),
            bandwidth: wb.write_rate.average,
            dirtied: wb.dirtied,
        };
        wb.dirty_rate.update(now, seen);
        if wb.write_rate.update(now, wb.written, wb.writeback > 0) {
            wb.dirty_rate.leap(wb.write_rate.average);
        }
        hardest
    }

    fn standing(&self, device: DeviceId, slot: MemcgSlot, domain: Domain) -> Standing {
        let period = self.dirty.period();
        let wb = self.memcgs[slot].dirty.wb(device).expect("it was looked at before");
        let all = self.completions(domain.of);
        let position = Position {
            unclean: domain.state.unclean(),
            thresh: domain.thresholds.hard,
            freerun: domain.thresholds.freerun,
            limit: self.memcgs[domain.of].dirty.falling.get(&domain),
            wb_unclean: wb.unclean(),
            wb_thresh: domain.part(wb.completions.get(period), all),
            bandwidth: wb.write_rate.average,
        };
        Standing { domain, position, ratio: position.ratio() }
    }

    /// What the pages that a task made dirty cost it: a sleep in ms, and whether it has to look
    /// again afterwards.
    fn pause(
        &mut self,
        dirtier: &mut Dirtier,
        device: DeviceId,
        slot: MemcgSlot,
        standing: Standing,
        now: u64,
    ) -> (Option<u64>, bool) {
        let error = self.count_error();
        let wb = self.wb_mut(slot, device);
        let (bandwidth, ratelimit) = (wb.write_rate.average, wb.dirty_rate.ratelimit);
        let rate = task_rate(ratelimit, standing.ratio);
        let wb_unclean = standing.position.wb_unclean;
        let most = pause::max_pause(wb_unclean, bandwidth);
        let aim = pause::aim(most, bandwidth, ratelimit, rate);
        if rate == 0 {
            dirtier.nr_dirtied_pause = aim.pages;
            dirtier.paused_when = Some(now + most);
            let again = wb_unclean > error;
            if !again {
                dirtier.owed = 0;
            }
            return (Some(most), again);
        }
        let pages = dirtier.owed;
        let period = HZ * pages / rate;
        let spent = dirtier.paused_when.map_or(0, |when| now as i64 - when as i64);
        let pause = period as i64 - spent;
        if pause < aim.min_pause as i64 {
            if pause < -(HZ as i64) {
                dirtier.paused_when = Some(now);
                dirtier.owed = 0;
            } else if period != 0 {
                dirtier.paused_when = Some(dirtier.paused_when.unwrap_or(now) + period);
                dirtier.owed = 0;
            } else {
                // Too few pages for a tick: they are accounted for together with the next ones.
                dirtier.nr_dirtied = std::mem::take(&mut dirtier.owed);
                if dirtier.nr_dirtied_pause <= pages {
                    dirtier.nr_dirtied_pause += pages;
                }
                return (None, false);
            }
            dirtier.nr_dirtied_pause = aim.pages;
            return (None, false);
        }
        let pause = pause as u64;
        let late = pause.saturating_sub(most).min(most);
        let pause = pause.min(most).min(LONGEST);
        *dirtier = Dirtier {
            nr_dirtied: 0,
            nr_dirtied_pause: aim.pages,
            paused_when: Some(now + late + pause),
            owed: 0,
        };
        (Some(pause), false)
    }

    /// By how many pages the count of a wb may differ from the truth.
    fn count_error(&self) -> u64 {
        if self.dirty.exact {
            return 0;
        }
        let cpus = self.cpus.len() as u64;
        cpus * 8 * (1 + u64::from(cpus.ilog2()))
    }
}

/// Pages after which a task looks again when `gap` pages are left: the root of `gap`, as a power of
/// two.
fn poll_after(gap: u64) -> u64 {
    1 << (gap.max(1).ilog2() / 2)
}

const _: () = assert!(INTERVAL == LONGEST, "the longest sleep is also how long an estimate holds");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_looks_again_after_the_root_of_what_is_left() {
        assert_eq!(
            [0, 1, 3, 4, 1000, 10_000, 1_000_000].map(poll_after),
            [1, 1, 1, 2, 16, 64, 512]
        );
    }
}
