//! `lowtide bench gather`: random rows, smaller than the kernel's page, in batches.
//!
//! # Why the page decides
//!
//! The kernel reads and keeps pages of 4 KiB. A program that wants rows of 512 bytes from random
//! places reads eight times what it wants, and of what it keeps an eighth was ever wanted. lowtide
//! pages have any size from 512 bytes up, so a page can be a row: then a budget holds eight times
//! as many hot rows. Two things limit that. Direct I/O moves whole blocks of the device, and each
//! page has its own entry in tables, and its own turn in reclaim.
//!
//! [`page_of_rows`] therefore takes the page with which the fewest bytes come in for a row, of the
//! pages that the device can read alone. Row `n` begins at byte `n · row`, so it begins at each
//! multiple of `g = gcd(row, page)` in a page equally often, and on average `1 + (row - g) / page`
//! pages hold it: `page + row - g` bytes come in. Where two pages are equal the larger one is
//! better: a row of 4 KiB is one page of 4 KiB rather than eight of 512 bytes.

use std::cmp::Reverse;

use clap::{Args, ValueEnum};
use lowtide::Size;
use lowtide_report::values::PAGE_BYTES;
use lowtide_workload::Workload;

use super::Compare;
use super::on_pages::OnPages;
use super::plan::Comparison;
use crate::content::{Content, WORD_BYTES};
use crate::error::BenchError;
use crate::options::{MmapPeer, Sizes, batch, chosen};
use crate::play::gather::{Rows, Skew};

/// The smallest page of a pager.
const PAGE_MIN: u64 = 512;
/// The sizes of rows.
const ROW_MIN: u64 = 64;
const ROW_MAX: u64 = 4096;

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Contents {
    Random,
    Integers,
}

#[derive(Debug, Args)]
#[command(mut_arg("policies", |policy| policy.default_value("mglru")))]
#[command(mut_arg("max", |max| max.default_value("512M")))]
#[command(mut_arg("scale", |scale| scale.default_value("8")))]
pub struct GatherArgs {
    #[command(flatten)]
    sizes: Sizes,
    /// Bytes of a row: 64 to 4K, a multiple of 8; rows lie side by side
    #[arg(long, value_name = "SIZE", value_parser = row, default_value = "512",
          allow_hyphen_values = true)]
    row: u64,
    /// Rows per call
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = batch())]
    batch: u32,
    /// uniform: every row equally often; hot: 90 % of the reads go to 5 % of the rows, scattered
    /// over the file; hot-start: to its first 5 %
    #[arg(long, value_name = "S", value_enum, default_value = "uniform")]
    skew: Skew,
    /// Rows of random words, or of integers, which compress
    #[arg(long, value_name = "C", default_value = "random", hide_possible_values = true)]
    contents: Contents,
    /// Systems to compare with: mappings and pread in a memory cgroup, which need permission to
    /// create one, and lowtide's maps
    #[arg(
        long,
        value_name = "PEER,PEER",
        value_enum,
        value_delimiter = ',',
        default_value = "mmap-random,pread,pread-direct"
    )]
    against: Vec<MmapPeer>,
    #[command(flatten)]
    pages: OnPages,
}

impl Compare for GatherArgs {
    fn comparison(&self, workload: Workload) -> Result<Comparison<'_>, BenchError> {
        Ok(Comparison {
            content: match self.contents {
                Contents::Random => Content::Words,
                Contents::Integers => Content::Integers,
            },
            peers: chosen(&self.against, MmapPeer::None)?,
            batch: Some(self.batch),
            rows: Some(Rows { bytes: self.row, skew: self.skew }),
            ..self.pages.comparison(workload, self.sizes.bytes())
        })
    }
}

/// Bytes of a row.
fn row(text: &str) -> Result<u64, String> {
    let bytes = text.parse::<Size>().map_err(|error| error.to_string())?.bytes();
    if !(ROW_MIN..=ROW_MAX).contains(&bytes) || !bytes.is_multiple_of(WORD_BYTES as u64) {
        return Err(format!(
            "give {ROW_MIN} bytes to {}, a multiple of {WORD_BYTES}, such as 512",
            Size::new(ROW_MAX)
        ));
    }
    Ok(bytes)
}

/// The page for rows of `row` bytes on a device whose direct reads are multiples of `align` bytes,
/// if it has direct reads, and the reason for it. `asked` is the page of an option.
pub fn page_of_rows(row: u64, align: Option<u64>, asked: Option<u64>) -> (u64, String) {
    // Without direct reads the kernel reads whole pages of its own, but the budget need not keep
    // all of each.
    let least = align.unwrap_or(PAGE_MIN).max(PAGE_MIN);
    let pages = std::iter::successors(Some(least), |page| Some(page * 2));
    let best = pages
        .take_while(|&page| page <= PAGE_BYTES.max(least))
        .min_by_key(|&page| (bytes_for(row, page), Reverse(page)))
        .unwrap_or(least);
    let page = asked.unwrap_or(best);
    let each = bytes_for(row, page);
    let holds = match (page / row, page % row) {
        (1, 0) => "a page is a row".into(),
        (rows, 0) => format!("a page holds {rows} rows"),
        _ if row.is_multiple_of(page) => format!("a row is {} pages", row / page),
        _ => "rows cross pages".into(),
    };
    let why = match (asked, align) {
        (Some(_), _) if page == best => "as --page says, and would be chosen".into(),
        (Some(_), _) => {
            format!("as --page says; {} would be chosen", Size::new(best))
        }
        (None, _) if page == row => "the page is as large as the row".into(),
        (None, Some(align)) if page == align => "the device reads no smaller block".into(),
        (None, _) if page == PAGE_MIN => "there is no smaller one".into(),
        (None, _) => "no other reads less for a row".into(),
    };
    (page, format!("{why}; {holds}, {each} bytes come in for a row"))
}

/// The mean number of bytes of the pages that hold a row.
fn bytes_for(row: u64, page: u64) -> u64 {
    page + row - gcd(row, page)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_the_row_where_the_device_can_read_it() {
        let page = |row, align| page_of_rows(row, align, None).0;
        for row in [512, 1024, 2048, 4096] {
            assert_eq!(page(row, Some(512)), row);
            assert_eq!(page(row, None), row, "without direct reads the budget still counts");
            assert_eq!(page(row, Some(4096)), 4096, "the device reads no less");
        }
        assert_eq!(page(512, Some(8192)), 8192);
        for row in [64, 72, 128, 256, 504] {
            assert_eq!(page(row, Some(512)), 512, "small rows share a page");
        }
        for row in [520, 768, 1000, 3000] {
            assert_eq!(page(row, Some(512)), 512, "a larger page brings more that is not wanted");
        }
        assert_eq!(page(1536, Some(1024)), 1024);
        assert_eq!(page_of_rows(512, Some(512), Some(4096)).0, 4096, "an option decides");
    }

    #[test]
    fn the_bytes_for_a_row_are_those_of_its_pages() {
        for row in (ROW_MIN..=ROW_MAX).step_by(56) {
            for page in [512, 1024, 4096] {
                // Every place in a page that a row can have.
                let rows = page / gcd(row, page);
                let pages: u64 =
                    (0..rows).map(|n| (n * row + row - 1) / page - n * row / page + 1).sum();
                assert_eq!(pages * page, bytes_for(row, page) * rows, "{row} in {page}");
            }
        }
    }

    #[test]
    fn the_reason_is_said() {
        let why = |row, align, asked| page_of_rows(row, align, asked).1;
        assert_eq!(
            why(512, Some(512), None),
            "the page is as large as the row; a page is a row, 512 bytes come in for a row"
        );
        assert_eq!(
            why(128, Some(512), None),
            "the device reads no smaller block; a page holds 4 rows, 512 bytes come in for a row"
        );
        assert!(why(128, None, None).starts_with("there is no smaller one"));
        assert!(
            why(768, Some(512), None).ends_with("rows cross pages, 1024 bytes come in for a row")
        );
        assert_eq!(
            why(512, Some(512), Some(4096)),
            "as --page says; 512 would be chosen; a page holds 8 rows, 4096 bytes come in for a row"
        );
        assert!(why(4096, Some(512), Some(512)).contains("a row is 8 pages"));
    }
}
