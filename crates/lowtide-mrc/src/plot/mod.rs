//! Pictures: charts as SVG text, and pages around them that need nothing from elsewhere.
//!
//! | file | holds |
//! |---|---|
//! | `bytes.rs` | [`Bytes`]: amounts of memory as people say them |
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
