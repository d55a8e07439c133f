//! # One table of counters
//!
//! Each number that lowtide shows has one row here: its name, its unit, what it means, and the
//! field that holds it. All that shows numbers is made from the rows:
//!
//! | rendering | made in |
//! |---|---|
//! | fields of [`Stat`], [`IoStat`], [`MemoryStat`] and their documents | `numbers!` |
//! | the text of `memory.stat`, with the kernel's names in its order | `text.rs` |
//! | the JSON of status pages, the metrics of Prometheus | crate `lowtide-status` |
//! | the lines of `lowtide stat` | crate `lowtide-watch` |
//! | figures of the summary of `lowtide run` | crate `lowtide-preload` |
//! | `lt_stats` of C and its part of the header | `bindings/c` |
//! | the dictionaries of Python | `bindings/python` |
//! | `stat` in rows of results | crate `lowtide-report` |
//!
//! A driver above this crate fills what it counts (transfers, read-ahead): the structures are of
//! plain numbers, and counting costs what an addition to a field costs. Rows are walked when their
//! numbers are read ([decision 27](../../../../docs/decisions/0027-one-table.md)).
//!
//! | file | concept |
//! |---|---|
//! | `table` | a row, its builders, and the macro that makes a structure of rows |
//! | `memory` | the engine's: `memory.stat`, `memory.events` |
//! | `text` | these as the kernel prints them |
//! | `pager` | the runtime's: transfers, read-ahead, dirty data, tables |
//! | `process` | a tenant and a process, as others see them |

mod memory;
mod pager;
mod process;
mod table;
mod text;

pub use memory::{AgeClass, Events, MemcgEvents, MemoryStat, SwapEvents, ZswapEvents};
pub use pager::{DirtyStat, IoCounts, IoStat, Stat};
pub use process::{ProcessStat, TenantStat};
pub use table::{Counter, Numbers, Rendering, Unit, Value, list};
