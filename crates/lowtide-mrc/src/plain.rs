//! The plain machine as a [`Player`](crate::Player) of miss-ratio curves.

use crate::{Player, PlayerError};
use lowtide_sim::Plain;
use lowtide_workload::{OpKind, SpaceId};

impl Player for Plain {
    fn play(&mut self, kind: OpKind, space: SpaceId, page: u64) -> Result<bool, PlayerError> {
        Ok(self.access(kind, space, page)?)
    }
}
