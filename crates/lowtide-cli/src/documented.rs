//! Promise: command lines in documents and help texts are valid, and help fits on a screen.
//!
//! The laboratory tests its own command with the same file.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory, Parser};

use crate::cli::{Cli, STARTS};

/// Documents and scripts with command lines.
fn documents() -> Vec<PathBuf> {
    fn pages(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pages(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let names = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "ARCHITECTURE.md", ".ci/run"];
    let mut found: Vec<PathBuf> = names.map(|name| root.join(name)).to_vec();
    pages(&root.join("docs"), &mut found);
    found
}

/// The arguments of the command lines in a text, which begin a line or follow `&&` or a pipe. Also
/// those in backquotes within prose that seem to be complete.
fn command_lines(text: &str) -> Vec<Vec<String>> {
    let joined = text.replace("\\\n", " ");
    let quoted = joined.split('`').skip(1).step_by(2).filter(|code| {
        let placeholder = |word: &str| word.chars().all(|c| c.is_uppercase() || "|.…".contains(c));
        let words: Vec<&str> = code.split_whitespace().collect();
        let is_whole = words.len() > 2 && !words[words.len() - 1].starts_with('-');
        is_whole && !code.contains('\n') && !words.into_iter().any(placeholder)
    });
    let lines = joined.lines().chain(quoted);
    let parts = lines.flat_map(|line| line.split(['|', ';']).flat_map(|part| part.split("&&")));
    let mut found = Vec::new();
    for part in parts {
        let Some(rest) = STARTS.iter().find_map(|start| part.trim().strip_prefix(start)) else {
            continue;
        };
        let ends = |word: &&str| word.starts_with(['#', '>']) || word.starts_with("2>");
        let words = rest.split_whitespace().take_while(|word| !ends(word));
        let words: Vec<String> = words.map(|word| word.trim_matches(['"', '\'']).into()).collect();
        if words.first().is_some_and(|word| ["bench", "sim", "list"].contains(&word.as_str())) {
            found.push(words);
        }
    }
    found
}

fn understood(words: &[String]) -> Result<(), String> {
    let name = Cli::command().get_name().to_owned();
    let line = [std::slice::from_ref(&name), words].concat();
    match Cli::try_parse_from(line) {
        Ok(_) => Ok(()),
        Err(error) if error.exit_code() == 0 => Ok(()),
        Err(error) => Err(format!("{name} {}\n{error}", words.join(" "))),
    }
}

/// The full names of a command and its subcommands.
fn names(command: &Command, above: &[String]) -> Vec<Vec<String>> {
    let name = [above, &[command.get_name().to_owned()]].concat();
    let below = command.get_subcommands().filter(|command| !command.is_hide_set());
    let below: Vec<_> = below.flat_map(|command| names(command, &name)).collect();
    [vec![name], below].concat()
}

#[test]
fn the_description_of_the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn command_lines_in_documents_are_understood() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for path in documents() {
        for words in command_lines(&fs::read_to_string(&path).unwrap()) {
            count += 1;
            let with_path = |error| format!("{}: {error}", path.display());
            wrong.extend(understood(&words).map_err(with_path).err());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 25, "documents show command lines, found {count}");
}

#[test]
fn help_is_narrow_its_examples_are_understood_and_that_of_a_workload_is_one_screen() {
    let mut examples = 0;
    for name in names(&Cli::command(), &[]) {
        let asked = [&name[..], &["--help".to_owned()]].concat();
        let answer = Cli::command().term_width(100).try_get_matches_from(asked);
        let help = answer.unwrap_err().render().to_string();
        for line in help.lines() {
            assert!(line.chars().count() <= 100, "{name:?}: {line}");
        }
        let is_workload = name.len() > 2;
        assert!(!is_workload || help.lines().count() <= 50, "{name:?} needs more than a screen");
        for words in command_lines(&help.replace("Example: ", "")) {
            examples += 1;
            understood(&words).unwrap();
        }
    }
    assert!(examples > 15, "help has examples, found {examples}");
}
