//! Results as one page of HTML that needs nothing else: pictures, tables, the data, and no script.
//!
//! ```text
//!   JSON of bench, sim, eval, run ──► document ──► measure ──► bars, lines ──► sections ──► page
//!                                     (checked)    (what rows have)
//! ```
//!
//! Each picture is SVG within the page, has a title, and has its figures as a table below it. A
//! colour never stands alone: kinds differ in filling, lines in markers, outcomes in words. The
//! page follows the reader's choice of light or dark, fits a phone, and prints. Its data are in it
//! as JSON (`<script type="application/json">`, which no browser runs), to be drawn again.
//!
//! | file | concept |
//! |---|---|
//! | `document` | a result, read and checked |
//! | `measure` | what rows have that can be drawn, and names for rows |
//! | `number` | numbers as text, ticks of an axis |
//! | `bars`, `lines` | pictures |
//! | `tables`, `sections` | tables; the section of one result |

mod bars;
mod document;
mod lines;
mod measure;
mod number;
mod sections;
mod tables;

pub use document::{Document, DocumentError};

use std::collections::BTreeSet;

use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("style.css");

/// The page of some results, in their order, below `notes` in sentences.
#[must_use]
pub fn page(title: &str, notes: &[String], documents: &[Document]) -> String {
    let anchors: Vec<String> = (1..=documents.len()).map(|number| format!("r{number}")).collect();
    let counts = tables::Counts::of(documents);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content={ "lowtide " (crate::json::VERSION) };
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (bars::patterns())
                header {
                    h1 { (title) }
                    p.soft { (summary(documents)) }
                    @for note in notes { p { (note) } }
                    @if documents.len() > 1 { (contents(documents, &anchors)) }
                }
                main {
                    @if counts.all() > 0 { (verdict(documents, counts)) }
                    @for (document, anchor) in documents.iter().zip(&anchors) {
                        (sections::of(document, anchor))
                    }
                    (repeat(documents))
                }
                script type="application/json" id="data" { (PreEscaped(data(documents))) }
            }
        }
    }
    .into_string()
}

/// Versions, dates and machines of all results.
fn summary(documents: &[Document]) -> String {
    let all = |of: fn(&Document) -> Option<String>| -> Vec<String> {
        documents.iter().filter_map(of).collect::<BTreeSet<_>>().into_iter().collect()
    };
    let versions = all(|document| document.text("/lowtide"));
    let dates = all(|document| document.text("/machine/date"));
    let results = match documents.len() {
        1 => "one result".into(),
        many => format!("{many} results"),
    };
    let mut parts = vec![results, format!("lowtide {}", versions.join(", "))];
    match (dates.first(), dates.last()) {
        (Some(first), Some(last)) if first != last => parts.push(format!("{first} to {last}")),
        (Some(only), _) => parts.push(only.clone()),
        _ => {}
    }
    parts.join(" · ")
}

fn contents(documents: &[Document], anchors: &[String]) -> Markup {
    html! {
        nav aria-label="Results" {
            ul { @for (document, anchor) in documents.iter().zip(anchors) {
                li { a href={ "#" (anchor) } { (document.title()) } }
            } }
        }
    }
}

fn verdict(documents: &[Document], counts: tables::Counts) -> Markup {
    html! {
        section id="verdict" {
            h2 { "Published results" }
            div.tiles {
                div.tile.met { b { (counts.met) } "✓ reproduced" }
                div.tile.missed { b { (counts.missed) } "✗ not reproduced" }
                @if counts.none > 0 { div.tile.none { b { (counts.none) } "– not judged" } }
            }
            p.soft {
                "Each line is a condition of a written rule: what was published, the range that "
                "counts as reproduced, and what was measured here."
            }
            (tables::verdict(documents))
        }
    }
}

/// The commands, in order, each once.
fn repeat(documents: &[Document]) -> Markup {
    let mut commands: Vec<String> = Vec::new();
    for command in documents.iter().filter_map(|document| document.text("/command")) {
        if !commands.contains(&command) {
            commands.push(command);
        }
    }
    html! {
        @if !commands.is_empty() {
            section id="repeat" {
                h2 { "How to repeat it" }
                pre { code { @for command in &commands { (command) "\n" } } }
            }
        }
    }
}

/// The data as JSON that cannot end the element it is in.
fn data(documents: &[Document]) -> String {
    let all: Vec<_> = documents
        .iter()
        .map(|document| serde_json::json!({ "source": document.source, "result": document.value }))
        .collect();
    serde_json::Value::from(all).to_string().replace('<', "\\u003c")
}

#[cfg(test)]
mod tests;
