//! Asymmetric memory barriers: free for the side that runs often, paid for by the side that runs
//! seldom.
//!
//! # Theory
//!
//! Two threads each announce something and then look at what the other announced. A reader of a
//! page stores "I am reading page 7" and then loads the page's entry; reclaim stores "page 7 is
//! gone" and then loads the readers' announcements. They must not both miss the other: that would
//! free memory that a reader uses.
//!
//! ```text
//!   fast side (every access)              slow side (once a batch)
//!   announce.store(7)                     entry.store(GONE)
//!   light()                               heavy()
//!   entry.load()                          announce.load()
//! ```
//!
//! Every processor may let a load overtake an earlier store to another address, so something must
//! stand between the two, on both sides. The textbook answer is a full fence on each
//! (`fence(SeqCst)`), which costs the fast side about as much as everything else it does.
//! `membarrier(2)` moves the whole cost: the kernel interrupts every processor that runs a thread
//! of this process, and makes each of them execute a full fence. So at the moment of [`heavy`],
//! each fast-side thread is either
//!
//! * before its store or between its store and its load: its store, if made, is visible when
//!   `heavy` returns; and if it was not made, its later load sees what the slow side stored before
//!   calling `heavy`;
//! * after its load: its store came before that, and is visible when `heavy` returns.
//!
//! In both cases at least one side sees the other. The fast side only has to stop the *compiler*
//! from swapping the two, which is what [`light`] does: a compiler fence and no instruction. (A
//! thread that is not running passes a full fence in the scheduler before it runs again.)
//!
//! Where the kernel lacks the call or a sandbox forbids it, both sides fall back to full fences,
//! which is [`Mode::Symmetric`]. The mode is decided once for the process and never changes after
//! that, because a fast side in one mode and a slow side in the other would protect nothing. Until
//! it is decided, `light` uses the full fence, which is right in both modes, and `heavy` decides it
//! first.
//!
//! Pairing follows the rule of `SeqCst` fences: the accesses on both sides must be atomic (relaxed
//! is enough), each side's `light` or `heavy` lies between its store and its load, and a fence of
//! one side is paired with one of the other, never light with light.
//!
//! The kernel calls this `MEMBARRIER_CMD_PRIVATE_EXPEDITED` (since Linux 4.14). A process has to
//! register before it may use it.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, compiler_fence, fence};
use std::thread;

use rustix::io::Errno;
use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};

/// How the process's barriers work; the same for every thread, forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// [`light`] is free, [`heavy`] is a system call of some tenths of a microsecond to some
    /// microseconds, growing with the number of processors that run this process.
    Asymmetric,
    /// Both are full fences.
    Symmetric,
}

const UNDECIDED: u8 = 0;
const ASYMMETRIC: u8 = 1;
const SYMMETRIC: u8 = 2;

/// What [`light`] reads. Goes from `UNDECIDED` to one of the others, once; a stale value only costs
/// a fence.
static MODE: AtomicU8 = AtomicU8::new(UNDECIDED);

/// Whether the last [`heavy`] was refused.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// The kernel granted the barrier before and refuses it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "membarrier was granted and is now refused ({0}): allow membarrier(2) in the sandbox, or \
     install the sandbox before the first barrier"
)]
pub struct Refused(Errno);

/// How often a call that found no memory is repeated before the wide, slow barrier is tried
/// instead. Guess: the kernel needs one small allocation, and frees memory in the meantime.
const RETRIES: u32 = 64;

/// Decides the mode on the first call (two system calls), and returns it on every call (one atomic
/// load).
///
/// Call it at start-up, so that [`light`] is cheap from the first access on.
pub fn register() -> Mode {
    match MODE.load(Ordering::Relaxed) {
        ASYMMETRIC => Mode::Asymmetric,
        SYMMETRIC => Mode::Symmetric,
        _ => decide(),
    }
}

/// Asks the kernel. Several threads may, at the same time, and the first decides for all: no thread
/// waits for another, because a child that is forked meanwhile has no other. (Registering takes
/// milliseconds in a process with threads.)
#[cold]
fn decide() -> Mode {
    // Miri knows no barrier of the kernel's, and fences are what it can check.
    let offered = if cfg!(miri) { MembarrierQuery::empty() } else { membarrier_query() };
    let asymmetric = offered.contains_command(MembarrierCommand::PrivateExpedited)
        && offered.contains_command(MembarrierCommand::RegisterPrivateExpedited)
        && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
        // A sandbox may allow the query and refuse the barrier, so the proof is to issue one.
        && membarrier(MembarrierCommand::PrivateExpedited).is_ok();
    let ours = if asymmetric { ASYMMETRIC } else { SYMMETRIC };
    let decided = MODE
        .compare_exchange(UNDECIDED, ours, Ordering::Relaxed, Ordering::Relaxed)
        .map_or_else(|first| first, |_| ours);
    if decided == ASYMMETRIC { Mode::Asymmetric } else { Mode::Symmetric }
}

/// The fast side's barrier: orders an atomic store before it against an atomic load after it, as
/// seen by a thread that calls [`heavy`].
///
/// Costs one relaxed load of a byte that never changes, and a branch that is always taken; no fence
/// instruction in [`Mode::Asymmetric`]. It orders nothing against another thread's `light`.
#[inline(always)]
pub fn light() {
    if MODE.load(Ordering::Relaxed) == ASYMMETRIC {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The slow side's barrier: when it returns, every store made by any thread of the process before
/// its [`light`] is visible here, or that thread's loads after its `light` see everything stored
/// here before the call.
///
/// Costs a system call that interrupts every processor running this process; issue one for a batch.
///
/// # Errors
///
/// [`Refused`] when the kernel takes the barrier away after granting it (a sandbox installed later
/// that forbids `membarrier`). Other threads' accesses are unknown then, and no other
/// barrier can take its place, because fast sides run without a fence. Install the sandbox before
/// [`register`], or allow the call.
pub fn heavy() -> Result<(), Refused> {
    match register() {
        Mode::Symmetric => {
            fence(Ordering::SeqCst);
            Ok(())
        }
        Mode::Asymmetric => {
            // The fences keep this thread's own accesses in place for the compiler and the memory
            // model; the kernel's barrier includes the calling processor.
            fence(Ordering::SeqCst);
            let mut issued = membarrier(MembarrierCommand::PrivateExpedited);
            if let Err(error) = issued {
                issued = heavy_again(error);
            }
            fence(Ordering::SeqCst);
            if issued.is_err() != REFUSED.load(Ordering::Relaxed) {
                REFUSED.store(issued.is_err(), Ordering::Relaxed);
            }
            issued.map_err(Refused)
        }
    }
}

/// Whether the last [`heavy`] of any thread was refused. Cost: one load.
pub fn is_refused() -> bool {
    REFUSED.load(Ordering::Relaxed)
}

/// The barrier was refused once: repeats it, then takes the one that needs no memory and no
/// registration (`MEMBARRIER_CMD_GLOBAL`, milliseconds).
#[cold]
fn heavy_again(mut error: Errno) -> Result<(), Errno> {
    for _ in 0..RETRIES {
        if error == Errno::PERM {
            // The registration is gone: this is a child that did not inherit it, or a process that
            // was restored.
            let _ = membarrier(MembarrierCommand::RegisterPrivateExpedited);
        } else {
            thread::yield_now();
        }
        match membarrier(MembarrierCommand::PrivateExpedited) {
            Ok(()) => return Ok(()),
            Err(next) => error = next,
        }
    }
    membarrier(MembarrierCommand::Global).map_err(|_| error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn the_mode_is_decided_once_and_matches_what_the_kernel_offers() {
        let mode = register();
        assert_eq!(register(), mode);
        let offered = membarrier_query().contains_command(MembarrierCommand::PrivateExpedited);
        if !offered {
            eprintln!("SKIPPED in part: this kernel offers no expedited membarrier");
        }
        assert_eq!(mode == Mode::Asymmetric, offered);
        heavy().unwrap();
        light();
    }

    /// The store-buffering litmus test. Both sides of a round store its number and then load the
    /// other's cell; if both loaded an older value, each missed the other, and the barriers do not
    /// work.
    ///
    /// The window is some nanoseconds wide, so each side loads the other's cell once beforehand (a
    /// load that hits the cache can overtake a store that misses), and waits for a moment that
    /// differs from round to round.
    #[test]
    fn the_two_sides_never_both_miss_each_other() {
        #[repr(align(128))]
        struct Cell(AtomicU32);
        static FAST: Cell = Cell(AtomicU32::new(0));
        static SLOW: Cell = Cell(AtomicU32::new(0));
        static FAST_SAW: Cell = Cell(AtomicU32::new(0));
        static GO: Cell = Cell(AtomicU32::new(0));
        static DONE: Cell = Cell(AtomicU32::new(0));
        const ROUNDS: u32 = 100_000;

        fn wait(cell: &Cell, round: u32) {
            let mut spins = 0u32;
            while cell.0.load(Ordering::Acquire) < round {
                spins += 1;
                // With fewer processors than threads a pure spin would burn whole time slices.
                if spins.is_multiple_of(1024) {
                    thread::yield_now();
                } else {
                    std::hint::spin_loop();
                }
            }
        }
        /// A delay of up to 255 steps that looks random and is the same in every run.
        fn dawdle(round: u32, salt: u32) {
            for _ in 0..(round ^ salt).wrapping_mul(0x9e37_79b1) >> 24 {
                std::hint::black_box(());
            }
        }

        register();
        let mut missed = 0;
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    wait(&GO, round);
                    std::hint::black_box(SLOW.0.load(Ordering::Relaxed));
                    dawdle(round, 0);
                    FAST.0.store(round, Ordering::Relaxed);
                    light();
                    let saw = SLOW.0.load(Ordering::Relaxed);
                    FAST_SAW.0.store(saw, Ordering::Relaxed);
                    DONE.0.store(round, Ordering::Release);
                }
            });
            for round in 1..=ROUNDS {
                GO.0.store(round, Ordering::Release);
                std::hint::black_box(FAST.0.load(Ordering::Relaxed));
                dawdle(round, 0x5bd1_e995);
                dawdle(round, 0x1b87_3593);
                SLOW.0.store(round, Ordering::Relaxed);
                heavy().unwrap();
                let slow_saw = FAST.0.load(Ordering::Relaxed);
                wait(&DONE, round);
                let fast_saw = FAST_SAW.0.load(Ordering::Relaxed);
                missed += u32::from(slow_saw != round && fast_saw != round);
            }
        });
        assert_eq!(missed, 0, "rounds of {ROUNDS} in which both sides missed each other");
    }
}
