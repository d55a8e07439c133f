//! What the threads are doing, who stands still, and what was drawn how often.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long one operation may take before the run counts as stuck.
pub(crate) fn patience() -> Duration {
    let seconds = std::env::var("LOWTIDE_STRESS_STUCK").ok().and_then(|s| s.parse().ok());
    Duration::from_secs(seconds.unwrap_or(90))
}

/// What one thread does, for the others to see.
#[derive(Debug)]
pub(crate) struct Post {
    doing: Mutex<String>,
    steps: AtomicU64,
}

/// All threads of a storm.
#[derive(Debug)]
pub(crate) struct Watch {
    posts: Vec<Post>,
    began: Instant,
    pub(crate) over: AtomicBool,
}

impl Post {
    pub(crate) fn doing(&self, what: String) {
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner) = what;
        self.steps.fetch_add(1, SeqCst);
    }

    /// Adds to what it does, in the same operation.
    pub(crate) fn also(&self, what: &str) {
        let mut doing = self.doing.lock().unwrap_or_else(PoisonError::into_inner);
        doing.push_str(what);
    }
}

impl Watch {
    pub(crate) fn new(threads: u64) -> Self {
        let post = || Post { doing: Mutex::new("begins".into()), steps: AtomicU64::new(0) };
        Self {
            posts: (0..threads).map(|_| post()).collect(),
            began: Instant::now(),
            over: AtomicBool::new(false),
        }
    }

    pub(crate) fn post(&self, thread: u64) -> &Post {
        &self.posts[thread as usize]
    }

    /// Which threads have made no step for too long.
    pub(crate) fn stuck(&self, last: &mut Vec<(u64, Instant)>) -> bool {
        last.resize(self.posts.len(), (u64::MAX, Instant::now()));
        let mut stuck = false;
        for (post, last) in self.posts.iter().zip(last) {
            let steps = post.steps.load(SeqCst);
            if steps != last.0 {
                *last = (steps, Instant::now());
            }
            stuck |= last.1.elapsed() > patience();
        }
        stuck
    }

    /// Says who waits for what, and ends the process: threads that are stuck cannot be joined.
    pub(crate) fn give_up(
        &self,
        plan: &str,
        last: &[(u64, Instant)],
        more: impl FnOnce() -> String,
    ) -> ! {
        let mut text = format!("\nSTUCK after {:.1?}: {plan}\n", self.began.elapsed());
        for (thread, (post, (steps, since))) in self.posts.iter().zip(last).enumerate() {
            let doing = post.doing.lock().unwrap_or_else(PoisonError::into_inner);
            text.push_str(&format!(
                "  thread {thread}: {doing}; step {steps}, for {:.1?}\n",
                since.elapsed()
            ));
        }
        // The test harness holds back what `eprintln` says, and it would not be printed.
        let _ = std::io::stderr().write_all(text.as_bytes());
        // What else there is to say may need a lock that is never given back.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_secs(5));
                std::process::exit(101);
            });
            let _ = std::io::stderr().write_all(more().as_bytes());
            std::process::exit(101);
        })
    }
}

/// How often something was drawn.
#[derive(Debug, Default)]
pub(crate) struct Coverage(Mutex<BTreeMap<String, u64>>);

impl Coverage {
    pub(crate) fn add(&self, what: &str, count: u64) {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match rows.get_mut(what) {
            Some(row) => *row += count,
            None => drop(rows.insert(what.to_owned(), count)),
        }
    }

    pub(crate) fn count(&self, what: &str) {
        self.add(what, 1);
    }

    pub(crate) fn of(&self, what: &str) -> u64 {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.get(what).copied().unwrap_or(0)
    }

    pub(crate) fn table(&self) -> String {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rows.iter().map(|(what, count)| format!("{count:>10}  {what}\n")).collect()
    }
}
