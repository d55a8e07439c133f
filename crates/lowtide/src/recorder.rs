//! Writes the sampled accesses of a pager to a file, as a trace.
//!
//! The trace is text in lowtide's exchange format (`docs/traces.md`). A comment before its header
//! says which part of the pages is in it: `# sampled: 1 in 64 by 8`, where eight neighbours are in
//! it together. The rate is halved while the trace
//! grows, so the comment has a fixed width and is written again in its place; records from before
//! then are of more pages, which a reader leaves out ([`Rate::has`]). A trace
//! that ends anywhere, because the process was killed, is a trace.
//!
//! Accesses of one interval of the sample have the same time.

use crate::pool::Pool;
use crate::pool::looks;
use crate::pool::service::Service;
use crate::thread_locals;
use lowtide_core::SpaceId;
use lowtide_core::reuse::Rate;
use lowtide_sys::tell;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between two turns of writing.
const PAUSE: Duration = Duration::from_millis(100);

/// The thread that writes, if there is one.
#[derive(Debug)]
pub(crate) struct Recorder {
    ends: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The trace, as far as it is written.
#[derive(Debug)]
struct Trace {
    file: File,
    /// Where the comment with the rate is.
    place: u64,
    rate: Rate,
}

fn comment(rate: Rate) -> String {
    format!("# sampled: 1 in {:08} by {}\n", 1_u64 << rate.shift, 1 << rate.together)
}

impl Trace {
    fn begin(file: File, page_bytes: usize) -> io::Result<Self> {
        let first = format!("# page_bytes: {page_bytes}\n");
        let rate = Rate::default();
        let mut trace = Self { file, place: first.len() as u64, rate };
        let head = first + &comment(rate) + "op,space,page,pages,time_ns\n";
        trace.file.write_all(head.as_bytes())?;
        Ok(trace)
    }

    /// Writes what was noted since the last time.
    fn go_on(&mut self, pool: &Pool) -> io::Result<()> {
        let mut text = String::new();
        let mut state = pool.lock();
        let (noted, rate) = state.reuse.take_log();
        let mut names: HashMap<SpaceId, String> = HashMap::new();
        for at in &noted {
            let space = state.spaces.get(at.space.0 as usize).cloned().flatten();
            names.entry(at.space).or_insert_with(|| match &space {
                Some(space) => quoted(space.anon.is_some(), &space.path().to_string_lossy()),
                None => format!("file:closed-{}", at.space.0),
            });
        }
        drop(state);
        for at in &noted {
            let name = &names[&at.space];
            let _ = writeln!(text, "load,{name},{},{},{}", at.page, at.pages, at.time_ns);
        }
        self.file.write_all(text.as_bytes())?;
        if rate != self.rate {
            self.rate = rate;
            self.file.write_all_at(comment(rate).as_bytes(), self.place)?;
        }
        Ok(())
    }
}

/// The name of a space as a field of CSV.
fn quoted(anon: bool, name: &str) -> String {
    let kind = if anon { "anon" } else { "file" };
    let name: String =
        name.chars().map(|c| if matches!(c, '\n' | '\r') { '?' } else { c }).collect();
    format!("\"{kind}:{}\"", name.replace('"', "\"\""))
}

impl Recorder {
    pub(crate) fn start(pool: &Arc<Pool>, file: File) -> io::Result<Arc<Self>> {
        let mut trace = Trace::begin(file, pool.page_bytes())?;
        pool.lock().reuse.begin_log();
        let recorder = Arc::new(Self { ends: AtomicBool::new(false), thread: Mutex::new(None) });
        let (of_thread, pool) = (Arc::clone(&recorder), Arc::clone(pool));
        let thread = thread_locals::spawn_beside("lowtide-record", move || {
            let mut ends = false;
            while !ends {
                ends = of_thread.ends.load(Relaxed);
                if ends {
                    drop(looks::look_now(&pool, pool.lock()));
                } else {
                    std::thread::park_timeout(PAUSE);
                }
                if let Err(error) = trace.go_on(&pool) {
                    tell!(error, %error, "the recording ends here");
                    pool.lock().reuse.end_log();
                    return;
                }
            }
        })?;
        *lowtide_pin::sync::lock(&recorder.thread) = Some(thread);
        Ok(recorder)
    }
}

impl Service for Recorder {
    fn close(&self) -> Vec<JoinHandle<()>> {
        self.ends.store(true, Relaxed);
        let thread = lowtide_pin::sync::lock(&self.thread).take();
        if let Some(thread) = &thread {
            thread.thread().unpark();
        }
        thread.into_iter().collect()
    }
}
