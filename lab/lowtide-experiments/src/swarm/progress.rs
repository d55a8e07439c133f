//! Whether a run makes progress.
//!
//! Virtual time is no measure: a slow disk may take an hour. Turns alone are none either, since a
//! task that waits for that disk may look for memory all the while. So a run is stuck when many
//! turns pass without a command to the device, or when the device carries out many commands and no
//! task accesses a page in the meantime.

/// Turns, and commands to the device, that are many: however scarce memory is, a thousand rounds of
/// reclaim take fewer turns, and a dozen threads wait for fewer commands.
const TURNS: u64 = 200_000;
const REQUESTS: u64 = 2_000;

/// What was seen last. See the module documentation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    accesses: u64,
    /// Turns and commands when the last access was seen.
    then: (u64, u64),
    requests: u64,
    /// Turn in which the last command was seen.
    turn: u64,
}

impl Progress {
    /// The progress of a machine that starts after `turns` turns.
    pub(super) fn since(turns: u64) -> Self {
        Self { then: (turns, 0), turn: turns, ..Self::default() }
    }

    /// After a turn: the counts as they are now.
    ///
    /// # Errors
    /// What has passed without an access, if that is too much.
    pub(super) fn turn(&mut self, turns: u64, accesses: u64, requests: u64) -> Result<(), String> {
        if accesses != self.accesses {
            (self.accesses, self.then) = (accesses, (turns, requests));
        }
        if requests != self.requests {
            (self.requests, self.turn) = (requests, turns);
        }
        let (without, carried_out) = (turns - self.then.0, requests - self.then.1);
        let idle = turns - self.turn.max(self.then.0);
        if without < TURNS || (carried_out < REQUESTS && idle < TURNS) {
            return Ok(());
        }
        Err(format!("{without} turns, while the device carried out {carried_out} commands"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_a_slow_device_is_progress() {
        let mut progress = Progress::default();
        for turn in 1..10 * TURNS {
            // One command in a thousand turns.
            assert_eq!(progress.turn(turn, turn / (100 * 1000), turn / 1000), Ok(()));
        }
    }

    #[test]
    fn commands_that_help_no_task_are_not() {
        let mut progress = Progress::default();
        let stuck = (1..).find(|&turn| progress.turn(turn, 1, turn / 10).is_err());
        assert_eq!(stuck, Some(TURNS + 1));
    }

    #[test]
    fn turns_without_either_are_not() {
        let mut progress = Progress::default();
        let stuck = (1..).find(|&turn| progress.turn(turn, 1, 1).is_err());
        assert_eq!(stuck, Some(TURNS + 1));
    }
}
