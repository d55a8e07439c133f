//! Crates that map files through memmap2, unchanged. Where `LOWTIDE_MAX` is set, what they map is
//! within that budget.
//!
//! `run` beside this package makes the files, runs each client with and without a budget, and
//! compares what they print with other programs: git, grep, awk. The last line, on standard error,
//! says how many bytes of files were mapped in memory at most.

use gix_hash::Kind;
use gix_pack::{Bundle, cache};
use gix_utils::progress::Discard;
use grep_searcher::{MmapChoice, SearcherBuilder, sinks::UTF8};
use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The most that was seen.
static PEAK: AtomicU64 = AtomicU64::new(0);

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    // The program's own code is in memory, too.
    let before = mapped()?;
    let watch = thread::Builder::new().name("watch".to_owned());
    watch.spawn(move || {
        while let Ok(now) = mapped() {
            PEAK.fetch_max(now.saturating_sub(before), Relaxed);
            thread::sleep(Duration::from_millis(1));
        }
    })?;
    match *args {
        ["pack", path] => pack(path.as_ref())?,
        ["grep", pattern, path] => grep(pattern, path.as_ref())?,
        ["fst-make", path, keys] => fst_make(path.as_ref(), keys.parse()?)?,
        ["fst", path] => fst(path.as_ref())?,
        _ => return Err("pack FILE | grep PATTERN FILE | fst-make FILE KEYS | fst FILE".into()),
    }
    eprintln!("{}", PEAK.load(Relaxed));
    Ok(())
}

/// Bytes of files that are mapped and in memory.
fn mapped() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssFile:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("no RssFile")?;
    Ok(kib.trim().parse::<u64>()? << 10)
}

/// Has gix verify a pack as a whole, and gets each object by its name, in the order of the names,
/// which is none in the file. Prints what `git cat-file --batch-all-objects --batch-check` does.
fn pack(path: &Path) -> Result<()> {
    let bundle = Bundle::at(path, Kind::Sha1).map_err(|e| e.to_string())?;
    let options = gix_pack::index::verify::integrity::Options::default();
    bundle
        .verify_integrity(&mut Discard, &AtomicBool::new(false), options)
        .map_err(|e| e.to_string())?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let (mut bytes, mut inflate) = (Vec::new(), gix_zlib::Inflate::default());
    for entry in bundle.index.iter() {
        let found = bundle.find(&entry.oid, &mut bytes, &mut inflate, &mut cache::Never);
        let (object, _) = found.map_err(|e| e.to_string())?.ok_or("the index has no such name")?;
        writeln!(out, "{} {} {}", entry.oid, object.kind, object.data.len())?;
    }
    Ok(())
}

/// What `grep -n` prints.
fn grep(pattern: &str, path: &Path) -> Result<()> {
    let matcher = grep_regex::RegexMatcher::new(pattern)?;
    // SAFETY: the file is this program's; nothing changes it.
    let choice = unsafe { MmapChoice::auto() };
    let mut searcher = SearcherBuilder::new().memory_map(choice).line_number(true).build();
    let mut out = BufWriter::new(std::io::stdout().lock());
    let sink = UTF8(|number, line| {
        write!(out, "{number}:{line}")?;
        Ok(true)
    });
    searcher.search_path(&matcher, path, sink)?;
    Ok(())
}

/// The value of a key: anything that looks random, and that awk can compute, too.
fn value(key: u64) -> u64 {
    key * 7919 % 1_000_003
}

/// A map of `keys` keys of sixteen digits; values have no order, so that the file is large.
fn fst_make(path: &Path, keys: u64) -> Result<()> {
    let mut map = fst::MapBuilder::new(BufWriter::new(File::create(path)?))?;
    for key in 0..keys {
        map.insert(format!("{:016x}", spread(key)), value(key))?;
    }
    Ok(map.finish()?)
}

/// Grows with the key, and has digits that do not repeat, which a map of words would share.
fn spread(key: u64) -> u64 {
    (key << 32) | (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32)
}

/// Looks up each key, far from the one before, and adds up the values.
fn fst(path: &Path) -> Result<()> {
    // SAFETY: the file is this program's; nothing changes it.
    let bytes = unsafe { memmap2::Mmap::map(&File::open(path)?) }?;
    let map = fst::Map::new(bytes)?;
    let keys = map.len() as u64;
    let mut sum = 0;
    for step in 0..keys {
        // A prime that divides no length: each key once.
        let key = step * 1_000_000_007 % keys;
        let found = map.get(format!("{:016x}", spread(key))).ok_or("a key is missing")?;
        if found != value(key) {
            return Err(format!("key {key} has the value {found}").into());
        }
        sum += found;
    }
    println!("{keys} keys, sum {sum}");
    Ok(())
}
