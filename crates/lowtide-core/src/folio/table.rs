//! The folio table: one record per frame, found by index.
//!
//! Records link to each other by index, never by pointer, so the table can be validated, moved and
//! compared. Behind the frames are the *list heads*: records of the same shape that belong to no
//! frame and only close the circles of the lists, so unlinking a folio needs no knowledge of the
//! list it is on.
//!
//! A frame has a record from its first folio on. Drivers hand out the lowest frames first, so a
//! budget that is never used up, as an upper bound is, costs addresses and no memory.

use super::flags::Flags;
use super::trail::Trail;
use crate::limits::MAX_ORDER;
use crate::units::{FolioId, LruType, MemcgSlot, Owner};

/// What the engine knows of one folio.
#[derive(Clone, Copy, Debug)]
pub struct Folio {
    pub(crate) flags: Flags,
    pub(crate) prev: u32,
    pub(crate) next: u32,
    /// The group that is charged for it.
    pub(crate) memcg: MemcgSlot,
    /// The order, and whether the trail of its list has it.
    order: u8,
    /// The lower half of the time of the last known use (`tide`).
    used: u8,
    owner: u64,
}

// 24 bytes here, two at most in trails, four in the driver's translation entry and one in
// `AccessCounts`: within the 32 bytes a resident folio that the design allows.
const _: () = assert!(size_of::<Folio>() == 24);

/// In the byte of the order: the folio is in the trail of the list that it is on (`trail.rs`).
const ON_TRAIL: u8 = 1 << 7;
const _: () = assert!(MAX_ORDER < ON_TRAIL);

impl Folio {
    const EMPTY: Self = Self {
        flags: Flags::empty(),
        prev: u32::MAX,
        next: u32::MAX,
        memcg: MemcgSlot(0),
        order: 0,
        used: 0,
        owner: 0,
    };

    /// The flag word.
    #[inline]
    #[must_use]
    pub const fn flags(&self) -> Flags {
        self.flags
    }

    /// Base pages of the folio: `2^order`.
    #[inline]
    #[must_use]
    pub const fn pages(&self) -> u64 {
        1 << self.order()
    }

    /// log2 of the number of base pages.
    #[inline]
    #[must_use]
    pub const fn order(&self) -> u8 {
        self.order & !ON_TRAIL
    }

    #[inline]
    pub(super) const fn on_trail(&self) -> bool {
        self.order & ON_TRAIL != 0
    }

    #[inline]
    pub(super) const fn set_on_trail(&mut self, on: bool) {
        self.order = self.order() | if on { ON_TRAIL } else { 0 };
    }

    /// `tide`: the time of the last known use (`lruvec/tide.rs`), of which the flag word has a
    /// part.
    #[inline]
    pub(crate) const fn used(&self) -> u16 {
        (self.flags.used_field() as u16) << 8 | self.used as u16
    }

    #[inline]
    pub(crate) const fn set_used(&mut self, time: u16) {
        self.used = time as u8;
        self.flags.set_used_field((time >> 8) as u8);
    }

    /// Where the contents belong.
    #[inline]
    #[must_use]
    pub const fn owner(&self) -> Owner {
        Owner::unpack(self.owner)
    }

    /// The type of list it belongs on: that of anonymous memory if it is swap-backed.
    #[inline]
    #[must_use]
    pub const fn lru_type(&self) -> LruType {
        let lazy = self.flags.contains(Flags::LAZYFREE);
        if self.is_anon() && !lazy { LruType::Anon } else { LruType::File }
    }

    /// Whether it is anonymous memory, also if that was freed lazily.
    #[inline]
    #[must_use]
    pub const fn is_anon(&self) -> bool {
        self.flags.contains(Flags::ANON)
    }

    /// The kind of memory that it counts as.
    #[inline]
    pub(crate) const fn kind(&self) -> LruType {
        if self.is_anon() { LruType::Anon } else { LruType::File }
    }
}

/// All folios, dense by frame number, and the list heads, whose numbers follow.
#[derive(Debug)]
pub(crate) struct FolioTable {
    /// Those of the frames that have had a folio, and of those below.
    records: Vec<Folio>,
    frames: u32,
    heads: Vec<Folio>,
    /// By list head.
    pub(super) trails: Vec<Trail>,
    /// List heads that no list uses any more.
    spare_heads: Vec<u32>,
}

impl FolioTable {
    pub(crate) fn new(frames: u32) -> Self {
        Self {
            records: Vec::with_capacity(frames as usize),
            frames,
            heads: Vec::new(),
            trails: Vec::new(),
            spare_heads: Vec::new(),
        }
    }

    /// One of which all frames have had a folio.
    #[cfg(test)]
    pub(super) fn used(frames: u32) -> Self {
        Self { records: vec![Folio::EMPTY; frames as usize], ..Self::new(frames) }
    }

    pub(crate) const fn frames(&self) -> u32 {
        self.frames
    }

    pub(crate) fn bytes(&self) -> usize {
        let trails: usize = self.trails.iter().map(Trail::bytes).sum();
        (self.records.len() + self.heads.len()) * size_of::<Folio>() + trails
    }

    /// Adds a record that is a list head.
    pub(super) fn push_head(&mut self) -> u32 {
        if let Some(spare) = self.spare_heads.pop() {
            return spare;
        }
        let index = u32::try_from(self.heads.len()).ok().and_then(|n| self.frames.checked_add(n));
        let index = index.expect("frames and list heads fit 32 bits");
        self.heads.push(Folio { prev: index, next: index, ..Folio::EMPTY });
        self.trails.push(Trail::default());
        index
    }

    /// Keeps the head of an empty list for the next list.
    pub(super) fn spare_head(&mut self, head: u32) {
        debug_assert_eq!(self.link(head).next, head, "a list that is given up is empty");
        self.trails[(head - self.frames) as usize] = Trail::default();
        self.spare_heads.push(head);
    }

    #[inline]
    pub(super) fn link(&mut self, index: u32) -> &mut Folio {
        match index.checked_sub(self.frames) {
            None => &mut self.records[index as usize],
            Some(head) => &mut self.heads[head as usize],
        }
    }

    /// The record of a frame that has had a folio, or of a list head.
    #[inline]
    pub(super) fn record(&self, index: u32) -> Option<&Folio> {
        match index.checked_sub(self.frames) {
            None => self.records.get(index as usize),
            Some(head) => self.heads.get(head as usize),
        }
    }

    /// Begins the life of a folio in the frames from `id` on.
    pub(crate) fn create(
        &mut self,
        id: FolioId,
        owner: Owner,
        order: u8,
        memcg: MemcgSlot,
        flags: Flags,
    ) {
        assert!(
            id.0.is_multiple_of(1 << order),
            "folio {id:?} is not aligned to its order {order}"
        );
        let end = u64::from(id.0) + (1 << order);
        assert!(
            end <= u64::from(self.frames),
            "folio {id:?} is outside of the {} frames",
            self.frames
        );
        if self.records.len() < end as usize {
            self.records.resize(end as usize, Folio::EMPTY);
        }
        let [head, tails @ ..] = &mut self.records[id.index()..end as usize] else {
            unreachable!("a folio has at least one frame")
        };
        let free =
            head.flags.is_empty() && (order == 0 || tails.iter().all(|f| f.flags.is_empty()));
        assert!(free, "a frame of folio {id:?} holds a folio already");
        *head =
            Folio { flags: flags | Flags::HEAD, memcg, order, owner: owner.pack(), ..Folio::EMPTY };
        if order > 0 {
            tails.fill(Folio { flags: Flags::TAIL, prev: id.0, ..Folio::EMPTY });
        }
    }

    /// Ends the life of a folio that is on no list.
    pub(crate) fn destroy(&mut self, id: FolioId) {
        let f = &mut self.records[id.index()];
        debug_assert!(f.flags.contains(Flags::HEAD) && !f.flags.contains(Flags::LRU));
        let order = f.order();
        if order == 0 {
            *f = Folio::EMPTY;
            return;
        }
        self.records[id.index()..id.index() + (1 << order)].fill(Folio::EMPTY);
    }

    /// The folio that a frame belongs to.
    #[inline]
    pub(crate) fn of_frame(&self, frame: FolioId) -> Option<FolioId> {
        let f = self.records.get(frame.index())?;
        if f.flags.contains(Flags::HEAD) {
            Some(frame)
        } else {
            f.flags.contains(Flags::TAIL).then_some(FolioId(f.prev))
        }
    }

    /// The folio whose first frame is `id`, if there is one.
    pub(crate) fn get(&self, id: FolioId) -> Option<&Folio> {
        self.records.get(id.index()).filter(|f| f.flags.contains(Flags::HEAD))
    }

    /// All folios that exist.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (FolioId, &Folio)> {
        (0..).map(FolioId).zip(&self.records).filter(|(_, f)| f.flags.contains(Flags::HEAD))
    }
}

impl std::ops::Index<FolioId> for FolioTable {
    type Output = Folio;
    #[inline]
    fn index(&self, id: FolioId) -> &Folio {
        &self.records[id.index()]
    }
}

impl std::ops::IndexMut<FolioId> for FolioTable {
    #[inline]
    fn index_mut(&mut self, id: FolioId) -> &mut Folio {
        &mut self.records[id.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::SpaceId;

    #[test]
    fn frames_that_were_never_used_have_no_records_and_lists_go_on_as_others_come() {
        let mut table = FolioTable::new(1 << 20);
        let lists = [table.new_list(), table.new_list()];
        let empty = table.bytes();
        assert!(empty < 1 << 12, "{empty} bytes for a table without a folio");
        let owner = |page| Owner { space: SpaceId(0), page };
        for frame in [3, 0, 700] {
            let id = FolioId(frame);
            assert!(table.get(id).is_none() && table.of_frame(id).is_none());
            table.create(id, owner(u64::from(frame)), 0, MemcgSlot(0), Flags::empty());
            table.push_young(lists[usize::from(frame == 0)], id);
        }
        assert_eq!(table.walk(lists[0]), [FolioId(3), FolioId(700)]);
        assert_eq!(table.walk(lists[1]), [FolioId(0)]);
        assert_eq!(table.oldest_first(lists[0]).collect::<Vec<_>>(), table.walk(lists[0]));
        let used = table.bytes() - empty;
        assert_eq!(used, 701 * size_of::<Folio>());
        assert_eq!(table.iter().count(), 3);
    }
}
