//! A mapping of the kernel that is read in order is read ahead. Alone in its process, whose page
//! faults it counts.

#![expect(unsafe_code, reason = "mapping a file is unsafe: others could change it")]

use lowtide::map::{MapError, MapMode, MapOptions};
use lowtide::{Pager, Size};
use lowtide_sys::page_cache::drop_cached;
use lowtide_sys::pagemap::page_faults;
use std::io::Write;

const PAGE: usize = 4096;

#[test]
fn a_mapping_that_is_read_in_order_waits_for_few_of_its_pages() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&vec![5; 16_384 * PAGE]).unwrap();
    file.as_file().sync_all().unwrap();
    let pager = Pager::builder().max(Size::mib(32)).build().unwrap();
    let options = MapOptions::new().mode(MapMode::PageCache);
    let mut fewest = u64::MAX;
    for _ in 0..20 {
        drop_cached(file.as_file(), 0, 0).unwrap();
        // SAFETY: nothing changes the file while it is mapped.
        let map = match unsafe { options.map(&pager, file.as_file()) } {
            Err(MapError::Mode { why, .. }) => return eprintln!("SKIPPED: {why}"),
            map => map.unwrap(),
        };
        let before = page_faults().major;
        assert!((0..16_384).all(|page| map[page * PAGE] == 5));
        fewest = fewest.min(page_faults().major - before);
        // The thread that reads ahead may have had no processor for most of a pass.
        if fewest < 8192 {
            return;
        }
    }
    panic!("{fewest} of 16384 pages that were read in order had to be waited for");
}
