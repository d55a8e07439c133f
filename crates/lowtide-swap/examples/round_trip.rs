//! What a page costs in the compressed tier, beside the calls of lz4 that it makes.
//!
//! Pages of three kinds: text (words of a vocabulary), structures (pointers, lengths and flags, as
//! a heap has them), and random bytes. In each round all pages are compressed and decompressed by
//! lz4 alone, each into a buffer of its own, with the table of the compressor kept between calls;
//! and they are stored, loaded and freed. Rounds alternate which of the two comes first, so both
//! meet the same machine. The figures are nanoseconds of CPU time a page: the median of all
//! rounds, and the range of the middle eight tenths. *Engine* is store + load beside compress +
//! decompress of the same round. *Copy* is a page copied once, for comparison. At the end all pages
//! are recompressed.
//!
//! `cargo run --release -p lowtide-swap --example round_trip [PAGES] [ROUNDS] [KIND]`
#![expect(clippy::print_stdout, reason = "it is a report")]

use lowtide_swap::{CompressedStore, Handle, HeapPages, PAGE_BYTES, StoreLimits};
use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into};

/// A generator of bits: xorshift.
struct Bits(u64);

impl Bits {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn text(bits: &mut Bits, page: &mut [u8]) {
    const SYLLABLES: [&str; 16] = [
        "re", "claim", "page", "swap", "mem", "o", "ry", "fol", "io", "dir", "ty", "clean",
        "young", "gen", "er", "ation",
    ];
    let mut at = 0;
    while at < page.len() {
        // A vocabulary of 4096 words, the first ones most often.
        let mut word = (bits.next() % 4096).min(bits.next() % 4096) as usize;
        let mut letters = String::from(" ");
        for _ in 0..1 + word % 3 {
            letters += SYLLABLES[word % 16];
            word = word / 16 * 7 + 3;
        }
        let n = letters.len().min(page.len() - at);
        page[at..at + n].copy_from_slice(&letters.as_bytes()[..n]);
        at += n;
    }
}

/// Nodes of 48 bytes: two pointers into one heap, a length, flags, a reference count, a key.
fn structures(bits: &mut Bits, page: &mut [u8]) {
    for node in page.chunks_mut(48) {
        let pointer = |bits: &mut Bits| 0x7f3a_1c00_0000 + bits.next() % (1 << 26) / 16 * 16;
        let fields = [
            pointer(bits),
            if bits.next().is_multiple_of(4) { 0 } else { pointer(bits) },
            bits.next() % 200,
            bits.next() % 8,
            1,
            bits.next() % 1_000_000,
        ];
        let bytes: Vec<u8> = fields.iter().flat_map(|field| field.to_le_bytes()).collect();
        node.copy_from_slice(&bytes[..node.len()]);
    }
}

fn random(bits: &mut Bits, page: &mut [u8]) {
    page.chunks_mut(8).for_each(|word| word.copy_from_slice(&bits.next().to_le_bytes()));
}

/// Fills a page.
type Fill = fn(&mut Bits, &mut [u8]);

/// One kind of measurement over all rounds.
#[derive(Default)]
struct Series(Vec<f64>);

impl Series {
    fn at(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[((sorted.len() - 1) as f64 * share).round() as usize]
    }

    fn print(&self, name: &str) {
        let (low, mid, high) = (self.at(0.1), self.at(0.5), self.at(0.9));
        println!("  {name:<12} {mid:8.0} ns   {low:.0} … {high:.0}");
    }
}

/// Time that this thread has had a CPU: on a machine with other work, waiting for one is no cost of
/// a page.
fn cpu_ns() -> i128 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}

fn timed(pages: usize, f: impl FnOnce()) -> f64 {
    let begin = cpu_ns();
    f();
    (cpu_ns() - begin) as f64 / pages as f64
}

/// lz4 alone.
struct Raw {
    table: CompressTable,
    packed: Vec<Vec<u8>>,
    lens: Vec<usize>,
}

impl Raw {
    fn new(pages: usize) -> Raw {
        let room = lz4_flex::block::get_maximum_output_size(PAGE_BYTES);
        let packed = vec![vec![1; room]; pages];
        Raw { table: CompressTable::small(), packed, lens: vec![0; pages] }
    }

    fn round(&mut self, pages: &[Vec<u8>], back: &mut [u8]) -> (f64, f64) {
        let compress = timed(pages.len(), || {
            for ((page, packed), len) in pages.iter().zip(&mut self.packed).zip(&mut self.lens) {
                *len = compress_into_with_table(page, packed, &mut self.table).expect("room");
            }
        });
        let decompress = timed(pages.len(), || {
            for (packed, &len) in self.packed.iter().zip(&self.lens) {
                decompress_into(&packed[..len], back).expect("what was compressed");
            }
        });
        (compress, decompress)
    }
}

/// The store.
struct Tier {
    store: CompressedStore<HeapPages>,
    handles: Vec<Handle>,
}

impl Tier {
    fn round(&mut self, pages: &[Vec<u8>], back: &mut [u8]) -> (f64, f64) {
        let Tier { store, handles } = self;
        let stored = timed(pages.len(), || {
            handles.extend(pages.iter().map(|page| store.store(page).expect("room")));
        });
        let loaded = timed(pages.len(), || {
            for &handle in handles.iter() {
                store.load(handle, back).expect("what was stored");
            }
        });
        assert!(Some(&*back) == pages.last().map(Vec::as_slice), "the page that was stored");
        (stored, loaded)
    }

    fn empty(&mut self) -> f64 {
        let Tier { store, handles } = self;
        timed(handles.len(), || handles.drain(..).for_each(|handle| store.free(handle)))
    }
}

fn measure(name: &str, pages: &[Vec<u8>], rounds: usize) {
    let [mut copy, mut compress, mut decompress, mut store, mut load, mut free, mut engine] =
        <[Series; 7]>::default();
    let mut raw = Raw::new(pages.len());
    let mut tier = Tier {
        store: CompressedStore::new(HeapPages::new(usize::MAX), StoreLimits::default()),
        handles: Vec::with_capacity(pages.len()),
    };
    let mut back = vec![0; PAGE_BYTES];
    let mut ratio = (0.0, 0.0);
    // Two rounds to warm up.
    for round in 0..rounds + 2 {
        let before = (round % 2 == 0).then(|| raw.round(pages, &mut back));
        let tiered = tier.round(pages, &mut back);
        let stat = tier.store.stat();
        let packed = stat.orig_bytes() as f64 / stat.compressed_bytes as f64;
        ratio = (packed, stat.ratio().unwrap_or(f64::INFINITY));
        let freed = tier.empty();
        let alone = before.unwrap_or_else(|| raw.round(pages, &mut back));
        let copied = timed(pages.len(), || {
            for page in pages {
                back.copy_from_slice(page);
                std::hint::black_box(&mut back);
            }
        });
        if round >= 2 {
            copy.0.push(copied);
            compress.0.push(alone.0);
            decompress.0.push(alone.1);
            store.0.push(tiered.0);
            load.0.push(tiered.1);
            free.0.push(freed);
            engine.0.push((tiered.0 + tiered.1) / (alone.0 + alone.1));
        }
    }
    println!("{name}: ratio {:.2}, with what blocks lose {:.2}", ratio.0, ratio.1);
    copy.print("copy");
    compress.print("lz4 compress");
    store.print("store");
    decompress.print("decompress");
    load.print("load");
    free.print("free");
    let (low, mid, high) = (engine.at(0.1), engine.at(0.5), engine.at(0.9));
    println!("  {:<12} {mid:8.2} ×    {low:.2} … {high:.2}", "engine");
    cold(pages, &mut tier, &mut back);
}

/// What recompression gains, and what it costs then and at a load.
fn cold(pages: &[Vec<u8>], tier: &mut Tier, back: &mut [u8]) {
    tier.round(pages, back);
    tier.store.age();
    tier.store.age();
    let mut smaller = 0;
    let spent = timed(pages.len(), || smaller = tier.store.recompress(pages.len()).smaller);
    let ratio = tier.store.stat().ratio().unwrap_or(f64::INFINITY);
    let load = timed(pages.len(), || {
        for &handle in &tier.handles {
            tier.store.load(handle, back).expect("what was stored");
        }
    });
    println!(
        "  zstd: {smaller} pages smaller, ratio {ratio:.2} with what blocks lose; \
         {spent:.0} ns a page, then {load:.0} ns a load"
    );
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |n: usize, default: usize| {
        args.get(n).map_or(default, |arg| arg.parse().expect("a number"))
    };
    let (pages, rounds) = (number(0, 4096), number(1, 41));
    println!("{pages} pages of {PAGE_BYTES} bytes, {rounds} rounds");
    let kinds: [(&str, Fill); 3] = [("text", text), ("structures", structures), ("random", random)];
    let chosen = |name: &str| args.get(2).is_none_or(|only| only == name);
    for (name, fill) in kinds.into_iter().filter(|(name, _)| chosen(name)) {
        let mut bits = Bits(0x2545_f491_4f6c_dd1d);
        let make = |_| {
            let mut page = vec![0; PAGE_BYTES];
            fill(&mut bits, &mut page);
            page
        };
        let all: Vec<Vec<u8>> = (0..pages).map(make).collect();
        measure(name, &all, rounds);
    }
}
