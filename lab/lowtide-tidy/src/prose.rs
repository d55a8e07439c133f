//! What makes text hard to read: lines that are too wide, and words that stop a reader.

/// Columns of a line.
const WIDTH_MAX: usize = 100;

/// Words that stop a reader, each with what to write instead.
const BANNED: &[(&str, &str)] = &[
    ("whoever", "name the thread, process or caller"),
    ("whomever", "name the thread, process or caller"),
    ("nobody", "no thread, no process, no caller"),
    ("somebody", "another thread, a caller"),
    ("anybody", "any thread, any caller"),
    ("everybody", "all threads, every caller"),
    ("he", "a thread is `it`"),
    ("his", "a thread is `it`"),
    ("told", "reported, or which thread knows"),
    ("asked for", "requested, needed"),
    ("so many", "n"),
    ("let go of", "release, drop"),
    ("lets go of", "releases, drops"),
    ("letting go of", "releasing, dropping"),
    ("sees to", "ensures"),
    ("see to it", "ensure"),
    ("holds of", "acquisitions of a lock"),
    ("hold of", "an acquisition of a lock"),
    ("in other hands", "busy in another thread"),
    ("mended", "fixed"),
    ("door", "API, access path"),
    ("crew", "thread pool"),
    ("crowd", "load generator"),
    ("deck", "replay"),
    ("weather", "fault plan"),
    ("dice", "random choices"),
    ("overseer", "checker"),
    ("muster", "spawn"),
    ("desk", "queue"),
    ("drawer", "cache of rings"),
    ("depot", "data directory"),
    ("contender", "system under test"),
    ("hasten", "retry at once"),
    ("law", "throttle policy"),
    ("behind the end", "past the end"),
    ("behind its end", "past its end"),
    ("for ever", "forever, indefinitely"),
    ("anew", "again"),
    ("as ever", "as usual"),
    ("in the way `userfault`", "in `userfault` mode"),
    ("in the way `pagecache`", "in `pagecache` mode"),
    ("facts sheet", "the kernel's rules"),
    ("fact sheet", "the kernel's rules"),
];

/// Habits in text for users, each with what to write instead.
const HABITS: &[(&str, &str)] = &[
    ("beside", "compared with, next to, in addition to"),
    ("meanwhile", "in the meantime, while ... is running"),
    ("in vain", "without success"),
    ("goes first", "is evicted first"),
    ("go first", "are evicted first"),
    ("page goes", "a page is evicted, or dropped"),
    ("pages go", "pages are evicted, or dropped"),
    ("is had", "is available"),
    ("are had", "are available"),
    ("be had", "be available"),
    ("said apart", "reported separately"),
    ("says apart", "reports separately"),
    ("as a whole from memory", "entirely from memory"),
    ("on the way of", "on the path of"),
    ("behind the last", "past the last"),
    ("behind its last", "past its last"),
    ("behind the region", "past the end of the region"),
    ("behind the file", "past the end of the file"),
    ("behind the new end", "past the new end"),
    ("behind the header", "after the header"),
    ("behind the group", "after the group"),
    ("behind it", "after it, past it"),
    ("behind them", "after them, past them"),
    ("the way userfault", "`userfault` mode"),
    ("the way pagecache", "`pagecache` mode"),
];

/// The columns of a line, if there are more than a terminal has. An address has no place where it
/// could be broken.
#[must_use]
pub fn too_wide(line: &str) -> Option<usize> {
    let long = |word: &str| word.contains("://") && word.len() > WIDTH_MAX / 2;
    let address = line.split_whitespace().any(long);
    let width = line.chars().count();
    (width > WIDTH_MAX && !address).then_some(width)
}

/// The banned words in some lines: the number of each line, the word, and what to write instead.
/// What is between backticks does not count. A phrase may be broken between two lines.
#[must_use]
pub fn banned(lines: &[(usize, &str)]) -> Vec<(usize, &'static str, &'static str)> {
    let plain: Vec<String> = lines.iter().map(|(_, line)| outside_of_code(line)).collect();
    let mut found = Vec::new();
    for (at, line) in plain.iter().enumerate() {
        let next = plain.get(at + 1).map_or("", String::as_str);
        for (word, instead) in BANNED {
            if has_word(line, word) || is_broken(line, next, word) {
                found.push((lines[at].0, *word, *instead));
            }
        }
    }
    found
}

/// What is between backticks in a line; with `false`, what is not.
pub fn parts(line: &str, code: bool) -> impl Iterator<Item = &str> {
    line.split('`').enumerate().filter(move |(n, _)| (n % 2 == 1) == code).map(|(_, part)| part)
}

/// The lowercase words of a line without code, and without the marks of a comment.
fn outside_of_code(line: &str) -> String {
    let marks = ["//", "///", "//!"];
    let text = parts(line, false).collect::<Vec<_>>().join(" ` ").to_lowercase();
    let words: Vec<&str> = text.split_whitespace().filter(|word| !marks.contains(word)).collect();
    words.join(" ")
}

/// Whether a phrase begins in a line and ends in the next.
fn is_broken(line: &str, next: &str, phrase: &str) -> bool {
    phrase.match_indices(' ').any(|(at, _)| {
        let (first, last) = (&phrase[..at], &phrase[at + 1..]);
        ends_with_word(line, first) && starts_with_word(next, last)
    })
}

/// The habits in a paragraph, each with what to write instead. What is between backticks does not
/// count, nor does a question.
#[must_use]
pub fn habits(paragraph: &str) -> Vec<(&'static str, &'static str)> {
    let plain = outside_of_code(paragraph);
    let phrases = HABITS.iter().filter(|(habit, _)| has_word(&plain, habit)).copied();
    let mut found: Vec<_> = phrases.collect();
    // `outside_of_code` has no capitals, so a sentence is what follows a full stop.
    let sentences = plain.split_inclusive(['.', ':', ';', '?']).map(str::trim);
    let mut after_colon = false;
    for sentence in sentences {
        // "What is lost is reported": a native speaker writes "lost pages are reported". A heading
        // in bold, a cell of a table and a list after a colon are labels.
        let is_label = sentence.starts_with("**what ") || plain.starts_with('|') || after_colon;
        let opens = sentence.trim_start_matches(['*', ' ']).starts_with("what ");
        after_colon = sentence.ends_with(':');
        if opens && !is_label && sentence.ends_with(['.', ';']) {
            found.push(("What is", "a noun as the subject"));
        }
        let bare = sentence.trim_end_matches(['.', ':', ';']);
        if bare.len() < sentence.len() && ends_with_word(bare, "then") {
            found.push(("then.", "say when, at the beginning of the sentence"));
        }
    }
    if wrong_article(paragraph) {
        found.push(("a, an", "the article of the word as it is spoken"));
    }
    found
}

/// Whether a link to an item follows the other article, as in "an [`Region`]".
fn wrong_article(paragraph: &str) -> bool {
    let is_wrong = |article: &str, vowels: bool| {
        let links = paragraph.match_indices(article);
        links.into_iter().any(|(at, _)| {
            let alone = !paragraph[..at].ends_with(char::is_alphanumeric);
            let mut letters = paragraph[at + article.len()..].chars();
            let (first, second) = (letters.next(), letters.next());
            // A name in capitals may be read letter by letter.
            let spoken = second.is_some_and(|c| c.is_lowercase());
            alone && spoken && first.is_some_and(|c| "AEIO".contains(c) == vowels)
        })
    };
    is_wrong("an [`", false) || is_wrong("a [`", true) || is_wrong("An [`", false)
}

fn joins(c: char) -> bool {
    c.is_alphanumeric() || c == '-' || c == '_'
}

fn ends_with_word(text: &str, word: &str) -> bool {
    text.strip_suffix(word).is_some_and(|before| !before.ends_with(joins))
}

fn starts_with_word(text: &str, word: &str) -> bool {
    text.strip_prefix(word).is_some_and(|after| !after.starts_with(joins))
}

/// Whether a lowercase text has a word on its own.
fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(joins) && !text[at + word.len()..].starts_with(joins))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(lines: &[(usize, &str)]) -> Vec<(usize, &'static str)> {
        banned(lines).into_iter().map(|(n, word, _)| (n, word)).collect()
    }

    #[test]
    fn a_word_is_found_on_its_own_and_once() {
        assert_eq!(words(&[(1, "Nobody waits"), (2, "indoors")]), [(1, "nobody")]);
        assert_eq!(words(&[(1, "the"), (2, "what he does")]), [(2, "he")]);
        assert_eq!(words(&[(1, "they let go"), (2, "of it")]), [(1, "let go of")]);
        assert_eq!(words(&[(7, "    /// So"), (8, "    /// many pages")]), [(7, "so many")]);
    }

    #[test]
    fn habits_are_found_and_questions_are_none() {
        let found = |text| habits(text).into_iter().map(|(habit, _)| habit).collect::<Vec<_>>();
        assert_eq!(found("It ends. What was lost is named."), ["What is"]);
        assert_eq!(found("What a page costs is known; what is this?"), ["What is"]);
        assert_eq!(
            found("An [`Region`] of a [`Pager`] ends behind the last."),
            ["behind the last", "a, an"]
        );
        assert_eq!(found("What is lost? Nothing, if it is `beside` it."), [""; 0]);
        assert_eq!(
            found("A page beside it cannot be had: it is gone then."),
            ["beside", "be had", "then."]
        );
    }

    #[test]
    fn a_wide_line_with_an_address_may_stay() {
        let wide = "word ".repeat(21);
        assert_eq!((too_wide("word"), too_wide(&wide)), (None, Some(105)));
        assert_eq!(too_wide(&format!("https://{}", "a".repeat(120))), None);
    }

    #[test]
    fn code_in_a_comment_is_not_prose() {
        assert_eq!(words(&[(1, "a `door` and so `many`")]), []);
        assert_eq!(parts("a `b` c", true).collect::<Vec<_>>(), ["b"]);
    }
}
