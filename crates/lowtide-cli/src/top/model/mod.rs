//! What `lowtide top` knows, apart from how it is drawn: from samples to rows, and from keys to
//! what is shown. No file here knows a terminal, so tests need none.
//!
//! | file | concept |
//! |---|---|
//! | `sample` | all processes at one moment |
//! | `measures` | the numbers of a row: sizes, and counters as rates |
//! | `trail` | the last minutes of a row |
//! | `processes` | the processes that are known, from sample to sample |
//! | `columns` | what a column shows, how wide it is, how it sorts |
//! | `rows` | the rows of a list: filtered, sorted, tenants as a tree |
//! | `reading` | a miss-ratio curve in words: here, half and twice the memory |
//! | `navigation` | which list or page is shown, what is selected, what a key does |

pub(crate) mod columns;
pub(crate) mod measures;
pub(crate) mod navigation;
pub(crate) mod processes;
pub(crate) mod reading;
pub(crate) mod rows;
pub(crate) mod sample;
pub(crate) mod trail;
