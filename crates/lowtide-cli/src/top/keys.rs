//! Bytes of a terminal as keys.
//!
//! crossterm's reader comes with ten more crates ([`ansi`](super::ansi)), and takes the terminal's
//! descriptor for itself: it cannot wait for the signals of [`terminal`](super::terminal) besides.
//! The keys that are used here are few.

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    /// A letter with Ctrl.
    Control(char),
    Enter,
    Esc,
    Backspace,
    Up,
    Down,
    Left,
    Right,
    Home,
    End,
    PageUp,
    PageDown,
}

const ESC: u8 = 0x1b;

/// Whether more bytes may belong to the last of these.
pub(super) fn is_open(bytes: &[u8]) -> bool {
    let last = bytes.iter().rposition(|byte| *byte == ESC).map(|at| &bytes[at + 1..]);
    let sequence = last.is_some_and(|rest| {
        let is_end = |byte: &u8| (0x40..=0x7e).contains(byte);
        match rest {
            [] | [b'[' | b'O'] => true,
            [b'[', parameters @ ..] => !parameters.iter().any(is_end),
            _ => false,
        }
    });
    sequence || std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

/// The keys, as far as they are known. Other sequences are left out as a whole.
pub(super) fn parse(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some((&first, rest)) = bytes.split_first() {
        let (key, used) = match (first, rest) {
            (ESC, [b'[', rest @ ..]) => {
                let length = rest.iter().position(|byte| (0x40..=0x7e).contains(byte));
                let end = length.map_or(rest.len(), |length| length + 1);
                (named(&rest[..end]), end + 2)
            }
            (ESC, [b'O', rest @ ..]) => (named(&rest[..rest.len().min(1)]), 2 + rest.len().min(1)),
            (ESC, _) => (Some(Key::Esc), 1),
            (b'\r' | b'\n', _) => (Some(Key::Enter), 1),
            (0x7f | 0x08, _) => (Some(Key::Backspace), 1),
            (0x01..=0x1a, _) => {
                let letter = char::from(first - 1 + b'a');
                (Some(Key::Control(letter)), 1)
            }
            _ => letter(bytes),
        };
        keys.extend(key);
        bytes = &bytes[used.clamp(1, bytes.len())..];
    }
    keys
}

/// The key that a sequence names, without its beginning.
fn named(sequence: &[u8]) -> Option<Key> {
    Some(match sequence {
        [.., b'A'] => Key::Up,
        [.., b'B'] => Key::Down,
        [.., b'C'] => Key::Right,
        [.., b'D'] => Key::Left,
        [.., b'H'] | b"1~" | b"7~" => Key::Home,
        [.., b'F'] | b"4~" | b"8~" => Key::End,
        b"5~" => Key::PageUp,
        b"6~" => Key::PageDown,
        b"M" => Key::Enter,
        _ => return None,
    })
}

/// A letter, and its bytes.
fn letter(bytes: &[u8]) -> (Option<Key>, usize) {
    let most = &bytes[..bytes.len().min(4)];
    let valid = match std::str::from_utf8(most) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&most[..error.valid_up_to()]).unwrap_or_default(),
    };
    match valid.chars().next() {
        Some(c) if !c.is_control() => (Some(Key::Char(c)), c.len_utf8()),
        _ => (None, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_all_common_terminals_are_known() {
        use Key::{Backspace, Char, Down, End, Enter, Esc, Home, Left, PageDown, PageUp, Up};
        assert_eq!(parse(b"jq\r\x7f"), [Char('j'), Char('q'), Enter, Backspace]);
        assert_eq!(parse(b"\x1b[A\x1bOB\x1b[1;5D"), [Up, Down, Left]);
        assert_eq!(parse(b"\x1b[5~\x1b[6~\x1b[H\x1b[4~"), [PageUp, PageDown, Home, End]);
        assert_eq!(parse(b"\x1b"), [Esc]);
        assert_eq!(parse(b"\x1b\x1b[Bq"), [Esc, Down, Char('q')]);
        assert_eq!(parse("é日".as_bytes()), [Char('é'), Char('日')]);
        assert_eq!(parse(b"\x03"), [Key::Control('c')]);
    }

    #[test]
    fn unknown_sequences_and_bytes_are_left_out_as_a_whole() {
        assert_eq!(parse(b"\x1b[15~q\x1b[?1;2cq\xff\0q"), [Key::Char('q'); 3]);
        assert_eq!(parse(b"\x1b[1;"), []);
    }

    #[test]
    fn what_is_not_complete_is_waited_for() {
        for open in [&b"\x1b"[..], b"q\x1b[", b"\x1b[1;", b"\x1bO", b"\xc3"] {
            assert!(is_open(open), "{open:?}");
        }
        for whole in [&b"q"[..], b"\x1b[A", b"\x1bOA", b"\x1b[5~", b"\xc3\xa9", b"\xff", b""] {
            assert!(!is_open(whole), "{whole:?}");
        }
    }
}
