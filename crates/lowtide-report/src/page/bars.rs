//! Bars: one for each row, with the extremes of its rounds, as an SVG element.
//!
//! Places to the right are percentages of the width and heights are pixels, so a picture is as wide
//! as its page and its letters keep their size: on a phone as on paper. (A drawing in pixels, as
//! plotters makes it, shrinks its letters with its width.) A name stands above its bar, where it
//! has the whole width.
//!
//! Kinds differ in colour and in filling: ours is solid, published is hatched, others are dotted.

use maud::{Markup, html};

use super::number;
use crate::spread::Spread;

/// Pixels of a bar with its name.
const ROW: f64 = 38.0;
const BAR: f64 = 14.0;
/// Pixels from the top of a row to its bar.
const NAME: f64 = 18.0;

/// Whose figure a bar shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Ours,
    Published,
    Other,
}

impl Kind {
    const fn class(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Published => "published",
            Self::Other => "other",
        }
    }

    /// The filling, which [`patterns`] defines.
    const fn fill(self) -> Option<&'static str> {
        match self {
            Self::Ours => None,
            Self::Published => Some("url(#hatched)"),
            Self::Other => Some("url(#dotted)"),
        }
    }

    /// What it means.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Ours => "measured or simulated here",
            Self::Published => "published",
            Self::Other => "another system",
        }
    }
}

/// A bar.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) value: Spread,
}

/// The fillings that all bars of a page use, in an element that takes no room.
pub(super) fn patterns() -> Markup {
    html! {
        svg width="0" height="0" style="position:absolute" aria-hidden="true"
            xmlns="http://www.w3.org/2000/svg" {
            defs {
                pattern id="hatched" width="6" height="6" patternUnits="userSpaceOnUse"
                    patternTransform="rotate(45)" {
                    rect width="6" height="6" style="fill:var(--paper)" {}
                    rect width="3" height="6" style="fill:var(--b)" {}
                }
                pattern id="dotted" width="6" height="6" patternUnits="userSpaceOnUse" {
                    rect width="6" height="6" style="fill:var(--paper)" {}
                    circle cx="3" cy="3" r="1.8" style="fill:var(--c)" {}
                }
            }
        }
    }
}

/// The samples of the kinds that occur.
pub(super) fn legend(bars: &[Bar]) -> Markup {
    let kinds = [Kind::Ours, Kind::Published, Kind::Other];
    let found: Vec<Kind> =
        kinds.into_iter().filter(|kind| bars.iter().any(|bar| bar.kind == *kind)).collect();
    html! {
        @if found.len() > 1 {
            ul.legend {
                @for kind in found {
                    li {
                        svg xmlns="http://www.w3.org/2000/svg" aria-hidden="true" {
                            rect class=(kind.class()) fill=[kind.fill()] x="1" y="1" width="24"
                                height="12" {}
                        }
                        (kind.text())
                    }
                }
            }
        }
    }
}

/// The picture. `text` writes a value.
pub(super) fn chart(what: &str, bars: &[Bar], text: impl Fn(f64) -> String) -> Markup {
    let most = bars.iter().map(|bar| bar.value.max.max(bar.value.median)).fold(0.0, f64::max);
    let ticks = number::ticks(most);
    let end = ticks.last().copied().unwrap_or(1.0);
    let percent = |value: f64| format!("{:.2}%", 100.0 * value.max(0.0) / end);
    let height = ROW * bars.len() as f64;
    // Half of the labels are enough for the eye, and fit on a phone.
    let labelled = |index: usize| index.is_multiple_of(if ticks.len() > 4 { 2 } else { 1 });
    html! {
        svg xmlns="http://www.w3.org/2000/svg" role="img" height=(height + 22.0) {
            title { (what) ": " (bars.len()) " bars" }
            @for (index, &tick) in ticks.iter().enumerate() {
                line class="grid" x1=(percent(tick)) x2=(percent(tick)) y1="0" y2=(height) {}
                @if labelled(index) {
                    text class="small" x=(percent(tick)) y=(height + 15.0)
                        text-anchor=(anchor(tick, end)) { (text(tick)) }
                }
            }
            @for (index, bar) in bars.iter().enumerate() {
                @let top = ROW * index as f64;
                @let value = bar.value;
                text x="0" dx="4" y=(top + 13.0) { (shortened(&bar.name)) title { (bar.name) } }
                text x="100%" y=(top + 13.0) text-anchor="end" { (text(value.median)) }
                rect class=(bar.kind.class()) fill=[bar.kind.fill()] x="0" y=(top + NAME)
                    width=(percent(value.median)) height=(BAR) {}
                @if value.max > value.min {
                    @let middle = top + NAME + BAR / 2.0;
                    line class="spread" x1=(percent(value.min)) x2=(percent(value.max))
                        y1=(middle) y2=(middle) {}
                    @for end in [value.min, value.max] {
                        line class="spread" x1=(percent(end)) x2=(percent(end))
                            y1=(middle - 5.0) y2=(middle + 5.0) {}
                    }
                }
            }
            line class="axis" x1="0" x2="0" y1="0" y2=(height) {}
        }
    }
}

/// Where a label stands at its tick: inside of the picture at both ends.
pub(super) fn anchor(tick: f64, end: f64) -> &'static str {
    match tick / end {
        part if part < 0.05 => "start",
        part if part > 0.95 => "end",
        _ => "middle",
    }
}

/// A name that leaves room for a value on a phone. The whole of it is in the table.
fn shortened(name: &str) -> String {
    const MOST: usize = 38;
    match name.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name.to_owned(),
    }
}
