//! Charts as SVG text, and self-contained pages around them.
//!
//! | file | holds |
//! |---|---|
//! | `bytes.rs` | [`Bytes`]: amounts of memory in a readable form |
//! | `svg.rs` | elements, attributes and escaping |
//! | `scale.rs` | [`Scale`]: from values to pixels, and ticks at round numbers |
//! | `chart.rs` | [`Chart`]: lines with axes and a legend |
//! | `html.rs` | [`Page`]: headings, charts, tables and notes in one file |

mod bytes;
mod chart;
mod html;
mod scale;
mod svg;

pub use bytes::Bytes;
pub use chart::{Axis, Chart, Level, Series};
pub use html::Page;
pub use scale::{Scale, Unit};
