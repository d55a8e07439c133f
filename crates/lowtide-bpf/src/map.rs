//! Maps: what a program remembers from run to run, and what its operator passes to it.
//!
//! Both kinds are allocated whole when the object is loaded; no run allocates. An array has all its
//! elements from the beginning, all zero. A hash keeps keys and values in slots of two flat tables;
//! an index finds the slot by the hash of the key, which has no secret seed, so that
//! equal histories give equal maps.
//!
//! A program sees a value at a virtual offset, `slot << shift`, with slots at least twice as far
//! apart as a value is long. So an access beyond the end of a value meets a gap and not the next
//! value.
//!
//! Results of changes are the kernel's: 0 or a negative error number.

use crate::error::MapFault;
use crate::limits::{ENTRIES_MAX, KEY_BYTES_MAX, MAP_BYTES_MAX, VALUE_BYTES_MAX};
use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

/// Error numbers that helpers return, negated.
pub(crate) const ENOENT: i64 = 2;
pub(crate) const E2BIG: i64 = 7;
pub(crate) const EAGAIN: i64 = 11;
pub(crate) const EEXIST: i64 = 17;
pub(crate) const EINVAL: i64 = 22;

/// Flags of an update: any, only new keys, only keys that are there.
const NO_EXIST: u64 = 1;
const EXIST: u64 = 2;

/// The kernel's numbers of the kinds.
const TYPE_HASH: u32 = 1;
const TYPE_ARRAY: u32 = 2;

/// What the index of a hash needs for an entry, about.
const INDEX_BYTES: u32 = 32;

/// The definition of a map in the object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MapDef {
    pub name: String,
    pub kind: u32,
    pub key_bytes: u32,
    pub value_bytes: u32,
    pub entries: u32,
}

/// How keys find slots.
#[derive(Clone, Debug)]
enum Index {
    /// The key is the slot.
    Array,
    /// By hash: the slots in use, their keys, and the slots that are free.
    Hash { slots: HashTable<u32>, keys: Vec<u8>, free: Vec<u32> },
}

/// A map of one object.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    pub(crate) name: String,
    pub(crate) key_bytes: usize,
    pub(crate) value_bytes: usize,
    entries: u32,
    shift: u32,
    values: Vec<u8>,
    index: Index,
}

impl MapDef {
    /// Checks kind and sizes. Returns the bytes that the map will need.
    pub(crate) fn check(&self) -> Result<u64, MapFault> {
        let within = |member, found: u32, least: u32, most: u32| {
            if (least..=most).contains(&found) {
                Ok(())
            } else {
                Err(MapFault::Size {
                    member,
                    found: found.into(),
                    least: least.into(),
                    most: most.into(),
                })
            }
        };
        match self.kind {
            TYPE_ARRAY => within("key_size", self.key_bytes, 4, 4)?,
            TYPE_HASH => within("key_size", self.key_bytes, 1, KEY_BYTES_MAX)?,
            found => return Err(MapFault::Type { found }),
        }
        within("value_size", self.value_bytes, 1, VALUE_BYTES_MAX)?;
        within("max_entries", self.entries, 1, ENTRIES_MAX)?;
        let bytes =
            u64::from(self.entries) * u64::from(self.key_bytes + self.value_bytes + INDEX_BYTES);
        if bytes > MAP_BYTES_MAX { Err(MapFault::TooMuch) } else { Ok(bytes) }
    }
}

impl Map {
    /// An empty map, with all its memory. `def` has been checked.
    pub(crate) fn new(def: MapDef) -> Self {
        let (entries, key_bytes, value_bytes) =
            (def.entries as usize, def.key_bytes as usize, def.value_bytes as usize);
        let index = if def.kind == TYPE_ARRAY {
            Index::Array
        } else {
            Index::Hash {
                // Twice, so that removed entries never make the index grow.
                slots: HashTable::with_capacity(2 * entries),
                keys: vec![0; entries * key_bytes],
                free: (0..def.entries).rev().collect(),
            }
        };
        Self {
            name: def.name,
            key_bytes,
            value_bytes,
            entries: def.entries,
            shift: (2 * def.value_bytes).max(16).next_power_of_two().trailing_zeros(),
            values: vec![0; entries * value_bytes],
            index,
        }
    }

    /// The virtual offset of the key's value. `key` has the map's length. O(1).
    pub(crate) fn lookup(&self, key: &[u8]) -> Option<u32> {
        self.slot(key).map(|slot| slot << self.shift)
    }

    /// The key's slot.
    fn slot(&self, key: &[u8]) -> Option<u32> {
        match &self.index {
            Index::Array => {
                let index = u32::from_le_bytes(key.try_into().ok()?);
                (index < self.entries).then_some(index)
            }
            Index::Hash { slots, keys, .. } => {
                slots.find(xxh3_64(key), |&slot| key_of(keys, slot, key.len()) == key).copied()
            }
        }
    }

    /// Sets the key's value. `key` and `value` have the map's lengths. O(1), never allocates.
    pub(crate) fn update(&mut self, key: &[u8], value: &[u8], flags: u64) -> i64 {
        if flags > EXIST {
            return -EINVAL;
        }
        let slot = match &mut self.index {
            Index::Array => match self.slot(key) {
                None => return -E2BIG,
                Some(_) if flags == NO_EXIST => return -EEXIST,
                Some(slot) => slot,
            },
            Index::Hash { slots, keys, free } => {
                let size = key.len();
                let found =
                    slots.find(xxh3_64(key), |&slot| key_of(keys, slot, size) == key).copied();
                match found {
                    Some(_) if flags == NO_EXIST => return -EEXIST,
                    Some(slot) => slot,
                    None if flags == EXIST => return -ENOENT,
                    None => {
                        let Some(slot) = free.pop() else { return -E2BIG };
                        let at = slot as usize * size;
                        keys[at..at + size].copy_from_slice(key);
                        slots.insert_unique(xxh3_64(key), slot, |&other| {
                            xxh3_64(key_of(keys, other, size))
                        });
                        slot
                    }
                }
            }
        };
        let at = slot as usize * self.value_bytes;
        self.values[at..at + self.value_bytes].copy_from_slice(value);
        0
    }

    /// Removes the key. `key` has the map's length. Elements of arrays cannot be removed.
    pub(crate) fn delete(&mut self, key: &[u8]) -> i64 {
        let Index::Hash { slots, keys, free } = &mut self.index else { return -EINVAL };
        let size = key.len();
        match slots.find_entry(xxh3_64(key), |&slot| key_of(keys, slot, size) == key) {
            Ok(found) => {
                free.push(found.remove().0);
                0
            }
            Err(_) => -ENOENT,
        }
    }

    /// The bytes of the key's value.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let at = self.slot(key)? as usize * self.value_bytes;
        Some(&self.values[at..at + self.value_bytes])
    }

    /// Entries in use.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        match &self.index {
            Index::Array => self.entries as usize,
            Index::Hash { slots, .. } => slots.len(),
        }
    }

    /// Where an access of `bytes` bytes at a virtual offset lies in `values`, if it lies in one
    /// value.
    #[inline]
    fn place(&self, offset: u32, bytes: usize) -> Option<usize> {
        let (slot, within) =
            ((offset >> self.shift) as usize, (offset & ((1 << self.shift) - 1)) as usize);
        (within + bytes <= self.value_bytes).then(|| slot * self.value_bytes + within)
    }

    /// Memory of a value, by virtual offset.
    #[inline]
    pub(crate) fn read(&self, offset: u32, bytes: usize) -> Option<&[u8]> {
        let at = self.place(offset, bytes)?;
        self.values.get(at..at + bytes)
    }

    /// See [`read`](Self::read).
    #[inline]
    pub(crate) fn write(&mut self, offset: u32, bytes: usize) -> Option<&mut [u8]> {
        let at = self.place(offset, bytes)?;
        self.values.get_mut(at..at + bytes)
    }
}

fn key_of(keys: &[u8], slot: u32, size: usize) -> &[u8] {
    &keys[slot as usize * size..][..size]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn map(kind: u32, value_bytes: u32, entries: u32) -> Map {
        let def = MapDef { name: "m".into(), kind, key_bytes: 4, value_bytes, entries };
        def.check().unwrap();
        Map::new(def)
    }

    #[test]
    fn an_array_has_all_its_elements_and_no_others() {
        let mut m = map(TYPE_ARRAY, 8, 3);
        assert_eq!(m.get(&2u32.to_le_bytes()), Some(&[0; 8][..]));
        assert_eq!(m.get(&3u32.to_le_bytes()), None);
        assert_eq!(m.update(&3u32.to_le_bytes(), &[1; 8], 0), -E2BIG);
        assert_eq!(m.update(&0u32.to_le_bytes(), &[1; 8], NO_EXIST), -EEXIST);
        assert_eq!(m.update(&0u32.to_le_bytes(), &[1; 8], 3), -EINVAL);
        assert_eq!(m.delete(&0u32.to_le_bytes()), -EINVAL);
        assert_eq!(m.update(&0u32.to_le_bytes(), &[1; 8], EXIST), 0);
        assert_eq!(m.get(&0u32.to_le_bytes()), Some(&[1; 8][..]));
    }

    #[test]
    fn an_access_across_the_end_of_a_value_does_not_reach_the_next() {
        for value_bytes in [1, 7, 8, 24, 100] {
            let mut m = map(TYPE_ARRAY, value_bytes, 4);
            let (base, n) = (m.lookup(&1u32.to_le_bytes()).unwrap(), value_bytes as usize);
            assert!(m.read(base, n).is_some() && m.write(base, n).is_some());
            assert!(m.read(base, n + 1).is_none() && m.read(base + 1, n).is_none());
            assert!(m.read(base + value_bytes, 1).is_none(), "value of {value_bytes}");
            assert!(m.read(base - 1, 1).is_none());
            assert!(m.read(m.lookup(&3u32.to_le_bytes()).unwrap() + (1 << m.shift), 1).is_none());
        }
    }

    #[test]
    fn maps_of_impossible_sizes_are_refused() {
        let good = MapDef {
            name: "m".into(),
            kind: TYPE_HASH,
            key_bytes: 8,
            value_bytes: 8,
            entries: 1 << 10,
        };
        assert!(good.check().is_ok());
        assert_eq!(MapDef { kind: 3, ..good.clone() }.check(), Err(MapFault::Type { found: 3 }));
        assert_eq!(
            MapDef { value_bytes: 4096, entries: 4096, ..good.clone() }.check(),
            Err(MapFault::TooMuch)
        );
        for bad in [
            MapDef { key_bytes: 0, ..good.clone() },
            MapDef { value_bytes: 0, ..good.clone() },
            MapDef { entries: 0, ..good.clone() },
            MapDef { entries: u32::MAX, ..good.clone() },
            MapDef { key_bytes: u32::MAX, ..good.clone() },
            MapDef { kind: TYPE_ARRAY, ..good },
        ] {
            assert!(matches!(bad.check(), Err(MapFault::Size { .. })), "{bad:?}");
        }
    }

    proptest! {
        /// Against the standard library's map, with more keys than room.
        #[test]
        fn a_hash_behaves_as_a_bounded_dictionary(
            steps in prop::collection::vec((0u8..4, 0u32..24, 0u64..3, any::<u32>()), 0..400),
        ) {
            let allocation = |m: &Map| match &m.index {
                Index::Hash { slots, .. } => slots.allocation_size(),
                Index::Array => 0,
            };
            let mut m = map(TYPE_HASH, 4, 16);
            let mut model: HashMap<u32, u32> = HashMap::new();
            let allocated = allocation(&m);
            for (what, key, flags, value) in steps {
                let k = key.to_le_bytes();
                match what {
                    0 => {
                        let expected = i64::from(model.remove(&key).is_none()) * -ENOENT;
                        prop_assert_eq!(m.delete(&k), expected);
                    }
                    1 => {
                        let expected = model.get(&key).map(|v| v.to_le_bytes().to_vec());
                        prop_assert_eq!(m.get(&k).map(<[u8]>::to_vec), expected);
                    }
                    _ => {
                        let expected = match (model.contains_key(&key), flags) {
                            (true, NO_EXIST) => -EEXIST,
                            (false, EXIST) => -ENOENT,
                            (false, _) if model.len() == 16 => -E2BIG,
                            _ => { model.insert(key, value); 0 }
                        };
                        prop_assert_eq!(m.update(&k, &value.to_le_bytes(), flags), expected);
                    }
                }
                prop_assert_eq!(m.len(), model.len());
            }
            prop_assert_eq!(allocation(&m), allocated, "the index was allocated once");
        }
    }
}
