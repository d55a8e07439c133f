//! `--once`, and what is shown where there is no terminal: a table, as other commands print it.

use lowtide_status::printable;
use std::thread;
use std::time::{Duration, Instant};

use lowtide_report::{out, table};

use super::draw::{NO_PROCESSES, state_text};
use super::error::TopError;
use super::model::columns::Column;
use super::model::processes::{Process, Processes, State};
use super::model::rows::{self, Id, Order, Row};
use super::source::look;

/// A page is written about once a second. So a second one is there after this time, or the process
/// does not write any.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two looks in that time.
const PAUSE: Duration = Duration::from_millis(100);

const PROCESSES: &[(&str, Column)] = &[
    ("pid", Column::Pid),
    ("program", Column::Name),
    ("way", Column::Way),
    ("policy", Column::Policy),
    ("used", Column::Used),
    ("max", Column::Max),
    ("used/max", Column::Bar),
    ("faults/s", Column::Faults),
    ("refaults/s", Column::Refaults),
    ("stall", Column::Stall),
    ("hits", Column::Hit),
    ("read/s", Column::Read),
    ("written/s", Column::Write),
    ("dirty", Column::Dirty),
];
const TENANTS: &[(&str, Column)] = &[
    ("tenant", Column::Name),
    ("used", Column::Used),
    ("max", Column::Max),
    ("used/max", Column::Bar),
    ("file", Column::File),
    ("anon", Column::Anon),
    ("swap", Column::Swap),
    ("dirty", Column::Dirty),
    ("faults/s", Column::Faults),
    ("refaults/s", Column::Refaults),
    ("evicted/s", Column::Evicted),
    ("stall", Column::Stall),
    ("hits", Column::Hit),
];

/// Looks until there are rates: twice, an interval apart.
pub(crate) fn watch(interval: Duration) -> Result<Processes, TopError> {
    let mut processes = Processes::default();
    let take = |processes: &mut Processes| {
        let (sample, note) = look()?;
        processes.take(&sample);
        note.into_iter().for_each(out::note);
        Ok::<_, TopError>(())
    };
    take(&mut processes)?;
    let has_rates =
        |process: &Process| process.state != State::Live || process.trail.last(1).next().is_some();
    let begin = Instant::now();
    let mut pause = interval;
    while !processes.iter().all(has_rates) && begin.elapsed() < interval + PATIENCE {
        thread::sleep(pause);
        take(&mut processes)?;
        pause = PAUSE;
    }
    Ok(processes)
}

/// Prints the processes, or the tenants of one.
pub(crate) fn print(processes: &Processes, of: Option<&Process>) {
    let (columns, rows, names) = match of {
        Some(process) => (TENANTS, rows::tenants(process, &Order::default()), 1),
        None => (PROCESSES, rows::processes(processes, &Order::default()), 4),
    };
    if rows.is_empty() {
        out::line(if of.is_some() { "The process has no tenants." } else { NO_PROCESSES });
        return;
    }
    let titles: Vec<&str> = columns.iter().map(|(title, _)| *title).collect();
    let mut shown = table::new(&titles, names);
    for row in &rows {
        shown.add_row(columns.iter().map(|(_, column)| cell(row, *column)));
    }
    out::line(shown);
    let states = rows.iter().filter(|_| of.is_none());
    for (row, state) in states.filter_map(|row| Some((row, state_text(&row.state)?))) {
        out::note(format_args!("process {}: {state}", row.pid));
    }
}

/// A tenant has its whole path: a table for programs has no indentation. A cell has no two blanks.
fn cell(row: &Row, column: Column) -> String {
    let text = match (&row.id, column) {
        (Id::Tenant((_, path)), Column::Name) => printable(path),
        _ => column.text(row),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
