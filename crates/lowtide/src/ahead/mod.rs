//! Pages that are read before they are wanted.
//!
//! | file | concept |
//! |---|---|
//! | `readahead` | noticing that a file is read in order, and what comes next |
//! | `readers` | the threads that read ahead |
//! | `marks` | which frames were read ahead and not used |
//! | `around` | the neighbours of a page that is missed: where they are read with it |

pub(crate) mod around;
pub(crate) mod marks;
pub(crate) mod readahead;
pub(crate) mod readers;
