//! The messages of the library, for a function of the program.
//!
//! The crate says what it does by `tracing`. Here the messages become lines of text, as C has no
//! use for their fields. One function gets them all, for as long as the process lives, because the
//! subscriber of a process cannot be replaced; the function behind it can.

use crate::code::{Failure, Outcome, call};
use std::ffi::{CString, c_char, c_int, c_void};
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{OnceLock, PoisonError, RwLock};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Something was lost, or will be.
pub const LT_LOG_ERROR: c_int = 1;
/// Something needs attention.
pub const LT_LOG_WARN: c_int = 2;
/// Something that happens once.
pub const LT_LOG_INFO: c_int = 3;
/// Something for those who look for the cause of a problem.
pub const LT_LOG_DEBUG: c_int = 4;

/// Gets a message: its level, the text, which is valid during the call, and what was given to
/// lt_set_log.
pub type lt_log_fn =
    Option<unsafe extern "C" fn(level: c_int, text: *const c_char, arg: *mut c_void)>;

#[derive(Clone, Copy)]
struct Sink {
    call: unsafe extern "C" fn(c_int, *const c_char, *mut c_void),
    arg: *mut c_void,
}

// SAFETY: the header says that the function is called by all threads, with this argument.
unsafe impl Send for Sink {}
// SAFETY: as above.
unsafe impl Sync for Sink {}

static SINK: RwLock<Option<Sink>> = RwLock::new(None);
/// The least important level that is wanted; 0 is none.
static WANTED: AtomicI32 = AtomicI32::new(0);

struct Lines;

fn number(level: Level) -> c_int {
    match level {
        Level::ERROR => LT_LOG_ERROR,
        Level::WARN => LT_LOG_WARN,
        Level::INFO => LT_LOG_INFO,
        _ => LT_LOG_DEBUG,
    }
}

impl Subscriber for Lines {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> tracing::subscriber::Interest {
        // The wanted level may change.
        tracing::subscriber::Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        number(*metadata.level()) <= WANTED.load(Relaxed)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let text = format!("{}{}", line.message, line.fields).replace('\0', "?");
        let text = CString::new(text).unwrap_or_default();
        let sink = SINK.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(Sink { call, arg }) = *sink {
            // SAFETY: the program gave the function for this. The lock is held: it is not replaced
            // before it returns.
            unsafe {
                call(number(*event.metadata().level()), text.as_ptr(), arg);
            }
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The text of an event.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let written = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, "; {name}: {value:?}"),
        };
        written.expect("a string takes all texts");
    }
}

/// Sends log messages up to `level` (LT_LOG_ERROR to LT_LOG_DEBUG) to `log`, passing `arg`. NULL
/// turns logging off. When this returns, the former function is not running and is not called any
/// more.
///
/// The function is called by any thread of the program and of the library, several at a time. It
/// must not call lowtide. A child of fork has the function of its parent, and must not set another.
///
/// EINVAL: no such level. EBUSY: Rust code in this process has a subscriber of its own.
/// Threads: any, but not in the function itself.
#[unsafe(no_mangle)]
pub extern "C" fn lt_set_log(level: c_int, log: lt_log_fn, arg: *mut c_void) -> c_int {
    call(|| set(level, log, arg))
}

fn set(level: c_int, log: lt_log_fn, arg: *mut c_void) -> Outcome {
    static OURS: OnceLock<bool> = OnceLock::new();
    let wanted = match log {
        None => 0,
        Some(_) if (LT_LOG_ERROR..=LT_LOG_DEBUG).contains(&level) => level,
        Some(_) => return Err(Failure::argument(format!("no messages have the level {level}"))),
    };
    if !OURS.get_or_init(|| tracing::subscriber::set_global_default(Lines).is_ok()) {
        return Err(Failure::new(libc::EBUSY, "the process has a subscriber of `tracing` already"));
    }
    let mut sink = SINK.write().unwrap_or_else(PoisonError::into_inner);
    *sink = log.map(|call| Sink { call, arg });
    WANTED.store(wanted, Relaxed);
    Ok(())
}
