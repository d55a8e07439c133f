//! Results of lowtide's commands: rows, tables, JSON, and what every command does around them.
//!
//! `lowtide bench` measures real memory, `lowtide sim` simulates, and the laboratory does both.
//! This crate lies below all three: a row is the same in each, a name in the JSON means one thing,
//! and no world knows of another.
//!
//! | file | concept |
//! |---|---|
//! | `row`, `outcome`, `reading` | a row of results |
//! | `parts`, `known` | what an experiment adds to a row; what is left out of it |
//! | `tally`, `rounds` | counts of threads and slices; systems that took turns |
//! | `measured`, `measured_table` | rows of such systems |
//! | `spread` | a median with its extremes |
//! | `columns`, `table`, `legend` | rows as a table, with the meaning of its headers |
//! | `json`, `command` | results as JSON, and the command line that repeats them |
//! | `verdict` | whether a published result is reproduced |
//! | `page` | results as a page of HTML |
//! | `out`, `progress` | standard output and standard error |
//! | `interrupt`, `threads` | Ctrl-C; threads that begin together and end with it |
//! | `exit` | failures, and exit codes |
//! | `names`, `span`, `count`, `values` | policies, times, numbers and sizes on the command line |

#![forbid(unsafe_code)]

pub mod columns;
pub mod command;
pub mod count;
pub mod exit;
pub mod interrupt;
pub mod json;
mod known;
pub mod legend;
pub mod measured;
pub mod measured_table;
pub mod names;
pub mod out;
pub mod outcome;
pub mod page;
pub mod parts;
pub mod progress;
pub mod reading;
pub mod rounds;
pub mod row;
pub mod span;
pub mod spread;
pub mod table;
pub mod tally;
pub mod threads;
pub mod values;
pub mod verdict;
