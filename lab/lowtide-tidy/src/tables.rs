//! Tables of results in documents, written from the file that has the figures.
//!
//! ```text
//!   <!-- table results/measured.csv rows a b columns what ratio -->
//!   | what | ratio |                         written by `LOWTIDE_WRITE_TABLES=1 cargo test -p
//!   |---|---:|                               lowtide-tidy --test it results`
//!   …
//!   <!-- end of table -->
//! ```
//!
//! So a figure stands in one place, and all pages that show it say the same. Without `rows` all
//! rows are shown, without `columns` all columns but `id`, which names rows; a name that ends with
//! `*` is of all rows that begin so, and `except` leaves out rows with a cell that is that word.
//! Figures of a column whose name ends with a colon are aligned at the right.

use std::fmt::Write as _;

const BEGIN: &str = "<!-- table ";
const END: &str = "<!-- end of table -->";

/// A document with its tables as their files have them, and how many there are. `read` returns the
/// content of a file by its path from the root.
///
/// # Errors
/// What is wrong with a marker, or with the file that it names.
pub fn with_tables(
    document: &str,
    read: impl Fn(&str) -> Result<String, String>,
) -> Result<(String, usize), String> {
    let (mut made, mut count) = (String::new(), 0);
    let mut lines = document.split_inclusive('\n');
    while let Some(line) = lines.next() {
        made += line;
        let Some(words) = line.trim_end().strip_prefix(BEGIN) else { continue };
        let words = words.strip_suffix(" -->").ok_or_else(|| format!("{line}: no end"))?;
        made += &table(words, &read).map_err(|why| format!("{}: {why}", line.trim_end()))?;
        let end = lines.find(|line| line.trim_end() == END);
        made += end.ok_or_else(|| format!("{}: `{END}` is missing", line.trim_end()))?;
        count += 1;
    }
    Ok((made, count))
}

/// The lines of a table.
fn table(words: &str, read: impl Fn(&str) -> Result<String, String>) -> Result<String, String> {
    let mut words = words.split_whitespace();
    let content = read(words.next().ok_or("no file is named")?)?;
    let (mut rows, mut columns, mut except) = (Vec::new(), Vec::new(), Vec::new());
    let mut list: Option<&mut Vec<&str>> = None;
    for word in words {
        match word {
            "rows" => list = Some(&mut rows),
            "columns" => list = Some(&mut columns),
            "except" => list = Some(&mut except),
            name => list.as_mut().ok_or_else(|| format!("what is {name}?"))?.push(name),
        }
    }
    let mut file = csv::Reader::from_reader(content.as_bytes());
    let wrong = |error: csv::Error| error.to_string();
    let head = file.headers().map_err(wrong)?.clone();
    let all = file.records().collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    let at = |name: &str| {
        let at = head.iter().position(|column| column.trim_end_matches(':') == name);
        at.ok_or_else(|| format!("there is no column {name}"))
    };
    let shown = if columns.is_empty() {
        (0..head.len()).filter(|&column| &head[column] != "id").collect()
    } else {
        columns.into_iter().map(at).collect::<Result<Vec<_>, _>>()?
    };
    let chosen = if rows.is_empty() {
        all.iter().collect()
    } else {
        let id = at("id")?;
        let named = |name: &str| {
            let is = |row: &&csv::StringRecord| match name.strip_suffix('*') {
                Some(begin) => row[id].starts_with(begin),
                None => &row[id] == name,
            };
            let found: Vec<&csv::StringRecord> = all.iter().filter(is).collect();
            if found.is_empty() { Err(format!("there is no row {name}")) } else { Ok(found) }
        };
        rows.into_iter().map(named).collect::<Result<Vec<_>, _>>()?.concat()
    };
    let mut text = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = &str>, space: &str| {
        text.push('|');
        cells.for_each(|cell| write!(text, "{space}{cell}{space}|").expect("a text takes all"));
        text.push('\n');
    };
    line(&mut shown.iter().map(|&column| head[column].trim_end_matches(':')), " ");
    let rule = |&column: &usize| if head[column].ends_with(':') { "---:" } else { "---" };
    line(&mut shown.iter().map(rule), "");
    let is_left_out = |row: &csv::StringRecord| row.iter().any(|cell| except.contains(&cell));
    for row in chosen.into_iter().filter(|row| !is_left_out(row)) {
        line(&mut shown.iter().map(|&column| &row[column]), " ");
    }
    Ok(text.replace("|  |", "| |").replace("|  |", "| |"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(document: &str) -> Result<String, String> {
        let file = "id,what,rate:\na,\"one, two\",10\nb,,20\n";
        let read = |path: &str| (path == "f.csv").then(|| file.to_owned()).ok_or("no file".into());
        with_tables(document, read).map(|(made, _)| made)
    }

    #[test]
    fn a_table_is_what_its_file_has() {
        let old = "a\n<!-- table f.csv -->\nold\n<!-- end of table -->\nb\n";
        let new = "a\n<!-- table f.csv -->\n| what | rate |\n|---|---:|\n| one, two | 10 |\n\
                   | | 20 |\n<!-- end of table -->\nb\n";
        assert_eq!(made(old).as_deref(), Ok(new));
        assert_eq!(made(new).as_deref(), Ok(new));
    }

    #[test]
    fn rows_and_columns_are_chosen_by_name() {
        let chosen = "<!-- table f.csv rows b a columns rate -->\n<!-- end of table -->\n";
        let made = made(chosen).unwrap();
        assert!(made.contains("-->\n| rate |\n|---:|\n| 20 |\n| 10 |\n<!--"), "{made}");
    }

    #[test]
    fn a_name_with_a_star_is_of_all_rows_that_begin_so() {
        let file = "id,rate\na/1,10\na/2,20\nb/1,30\n";
        let document = "<!-- table f.csv rows b/1 a/* -->\n<!-- end of table -->\n";
        let (made, _) = with_tables(document, |_| Ok(file.into())).unwrap();
        assert!(made.contains("| 30 |\n| 10 |\n| 20 |\n<!--"), "{made}");
    }

    #[test]
    fn rows_with_a_word_are_left_out() {
        let made = made("<!-- table f.csv except 10 -->\n<!-- end of table -->\n").unwrap();
        assert!(made.contains("|---|---:|\n| | 20 |\n<!--"), "{made}");
    }

    #[test]
    fn a_wrong_marker_is_an_error() {
        for (marker, why) in [
            ("<!-- table f.csv rows c -->\n<!-- end of table -->", "no row c"),
            ("<!-- table f.csv rows c* -->\n<!-- end of table -->", "no row c*"),
            ("<!-- table f.csv columns c -->\n<!-- end of table -->", "no column c"),
            ("<!-- table g.csv -->\n<!-- end of table -->", "no file"),
            ("<!-- table f.csv -->\n| lost |", "is missing"),
            ("<!-- table f.csv a -->\n<!-- end of table -->", "what is a?"),
        ] {
            let error = made(marker).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
