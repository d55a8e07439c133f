//! What a page is made of: results in the JSON of lowtide's commands, read and checked.
//!
//! ```text
//!   {"lowtide": VERSION, "machine": {…}, "rows": [{…}, …], "verdict": […], "command": "…"}
//!   {"lowtide": VERSION, "pid": 7, "program": "…", …}     a line a process: lowtide run --json
//! ```
//!
//! Rows are read by name, as any other program would read them. A file of another version may have
//! names that this one does not know; they are in the page's data, and in no picture.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::verdict::CriterionRow;

/// Why a text is no result.
#[derive(Debug, Error)]
pub enum DocumentError {
    /// Nothing.
    #[error("it is empty: the command that was to write it has not ended, or failed")]
    Empty,
    /// Cut off in the middle.
    #[error("it ends in the middle (line {line}): it was not written to its end; make it again")]
    Truncated {
        /// The last line.
        line: usize,
    },
    /// Not JSON.
    #[error("it is not JSON ({source}); give what `--json` of a command of lowtide writes")]
    NotJson {
        /// The parser's reason.
        source: serde_json::Error,
    },
    /// JSON of another program.
    #[error("it is JSON, but not a result of lowtide: {why}")]
    Foreign {
        /// What is missing.
        why: &'static str,
    },
    /// A result of lowtide without any row.
    #[error("it has no rows, so there is nothing to show")]
    NoRows,
}

/// A result.
#[derive(Clone, Debug)]
pub struct Document {
    /// Where it is from, for people: the name of a file.
    pub source: String,
    /// The whole of it.
    pub value: Value,
    pub(super) verdict: Vec<CriterionRow>,
}

impl Document {
    /// Reads a result from the text of a file.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub fn parse(source: impl Into<String>, text: &str) -> Result<Self, DocumentError> {
        if text.trim().is_empty() {
            return Err(DocumentError::Empty);
        }
        let mut values = Vec::new();
        for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
            values.push(value.map_err(|source| match source.is_eof() {
                true => DocumentError::Truncated { line: source.line() },
                false => DocumentError::NotJson { source },
            })?);
        }
        let value = match <[Value; 1]>::try_from(values) {
            Ok([value]) if value.get("pid").is_none() => value,
            Ok([value]) => of_processes(vec![value])?,
            Err(lines) => of_processes(lines)?,
        };
        let foreign = |why| Err(DocumentError::Foreign { why });
        if !value.get("lowtide").is_some_and(Value::is_string) {
            return foreign("it does not say which version of lowtide wrote it (`lowtide`)");
        }
        match value.get("rows").map(Value::as_array) {
            None => return foreign("it has no `rows`"),
            Some(Some(rows)) if rows.is_empty() => return Err(DocumentError::NoRows),
            Some(Some(rows)) if rows.iter().all(Value::is_object) => {}
            Some(_) => return foreign("its `rows` are not a list of objects"),
        }
        let verdict = match value.get("verdict") {
            None => Vec::new(),
            Some(verdict) => match serde_json::from_value(verdict.clone()) {
                Ok(verdict) => verdict,
                Err(_) => return foreign("its `verdict` is not a list of conditions"),
            },
        };
        Ok(Self { source: source.into(), value, verdict })
    }

    /// The rows.
    pub(super) fn rows(&self) -> impl Iterator<Item = &Map<String, Value>> {
        self.value["rows"].as_array().into_iter().flatten().filter_map(Value::as_object)
    }

    /// A name for its section: the workload, and the world if it is the real one.
    pub(super) fn title(&self) -> String {
        let of = |name| -> BTreeSet<&str> {
            let ours = |row: &&Map<String, Value>| {
                row.get("system").and_then(Value::as_str) != Some("published")
            };
            self.rows().filter(ours).filter_map(|row| row.get(name)?.as_str()).collect()
        };
        let workloads: Vec<&str> = of("workload").into_iter().collect();
        let worlds: Vec<&str> = of("world").into_iter().collect();
        let worlds = match worlds[..] {
            ["sim"] => " (simulated)",
            ["real"] => " (real memory)",
            _ => "",
        };
        let name = self.text("/eval/name");
        match name.or((!workloads.is_empty()).then(|| workloads.join(", "))) {
            Some(name) if name.contains(' ') => name,
            Some(name) => name + worlds,
            None => self.source.clone(),
        }
    }

    /// A text at a path.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        self.value.pointer(path).and_then(Value::as_str).map(Into::into)
    }

    /// The machine in one line, if it is described.
    pub(super) fn machine(&self) -> Option<String> {
        let machine = self.value.get("machine")?;
        let text = |name: &str| machine.get(name).and_then(Value::as_str);
        let number = |name: &str| machine.get(name).and_then(Value::as_u64);
        let mut parts: Vec<String> = Vec::new();
        parts.extend(text("name").map(|name| format!("machine {name}, simulated")));
        parts.extend(text("cpu_model").map(Into::into));
        parts.extend(number("cpus").map(|cpus| match cpus {
            1 => "1 processor".into(),
            cpus => format!("{cpus} processors"),
        }));
        let memory = number("memory_total_bytes").or_else(|| number("memory"));
        parts.extend(memory.map(|bytes| format!("{} of memory", crate::table::memory(bytes))));
        let device = machine.pointer("/device/name").and_then(Value::as_str);
        parts.extend(device.map(|name| format!("device {name}")));
        parts.extend(text("kernel").map(|kernel| format!("Linux {kernel}")));
        parts.extend(text("file_system").map(Into::into));
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// Lines of `lowtide run --json` as a result with a row for each process.
fn of_processes(lines: Vec<Value>) -> Result<Value, DocumentError> {
    let why = "it is several values, and not lines of `lowtide run --json`";
    let ours = |line: &Value| line.get("pid").is_some() && line.get("program").is_some();
    if !lines.iter().all(ours) {
        return Err(DocumentError::Foreign { why });
    }
    let version = lines.first().map_or(Value::Null, |line| line["lowtide"].clone());
    let rows: Vec<Value> = lines
        .into_iter()
        .map(|mut line| {
            let label = format!("{} ({})", line["program"].as_str().unwrap_or("?"), line["pid"]);
            let most = |name: &str| -> u64 {
                let budgets = line["budgets"].as_array();
                budgets.into_iter().flatten().filter_map(|budget| budget[name].as_u64()).sum()
            };
            let peak = most("peak_bytes");
            if let Some(row) = line.as_object_mut() {
                row.insert("workload".into(), "run".into());
                row.insert("system".into(), label.into());
                row.insert("peak_bytes".into(), peak.into());
            }
            line
        })
        .collect();
    Ok(serde_json::json!({ "lowtide": version, "rows": rows }))
}
