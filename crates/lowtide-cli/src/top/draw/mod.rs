//! Pictures of what `lowtide top` knows: files by part of a screen.
//!
//! | file | concept |
//! |---|---|
//! | `frame` | a whole screen: the parts, the first and the last line |
//! | `scene` | what is to be drawn |
//! | `look` | colours, characters, the translation into ASCII |
//! | `list` | rows and columns of processes and of tenants |
//! | `side` | what there is to say of the selected row, next to the list or below it |
//! | `tenant` | the page of a tenant |
//! | `curve` | a miss-ratio curve, and where one is on it |
//! | `history` | lines of the last minutes |
//! | `words` | help, and what is shown where there is nothing |

mod curve;
mod frame;
mod history;
mod list;
pub(super) mod look;
mod scene;
mod side;
mod tenant;
mod words;

pub(super) use self::frame::screen;
pub(super) use self::scene::{Caption, Scene, state_text};
pub(super) use self::words::NO_PROCESSES;
