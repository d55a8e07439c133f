//! Ten thousand tenants in one pager: they cost what they use.
//!
//! Figures are printed (`--nocapture`); what is asserted is counted, not timed.

use crate::common::scene::alone;
use crate::common::{Dir, byte_at};
use lowtide::{Pager, Size, Tenant, TenantError, View};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
const TENANTS: usize = 10_000;
const FRAMES: u64 = 1024;

fn pages(n: u64) -> Size {
    Size::new(n * PAGE)
}

/// Resident bytes of this process.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * PAGE
}

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let result = work();
    eprintln!("{what}: {:.1} ms", began.elapsed().as_secs_f64() * 1e3);
    result
}

#[test]
fn ten_thousand_tenants_cost_what_they_use() {
    alone(|| {
        let dir = Dir::new();
        let path = dir.path().join("data");
        std::fs::write(&path, (0..64 * PAGE).map(byte_at).collect::<Vec<_>>()).unwrap();
        let pager = Pager::builder()
            .max(pages(FRAMES))
            .background(false)
            .memory_timeout(Duration::from_millis(100))
            .build()
            .unwrap();
        let before = resident();
        let tenants: Vec<Tenant> = timed("creating 10,000 tenants", || {
            (0..TENANTS)
                .map(|i| pager.tenant(&format!("tenant-{i}")).low(pages(1)).create().unwrap())
                .collect()
        });
        let each = (resident().saturating_sub(before)) / TENANTS as u64;
        eprintln!("memory for an idle tenant: {each} bytes");
        assert!(each < 8192, "{each} bytes for an idle tenant");
        assert_eq!(pager.root().usage().unwrap(), 0, "no pages at all");
        assert_eq!(pager.find("tenant-7777").as_ref(), Some(&tenants[7777]));

        // Two hundred of them use three times as many pages as there are.
        let views: Vec<View> = tenants.iter().step_by(50).map(|t| t.open(&path).unwrap()).collect();
        let faults =
            timed("3200 misses with 10,000 tenants, two thirds of them with reclaim", || {
                for round in 0..16 {
                    for view in &views {
                        let page = round * 4 % 64;
                        assert_eq!(view.page(page).unwrap()[5], byte_at(page * PAGE + 5));
                    }
                }
                pager.stat().memory.events.pgmajfault
            });
        assert_eq!(faults, 3200);
        let stat = pager.stat().memory;
        assert!(stat.current <= FRAMES && stat.events.pgsteal > 2000 && stat.limits.oom == 0);
        let holding =
            views.iter().zip(tenants.iter().step_by(50)).filter(|(_, t)| t.usage().unwrap() > 0);
        assert!(holding.count() > 100, "pressure is spread over all");
        timed("validating", || pager.validate().unwrap());
        let before = pager.stat().memory.file;
        let freed = timed("reclaiming everything", || pager.root().reclaim(Size::MAX).unwrap());
        assert_eq!((freed, pager.root().usage().unwrap()), (before * PAGE, 0));
        drop(views);
        timed("removing 10,000 tenants", || tenants.iter().for_each(|t| t.remove().unwrap()));
        pager.validate().unwrap();

        // There is an end, and it is an error.
        let all: Vec<_> = std::iter::from_fn(|| {
            pager.tenant("x").create().ok().inspect(|t| t.rename(&format!("{t:?}")).unwrap())
        })
        .collect();
        assert_eq!(all.len(), usize::from(u16::MAX) - 1, "the root is one");
        assert_eq!(pager.tenant("x").create(), Err(TenantError::TooMany));
        all[9].remove().unwrap();
        pager.tenant("x").create().unwrap();
    });
}
