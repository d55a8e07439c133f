//! The figures of a pager and its tenants.
//!
//! The pool's lock is taken once for the pager and once for each tenant, so figures of different
//! tenants are of slightly different moments, as in the export of the kernel's files. Nothing is
//! asked of the kernel.
//!
//! Curves are as the last look at the sample has left them, at most two seconds ago
//! (`pool/looks.rs`): a look of its own would cost more than everything else here.

use crate::budget::Curve;
use crate::pool::{Pool, StateGuard};
use crate::space::Space;
use lowtide_core::counters::{Stat, TenantStat};
use lowtide_core::{AgeClass, MemcgId};
use lowtide_status::{Generation, PagerStatus, TenantStatus};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

/// Tenants that have figures. About as many have room in a page.
const TENANTS_MAX: usize = 500;
/// Tenants that have a curve, the root among them. One has a few KiB as text.
const CURVES_MAX: usize = 16;
/// Files of a tenant that are named.
const FILES_MAX: usize = 16;

/// The figures of a pager.
pub(super) fn of(pool: &Pool) -> PagerStatus {
    let state = pool.lock();
    let engine = &state.engine;
    let policy = engine.policy().to_string();
    if pool.is_poisoned() {
        return PagerStatus { policy, ..PagerStatus::default() };
    }
    let ledgers = state.spaces.iter().flatten().map(|space| lowtide_pin::sync::lock(&space.ledger));
    let failed_pages = ledgers.map(|ledger| ledger.failed_pages()).sum();
    let resident_bytes = state.resident.resident_bytes();
    let metadata_bytes = pool.table_bytes(&state) as u64;
    let spaces: Vec<Arc<Space>> = state.spaces.iter().flatten().cloned().collect();
    let (groups, tenants_left_out) = groups(&state);
    let files = files(&state, &spaces);
    drop(state);
    // Behind pointers not every access is counted.
    let mapped = spaces.iter().any(|space| space.mapped.is_some());
    let counted = (!mapped).then(|| (pool.io.hits() + pool.io.misses()) as f64);
    let tenants = groups.into_iter().enumerate().filter_map(|(at, id)| {
        let state = pool.lock();
        if pool.is_poisoned() || !state.engine.alive(id) {
            return None;
        }
        let counted = counted.filter(|_| id == MemcgId::ROOT);
        let curve = (at < CURVES_MAX).then(|| state.reuse.of_group(id)).flatten();
        let curve = curve.map(|curve| Curve::new(curve, pool.page_shift, counted));
        let mut status = tenant(pool, state, id);
        status.files = files.get(&id).cloned().unwrap_or_default();
        status.curve = curve.as_ref().map(lowtide_status::Curve::from);
        Some(status)
    });
    let mut stat = Stat::default();
    stat.resident_bytes = resident_bytes;
    stat.frame_metadata_bytes = metadata_bytes;
    stat.failed_pages = failed_pages;
    (stat.hits, stat.misses) = (pool.io.hits(), pool.io.misses());
    stat.io = pool.io.counts.snapshot();
    PagerStatus {
        policy,
        page_bytes: pool.page_bytes() as u64,
        stat,
        tenants: tenants.collect(),
        tenants_left_out,
    }
}

/// The groups that have figures: the root, then those with the most memory; how many are left.
fn groups(state: &StateGuard<'_>) -> (Vec<MemcgId>, u64) {
    let engine = &state.engine;
    let mut all: Vec<MemcgId> = engine.below(MemcgId::ROOT).collect();
    all[1..].sort_by_key(|&id| Reverse(engine.usage(id)));
    let left = all.len().saturating_sub(TENANTS_MAX);
    all.truncate(TENANTS_MAX);
    (all, left as u64)
}

/// Some files of each group.
fn files(state: &StateGuard<'_>, spaces: &[Arc<Space>]) -> HashMap<MemcgId, Vec<String>> {
    let mut files: HashMap<MemcgId, Vec<String>> = HashMap::new();
    for space in spaces.iter().filter(|space| space.anon.is_none() && !space.is_closed()) {
        let of_group = files.entry(state.engine.group_of_space(space.id)).or_default();
        let path = space.path_ref().to_string_lossy();
        if of_group.len() < FILES_MAX && !of_group.iter().any(|known| *known == path) {
            of_group.push(path.into_owned());
        }
    }
    files
}

/// All but the files and the curve.
fn tenant(pool: &Pool, mut state: StateGuard<'_>, id: MemcgId) -> TenantStatus {
    let now = pool.now();
    let path = state.names.path(&state.engine, id);
    let engine = &mut state.engine;
    let pressure = engine.pressure(id, now);
    let (memory, limits, events) = (engine.stat(id), engine.limits(id), engine.limit_events(id));
    let bytes = |pages: u64| pages.saturating_mul(memory.page_bytes);
    let limit = |pages: u64| (pages != u64::MAX).then(|| bytes(pages));
    let at = &memory.events;
    let generations =
        engine.ages(id).into_iter().map(|age| generation(age, now, memory.page_bytes));
    let stat = TenantStat {
        usage_bytes: bytes(engine.usage(id)),
        peak_bytes: bytes(engine.peak(id)),
        max_bytes: limit(limits.max),
        high_bytes: limit(limits.high),
        low_bytes: bytes(limits.low),
        min_bytes: bytes(limits.min),
        swap_bytes: bytes(engine.swap_usage(id)),
        file_bytes: bytes(memory.file),
        anon_bytes: bytes(memory.anon),
        dirty_bytes: bytes(memory.file_dirty),
        writeback_bytes: bytes(memory.file_writeback),
        faults: at.pgfault,
        refaults: at.refaults(),
        scanned: at.pgscan,
        evicted: at.pgsteal,
        stall_some_ns: pressure.some.total.as_nanos() as u64,
        stall_some_avg10: f64::from(pressure.some.averages[0]) / 100.0,
        stall_full_ns: pressure.full.total.as_nanos() as u64,
        high_events: events.high,
        max_events: events.max,
        oom_events: events.oom,
    };
    TenantStatus { path, stat, generations: generations.collect(), ..TenantStatus::default() }
}

fn generation(age: AgeClass, now: u64, page_bytes: u64) -> Generation {
    Generation {
        age_ns: age.born.map_or(0, |born| now.saturating_sub(born)),
        anon_bytes: age.anon * page_bytes,
        file_bytes: age.file * page_bytes,
    }
}
