//! What must hold between any two turns of the machine, one property each, recounted from scratch.
//!
//! The engine's own invariants (`docs/kernel/reclaim.md` §10: I1-I8, I33, I34) are
//! [`lowtide_core::Engine::validate`]'s; these are the driver's, and those of the seam between the
//! two. Each costs a visit to every frame, page or entry; none changes anything.

use lowtide_core::limits::TABLE_ENTRIES;
use lowtide_core::{Flags, FolioId, LruType, MemcgId, SpaceId, Thresholds};
use lowtide_sim::machine::{KernelCounts, World};
use lowtide_sim::memory::{ObjectId, VmaId};

/// The longest pause of a writer, in nanoseconds (`docs/kernel/fault-and-writeback.md` B8).
pub(super) const PAUSE_NS: u64 = 200_000_000;

/// A property by name.
pub(super) type Check = (&'static str, fn(&mut World) -> Result<(), String>);

/// All of them.
pub(super) const ALL: [Check; 10] = [
    ("engine", engine),
    ("charges", charges),
    ("page cache", page_cache),
    ("translations", translations),
    ("dirty pages", dirty_pages),
    ("dirty figures", dirty_figures),
    ("requests", requests),
    ("waiters", waiters),
    ("retries", retries),
    ("ends", ends),
];

/// The resident pages of all objects.
fn residents(world: &World) -> impl Iterator<Item = (ObjectId, u64, FolioId)> {
    world.pool.memory.objects.iter().enumerate().flat_map(|(number, object)| {
        (0..object.pages.tables()).flat_map(move |table| {
            let entries = object.pages.table(table).unwrap_or(&[]);
            (table * TABLE_ENTRIES..).zip(entries).filter_map(move |(page, cached)| {
                cached.frame().map(|frame| (ObjectId(number as u32), page, frame))
            })
        })
    })
}

/// A fault that misses at a retry has given a lock up before, and where none is given up there is
/// no retry (`docs/kernel/fault-and-writeback.md` D3).
fn retries(world: &mut World) -> Result<(), String> {
    let KernelCounts { retry_io_miss, retry_mmap_drop, .. } = world.counts;
    let retries = world.fault_path.retries();
    if retry_io_miss > retry_mmap_drop || (!retries && retry_mmap_drop > 0) {
        return Err(format!(
            "{retry_mmap_drop} locks were given up and {retry_io_miss} retries missed, with {}",
            world.fault_path
        ));
    }
    Ok(())
}

/// The engine's bookkeeping agrees with itself.
fn engine(world: &mut World) -> Result<(), String> {
    world.pool.engine.validate()
}

/// Every frame that is not free holds a page, and what is charged is resident: but for one folio of
/// each client, which may be between being charged and being there.
fn charges(world: &mut World) -> Result<(), String> {
    let resident = residents(world).count();
    let usage = world.pool.engine.usage(MemcgId::ROOT);
    let (free, frames) = (world.pool.free_frames(), world.pool.frames());
    let coming = usage.checked_sub(resident as u64);
    let folio =
        if world.files.iter().any(|file| file.large) { world.readahead_pages.max(1) } else { 1 };
    let most = u64::from(world.clients) * folio;
    if coming.is_none_or(|coming| coming > most) || free + resident != frames {
        return Err(format!(
            "{usage} pages charged, {resident} resident, {free} of {frames} frames free"
        ));
    }
    Ok(())
}

/// Each resident page has a folio that says so; no other folio exists.
fn page_cache(world: &mut World) -> Result<(), String> {
    let engine = &world.pool.engine;
    let mut pages = 0_u64;
    for (object, page, frame) in residents(world) {
        pages += 1;
        let folio = engine.folio(frame);
        let owner = folio.map(lowtide_core::Folio::owner);
        let has = |folio: &lowtide_core::Folio| {
            let first = folio.owner().page;
            folio.owner().space == SpaceId(object.0)
                && (first..first + folio.pages()).contains(&page)
        };
        if !folio.is_some_and(has) {
            return Err(format!(
                "page {page} of {object:?} is in {frame:?}, whose folio belongs to {owner:?}"
            ));
        }
    }
    let of_folios: u64 = (0..world.pool.frames() as u32)
        .filter_map(|frame| engine.folio(FolioId(frame)))
        .map(lowtide_core::Folio::pages)
        .sum();
    if of_folios != pages {
        return Err(format!("{pages} pages are resident and folios have {of_folios}"));
    }
    Ok(())
}

/// A translation leads to a page whose contents are there; one that can be stored through, to a
/// dirty page.
fn translations(world: &mut World) -> Result<(), String> {
    let (memory, engine) = (&world.pool.memory, &world.pool.engine);
    for (number, vma) in memory.vmas.iter().enumerate() {
        let heap = memory.objects[vma.object.0 as usize].lru_type == LruType::Anon;
        for table in 0..vma.ptes.tables() {
            let pages = table * TABLE_ENTRIES..(table + 1) * TABLE_ENTRIES;
            for (page, pte) in
                pages.map(|page| (page, vma.ptes.get(page))).filter(|(_, pte)| pte.present)
            {
                let what = |wrong| {
                    Err(format!("{:?} maps page {page}, which is {wrong}", VmaId(number as u32)))
                };
                let Some(frame) = memory.cached(vma.object, page).frame() else {
                    return what("not resident");
                };
                if memory.is_locked(frame) {
                    return what("still being read");
                }
                let dirty = engine.folio(frame).is_some_and(|f| f.flags().contains(Flags::DIRTY));
                if pte.writable && !heap && !dirty {
                    return what("clean, for stores");
                }
            }
        }
    }
    Ok(())
}

/// No page is past the end of its file, unless the size is being changed at the moment.
fn ends(world: &mut World) -> Result<(), String> {
    for (object, page, _) in residents(world) {
        let file = world.files.iter().find(|file| file.object == object);
        if let Some(file) = file.filter(|file| page >= file.pages && !file.resizing) {
            return Err(format!(
                "page {page} of {object:?} is resident, which has {} pages",
                file.pages
            ));
        }
    }
    Ok(())
}

/// The flusher knows of every dirty page of a file, and of no other.
fn dirty_pages(world: &mut World) -> Result<(), String> {
    for (number, file) in world.files.iter().enumerate() {
        let known = file.dirty.iter().chain(&file.redirtied);
        if let Some(page) = known.clone().find(|&&page| {
            world.pool.frame(file.object, page).is_none_or(|frame| !world.pool.is_dirty(frame))
        }) {
            return Err(format!("page {page} of file {number} is to be written and not dirty"));
        }
    }
    for (object, page, frame) in residents(world) {
        let Some(file) = world.files.iter().find(|file| file.object == object) else { continue };
        if world.pool.is_dirty(frame)
            && !file.dirty.contains(&page)
            && !file.redirtied.contains(&page)
        {
            return Err(format!("page {page} of {object:?} is dirty and will not be written"));
        }
    }
    Ok(())
}

/// What is counted as dirty is dirty, and the scale that writers are measured by is in order
/// (`docs/kernel/fault-and-writeback.md` D8, D9, D12). A page that became dirty again while it was
/// being written counts as both. What each device has is [`lowtide_core::Engine::validate`]'s.
fn dirty_figures(world: &mut World) -> Result<(), String> {
    let engine = &world.pool.engine;
    let (mut dirty, mut writeback) = (0, 0);
    for flags in residents(world)
        .filter_map(|(_, _, frame)| engine.folio(frame))
        .map(lowtide_core::Folio::flags)
    {
        let file = !flags.contains(Flags::ANON);
        dirty += u64::from(file && flags.contains(Flags::DIRTY));
        writeback += u64::from(flags.contains(Flags::WRITEBACK));
    }
    let state = engine.dirty_state(MemcgId::ROOT);
    if (state.dirty, state.writeback) != (dirty, writeback) {
        return Err(format!(
            "{dirty} pages are dirty and {writeback} being written, counted are {state:?}"
        ));
    }
    let scale = engine.dirty_thresholds(MemcgId::ROOT);
    let Thresholds { dirtyable, background, freerun, hard } = scale;
    let ordered = background <= freerun && freerun <= hard && hard <= dirtyable;
    if !ordered || (background == hard && hard > 0) {
        return Err(format!("the scale is out of order: {scale:?}"));
    }
    let throttled = engine.throttled(MemcgId::ROOT);
    if throttled.longest_ns > PAUSE_NS {
        return Err(format!("a writer had to pause for {} ns", throttled.longest_ns));
    }
    Ok(())
}

/// What is under writeback is being written, and what is being read is locked.
fn requests(world: &mut World) -> Result<(), String> {
    let (reading, writing) = world.requests.pages_in_flight();
    let (mut locked, mut writeback) = (0, 0);
    for (_, _, frame) in residents(world) {
        locked += usize::from(world.is_locked(frame));
        let flags = world.pool.engine.folio(frame).map(lowtide_core::Folio::flags);
        writeback += usize::from(flags.is_some_and(|flags| flags.contains(Flags::WRITEBACK)));
    }
    // Pages are locked a little before the read is submitted.
    if writeback != writing || locked < reading {
        return Err(format!(
            "{writeback} pages are under writeback and {writing} being written, {locked} locked \
             and {reading} being read"
        ));
    }
    Ok(())
}

/// A task that waits for a page will be woken: the page is locked, so a read is to come.
fn waiters(world: &mut World) -> Result<(), String> {
    for (&(object, page), tasks) in &world.page_waiters {
        let coming = world.pool.frame(object, page).is_some_and(|frame| world.is_locked(frame));
        if !coming {
            return Err(format!(
                "{} tasks wait for page {page} of {object:?}, which no task reads",
                tasks.len()
            ));
        }
    }
    Ok(())
}

/// Pages of files that a reclaimer could free at once: on a list, clean, not being read, not held,
/// and with no young translation.
pub(super) fn evictable(world: &World) -> impl Iterator<Item = FolioId> {
    let memory = &world.pool.memory;
    let free_at_once = move |&(object, page, frame): &(ObjectId, u64, FolioId)| {
        let flags =
            world.pool.engine.folio(frame).map_or(Flags::empty(), lowtide_core::Folio::flags);
        let vmas = &memory.objects[object.0 as usize].vmas;
        flags.contains(Flags::LRU)
            && !flags.intersects(Flags::ANON | Flags::DIRTY | Flags::WRITEBACK)
            && !memory.is_locked(frame)
            && !world.holds.is_held(object, &world.pool.extent(frame).0)
            && !vmas.iter().any(|vma| memory.vmas[vma.0 as usize].ptes.get(page).young)
    };
    residents(world).filter(free_at_once).map(|(_, _, frame)| frame)
}

/// Whether a translation of a page has been used since its bit was last cleared.
pub(super) fn is_young(world: &World, object: ObjectId, page: u64) -> bool {
    let memory = &world.pool.memory;
    let vmas = &memory.objects[object.0 as usize].vmas;
    vmas.iter().any(|vma| memory.vmas[vma.0 as usize].ptes.get(page).young)
}
