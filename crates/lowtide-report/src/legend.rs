//! The meaning of column headers, in one place for all tables.
//!
//! A table prints the entries for its own headers below its rows. Headers that explain themselves
//! (`policy`, `seconds`, `MiB/s`) have no entry.

/// A column header, and the meaning of its values.
const WORDS: &[(&str, &str)] = &[
    ("ops/s", "operations per second, over all rounds"),
    ("rows/s", "rows per second, over all rounds and threads"),
    ("device B/row", "bytes read from the device for each row"),
    ("a batch: p50 µs", "median time of a call for a batch of rows; p99: of one in a hundred"),
    ("mean µs", "mean latency of an operation; p50, p99 and p99.9 are percentiles of the latency"),
    ("refaults", "pages that came back after an eviction"),
    ("file refaults", "pages of files that came back after an eviction"),
    ("written", "MiB written to the device"),
    ("read amp", "bytes read from the device for each requested byte"),
    ("cpu s", "CPU time, in user and kernel mode"),
    (
        "ratio",
        "to the first row of the same round: median (smallest..largest); it can differ from the \
         quotient of the rates shown",
    ),
    (
        "speed ratio",
        "speed relative to dd if it is there, else to the first row, in the same round: median \
         (smallest..largest)",
    ),
    ("writes", "write requests to the device"),
    ("slept ms", "total time that dirty throttling paused writers, in milliseconds"),
    ("longest", "longest pause of dirty throttling, in milliseconds"),
    ("woken by reclaim", "times that reclaim found dirty pages and woke the flusher"),
    ("rotated", "pages moved to the tail when their writeback ended (pgrotated)"),
    (
        "immediate",
        "dirty pages that reclaim met before their write began, and that go when it has ended \
         (nr_vmscan_immediate_reclaim)",
    ),
    ("reads µs during: p50", "reads during a checkpoint; `outside` is all other reads"),
    ("oom", "writes that failed because no page could be evicted in time"),
    ("IOPS", "device reads per second"),
    (
        "time / pointer",
        "time of an access, relative to the pointer's in the same round: median \
         (smallest..largest)",
    ),
    (
        "step",
        "fault: first touch of a cached page; notice, tick: the watching thread; touch: after a \
         zap; turnover: a fault with its eviction, data four times the budget",
    ),
    ("ns/page", "nanoseconds for each page: median (smallest..largest) of the rounds"),
    ("ms/GiB", "milliseconds for a GiB of such pages"),
    ("k pages", "pages that were brought in, in thousands; the next three are of single misses"),
    ("allocate ns", "the wait for the lock, the charge and its reclaim, the insertion"),
    ("read ns", "from the request to its end"),
    ("publish ns", "from there until other threads could use the page"),
    ("locks", "times that the pager's lock was taken for each miss, by all threads"),
    ("waited ns", "nanoseconds that threads waited for it, for each miss"),
    ("held ns", "nanoseconds for which it was held, also by reclaim in the background"),
    ("engine ns", "nanoseconds of that in the engine, with its looks at translations"),
    ("lock held %", "share of the time in which the lock was held"),
    ("waited ns/miss", "nanoseconds that a miss waited for the lock"),
    ("memory", "hot: the same pages forever; cold: new pages, none of which is needed again"),
    ("throttle", "how threads above high are throttled (--high-policy)"),
    ("requests/s", "requests per second on the device, from all users"),
    ("KiB/s", "KiB per second read from the device, by all users"),
    ("device %", "share of the time in which the device was busy"),
    ("own KiB/s", "KiB per second read by lowtide itself"),
    ("slept ms/s", "milliseconds per second that threads above high slept"),
    (
        "neighbour/s",
        "loads per second of the neighbour on the same device; mean and p99 are its latencies",
    ),
    ("loads/s beside it", "loads per second of the thrasher while the neighbour runs"),
    ("loads/MiB", "loads for each MiB read from the device"),
    ("company", "what runs beside the tenants"),
    ("least hit %", "share of the tenant that found least; `most hit %` likewise"),
    ("hit %", "share of the tenants' loads that found their page in memory"),
    ("change %", "change of the hit ratio, relative to the tenants alone"),
    ("scanned pages/s", "pages per second read by the scanner"),
    ("a worker", "mean requests of a worker, ± the 95 % confidence interval"),
    ("least", "requests of the slowest worker"),
    ("Jain", "Jain's fairness index: 1 if all workers complete the same number of requests"),
    ("% < 1 s", "share of requests by latency, in seconds"),
    ("system s", "processor time of faults, reclaim, compression, locks and switches"),
    ("k swapped out", "thousands of pages; so is `k swapped in`, from swap"),
    ("k scanned", "thousands of pages that reclaim took up"),
    ("text refaults", "pages of the compiler's text that came back after an eviction"),
    ("list lock s", "time that tasks spun for the lock of the lists; slot lock: of swap's slots"),
    ("in/tx", "pages swapped in for a transaction; so are `out/tx` and `scanned/tx`"),
    ("in/op", "pages swapped in for an operation; `out/op` likewise"),
    ("mean ms", "mean launch; p50, p90 and p95 are percentiles of the launches"),
    ("heap refaults", "pages of heaps that came back from swap"),
    ("direct", "pages that launching tasks took up, and not the background reclaimer"),
    ("pgscan", "pages scanned by reclaim; pgsteal: pages reclaimed"),
    ("failcnt", "charges that hit the limit"),
    ("kills", "runs that an out-of-memory kill ended"),
    ("± 95 % of kills", "95 % confidence interval of the share of kills (Wilson's)"),
    ("rounds at the kill", "completed rounds at the kill: median (smallest..largest)"),
    ("clean MiB then", "clean pages of the file at the kill, median"),
    ("naps", "sleeps of reclaim because too many pages were under writeback, and their total time"),
    ("nap ms", "milliseconds that reclaim slept because too many pages were under writeback"),
    ("part of it", "share of the device's bandwidth"),
    ("device MiB/s", "write bandwidth of the simulated device"),
    ("ratio: ops/s", "ratio to mglru-7.1 or to the first row, as for read and refaults"),
    ("KiB/op", "KiB read from the device for each operation; so are the next five"),
    ("asked", "requested by reads of leaves; `missing`: the part that was not in memory"),
    ("ahead", "read ahead; `used`: used later; `unused`: evicted before anything used it"),
    ("marked hits", "accesses to a page with the read-ahead mark"),
    ("window", "mean pages of the read-ahead windows that those opened"),
    ("dirty %", "share of the cached file pages that was dirty, on average"),
    ("wakes", "times that reclaim woke the flusher"),
    ("M accesses/s", "simulation speed: million accesses per second of CPU time"),
    ("B/page", "simulator memory per page of data, in bytes"),
];

/// The headers of a table that have an entry, each with its meaning, in the table's order.
pub fn of(headers: &[String]) -> impl Iterator<Item = (&str, &'static str)> {
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
