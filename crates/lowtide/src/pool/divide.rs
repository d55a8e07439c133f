//! Budgets that are divided by benefit (`tenant/share.rs`).

use super::State;
use lowtide_core::MemcgId;
use lowtide_core::reuse::divide;

/// Divides the budgets that are shared by benefit.
pub(crate) fn divide_all(state: &mut State) {
    let shared: Vec<MemcgId> = state.by_benefit.iter().copied().collect();
    shared.into_iter().for_each(|id| divide_one(state, id));
}

/// Divides one, if it is shared by benefit.
pub(crate) fn divide_one(state: &mut State, id: MemcgId) {
    let State { engine, reuse, by_benefit, .. } = state;
    if !engine.alive(id) || !by_benefit.contains(&id) {
        return;
    }
    let children: Vec<MemcgId> = engine.children(id).collect();
    let curves: Vec<_> = children.iter().map(|&child| reuse.of_group(child)).collect();
    if curves.iter().all(Option::is_none) {
        return;
    }
    let above = std::iter::successors(Some(id), |&id| engine.parent(id));
    let pages = above.map(|id| engine.max(id)).min().unwrap_or_default();
    for (child, part) in children.into_iter().zip(divide(pages, &curves)) {
        engine.set_low(child, part);
    }
}
