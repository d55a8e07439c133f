//! What the kernel charges for serving page faults and watching pages: medians, in nanoseconds.
//!
//! One thread works on a window of 512 pages (2 MiB) of a memfd, registered for missing pages and
//! asynchronous write protection. Each row is prepared again before it is timed, 201 times. On a
//! virtual machine with two cores (AMD EPYC), Linux 6.18, while other programs used both cores
//! (load 10), in a dev build, a page of 4 KiB costs:
//!
//! | what | ns a page |
//! |---|---|
//! | copy, one page a call; 16; 512 | 1,725; 1,170; 1,300 |
//! | punch a mapped page alone; a zapped page alone | 3,500; 2,200 |
//! | punch 16 mapped neighbours; 512 | 1,430; 760 |
//! | zap a range of 512 pages: 64 mapped; all | 490 a mapped page; 195 |
//! | load from a zapped page (no message) | 980 |
//! | store to a mapped, protected page (no message) | 900 |
//! | scan 512 pages: 1 mapped; 64 apart; all | 8 to 12; 12 to 15; 25 to 30 |
//! | scan 512 pages, 64 written; and protect these | 9 to 14; 16 to 19 |
//!
//! So whole ranges should be zapped before single pages of them are punched.
//!
//! ```text
//! cargo run -p lowtide-sys --example fault_costs
//! ```

#![allow(unsafe_code)]
#![allow(clippy::print_stdout)]

use std::fs::File;
use std::io;
use std::time::Instant;

use lowtide_sys::memory::page_size;
use lowtide_sys::page_cache::{punch, zap};
use lowtide_sys::pagemap::{Categories, Pagemap, Query, Region};
use lowtide_sys::shared::{Rights, SharedMapping, Sharing, memfd};
use lowtide_sys::userfault::{CopyError, Features, Modes, Scope, UserFault};

const PAGES: usize = 512;
const ROUNDS: usize = 201;

struct Window {
    fault: UserFault,
    pagemap: Pagemap,
    file: File,
    window: SharedMapping,
    source: Vec<u8>,
    found: Vec<Region>,
}

impl Window {
    fn new() -> io::Result<Window> {
        let wanted = Features::MISSING_SHMEM | Features::WP_SHMEM | Features::WP_ASYNC;
        let fault = UserFault::open(Scope::Any, wanted)?;
        if fault.features() != wanted {
            return Err(io::Error::other("this kernel lacks asynchronous write protection"));
        }
        let len = PAGES * page_size();
        let file = memfd("costs", len as u64)?;
        let access = Rights::ReadWrite;
        let window = SharedMapping::map(&file, 0, len, access, Sharing::Shared, false)?;
        // SAFETY: The window belongs to this program, which makes no reference to it.
        unsafe { fault.register(window.addresses(), Modes::MISSING | Modes::WRITE_PROTECT) }?;
        let (source, found) = (vec![1; len], Vec::with_capacity(2 * PAGES));
        Ok(Window { fault, pagemap: Pagemap::open()?, file, window, source, found })
    }

    /// The addresses of some pages.
    fn at(&self, first: usize, pages: usize) -> std::ops::Range<usize> {
        assert!(first + pages <= PAGES);
        let start = self.window.addresses().start + first * page_size();
        start..start + pages * page_size()
    }

    fn copy(&mut self, first: usize, pages: usize) {
        let (dst, len) = (self.at(first, pages).start, pages * page_size());
        match self.fault.copy(dst, &self.source[..len], true) {
            Ok(done) => assert_eq!(done, len),
            Err(CopyError::Present) => panic!("the page was not punched"),
            Err(error) => panic!("{error}"),
        }
    }

    fn punch(&mut self, first: usize, pages: usize) {
        let bytes = |page: usize| (page * page_size()) as u64;
        punch(&self.file, bytes(first)..bytes(first + pages)).expect("a memfd has holes");
    }

    fn zap(&mut self) {
        // SAFETY: The mapping is shared, so zapping keeps its contents.
        unsafe { zap(self.window.addresses()) }.expect("the window is mapped");
    }

    /// Loads from, or stores to, every `step`-th page.
    fn touch(&mut self, step: usize, store: bool) {
        for page in (0..PAGES).step_by(step) {
            // SAFETY: The page is inside the mapping.
            let byte = unsafe { self.window.as_ptr().add(page * page_size()) };
            // SAFETY: As above; only this thread uses the mapping.
            let value = unsafe { byte.read_volatile() };
            if store {
                // SAFETY: As above.
                unsafe { byte.write_volatile(value) };
            }
        }
    }

    fn scan(&mut self, required: Categories, write_protect: bool) -> usize {
        let query = Query { required, returned: required, write_protect, ..Query::default() };
        self.found.clear();
        self.pagemap
            .scan(self.window.addresses(), &query, &mut self.found)
            .expect("the window can be scanned");
        self.found.len()
    }

    /// All pages inserted, protected and mapped.
    fn full(&mut self) {
        self.punch(0, PAGES);
        self.copy(0, PAGES);
    }

    /// All pages cached; every `step`-th mapped.
    fn sparse(&mut self, step: usize) {
        self.full();
        self.zap();
        self.touch(step, false);
    }
}

/// The median time in nanoseconds of `timed` after `prepare`.
fn median(
    on: &mut Window,
    mut prepare: impl FnMut(&mut Window),
    mut timed: impl FnMut(&mut Window),
) -> u128 {
    let mut times: Vec<_> = (0..ROUNDS)
        .map(|_| {
            prepare(on);
            let start = Instant::now();
            timed(on);
            start.elapsed().as_nanos()
        })
        .collect();
    times.sort_unstable();
    times[ROUNDS / 2]
}

fn main() -> io::Result<()> {
    let mut on = Window::new()?;
    let (present, written) = (Categories::PRESENT, Categories::WRITTEN);
    let show = |what: &str, time: u128, each: usize| {
        println!("{what:<52} {time:>9} {:>9.1}", time as f64 / each as f64);
    };
    println!("{:<52} {:>9} {:>9}", "", "ns", "ns/page");
    let empty = |on: &mut Window| on.punch(0, PAGES);
    let time = median(&mut on, empty, |on| (0..64).for_each(|page| on.copy(page, 1)));
    show("copy 64 pages, one a call", time, 64);
    show("copy 16 pages in a call", median(&mut on, empty, |on| on.copy(0, 16)), 16);
    show("copy 512 pages in a call", median(&mut on, empty, |on| on.copy(0, 512)), 512);
    let one = |on: &mut Window| (0..64).for_each(|page| on.punch(page * 8, 1));
    show("punch 64 mapped pages, one a call", median(&mut on, Window::full, one), 64);
    let unmapped = |on: &mut Window| on.sparse(PAGES);
    show("punch 64 zapped pages, one a call", median(&mut on, unmapped, one), 64);
    let time = median(&mut on, Window::full, |on| on.punch(32, 16));
    show("punch 16 mapped neighbours in a call", time, 16);
    let time = median(&mut on, Window::full, |on| on.punch(0, 512));
    show("punch 512 mapped pages in a call", time, 512);
    show("zap 512 pages, 64 mapped", median(&mut on, |on| on.sparse(8), Window::zap), 64);
    show("zap 512 pages, all mapped", median(&mut on, Window::full, Window::zap), 512);
    let time = median(&mut on, |on| on.sparse(PAGES), |on| on.touch(8, false));
    show("load from 64 zapped pages", time, 64);
    let time = median(&mut on, Window::full, |on| on.touch(8, true));
    show("store to 64 mapped, protected pages", time, 64);
    for (what, step, regions) in
        [("1 mapped", PAGES, 1), ("64 mapped, 64 regions", 8, 64), ("all mapped, 1 region", 1, 1)]
    {
        let time = median(
            &mut on,
            |on| on.sparse(step),
            |on| {
                assert_eq!(on.scan(present, false), regions);
            },
        );
        show(&format!("scan 512 pages, {what}"), time, PAGES);
    }
    let stored = |on: &mut Window| {
        on.full();
        on.touch(8, true);
    };
    let time = median(&mut on, stored, |on| assert_eq!(on.scan(written, false), 64));
    show("scan 512 pages, 64 written", time, PAGES);
    let time = median(&mut on, stored, |on| assert_eq!(on.scan(written, true), 64));
    show("scan 512 pages, 64 written, and protect these", time, PAGES);
    Ok(())
}
