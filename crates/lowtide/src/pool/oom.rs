//! Out of memory: why there is no room in a group, and the report of it. Source:
//! `docs/kernel/memcg.md` §11.

use super::State;
use super::payer::Full;
use crate::error::Error;
use crate::tenant::{Consumer, OomReport, TenantLimits, Unwritable};
use crate::writeback::Failure;
use lowtide_core::{FolioId, MemcgId};
use lowtide_pin::hazard;
use lowtide_pin::translation::{Entry, State as EntryState};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Consumers that a report lists at most.
const TOP: usize = 10;

/// The error of an operation that gives up.
pub(crate) fn out_of_budget(state: &mut State, full: Full, pages: u64, page_shift: u32) -> Error {
    state.engine.count_oom(full.over);
    if hazard::is_refused() {
        return Error::NoBarrier;
    }
    Error::OutOfBudget { report: Arc::new(state.oom_report(full, pages, page_shift)) }
}

impl State {
    /// A file of a group, or of one below it, that fails at every attempt to write it. With the
    /// last failure.
    pub(crate) fn unwritable(&self, over: MemcgId) -> Option<(Arc<PathBuf>, Failure)> {
        self.spaces.iter().flatten().find_map(|space| {
            let failure = lowtide_pin::sync::lock(&space.ledger).hopeless()?;
            let pays = self.engine.group_of_space(space.id);
            self.engine.is_within(pays, over).then(|| (space.path(), failure))
        })
    }

    /// Pages of a group, and of those below it, that guards of this thread pin. Cost: O(guards of
    /// this thread).
    pub(crate) fn held_here(&self, over: MemcgId) -> u64 {
        let mut folios = HashMap::new();
        hazard::each_of_this_thread(|address| {
            let found =
                self.spaces.iter().flatten().find_map(|space| space.table.at_address(address));
            if let Some(EntryState::Resident { frame, .. }) = found.map(Entry::load)
                && let Some(id) = self.engine.folio_of(FolioId(frame))
                && let (Some(folio), Some(group)) =
                    (self.engine.folio(id), self.engine.group_of_folio(id))
                && self.engine.is_within(group, over)
            {
                folios.insert(id, folio.pages());
            }
        });
        folios.values().sum()
    }

    /// Looks at a group that is full. Cost: O(groups below).
    fn oom_report(&self, full: Full, pages: u64, page_shift: u32) -> OomReport {
        let (unwritable, held_here) = (self.unwritable(full.over), self.held_here(full.over));
        let refused = self.swaps.refused(|group| self.engine.is_within(group, full.over));
        let Full { over: full, payer, .. } = full;
        let State { engine, names, .. } = self;
        let bytes = |pages: u64| if pages == u64::MAX { pages } else { pages << page_shift };
        let mut below = vec![full];
        let mut at = 0;
        while let Some(&id) = below.get(at) {
            below.extend(engine.children(id));
            at += 1;
        }
        let alone = |id| {
            let children: u64 = engine.children(id).map(|child| engine.usage(child)).sum();
            engine.usage(id).saturating_sub(children)
        };
        let mut sizes: Vec<_> = below.iter().map(|&id| (alone(id), id)).collect();
        sizes.sort_by_key(|&(pages, _)| Reverse(pages));
        let consumer = |(pages, id): (u64, MemcgId)| {
            let (min, low) = engine.effective(id);
            Consumer {
                tenant: names.path(engine, id),
                bytes: bytes(pages),
                min_bytes: bytes(min),
                low_bytes: bytes(low),
            }
        };
        let (min, low) = engine.effective(full);
        OomReport {
            tenant: names.path(engine, full),
            payer: names.path(engine, payer),
            asked_bytes: bytes(pages),
            usage_bytes: bytes(engine.usage(full)),
            limit_bytes: bytes(engine.max(full)),
            failcnt: engine.failcnt(full),
            swap_bytes: bytes(engine.swap_usage(full)),
            limits: TenantLimits::from_pages(engine.limits(full), page_shift),
            effective_bytes: (bytes(min), bytes(low)),
            stat: engine.stat(full),
            consumers: sizes
                .into_iter()
                .take(TOP)
                .filter(|(pages, _)| *pages > 0)
                .map(consumer)
                .collect(),
            consumers_total: below.len(),
            held_here_bytes: bytes(held_here),
            unwritable: unwritable
                .map(|(path, failure)| Unwritable { path, source: failure.source }),
            swap_refusal: refused,
        }
    }
}

/// Whether guards of this thread pin all that a group has in memory: waiting for them would be
/// forever .
pub(crate) fn held_here(state: &State, over: MemcgId) -> bool {
    let stat = state.engine.stat(over);
    // Each guard pins one folio.
    let largest = state.spaces.iter().flatten().map(|space| space.order).max().unwrap_or(0);
    let resident = stat.file + stat.anon;
    let at_most = (hazard::guards_at_most() as u64) << largest;
    resident > 0 && at_most >= resident && state.held_here(over) >= resident
}
