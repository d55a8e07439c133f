//! What a pager takes of the system's memory, and what it prints of itself.

use crate::common::scene::alone;
use crate::common::{Dir, byte_at, make_file};
use lowtide::advanced::OpenAdvanced as _;
use lowtide::{OpenOptions, Pager, Settled, Size, Tenant, TenantLimits};
use std::fmt::Debug;

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

/// Resident bytes of this process.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * PAGE
}

#[test]
fn memory_comes_with_pages_and_goes_when_the_budget_is_lowered() {
    alone(|| {
        let dir = Dir::new();
        let path = make_file(&dir, 16 * MIB);
        for page in [1024, 4096, 65_536] {
            let before = resident();
            let pager = Pager::builder()
                .base_page(page)
                .max(Size::new(64 * MIB))
                .io_engine(lowtide::IoEngine::Auto)
                .build();
            let pager = pager.unwrap();
            assert!(pager.stat().resident_bytes == 0, "nothing is needed yet");
            assert!(resident() - before < 12 * MIB, "tables only: {}", resident() - before);
            let view = pager.open(&path).unwrap();
            let read_all = || {
                for at in (0..16 * MIB).step_by(page) {
                    let bytes = view.page(at / page as u64).unwrap();
                    assert_eq!(
                        (bytes[0], bytes[page - 1]),
                        (byte_at(at), byte_at(at + page as u64 - 1))
                    );
                }
            };
            read_all();
            let filled = pager.stat().resident_bytes;
            assert!((16 * MIB..22 * MIB).contains(&filled), "{filled} bytes for 16 MiB");
            assert!(resident() - before > 15 * MIB);
            let report = pager.report();
            assert!(
                report.contains(&format!("{filled} bytes resident, of a budget of {}", 64 * MIB)),
                "{report}"
            );

            assert_eq!(pager.root().set_max(Size::new(4 * MIB)).unwrap(), Settled::Yes);
            let lowered = pager.stat().resident_bytes;
            assert!(lowered <= 4 * MIB, "{lowered} bytes of 4 MiB");
            assert!(resident() - before < 16 * MIB, "{}", resident() - before);
            read_all();
            pager.validate().unwrap();
            // Raised again, all of it can be used again.
            assert_eq!(pager.root().set_max(Size::new(64 * MIB)).unwrap(), Settled::Yes);
            read_all();
            assert_eq!(pager.stat().memory.file * page as u64, 16 * MIB);
            pager.validate().unwrap();
        }
    });
}

/// Bytes of a line of `/proc/self/status`.
fn status(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn a_budget_takes_what_its_frames_use_of_a_programs_limits_and_locked_memory_goes_back() {
    alone(|| {
        let dir = Dir::new();
        let path = make_file(&dir, 16 * MIB);
        let names = ["VmSize:", "VmData:", "VmRSS:"];
        let before = names.map(status);
        let grown = || {
            let now = names.map(status);
            [0, 1, 2].map(|at| now[at].saturating_sub(before[at]))
        };
        let pager = Pager::builder().max(Size::new(2 << 30)).build().unwrap();
        // Tables and threads. The C library takes addresses for the heap of each thread.
        let built = grown();
        assert!(built[0] < 1 << 30 && built[1] < 256 * MIB, "{built:?}");
        let view = pager.open(&path).unwrap();
        // SAFETY: it locks what is there, and what comes, and changes no contents.
        let is_locked = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) } == 0;
        for page in 0..16 * MIB / PAGE {
            assert_eq!(view.page(page).unwrap()[0], byte_at(page * PAGE));
        }
        let used = grown();
        assert!(used[1] < built[1] + 64 * MIB && used[2] < 512 * MIB, "{used:?}");
        assert_eq!(pager.root().set_max(Size::new(4 * MIB)).unwrap(), Settled::Yes);
        let lowered = pager.stat().resident_bytes;
        assert!(lowered <= 4 * MIB, "{lowered} bytes of 4 MiB, locked: {is_locked}");
    });
}

#[test]
fn a_populated_pager_has_all_its_memory_from_the_start_to_the_end() {
    let pager = Pager::builder().max(Size::new(32 * MIB)).populate(true).build().unwrap();
    assert_eq!(pager.stat().resident_bytes, 32 * MIB);
    assert_eq!(pager.root().set_max(Size::new(MIB)).unwrap(), Settled::Yes);
    assert_eq!(pager.stat().resident_bytes, 32 * MIB, "it may be registered with the kernel");
}

#[test]
fn large_folios_and_stores_find_memory_behind_their_frames() {
    let dir = Dir::new();
    let pager = Pager::builder().max(Size::new(32 * MIB)).build().unwrap();
    let view = OpenOptions::new()
        .create_with_len(64 * MIB)
        .folio_order(9)
        .open(&pager, dir.path().join("new"))
        .unwrap();
    assert_eq!(pager.root().set_max(Size::new(24 * MIB)).unwrap(), Settled::Yes);
    for at in (0..64 * MIB).step_by(1 << 20) {
        view.write_at(at, &vec![at as u8 ^ 7; 1 << 20]).unwrap();
    }
    view.flush().unwrap();
    for at in (0..64 * MIB).step_by(1 << 20) {
        assert_eq!(view.page(at / PAGE).unwrap()[9], at as u8 ^ 7);
    }
    assert!(pager.stat().resident_bytes <= 32 * MIB);
    pager.validate().unwrap();
}

/// One line, and short enough for a log.
fn line(value: &dyn Debug) -> String {
    let text = format!("{value:?}");
    assert!(!text.contains('\n') && text.len() < 400, "{} bytes: {:.300}", text.len(), text);
    text
}

#[test]
fn what_the_public_types_print_of_themselves_is_a_line() {
    let dir = Dir::new();
    let path = make_file(&dir, MIB);
    let builder = Pager::builder().max(Size::new(4 * MIB));
    line(&builder);
    let pager = builder.build().unwrap();
    let tenant: Tenant = pager.tenant("t").max(Size::new(2 * MIB)).create().unwrap();
    let options = OpenOptions::new().tenant(&tenant).write(true);
    line(&options);
    let view = options.open(&pager, &path).unwrap();
    let page = view.page(3).unwrap();
    let reservation = tenant.reserve(Size::new(MIB)).unwrap();
    assert_eq!(line(&reservation), "Reservation { bytes: 1048576, .. }");
    assert_eq!(line(&pager), "Pager { budget_bytes: 4194304, page_size: 4096, .. }");
    assert!(line(&view).contains("\"data\"") || line(&view).contains("/data\""));
    line(&page);
    line(&tenant);
    line(&pager.tenant("u").low(Size::new(MIB)));
    line(&view.page(1 << 40).map(drop).unwrap_err());
    line(&pager.open(dir.path()).map(drop).unwrap_err());
    line(&Pager::builder().build().map(drop).unwrap_err());
    line(&pager.tenant("t").create().map(drop).unwrap_err());
    line(&pager.dirty());
    line(&pager.io_engine());
    let mut limits = TenantLimits::default();
    limits.max = Size::new(2 * MIB);
    let limits = line(&limits);
    assert_eq!(
        limits.strip_prefix("TenantLimits { min: 0, low: 0, high: max, max: 2M, ").unwrap(),
        "swap_max: max, swap_high: max }"
    );
}
