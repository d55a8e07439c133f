//! `lowtide report`: results as one page of HTML.
//!
//! It reads what `--json` of other commands wrote, and draws nothing that is not in there. All
//! files are read and checked before the page is written, and the page is written under another
//! name and renamed, so there is a whole page or none.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use lowtide_report::interrupt::HandlerError;
use lowtide_report::json::writable;
use lowtide_report::out;
use lowtide_report::page::{Document, DocumentError, page};
use thiserror::Error;

use lowtide_report::exit::Failure;

/// Bytes of a result that are read at most: beyond that, a browser would not show the page.
const MOST_BYTES: u64 = 64 << 20;

/// The text below the options in its help.
pub(crate) const HELP: &str = "\
RESULTS are what --json of `lowtide bench`, `lowtide sim` or `lowtide-lab eval` wrote, or what
`lowtide run --json --summary` did. The page needs nothing else: no script, no font, no network.
docs/operating.md says what it shows.

Examples:
  lowtide sim zipf --json zipf.json && lowtide report zipf.json -o zipf.html
  lowtide report eval -o report.html --title 'Published results'

Exit codes: 0 success, 1 failure, 2 bad usage or a file that is no result.";

/// Options of `lowtide report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Results: files that `--json` wrote, or folders of such files
    #[arg(value_name = "RESULTS", required = true)]
    results: Vec<PathBuf>,
    /// The page
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Its title
    #[arg(long, value_name = "TEXT", default_value = "lowtide: results")]
    title: String,
    /// Replace the page if it exists
    #[arg(long)]
    force: bool,
}

/// Why there is no page.
#[derive(Debug, Error)]
pub(crate) enum ReportError {
    /// A file or a folder cannot be read.
    #[error("cannot read {}: {source}; check the path", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A file is no result.
    #[error("{}: {source}", path.display())]
    NoResult { path: PathBuf, source: DocumentError },
    /// A file is too large to be drawn.
    #[error(
        "{} has more than {} MiB; a page of it would not open. Give fewer rows, as with fewer \
         --policy or --points",
        path.display(), MOST_BYTES >> 20
    )]
    TooLarge { path: PathBuf },
    /// A folder without results.
    #[error("there is no file *.json in the folder {}; give the files themselves", path.display())]
    EmptyFolder { path: PathBuf },
    /// The page cannot be written there.
    #[error("cannot write the page to {}: {why}; choose another file with -o", path.display())]
    Place { path: PathBuf, why: String },
    /// The page is there already.
    #[error("{} exists; give --force to replace it, or another file with -o", path.display())]
    Exists { path: PathBuf },
    /// Writing the page failed.
    #[error("cannot write the page to {}: {source}; choose another file with -o", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// The signal handler cannot be installed.
    #[error(transparent)]
    Handler(#[from] HandlerError),
}

impl Failure for ReportError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::NoResult { .. }
            | Self::TooLarge { .. }
            | Self::EmptyFolder { .. }
            | Self::Place { .. }
            | Self::Exists { .. } => 2,
            Self::Read { .. } | Self::Write { .. } | Self::Handler(_) => 1,
        }
    }
}

impl ReportArgs {
    /// Writes the page.
    ///
    /// # Errors
    /// [`ReportError`], before anything is written unless writing itself failed.
    pub(crate) fn run(&self) -> Result<(), ReportError> {
        let path = || self.output.clone();
        if self.output.exists() && !self.force {
            return Err(ReportError::Exists { path: path() });
        }
        writable(&self.output).map_err(|why| ReportError::Place { path: path(), why })?;
        let mut documents = Vec::new();
        for given in &self.results {
            for file in files(given)? {
                documents.push(read(&file)?);
            }
        }
        let text = page(&self.title, &[], &documents);
        write(&self.output, text.as_bytes())
            .map_err(|source| ReportError::Write { path: path(), source })?;
        let what = if documents.len() == 1 { "one result" } else { "all results" };
        out::line(format_args!("{}: {what}, {} KiB", self.output.display(), text.len() >> 10));
        Ok(())
    }
}

/// A file itself, or the results in a folder, by name.
fn files(given: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let failed = |source| ReportError::Read { path: given.to_owned(), source };
    if !fs::metadata(given).map_err(failed)?.is_dir() {
        return Ok(vec![given.to_owned()]);
    }
    let entries = fs::read_dir(given).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let mut found: Vec<PathBuf> = entries
        .map_err(failed)?
        .into_iter()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    found.sort();
    if found.is_empty() {
        return Err(ReportError::EmptyFolder { path: given.to_owned() });
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Document, ReportError> {
    let failed = |source| ReportError::Read { path: path.to_owned(), source };
    if fs::metadata(path).map_err(failed)?.len() > MOST_BYTES {
        return Err(ReportError::TooLarge { path: path.to_owned() });
    }
    let bytes = fs::read(path).map_err(failed)?;
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into());
    Document::parse(name, &String::from_utf8_lossy(&bytes))
        .map_err(|source| ReportError::NoResult { path: path.to_owned(), source })
}

/// Writes a whole file, or leaves what was there.
fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    // A device or a pipe, such as /dev/stdout, has no folder of its own to rename in.
    if path.exists() && !path.is_file() {
        return fs::write(path, text);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut file = tempfile::Builder::new()
        .prefix(".lowtide-report-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;
    file.write_all(text)?;
    file.persist(path)?;
    Ok(())
}
