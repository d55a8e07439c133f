//! A program that uses mappings of files in every way it can, from many threads, and checks every
//! byte it reads: for `lowtide run`, which must change nothing about it.
//!
//! Files consist of pages that say which page of which file they are, and in which version.
//! Half of them are *quiet*: open for reading only, and now and then opened for writing for a
//! moment, or cut by their path. Threads read them through shared and private mappings, store
//! through descriptors and through mappings, cut files and make them longer, unmap parts,
//! remap, change protections, keep private copies, fork, and allocate memory at addresses that
//! were mapped before. Each knows what every page must contain.
//!
//! ```text
//! lowtide run --max 64M -- map_stress DIR SECONDS THREADS SEED
//! ```
//!
//! The last line says how much was checked. The exit code is 1 if a byte was wrong.

#![expect(clippy::print_stdout, reason = "a program for people")]

use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const WORDS: usize = PAGE / 8;
const FILES: usize = 8;
/// Pages of a file: 32 MiB.
const PAGES: usize = 8192;
const SHARDS: usize = 64;
/// Private copies, and pieces of the heap, that a thread keeps for a while.
const KEPT: usize = 8;

/// A file, and what is known of it.
struct Data {
    /// Of a quiet file for reading only.
    file: File,
    /// The name of a quiet file.
    quiet: Option<PathBuf>,
    number: usize,
    /// Pages of the file. Cutting takes the lock alone.
    pages: RwLock<usize>,
    /// The version of each page; 0 is all zeroes. Changed under the lock of the page's shard.
    versions: Vec<AtomicU64>,
    shards: Vec<Mutex<()>>,
    /// The whole file, shared: for reading, and for stores. A lock of its own, after `pages`.
    read: RwLock<Window>,
    write: Option<Window>,
}

/// A mapping.
struct Window {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: the addresses belong to the process, and every use of them is under locks of the file.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    fn map(file: &File, first: usize, pages: usize, prot: i32, flags: i32) -> Self {
        let (bytes, offset) = (pages * PAGE, (first * PAGE) as i64);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), bytes, prot, flags, file.as_raw_fd(), offset) };
        assert!(base != libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
        Self { base: base.cast(), bytes }
    }

    fn word(&self, page: usize, word: usize) -> *mut u64 {
        assert!((page + 1) * PAGE <= self.bytes && word < WORDS);
        self.base.wrapping_add(page * PAGE + word * 8).cast()
    }

    fn load(&self, page: usize, word: usize) -> u64 {
        // SAFETY: within the mapping, and aligned; the file is that long.
        unsafe { self.word(page, word).read_volatile() }
    }

    fn store(&self, page: usize, word: usize, value: u64) {
        // SAFETY: as for `load`; the mapping is writable.
        unsafe { self.word(page, word).write_volatile(value) }
    }

    /// Unmaps some of its pages; those left are not used any more.
    fn unmap(&self, first: usize, pages: usize) {
        let at = self.base.wrapping_add(first * PAGE).cast();
        // SAFETY: within the mapping, and no other thread uses it.
        let failed = unsafe { libc::munmap(at, pages * PAGE) } != 0;
        assert!(!failed, "munmap: {}", std::io::Error::last_os_error());
    }

    fn pages(&self) -> usize {
        self.bytes / PAGE
    }
}

/// The word that a page of this version has there.
fn content(file: usize, page: usize, version: u64, word: usize) -> u64 {
    if version == 0 {
        return 0;
    }
    let mut x = (file as u64) << 56 ^ (page as u64) << 32 ^ version << 12 ^ word as u64;
    x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

/// What one thread has counted.
#[derive(Default)]
struct Tally {
    checked: u64,
    wrong: u64,
    forks: u64,
    cuts: u64,
}

struct Thread<'a> {
    files: &'a [Data],
    state: u64,
    tally: Tally,
    /// Private copies: mapping, and the value that was stored to each of its pages.
    copies: Vec<(Window, u64)>,
    heap: Vec<Vec<u64>>,
}

impl Data {
    fn create(dir: &Path, number: usize) -> Self {
        let path = dir.join(format!("stress-{number}"));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        for page in 0..PAGES {
            file.write_all_at(&page_bytes(number, page, 1), (page * PAGE) as u64).unwrap();
        }
        file.sync_all().unwrap();
        let is_quiet = number.is_multiple_of(2);
        let file = if is_quiet { File::open(&path).unwrap() } else { file };
        if !is_quiet {
            std::fs::remove_file(&path).unwrap();
        }
        let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED);
        let stored = read | libc::PROT_WRITE;
        Self {
            read: RwLock::new(Window::map(&file, 0, PAGES, read, shared)),
            write: (!is_quiet).then(|| Window::map(&file, 0, PAGES, stored, shared)),
            file,
            quiet: is_quiet.then_some(path),
            number,
            pages: RwLock::new(PAGES),
            versions: (0..PAGES).map(|_| AtomicU64::new(1)).collect(),
            shards: (0..SHARDS).map(|_| Mutex::new(())).collect(),
        }
    }

    /// The file for a change. A quiet one is opened for it, without waiting or not; a child may
    /// have a lease on it, which is given up then.
    fn for_writing(&self, flags: i32) -> File {
        let Some(path) = &self.quiet else { return self.file.try_clone().unwrap() };
        loop {
            match File::options().write(true).custom_flags(flags).open(path) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    std::thread::yield_now();
                }
                file => return file.unwrap(),
            }
        }
    }

    /// Whether a page of a mapping that begins with page `first` of the file is right.
    fn is_right(&self, window: &Window, first: usize, page: usize) -> bool {
        let _still = self.shards[page % SHARDS].lock().unwrap();
        let version = self.versions[page].load(SeqCst);
        [0, 1, 77, 200, WORDS - 1].into_iter().all(|word| {
            window.load(page - first, word) == content(self.number, page, version, word)
        })
    }
}

fn page_bytes(file: usize, page: usize, version: u64) -> Vec<u8> {
    (0..WORDS).flat_map(|word| content(file, page, version, word).to_le_bytes()).collect()
}

impl Thread<'_> {
    fn random(&mut self, below: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) as usize % below.max(1)
    }

    fn check(&mut self, data: &Data, window: &Window, first: usize, page: usize, what: &str) {
        self.tally.checked += 1;
        if !data.is_right(window, first, page) {
            self.tally.wrong += 1;
            println!("wrong: page {page} of file {} by {what}", data.number);
        }
    }

    fn step(&mut self) {
        let files = self.files;
        let data = &files[self.random(FILES)];
        match self.random(100) {
            0..55 => self.read_some(data),
            55..67 => self.map_a_part(data),
            67..77 => self.write(data, false),
            77..87 => self.write(data, true),
            87 => self.cut(data),
            88 => self.fork(data),
            89..94 => self.copy(data),
            94..97 => self.remap(data),
            97 => self.advise(data),
            98 => self.renew(data),
            _ => self.allocate(),
        }
    }

    /// Pages here and there, or in order.
    fn read_some(&mut self, data: &Data) {
        let pages = data.pages.read().unwrap();
        let (first, in_order) = (self.random(*pages), self.random(4) == 0);
        for n in 0..8 {
            let page = if in_order { (first + n).min(*pages - 1) } else { self.random(*pages) };
            self.check(data, &data.read.read().unwrap(), 0, page, "the shared mapping");
        }
    }

    /// A mapping of a part, of which parts are unmapped.
    fn map_a_part(&mut self, data: &Data) {
        let pages = data.pages.read().unwrap();
        let first = self.random(*pages);
        let count = 1 + self.random((*pages - first).min(1024));
        let flags = [libc::MAP_SHARED, libc::MAP_PRIVATE][self.random(2)];
        let window = Window::map(&data.file, first, count, libc::PROT_READ, flags);
        for _ in 0..4 {
            let page = first + self.random(count);
            self.check(data, &window, first, page, "a mapping of a part");
        }
        // The middle goes first.
        let (from, to) = (count / 3, count - count / 3);
        window.unmap(from, to - from);
        if from > 0 {
            let page = first + self.random(from);
            self.check(data, &window, first, page, "what is left of a mapping");
            window.unmap(0, from);
        }
        if to < count {
            let page = first + to + self.random(count - to);
            self.check(data, &window, first, page, "the end of a mapping");
            window.unmap(to, count - to);
        }
    }

    fn write(&mut self, data: &Data, through_mapping: bool) {
        if data.quiet.is_some() && self.random(50) > 0 {
            return self.read_some(data);
        }
        let pages = data.pages.read().unwrap();
        let page = self.random(*pages);
        {
            let _alone = data.shards[page % SHARDS].lock().unwrap();
            let version = data.versions[page].load(SeqCst) + 1;
            match &data.write {
                Some(window) if through_mapping => {
                    for word in 0..WORDS {
                        window.store(page, word, content(data.number, page, version, word));
                    }
                }
                _ => {
                    let bytes = page_bytes(data.number, page, version);
                    let file = data.for_writing([0, libc::O_NONBLOCK][self.random(2)]);
                    file.write_all_at(&bytes, (page * PAGE) as u64).unwrap();
                }
            }
            data.versions[page].store(version, SeqCst);
        }
        if through_mapping
            && let Some(window) = &data.write
            && self.random(20) == 0
        {
            let at = window.base.wrapping_add(page * PAGE).cast();
            let flags = [libc::MS_SYNC, libc::MS_ASYNC][self.random(2)];
            // SAFETY: a page of a mapping that lives.
            assert_eq!(unsafe { libc::msync(at, PAGE, flags) }, 0);
        }
        self.check(data, &data.read.read().unwrap(), 0, page, "the shared mapping, after a store");
    }

    /// Cuts the file, and makes it as long as before: the end is zeroes then.
    fn cut(&mut self, data: &Data) {
        let mut pages = data.pages.write().unwrap();
        let left = PAGES / 2 + self.random(PAGES / 2);
        match &data.quiet {
            Some(path) => {
                let name = CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
                // SAFETY: the name ends with a zero.
                let cut = unsafe { libc::truncate(name.as_ptr(), (left * PAGE) as libc::off_t) };
                assert_eq!(cut, 0, "truncate: {}", std::io::Error::last_os_error());
            }
            None => data.file.set_len((left * PAGE) as u64).unwrap(),
        }
        for version in &data.versions[left..] {
            version.store(0, SeqCst);
        }
        *pages = left;
        if self.random(4) > 0 {
            data.for_writing(0).set_len((PAGES * PAGE) as u64).unwrap();
            *pages = PAGES;
        }
        drop(pages);
        self.tally.cuts += 1;
    }

    /// A child reads pages through mappings that it has inherited.
    fn fork(&mut self, data: &Data) {
        let pages = data.pages.write().unwrap();
        let window = data.read.read().unwrap();
        let wanted: Vec<usize> = (0..64).map(|_| self.random(*pages)).collect();
        // SAFETY: the child reads memory and ends; it takes no lock and allocates nothing.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let right = |&page: &usize| {
                let version = data.versions[page].load(SeqCst);
                window.load(page, 5) == content(data.number, page, version, 5)
            };
            let code = i32::from(!wanted.iter().all(right));
            // SAFETY: ends the child without anything of the parent's.
            unsafe { libc::_exit(code) };
        }
        assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
        let mut status = 0;
        // SAFETY: a child of this thread, and a place for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        drop(window);
        drop(pages);
        self.tally.forks += 1;
        self.tally.checked += wanted.len() as u64;
        if status != 0 {
            self.tally.wrong += 1;
            println!("wrong: a child read other bytes of file {} ({status:#x})", data.number);
        }
    }

    /// Private copies of pages, which keep what is stored to them.
    fn copy(&mut self, data: &Data) {
        if self.copies.len() == KEPT {
            let at = self.random(KEPT);
            let (window, value) = self.copies.swap_remove(at);
            for page in 0..window.pages() {
                self.tally.checked += 1;
                if window.load(page, 3) != value.wrapping_add(page as u64) {
                    self.tally.wrong += 1;
                    println!("wrong: a private copy of file {} lost a store", data.number);
                }
            }
            window.unmap(0, window.pages());
            return;
        }
        let _pages = data.pages.read().unwrap();
        // Never cut off: a copy of a page past the end would be SIGBUS.
        let count = 256 + self.random(256);
        let first = self.random(PAGES / 2 - count);
        let late = self.random(2) == 0;
        let prot = libc::PROT_READ | if late { 0 } else { libc::PROT_WRITE };
        let window = Window::map(&data.file, first, count, prot, libc::MAP_PRIVATE);
        if late {
            // As a loader does: first to read, then to write.
            for _ in 0..8 {
                let page = self.random(count);
                self.check(data, &window, first, first + page, "a private mapping");
            }
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a mapping of this thread.
            let failed = unsafe { libc::mprotect(window.base.cast(), window.bytes, prot) } != 0;
            assert!(!failed, "mprotect: {}", std::io::Error::last_os_error());
        }
        let value = self.state;
        for page in 0..count {
            window.store(page, 3, value.wrapping_add(page as u64));
        }
        self.copies.push((window, value));
    }

    /// A mapping that moves while it grows and shrinks.
    fn remap(&mut self, data: &Data) {
        let pages = data.pages.read().unwrap();
        let first = self.random(*pages - 512);
        let mut window = Window::map(&data.file, first, 300, libc::PROT_READ, libc::MAP_SHARED);
        for count in [512, 100, 200] {
            let (old, new) = (window.base.cast(), count * PAGE);
            // SAFETY: the whole of a mapping of this thread, which is used at its new address only.
            let base = unsafe { libc::mremap(old, window.bytes, new, libc::MREMAP_MAYMOVE) };
            assert!(base != libc::MAP_FAILED, "mremap: {}", std::io::Error::last_os_error());
            window = Window { base: base.cast(), bytes: new };
            for _ in 0..4 {
                let page = first + self.random(count);
                self.check(data, &window, first, page, "a mapping that has moved");
            }
        }
        window.unmap(0, window.pages());
    }

    /// Advice, which changes nothing that is read.
    fn advise(&mut self, data: &Data) {
        let pages = data.pages.read().unwrap();
        let page = self.random(*pages - 64);
        let advice = [
            libc::MADV_DONTNEED,
            libc::MADV_WILLNEED,
            libc::MADV_RANDOM,
            libc::MADV_SEQUENTIAL,
            libc::MADV_NORMAL,
        ];
        let advice = advice[self.random(advice.len())];
        let window = data.read.read().unwrap();
        let at = window.base.wrapping_add(page * PAGE).cast();
        // SAFETY: pages of a shared mapping, which keep their bytes.
        assert_eq!(unsafe { libc::madvise(at, 64 * PAGE, advice) }, 0);
        self.check(data, &window, 0, page, "the shared mapping, after advice");
    }

    /// The mapping of the whole file goes, and another one comes.
    fn renew(&mut self, data: &Data) {
        let pages = data.pages.read().unwrap();
        let mut window = data.read.write().unwrap();
        window.unmap(0, PAGES);
        *window = Window::map(&data.file, 0, PAGES, libc::PROT_READ, libc::MAP_SHARED);
        let page = self.random(*pages);
        self.check(data, &window, 0, page, "a new mapping of the whole file");
    }

    /// Memory that may be where a mapping was.
    fn allocate(&mut self) {
        if self.heap.len() == KEPT {
            let at = self.random(KEPT);
            let memory = self.heap.swap_remove(at);
            self.tally.checked += 1;
            if memory.iter().any(|word| *word != memory[0]) || memory[0] == 0 {
                self.tally.wrong += 1;
                println!("wrong: memory of the heap lost a store");
            }
        }
        let words = (1 + self.random(1024)) * WORDS;
        self.heap.push(vec![self.state | 1; words]);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize, default: u64| -> u64 {
        arguments.get(at).map_or(default, |text: &String| text.parse().expect("a number"))
    };
    let Some(dir) = arguments.get(1) else {
        println!("usage: map_stress DIR SECONDS THREADS SEED");
        std::process::exit(2);
    };
    let (seconds, threads, seed): (u64, u64, u64) = (number(2, 10), number(3, 32), number(4, 1));
    let files: Vec<Data> = (0..FILES).map(|n| Data::create(Path::new(dir), n)).collect();
    let until = Instant::now() + Duration::from_secs(seconds);
    let tallies: Vec<Tally> = std::thread::scope(|scope| {
        let start = |thread: u64| {
            let files = &files;
            scope.spawn(move || {
                let state = (seed * 1000 + thread + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let (copies, heap) = (Vec::new(), Vec::new());
                let mut me = Thread { files, state, tally: Tally::default(), copies, heap };
                while Instant::now() < until {
                    me.step();
                }
                me.tally
            })
        };
        let running: Vec<_> = (0..threads).map(start).collect();
        running.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    });
    for path in files.iter().filter_map(|data| data.quiet.as_ref()) {
        std::fs::remove_file(path).unwrap();
    }
    let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
    let (checked, wrong) = (sum(|t| t.checked), sum(|t| t.wrong));
    println!(
        "{checked} checked, {wrong} wrong, {} forks, {} cuts",
        sum(|t| t.forks),
        sum(|t| t.cuts)
    );
    std::process::exit(i32::from(wrong > 0));
}
