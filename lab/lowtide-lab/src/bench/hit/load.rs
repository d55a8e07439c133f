//! The systems of `hit`, with all words in memory.

use std::hint::black_box;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::bench::options::open_view;
use lowtide::map::{Access, Map, MapMode};
use lowtide::{Pager, View};
use lowtide_bench::datafile::DataFile;
use lowtide_bench::error::BenchError;
use lowtide_bench::map;
use lowtide_report::values::PAGE_BYTES;
use lowtide_report::{interrupt, out};

use super::chase::ViewWords;
use super::pointer::PointerWords;
use crate::error::LabError;

/// Pages of a view that are loaded at a time.
const LOAD_PAGES: u64 = 512;
/// Bytes of a map that are read ahead with one call: what one call of the kernel's reads at least.
const AHEAD_BYTES: usize = 128 << 10;
/// Bytes of a map that are read ahead before they are touched.
const LOAD_BYTES: usize = 2 << 20;
/// The longest wait until the pages of a map are noticed.
const NOTICED_MAX: Duration = Duration::from_secs(10);

/// The words behind a view.
pub(crate) fn view(pager: &Pager, file: &DataFile) -> Result<ViewWords, BenchError> {
    let view = open_view(pager, file, false)?;
    load_view(&view)?;
    Ok(ViewWords::new(view))
}

fn load_view(view: &View) -> Result<(), BenchError> {
    let pages: Vec<u64> = (0..view.page_count()).collect();
    for chunk in pages.chunks(LOAD_PAGES as usize) {
        interrupt::check(|| "loading the words".into())?;
        view.get_many(chunk, |_, _| ())
            .map_err(|source| BenchError::Runtime { action: "load the words".into(), source })?;
    }
    Ok(())
}

/// The same words in anonymous memory.
pub(crate) fn pointer(file: &DataFile, size: u64) -> Result<PointerWords, BenchError> {
    let bytes = usize::try_from(size).unwrap_or(usize::MAX);
    PointerWords::new(bytes)
        .map_err(|source| BenchError::file("get memory for the words of", file.path(), source))
}

/// The same words in a map; `None`, and a note, where the machine does not allow it.
pub(crate) fn mapped(
    pager: &Pager,
    way: MapMode,
    file: &DataFile,
    size: u64,
) -> Result<Option<PointerWords>, BenchError> {
    match map::open(pager, way, file, size, None) {
        Ok(map) => {
            load_map(&map, file)?;
            Ok(Some(PointerWords::of_map(map)))
        }
        Err(why) => {
            out::note(format_args!("{} left out: {why}", map::name(way)));
            Ok(None)
        }
    }
}

fn load_map(map: &Map, file: &DataFile) -> Result<(), BenchError> {
    for start in (0..map.len()).step_by(LOAD_BYTES) {
        interrupt::check(|| "loading the words".into())?;
        let end = map.len().min(start + LOAD_BYTES);
        for at in (start..end).step_by(AHEAD_BYTES) {
            map.advise_range(Access::WillNeed, at..end.min(at + AHEAD_BYTES))
                .map_err(|source| BenchError::file("read ahead", file.path(), source))?;
        }
        for at in (start..end).step_by(PAGE_BYTES as usize) {
            black_box(map[at]);
        }
    }
    // What the kernel brings in is noticed a little later.
    let begin = Instant::now();
    loop {
        let missing = (map.len() as u64).saturating_sub(map.report().resident_bytes);
        if missing == 0 {
            return Ok(());
        }
        if begin.elapsed() > NOTICED_MAX {
            return Err(LabError::NotResident { pages: missing / PAGE_BYTES }.into());
        }
        interrupt::check(|| "loading the words".into())?;
        sleep(Duration::from_millis(10));
    }
}
