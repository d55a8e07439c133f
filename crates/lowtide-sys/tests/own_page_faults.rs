//! Page faults of a memfd that the process serves itself, together with what the page tables say.
//!
//! Each test has a *window*, a mapping that is registered with userfaultfd, and an *alias* of the
//! same memory that is not. A fault of the window stops the thread that touches it, so touches run
//! in a thread of their own while the test serves what comes ([`served`]). No test waits for time:
//! it waits for a message or for the end of the touching thread.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;

use lowtide_sys::memory::page_size;
use lowtide_sys::page_cache::{punch, zap};
use lowtide_sys::pagemap::{Categories, Pagemap, Query};
use lowtide_sys::shared::{Rights, SharedMapping, Sharing, memfd};
use lowtide_sys::userfault::{CopyError, Event, Features, Modes, Scope, UserFault};

const PAGES: usize = 64;

/// Whether an error means that this machine forbids or lacks userfaultfd.
fn refused(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported)
}

struct Window {
    fault: UserFault,
    file: File,
    window: SharedMapping,
    alias: SharedMapping,
}

impl Window {
    /// A window of [`PAGES`] missing pages; nothing where the kernel refuses.
    fn new(scope: Scope, needed: Features, modes: Modes) -> Option<Window> {
        Window::with_access(Rights::ReadWrite, scope, needed, modes)
    }

    fn with_access(access: Rights, scope: Scope, needed: Features, modes: Modes) -> Option<Window> {
        let fault = match UserFault::open(scope, needed) {
            Ok(fault) => fault,
            Err(error) if refused(&error) => {
                eprintln!("SKIPPED: this kernel refuses userfaultfd: {error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        if fault.features() != needed || !Pagemap::available() {
            eprintln!("SKIPPED: this kernel offers {:?} only, or no scans", fault.offered());
            return None;
        }
        let len = PAGES * page_size();
        let file = memfd("window", len as u64).unwrap();
        let window = SharedMapping::map(&file, 0, len, access, Sharing::Shared, false).unwrap();
        let alias =
            SharedMapping::map(&file, 0, len, Rights::ReadWrite, Sharing::Shared, false).unwrap();
        // SAFETY: The window belongs to the test, which makes no reference to it.
        unsafe { fault.register(window.addresses(), modes) }.unwrap();
        Some(Window { fault, file, window, alias })
    }

    fn at(&self, page: usize) -> usize {
        assert!(page < PAGES);
        self.window.addresses().start + page * page_size()
    }

    fn insert(&self, page: usize, value: u8, protected: bool) {
        let bytes = vec![value; page_size()];
        assert_eq!(self.fault.copy(self.at(page), &bytes, protected).unwrap(), page_size());
    }

    fn load(&self, page: usize) -> u8 {
        byte(&self.window, page, |byte| byte.read())
    }

    fn store(&self, page: usize, value: u8) {
        byte(&self.window, page, |byte| byte.write(value));
    }

    fn zap(&self) {
        // SAFETY: The mapping is shared, so zapping keeps its contents.
        unsafe { zap(self.window.addresses()) }.unwrap();
    }

    fn punch(&self, page: usize) {
        let at = (page * page_size()) as u64;
        punch(&self.file, at..at + page_size() as u64).unwrap();
    }

    /// What the page tables say about each page of the window.
    fn categories(&self) -> Vec<Categories> {
        let mut found = Vec::new();
        let query = Query { returned: Categories::all(), ..Query::default() };
        Pagemap::open().unwrap().scan(self.window.addresses(), &query, &mut found).unwrap();
        let mut all = vec![Categories::empty(); PAGES];
        for region in found {
            for at in region.range().step_by(page_size()) {
                all[(at - self.at(0)) / page_size()] = region.categories();
            }
        }
        all
    }

    fn present(&self) -> Vec<usize> {
        let categories = self.categories();
        (0..PAGES).filter(|&page| categories[page].contains(Categories::PRESENT)).collect()
    }
}

/// The first byte of a page, read and written as it is in memory.
struct Byte(*mut u8);

impl Byte {
    fn read(&self) -> u8 {
        // SAFETY: `byte` made the pointer from a live mapping.
        unsafe { self.0.read_volatile() }
    }

    fn write(&self, value: u8) {
        // SAFETY: As for `read`; the tests write to writable mappings only.
        unsafe { self.0.write_volatile(value) }
    }
}

fn byte<R>(mapping: &SharedMapping, page: usize, with: impl FnOnce(Byte) -> R) -> R {
    assert!(page < PAGES);
    // SAFETY: The page is inside the mapping.
    with(Byte(unsafe { mapping.as_ptr().add(page * page_size()) }))
}

/// Runs `touch` in a thread, answers its faults, and returns its result and the messages.
fn served<R: Send>(
    on: &Window,
    touch: impl FnOnce() -> R + Send,
    mut answer: impl FnMut(Event),
) -> (R, Vec<Event>) {
    let (ended, end) = io::pipe().unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let _end = end; // closed at the end of this thread
            touch()
        });
        let mut seen = Vec::new();
        loop {
            let waits = |fd: &dyn AsFd| libc::pollfd {
                fd: fd.as_fd().as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            let mut fds = [waits(&on.fault), waits(&ended)];
            // SAFETY: Both descriptors are open, and the array has two elements.
            unsafe { libc::poll(fds.as_mut_ptr(), 2, -1) };
            let mut events = [Event::default(); 8];
            let count = on.fault.read_events(&mut events).unwrap_or(0);
            for event in &events[..count] {
                seen.push(*event);
                answer(*event);
            }
            if count == 0 && fds[1].revents != 0 {
                return (thread.join().unwrap(), seen);
            }
        }
    })
}

const EXACT: Features = Features::MISSING_SHMEM.union(Features::WP_SHMEM).union(Features::WP_ASYNC);
const BOTH: Modes = Modes::MISSING.union(Modes::WRITE_PROTECT);

#[test]
fn zapped_pages_come_back_without_a_message_and_exactly_those_that_were_touched() {
    let Some(on) = Window::new(Scope::Any, EXACT, BOTH) else { return };
    for page in 0..PAGES {
        on.insert(page, page as u8, true);
    }
    assert_eq!(on.present().len(), PAGES);
    on.zap();
    assert_eq!(on.present(), []);
    let (values, events) = served(&on, || [3, 17, 18, 40].map(|page| on.load(page)), |_| on.zap());
    assert_eq!(values, [3, 17, 18, 40]);
    assert_eq!(events, []);
    assert_eq!(on.present(), [3, 17, 18, 40], "a neighbour was mapped that no thread touched");
}

#[test]
fn a_punched_page_is_missing_and_its_touch_waits_for_contents() {
    let needed = EXACT | Features::THREAD_ID;
    let Some(on) = Window::new(Scope::Any, needed, BOTH) else { return };
    on.insert(5, 50, false);
    on.insert(6, 60, false);
    on.punch(5);
    let touch = || (on.load(6), on.load(5), rustix::thread::gettid().as_raw_nonzero().get());
    let ((neighbour, value, thread), events) = served(&on, touch, |event| {
        assert_eq!(event.address, on.at(5));
        on.insert(5, 51, false);
    });
    assert_eq!((neighbour, value), (60, 51));
    let wanted = Event { address: on.at(5), thread: thread as u32, ..Event::default() };
    assert_eq!(events, [wanted]);
    let (_, events) = served(&on, || on.store(9, 1), |_| on.insert(9, 0, false));
    assert_eq!(events.len(), 1);
    assert!(events[0].write && !events[0].wp);
    assert_eq!(byte(&on.alias, 9, |byte| byte.read()), 1);
}

#[test]
fn copies_stop_at_present_pages_and_say_why() {
    let Some(on) = Window::new(Scope::Any, EXACT, BOTH) else { return };
    on.insert(2, 2, false);
    let bytes = vec![7; 3 * page_size()];
    assert_eq!(on.fault.copy(on.at(0), &bytes, false).unwrap(), 2 * page_size());
    let refused = on.fault.copy(on.at(2), &bytes[..page_size()], false);
    assert!(matches!(refused, Err(CopyError::Present)), "{refused:?}");
    assert_eq!([0, 1, 2].map(|page| on.load(page)), [7, 7, 2]);
    // A zapped page is not missing either: the cache has it.
    on.zap();
    let refused = on.fault.copy(on.at(2), &bytes[..page_size()], false);
    assert!(matches!(refused, Err(CopyError::Present)), "{refused:?}");
    let odd = on.fault.copy(on.at(8), &bytes[..100], false);
    assert!(matches!(&odd, Err(CopyError::Io(error)) if error.raw_os_error() == Some(22)));
    on.fault.unregister(on.window.addresses()).unwrap();
    let gone = on.fault.copy(on.at(8), &bytes, false);
    assert!(matches!(gone, Err(CopyError::Unregistered)), "{gone:?}");
}

#[test]
fn a_poisoned_page_fails_system_calls_until_it_is_zapped() {
    let needed = EXACT | Features::POISON;
    let Some(on) = Window::new(Scope::Any, needed, BOTH) else { return };
    on.fault.poison(on.at(4)..on.at(5)).unwrap();
    on.insert(5, 5, false);
    let (_keep, mut pipe) = io::pipe().unwrap();
    let mut send = |page: usize| {
        // SAFETY: The kernel reads the page, or fails; nothing else writes it meanwhile.
        let bytes = unsafe { std::slice::from_raw_parts(on.at(page) as *const u8, 1) };
        pipe.write(bytes)
    };
    assert_eq!(send(4).unwrap_err().raw_os_error(), Some(libc::EFAULT));
    assert_eq!(send(5).unwrap(), 1);
    on.zap();
    on.insert(4, 4, false);
    assert_eq!(send(4).unwrap(), 1);
    assert!(matches!(on.fault.poison(on.at(4)..on.at(5)), Err(CopyError::Present)));
}

#[test]
fn a_store_to_a_protected_page_waits_until_the_protection_is_removed() {
    let needed = Features::MISSING_SHMEM | Features::WP_SHMEM;
    let Some(on) = Window::new(Scope::Any, needed, BOTH) else { return };
    on.insert(1, 10, true);
    on.insert(2, 20, false);
    on.fault.write_protect(on.at(2)..on.at(3), true).unwrap();
    on.insert(3, 30, true);
    on.zap(); // the marks survive
    let touch = || {
        let before = [1, 2, 3].map(|page| on.load(page));
        [1, 2].into_iter().for_each(|page| on.store(page, 99));
        before
    };
    let (before, events) = served(&on, touch, |event| {
        let page = event.address..event.address + page_size();
        on.fault.write_protect(page, false).unwrap();
    });
    assert_eq!(before, [10, 20, 30], "loads do not wait");
    let wanted = |page| Event { address: on.at(page), write: true, wp: true, ..Event::default() };
    assert_eq!(events, [wanted(1), wanted(2)]);
    assert_eq!(byte(&on.alias, 1, |byte| byte.read()), 99);
}

#[test]
fn a_scan_collects_stores_and_protects_again_in_one_step() {
    let Some(on) = Window::new(Scope::Any, EXACT, BOTH) else { return };
    for page in 0..PAGES {
        on.insert(page, 0, true);
    }
    let written = Query {
        required: Categories::WRITTEN,
        returned: Categories::WRITTEN,
        write_protect: true,
        ..Query::default()
    };
    let map = Pagemap::open().unwrap();
    let collect = || {
        let mut found = Vec::new();
        map.scan(on.window.addresses(), &written, &mut found).unwrap();
        found.iter().map(|region| region.range()).collect::<Vec<_>>()
    };
    assert_eq!(collect(), []);
    let stores = || [8, 9, 30].into_iter().for_each(|page| on.store(page, 1));
    let (_, events) = served(&on, stores, |_| {});
    assert_eq!(events, [], "the kernel serves such faults itself");
    assert_eq!(collect(), [on.at(8)..on.at(10), on.at(30)..on.at(31)]);
    assert_eq!(collect(), [], "they are protected again");
    on.store(9, 2);
    on.zap();
    assert_eq!(collect(), vec![on.at(9)..on.at(10); 1], "zapping forgets no store");
}

/// The table at the head of `pagemap.rs`.
#[test]
fn what_a_scan_says_about_each_state_of_a_page() {
    let Some(on) = Window::new(Scope::Any, EXACT, BOTH) else { return };
    on.fault.write_protect(on.at(1)..on.at(2), true).unwrap();
    for page in 2..12 {
        on.insert(page, 0, page != 3);
    }
    on.fault.write_protect(on.at(3)..on.at(4), true).unwrap();
    let zap_one = |page: usize| {
        // SAFETY: The mapping is shared, so zapping keeps its contents.
        unsafe { zap(on.at(page)..on.at(page + 1)) }.unwrap();
    };
    on.store(4, 1);
    zap_one(5);
    on.store(6, 1);
    zap_one(6);
    zap_one(7);
    on.load(7);
    on.store(8, 1);
    zap_one(8);
    on.load(8);
    on.punch(9);
    on.store(10, 1);
    on.punch(10);
    on.punch(11);
    on.insert(11, 0, false);
    let (mapped, written) = (Categories::PRESENT | Categories::FILE, Categories::WRITTEN);
    let wanted = [
        ("never touched, never protected", written),
        ("never touched, protected", Categories::SWAPPED),
        ("inserted protected", mapped),
        ("protected later", mapped),
        ("stored to", mapped | written),
        ("zapped, clean", Categories::SWAPPED),
        ("stored to, zapped", written),
        ("zapped, clean, loaded from", mapped),
        ("stored to, zapped, loaded from", mapped | written),
        ("punched, clean", Categories::SWAPPED),
        ("stored to, punched", written),
        ("punched, clean, inserted unprotected", mapped | written),
    ];
    let got = on.categories();
    for (page, (state, categories)) in wanted.into_iter().enumerate() {
        assert_eq!(got[page], categories | Categories::WPALLOWED, "{state}");
    }
}

#[test]
fn a_mapping_for_loads_only_is_registered_for_missing_pages_and_protection() {
    let Some(on) = Window::with_access(Rights::Read, Scope::Any, EXACT, BOTH) else { return };
    on.insert(0, 1, true);
    on.zap();
    assert_eq!((on.load(0), on.present()), (1, vec![0]));
}

#[test]
fn without_privilege_a_system_call_on_a_missing_page_fails_and_a_load_is_served() {
    let Some(on) = Window::new(Scope::UserMode, EXACT, BOTH) else { return };
    assert!(on.fault.user_mode_only());
    let (_keep, mut pipe) = io::pipe().unwrap();
    let send = || {
        // SAFETY: The kernel reads one byte of the window, or fails.
        pipe.write(unsafe { std::slice::from_raw_parts(on.at(0) as *const u8, 1) })
    };
    let (sent, events) = served(&on, send, |_| on.insert(0, 7, true));
    assert_eq!((sent.unwrap_err().raw_os_error(), events), (Some(libc::EFAULT), vec![]));
    let (value, events) = served(&on, || on.load(0), |_| on.insert(0, 8, true));
    assert_eq!((value, events.len()), (8, 1));
}

#[test]
fn with_privilege_a_system_call_waits_for_a_missing_page() {
    let Some(on) = Window::new(Scope::SystemCalls, EXACT, BOTH) else { return };
    assert!(!on.fault.user_mode_only());
    let target = memfd("target", 1).unwrap();
    let send = || {
        // SAFETY: The kernel reads one byte of the window.
        let bytes = unsafe { std::slice::from_raw_parts(on.at(0) as *const u8, 1) };
        target.write_at(bytes, 0).unwrap()
    };
    let (sent, events) = served(&on, send, |_| on.insert(0, 8, true));
    assert_eq!((sent, events.len()), (1, 1));
}

#[test]
fn closing_the_descriptor_lets_waiting_threads_go_on_with_zeroes() {
    let Some(on) = Window::new(Scope::Any, EXACT, BOTH) else { return };
    on.insert(0, 9, true);
    let Window { fault, window, .. } = on;
    let load = |page| byte(&window, page, |byte| byte.read());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| load(1));
        let mut wait =
            libc::pollfd { fd: fault.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: The descriptor is open, and there is one structure.
        assert_eq!(unsafe { libc::poll(&raw mut wait, 1, -1) }, 1);
        drop(fault);
        assert_eq!(waiting.join().unwrap(), 0);
    });
    assert_eq!([0, 1, 2].map(load), [9, 0, 0]);
}
