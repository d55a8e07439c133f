//! What a thread owes to a pool for being above a limit: its *account* with that pool.
//!
//! `high.rs` fills accounts and has them paid.

use super::payer::Payer;
use lowtide_core::high::Refaulted;
use lowtide_core::high::stall_debt::TaskDebt;
use lowtide_core::psi::TaskPsi;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Pages that a thread charged above `high`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Over {
    pub(crate) payer: Payer,
    pub(crate) pages: u64,
}

/// A page on its way that a limit had evicted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stall {
    pub(crate) refaulted: Refaulted,
    pub(crate) payer: Payer,
    pub(crate) began: u64,
}

/// A thread's account with one pool.
#[derive(Debug)]
pub(crate) struct Account {
    /// The pool's number.
    pool: u64,
    /// The thread, for programs.
    pub(crate) number: u64,
    pub(crate) over: Vec<Over>,
    pub(crate) debt: TaskDebt,
    /// The payer of the pages that made the debt; what the thread owes is looked up through it.
    pub(crate) stalled_for: Option<Payer>,
    pub(crate) psi: TaskPsi,
    /// Until when stalls are booked already: overlapping ones are booked once.
    pub(crate) booked_until: u64,
}

thread_local! {
    static ACCOUNTS: RefCell<Vec<Account>> = const { RefCell::new(Vec::new()) };
}

/// Registers the destructor of this thread's accounts (`thread_locals.rs`).
pub(crate) fn register() {
    ACCOUNTS.with(|_| ());
}

/// How many accounts there were in this process.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

impl Account {
    fn new(pool: u64, number: u64) -> Self {
        Self {
            pool,
            number,
            over: Vec::new(),
            debt: TaskDebt::default(),
            stalled_for: None,
            psi: TaskPsi::new(0),
            booked_until: 0,
        }
    }

    fn owes(&self) -> bool {
        !self.over.is_empty() || self.stalled_for.is_some()
    }

    /// The thread's account with a pool, by the pool's number. A thread that is ending has none. An
    /// account that owes nothing is dropped when another pool's is opened: pools come and go,
    /// threads stay.
    pub(crate) fn with<T>(pool: u64, with: impl FnOnce(&mut Self) -> T) -> Option<T> {
        let found = ACCOUNTS.try_with(|accounts| {
            let mut accounts = accounts.borrow_mut();
            let at = accounts.iter().position(|a| a.pool == pool).unwrap_or_else(|| {
                accounts.retain(|a| a.owes() || a.psi != TaskPsi::new(0));
                accounts.push(Self::new(pool, NUMBERS.fetch_add(1, Relaxed)));
                accounts.len() - 1
            });
            with(&mut accounts[at])
        });
        found.ok()
    }

    /// Whether this thread owes a pool anything. Cost: a look at a thread-local.
    #[inline]
    pub(crate) fn any_owed(pool: u64) -> bool {
        let owes = |a: &Self| a.pool == pool && a.owes();
        ACCOUNTS.try_with(|accounts| accounts.borrow().iter().any(owes)) == Ok(true)
    }
}
