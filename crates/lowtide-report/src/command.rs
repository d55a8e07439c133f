//! The command line that repeats a result, as in the JSON (`command`).
//!
//! It is that of the process, with the name of the program instead of its path, and without the
//! place for results: `--json FILE` says where a result went and not what it is. A command that
//! performs others, each from its own command line, says whose results follow.

use std::sync::{Mutex, PoisonError};

/// What results are of, if it is not the process's own command line.
static ACTING: Mutex<Option<String>> = Mutex::new(None);

/// Results from now on are those of `words`: a program's name and its arguments. `None` for those
/// of the process.
pub fn act_as(words: Option<&[String]>) {
    *ACTING.lock().unwrap_or_else(PoisonError::into_inner) = words.map(line_of);
}

/// The command line of the results that are made now.
#[must_use]
pub fn line() -> String {
    let acting = ACTING.lock().unwrap_or_else(PoisonError::into_inner).clone();
    acting.unwrap_or_else(|| {
        let words: Vec<String> =
            std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        line_of(&words)
    })
}

fn line_of(words: &[String]) -> String {
    let (program, arguments) = words.split_first().map_or(("", &[][..]), |(p, a)| (p.as_str(), a));
    let mut line = program.rsplit('/').next().unwrap_or_default().to_owned();
    let mut arguments = arguments.iter().peekable();
    while let Some(word) = arguments.next() {
        if word == "--json" {
            // Its file may follow; `-` is standard output.
            arguments.next_if(|next| !next.starts_with('-') || *next == "-");
        } else if !word.starts_with("--json=") {
            line.push(' ');
            line += &quoted(word);
        }
    }
    line
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./,:=+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> String {
        line_of(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_line_names_the_program_and_not_the_place_of_the_results() {
        for json in [&["--json", "a/b.json"][..], &["--json=a.json"], &["--json"], &["--json", "-"]]
        {
            let words = [&["/usr/bin/lowtide", "sim", "zipf"], json, &["--ops", "1k"]].concat();
            assert_eq!(of(&words), "lowtide sim zipf --ops 1k", "{json:?}");
        }
        assert_eq!(of(&["lowtide", "--json", "--wide"]), "lowtide --wide");
    }

    #[test]
    fn a_shell_reads_the_same_words() {
        let line =
            of(&["lowtide", "sim", "trace", "it's here.csv", "", "a<b>", "--policy", "x,y+S1"]);
        assert_eq!(line, r"lowtide sim trace 'it'\''s here.csv' '' 'a<b>' --policy x,y+S1");
    }

    #[test]
    fn a_command_that_performs_others_names_each() {
        act_as(Some(&["lowtide-lab".to_owned(), "sim".into()]));
        assert_eq!(line(), "lowtide-lab sim");
        act_as(None);
        assert!(!line().starts_with("lowtide-lab sim"));
    }
}
