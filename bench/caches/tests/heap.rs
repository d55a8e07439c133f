//! The scale of the heap counts what every thread of its process allocates and frees, so its test
//! has a process of its own.

use lowtide_caches::heap::weigh;

#[test]
fn what_is_kept_is_weighed_and_what_is_freed_is_not() {
    let (kept, bytes) = weigh(|| {
        drop(vec![1_u8; 16 << 20]);
        vec![2_u8; 1 << 20]
    });
    // The test runner has threads too; they take and free a few KiB.
    let most = kept.len() as u64 * 11 / 10;
    let least = kept.len() as u64 * 9 / 10;
    assert!((least..most).contains(&bytes), "{bytes} for {}", kept.len());
}
