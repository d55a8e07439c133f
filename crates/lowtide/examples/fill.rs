//! Writes a file much larger than the budget, from front to back, and says what a page cost.
//!
//! ```text
//! cargo run --release -p lowtide --example fill -- DIR [FILE_MIB] [BUDGET_MIB] [WRITE_KIB]
//! ```
//!
//! Twice: a new file, then the same file over again. Beside it: `dd if=/dev/zero of=DIR/x bs=1M
//! oflag=direct`.
#![allow(clippy::print_stdout, reason = "an example shows something")]

use lowtide::{OpenOptions, Pager, Size};
use std::time::Instant;

/// Nanoseconds that this thread ran on a processor.
fn ran() -> Result<f64, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split(' ').next().unwrap_or_default().parse()?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().ok_or("usage: fill DIR [FILE_MIB] [BUDGET_MIB] [WRITE_KIB]")?;
    let mut number = |default: u64| args.next().map_or(Ok(default), |arg| arg.parse());
    let (file, budget, write) = (number(1024)? << 20, number(128)? << 20, number(1024)? << 10);
    let path = tempfile::NamedTempFile::new_in(dir)?;
    let bytes = vec![0x5A; write as usize];
    for round in ["new file", "same file"] {
        let pager = Pager::builder().max(Size::new(budget)).build()?;
        let view = OpenOptions::new().write(true).open(&pager, path.path())?;
        let (began, ran_before) = (Instant::now(), ran()?);
        let mut slowest = 0.0_f64;
        for offset in (0..file).step_by(write as usize) {
            let one = Instant::now();
            view.write_at(offset, &bytes)?;
            slowest = slowest.max(one.elapsed().as_secs_f64());
        }
        let (written, ran) = (began.elapsed(), ran()? - ran_before);
        view.flush()?;
        let durable = began.elapsed();
        let (pages, stat) = ((file >> 12) as f64, pager.stat());
        println!(
            "{round}: {:.2} s written, {:.2} s durable, {:.0} MB/s; a page took {:.0} ns and \
             {:.0} ns of the writer's processor; slowest call {:.1} ms, \
             {} pauses of {:.1} ms at most, {} reads, {} writes",
            written.as_secs_f64(),
            durable.as_secs_f64(),
            file as f64 / durable.as_secs_f64() / 1e6,
            durable.as_secs_f64() * 1e9 / pages,
            ran / pages,
            slowest * 1e3,
            stat.dirty.pauses,
            stat.dirty.longest_pause.as_secs_f64() * 1e3,
            stat.io.reads,
            stat.io.writes
        );
    }
    Ok(())
}
