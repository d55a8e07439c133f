//! lowtide's maps: the bytes of a data file behind a plain pointer, under a pager's budget.
//!
//! | system | way | its file |
//! |---|---|---|
//! | `map-userfault` | a mirror that this process fills; the budget is exact | that of the views |
//! | `map-pagecache` | the kernel's own mapping, watched and trimmed | its own |
//!
//! A map has the processor's pages, whatever the pages of the workload are. It is read by the same
//! instructions as the kernel mapping of a peer, and it is read-only.
//!
//! # Safety
//!
//! [`open`] promises that no process changes the file while it is mapped. Data files are locked for
//! the run, and only workloads that do not write have maps. A page that cannot be read raises
//! SIGBUS, which ends the run.

#![allow(unsafe_code)]

use std::fs::File;
use std::sync::Arc;

use lowtide::map::{Map, MapError, MapMode, MapOptions};
use lowtide::{Pager, Tenant};

use super::access::{AccessError, DataAccess};
use super::datafile::DataFile;

/// The name of the rows of a way.
pub const fn name(way: MapMode) -> &'static str {
    match way {
        MapMode::PageCache => "map-pagecache",
        _ => "map-userfault",
    }
}

/// Maps the first `len` bytes of a data file. `read_ahead` as in [`MapOptions::read_ahead`].
///
/// # Errors
/// [`MapError`]: mostly, that this machine does not allow the way.
pub fn open(
    pager: &Pager,
    way: MapMode,
    file: &DataFile,
    len: u64,
    read_ahead: Option<u64>,
) -> Result<Map, MapError> {
    let mut options = MapOptions::new().mode(way);
    if let Ok(len) = usize::try_from(len) {
        options = options.len(len);
    }
    if let Some(bytes) = read_ahead {
        options = options.read_ahead(bytes);
    }
    // SAFETY: the file is locked for this run, which does not write to it while it is mapped.
    unsafe { options.map(pager, file.file()) }
}

/// Maps a whole file for a tenant.
///
/// # Errors
/// As [`open`].
pub fn of_tenant(tenant: &Tenant, way: MapMode, file: &File) -> Result<Map, MapError> {
    // SAFETY: it is a file of this run, which does not write to it while it is mapped.
    unsafe { MapOptions::new().mode(way).tenant(tenant).map(tenant.pager(), file) }
}

/// One thread's access to a map.
#[derive(Clone)]
pub struct MapAccess {
    map: Arc<Map>,
}

impl MapAccess {
    /// Access to `map`.
    pub fn new(map: Map) -> Self {
        Self { map: Arc::new(map) }
    }

    /// The bytes of a range.
    ///
    /// # Panics
    /// When the range is not inside the map.
    #[inline]
    fn bytes(&self, offset: u64, len: usize) -> &[u8] {
        &self.map[offset as usize..][..len]
    }
}

impl DataAccess for MapAccess {
    const READ_ONLY: &'static str = "a map is read-only";

    #[inline]
    fn load<R>(
        &mut self,
        offset: u64,
        len: usize,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, AccessError> {
        Ok(look(self.bytes(offset, len)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Content;
    use crate::datafile::{DataDir, Locking, Purpose};
    use lowtide_workload::block::verify_page;

    #[test]
    fn a_map_gives_the_bytes_of_its_file_and_takes_none() {
        const BYTES: u64 = 1 << 20;
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(Some(dir.path()), true, Locking::Locked).unwrap();
        let file = data.prepare(Content::Blocks, BYTES, 1, Purpose::Lasting).unwrap().remove(0);
        for way in [MapMode::Userfault, MapMode::PageCache] {
            let pager = Pager::builder().max(lowtide::Size::kib(256)).build().unwrap();
            let map = match open(&pager, way, &file, BYTES, None) {
                Ok(map) => map,
                Err(why) => {
                    eprintln!("SKIPPED in part: {}: {why}", name(way));
                    continue;
                }
            };
            let mut access = MapAccess::new(map);
            let offsets: Vec<u64> = (0..BYTES).step_by(4096).collect();
            let mut right = 0;
            let mut look = |offset: u64, bytes: &[u8]| {
                right += u32::from(verify_page(offset / 4096, 0, bytes).is_ok());
            };
            access.load_many(&offsets, 4096, |index, bytes| look(offsets[index], bytes)).unwrap();
            access.load(8192, 4096, |bytes| look(8192, bytes)).unwrap();
            let mut copy = [0; 4096];
            access.read(4096, &mut copy).unwrap();
            look(4096, &copy);
            assert_eq!(right, 258, "{}", name(way));
            assert!(access.write(0, &[1]).is_err() && access.store(0, &[1]).is_err());
            assert!(access.modify(0, &mut [1], |_| true).is_err());
        }
    }
}
