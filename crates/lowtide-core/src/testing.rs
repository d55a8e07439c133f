//! Test support: engines with folios on their lists.

use crate::engine::{Engine, EngineConfig};
use crate::policy::Policy;
use crate::units::{FolioId, LruType, MemcgId, Owner, SpaceId, Task};

/// An engine with the folios `0..count` of one type, each of one page, brought in through the
/// descriptor and put on their lists.
pub(crate) fn filled(policy: Policy, count: u32, t: LruType) -> Engine {
    let config = EngineConfig {
        frames: count.max(64),
        max: u64::from(count.max(64)),
        page_bytes: 4096,
        policy,
        cpus: 1,
    };
    let mut engine = Engine::new(&config).expect("the configuration is valid");
    for i in 0..count {
        engine.try_charge(MemcgId::ROOT, 1).expect("there is room");
        let owner = Owner { space: SpaceId(0), page: u64::from(i) };
        engine.insert(FolioId(i), owner, 0, t, MemcgId::ROOT, None, Task::DESCRIPTOR);
    }
    engine.drain(0);
    engine
}
