//! Translations: where a page of a view is, in one word that every thread may read.
//!
//! # The word
//!
//! ```text
//!             31   30         29        28     27 … 0
//!   ABSENT     0    0      │ shadow: what is remembered of the evicted page, or 0 │
//!   BUSY       0    1      │ WAITERS │   0   │ ones  │   a thread reads the page in, or stores it
//!   LOCKED     0    1      │ WAITERS │ DIRTY │ frame │   resident, but one thread has taken it
//!   RESIDENT   1  UNFENCED │ YOUNG   │ DIRTY │ frame │   its bytes are in the frame
//! ```
//!
//! No frame has the number of all ones.
//!
//! Memory of zeroes is a table of absent pages without history, so a fresh table costs nothing to
//! make.
//!
//! # Transitions
//!
//! ```text
//!                                            finish_read
//!             try_begin_read                 finish_store
//!   ABSENT ───────────────────▶ BUSY ─────────────────────────▶ RESIDENT ◀──┐ note_read, clear_…
//!     ▲  ▲                       │                               │    ▲   ──┘
//!     │  └──── abort_read ───────┘          try_lock_for_eviction│    │
//!     │                                     try_lock_for_store   ▼    │ unlock
//!     └───────────────────── evict, discard ─────────────────── LOCKED
//! ```
//!
//! Not drawn: `hold_back`, LOCKED → BUSY, for a page that is evicted and whose bytes are on their
//! way to another place; its frame may be another's at once.
//!
//! BUSY and LOCKED have an owner: the one thread whose compare-and-swap made that state. Only the
//! owner ends it, and that cannot fail. Others may only add WAITERS, and DIRTY to LOCKED. RESIDENT
//! and ABSENT have no owner, so they are left by compare-and-swap, which fails if the word is not
//! exactly what was seen. The methods that leave an owned state panic when the entry is not in it:
//! that is a defect of the caller, after which frames would be shared by two pages.
//!
//! * A reader takes a frame number from RESIDENT only while it has the entry in a hazard slot:
//!   [`Entry::pin`]. If it executes no fence, it needs UNFENCED, too, which any reader may set.
//!   LOCKED does not keep that bit: its owner does, and unlocks without it once it has made
//!   all such readers visible ([`Taken::seen_in`]).
//! * An evictor locks, looks for readers with [`crate::hazard::scan`], and then evicts or unlocks.
//! * A store locks, waits until `scan` finds no reader, writes, and unlocks with DIRTY. So the
//!   bytes behind readers' references never change.
//! * A page whose write to the file failed becomes DIRTY again where it is ([`Entry::set_dirty`]),
//!   even while a store has it LOCKED: the caller does not wait for that store, which cannot unlock
//!   the page clean.
//! * A store of a whole page that is absent takes the place of its read: `try_begin_read`, write,
//!   `finish_store`. No thread can be reading, because there is no frame yet that a reader could
//!   have seen.
//! * A page that is DIRTY or YOUNG is never locked for eviction, and so never evicted: the check
//!   and the lock are one compare-and-swap.
//!
//! # Waiting
//!
//! A thread that finds BUSY or LOCKED sleeps under a lock of its choice that the owner's waker also
//! takes:
//!
//! ```text
//!   waiter: lock; while entry.set_waiters(seen) { condvar.wait }; unlock
//!   owner:  if entry.finish_read(…) { lock; condvar.notify_all; unlock }
//! ```
//!
//! The owner's swap returns whether WAITERS was set. If it was set before the swap the owner
//! notifies, and since it takes the lock first, the waiter is asleep by then; if not, `set_waiters`
//! fails. A wake-up is never lost.
//!
//! # Order
//!
//! What puts bytes into a frame (`finish_read`, `finish_store`, `unlock`) releases; what leads to
//! them (`load`, `pin`, the locks, `clear_dirty`) acquires. YOUNG and DIRTY are also part of a
//! second protocol, the [`Hint`]s of the table, which needs a total order; hence the `SeqCst`
//! accesses where one of these bits is set or cleared. On x86 they cost nothing more.
//!
//! # Files
//!
//! [`entry`]: one word and its transitions. [`hint`]: what walks may skip. [`table`]: the words of
//! one view.

mod entry;
mod hint;
mod table;

pub use entry::{Entry, FRAMES_MAX, Pinned, State, Taken};
pub use hint::Hint;
pub use table::Table;
