//! `lowtide stat`: what processes under lowtide say of themselves.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;
use lowtide_report::out;
use lowtide_status::{Error, Status};
use lowtide_watch::text;

/// The options of `lowtide stat`.
#[derive(Args, Debug)]
pub(crate) struct StatArgs {
    /// The process; without it, all of this user, a line for each
    pid: Option<u32>,
    /// Print the status as JSON, a line for each process
    #[arg(long)]
    json: bool,
    /// Repeat every S seconds, with rates
    #[arg(long, value_name = "S", value_parser = seconds)]
    interval: Option<f64>,
}

/// A pause of at least a tenth of a second.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| "give seconds, from 0.1 to 86400".into())
}

/// Prints the status of one process or of all. Fails where the process that was named has none.
pub(crate) fn run(args: &StatArgs) -> ExitCode {
    let mut before = Vec::new();
    loop {
        let now = match pages(args.pid) {
            Ok(now) => now,
            Err(error) => {
                out::note(format_args!("error: {error}"));
                return ExitCode::FAILURE;
            }
        };
        if args.json {
            for status in &now {
                out::line(serde_json::to_string(status).unwrap_or_default());
            }
        } else if let (Some(_), [status]) = (args.pid, &now[..]) {
            out::line(text::process(status, before.first()));
        } else {
            out::line(text::processes(&now, &before).trim_end());
        }
        let Some(seconds) = args.interval else { return ExitCode::SUCCESS };
        before = now;
        if out::failure().is_some() {
            return ExitCode::SUCCESS;
        }
        thread::sleep(Duration::from_secs_f64(seconds));
    }
}

fn pages(pid: Option<u32>) -> Result<Vec<Status>, Error> {
    if let Some(pid) = pid {
        return lowtide_status::read(pid).map(|status| vec![status]);
    }
    let pages = lowtide_status::list()?;
    for error in &pages.refused {
        out::note(format_args!("note: {error}"));
    }
    if pages.live.is_empty() {
        out::note("note: no process of this user has a status page");
    }
    Ok(pages.live)
}
