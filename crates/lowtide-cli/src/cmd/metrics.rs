//! `lowtide metrics`: the status pages of all processes of this user as metrics of Prometheus; and
//! the process behind `lowtide run --metrics`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use lowtide_report::out;
use lowtide_status::{Status, metrics};
use lowtide_watch::companion::{self, Export, Exporter, Purpose};
use lowtide_watch::{address, file};

/// The options of `lowtide metrics`.
#[derive(Args, Debug)]
#[group(required = true, multiple = false, args = ["listen", "file", "once"])]
pub(crate) struct MetricsArgs {
    /// Serve them by HTTP at /metrics; a port alone means this machine only
    #[arg(long, value_name = "ADDR", value_parser = address::parse)]
    listen: Option<SocketAddr>,
    /// Write them to FILE, for the textfile collector of node_exporter
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print them once
    #[arg(long)]
    once: bool,
    /// Seconds between two writes of --file
    #[arg(long, value_name = "S", default_value_t = 15, requires = "file",
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    interval: u64,
}

/// Exports until it is ended. Fails where the address or the file is refused.
pub(crate) fn run(args: &MetricsArgs) -> ExitCode {
    match export(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            out::note(format_args!("error: {error}"));
            ExitCode::from(2)
        }
    }
}

fn export(args: &MetricsArgs) -> Result<(), Box<dyn std::error::Error>> {
    if args.once {
        out::line(metrics::openmetrics(all()).trim_end());
        return Ok(());
    }
    let listener = args.listen.map(address::listen).transpose()?;
    if let Some(listener) = &listener {
        out::note(format_args!("metrics: http://{}/metrics", listener.local_addr()?));
    }
    if let Some(path) = &args.file {
        file::replace(path, &metrics::plain(all()))?;
    }
    let interval = Duration::from_secs(args.interval);
    let export = Export { listener, file: args.file.clone(), interval };
    let mut exporter = Exporter::new(export, Arc::new(all))?;
    loop {
        exporter.turn(Duration::MAX, None)?;
    }
}

/// The pages of this user.
fn all() -> Vec<Status> {
    lowtide_status::list().map(|pages| pages.live).unwrap_or_default()
}

/// What `lowtide run` passes to the process that exports.
#[derive(Args, Debug)]
pub(crate) struct ExportArgs {
    #[arg(long)]
    pid: u32,
    #[arg(long)]
    start: u64,
    #[arg(long)]
    interval: u64,
    #[arg(long)]
    listens: bool,
    #[arg(long)]
    file: Option<PathBuf>,
    #[arg(long)]
    first: bool,
}

/// Exports the metrics of a program until it and all that it started have ended.
pub(crate) fn accompany(args: &ExportArgs) -> ExitCode {
    let &ExportArgs { pid, start, interval, listens, first, .. } = args;
    let purpose = Purpose { pid, start, listens, file: args.file.clone(), interval, first };
    companion::run(&purpose).map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}
