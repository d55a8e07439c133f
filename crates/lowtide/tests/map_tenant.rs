//! The kernel's own mapping under the budget of a tenant that is much smaller than its pager.

#![expect(unsafe_code, reason = "mapping a file is unsafe: others could change it")]

use lowtide::map::{MapError, MapMode, MapOptions};
use lowtide::{Pager, Size};
use lowtide_sys::page_cache::cached_pages;
use std::io::Write;

const PAGE: usize = 4096;
const PAGES: usize = 16_384;

#[test]
fn a_mapping_is_kept_within_a_small_tenant_of_a_large_pager() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&vec![5; PAGES * PAGE]).unwrap();
    file.as_file().sync_all().unwrap();
    let pager = Pager::builder().max(Size::gib(2)).build().unwrap();
    let tenant = pager.tenant("small").max(Size::mib(4)).create().unwrap();
    let options = MapOptions::new().mode(MapMode::PageCache).tenant(&tenant);
    // SAFETY: nothing changes the file while it is mapped.
    let map = match unsafe { options.map(&pager, file.as_file()) } {
        Err(MapError::Mode { why, .. }) => return eprintln!("SKIPPED: {why}"),
        map => map.unwrap(),
    };
    let mut peak = 0;
    for step in 0..60_000_usize {
        assert_eq!(map[step * 7919 % PAGES * PAGE + 9], 5);
        if step % 500 == 0 {
            peak = peak.max(cached_pages(file.as_file()).expect("a count"));
        }
    }
    // A busy machine may not run the thread for some milliseconds, so this is no tight limit; with
    // the pager's budget in place of the tenant's, all of the file would be there.
    assert!(peak < PAGES as u64 / 2, "{peak} pages of the file were cached at a time");
    assert!(tenant.usage().unwrap() <= 4 << 20);
}
