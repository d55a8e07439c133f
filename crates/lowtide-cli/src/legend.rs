//! What the words above the columns of tables mean, in one place for all tables.
//!
//! A table prints the lines for its own words below its rows. Words that say it themselves
//! (`policy`, `seconds`, `MiB/s`) have none.

/// A word above a column, and what stands in it.
const WORDS: &[(&str, &str)] = &[
    ("ops/s", "operations a second, over all rounds together"),
    ("mean µs", "of an operation, as are p50, p99 and p99.9: what so many percent did not exceed"),
    ("refaults", "pages that came back after an eviction"),
    ("file refaults", "pages of files that came back after an eviction"),
    ("written", "MiB written to the device"),
    ("read amp", "bytes read from the device for each byte that was asked for"),
    ("cpu s", "processor time, in user and kernel mode"),
    (
        "ratio",
        "to the first row, each round by itself: median (smallest..largest); rounds differ, so it \
         is not the quotient of the rates beside it",
    ),
    ("writes", "write requests to the device"),
    ("slept ms", "how long writers were paused because too much was dirty, all together"),
    ("longest", "milliseconds of the longest such pause"),
    ("woken by reclaim", "how often reclaim met dirty pages and woke the flusher"),
    ("rotated", "pages put back for the next pass when their write ended (pgrotated)"),
    (
        "immediate",
        "pages that reclaim met while they were being written (nr_vmscan_immediate_reclaim)",
    ),
    ("reads µs during: p50", "of reads while a checkpoint was made; `outside` is of all others"),
    ("oom", "writes that failed because nothing could be evicted in time"),
    ("IOPS", "reads a second that the device did"),
    (
        "view / pointer",
        "time of the view's access to the pointer's in the same round: median (smallest..largest)",
    ),
    ("law", "what the tenant pays for being over high (--high-policy)"),
    ("requests/s", "requests a second on the device, of all of its users"),
    ("KiB/s", "KiB a second read from the device, by all of its users"),
    ("device %", "part of the time in which the device had a request"),
    ("own KiB/s", "KiB a second that lowtide itself read"),
    ("slept ms/s", "milliseconds that threads slept for being over high, in each second"),
    (
        "neighbour/s",
        "loads a second of the neighbour on the same device; mean and p99 are its latencies",
    ),
    ("loads/s beside it", "loads a second of the thrasher while the neighbour runs"),
    ("loads/MiB", "loads for each MiB read from the device"),
    ("company", "who runs beside the tenants"),
    ("hit %", "loads of the tenants that found their page in memory"),
    ("change %", "of the hit ratio, to that of the tenants alone"),
    ("scanned pages/s", "pages a second that the scanner read"),
    ("a worker", "requests of a worker, on average; ± its 95 % confidence interval"),
    ("least", "requests of the worker that did least"),
    ("Jain", "Jain's index of fairness: 1 if all workers did the same"),
    ("% < 1 s", "of requests, by how long they took in seconds"),
    ("pgscan", "pages that reclaim looked at, pgsteal those that it took"),
    ("failcnt", "charges that met the limit"),
    ("naps", "sleeps of reclaim because too much was under write-back, and their milliseconds"),
    ("nap ms", "milliseconds that reclaim slept because too much was under write-back"),
    ("part of it", "of the device's bandwidth"),
    ("device MiB/s", "what the simulated device can write"),
    ("ratio: ops/s", "to mglru-7.1, or to the first row; read and refaults likewise"),
    ("M accesses/s", "how fast it was simulated, in accesses a second of processor time"),
    ("B/page", "bytes of memory that the simulation took for each page of data"),
];

/// The words of a table that have a line, with what they mean, in the table's order.
pub(crate) fn of(headers: &[String]) -> impl Iterator<Item = (&str, &'static str)> {
    headers.iter().filter_map(|header| {
        let meaning = WORDS.iter().find(|(word, _)| word == header)?.1;
        Some((header.as_str(), meaning))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_gets_the_lines_for_its_own_words() {
        let headers = ["policy", "B/page", "rotated"].map(String::from);
        let lines: Vec<_> = of(&headers).map(|(word, _)| word).collect();
        assert_eq!(lines, ["B/page", "rotated"]);
    }
}
