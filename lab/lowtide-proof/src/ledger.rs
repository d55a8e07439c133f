//! What must be in the file.
//!
//! For each piece the ledger has the version that was last promised: found after the last crash, or
//! flushed since. After the next crash a piece must be that one or a newer one that was really
//! begun. Zeroes are a version, too: of what was punched or cut off. From the moment at which that
//! is begun, the record that was there is promised no more; once it was flushed, zeroes are.
//!
//! A page that was under write-back may be left in any mixture of bytes, since nothing keeps a
//! program from storing to it meanwhile, and a device from stopping anywhere. So each *byte* must
//! be that of the promised record or of one begun later. A piece that is such a mixture is
//! remembered as it was found, and must be found like that again until it is written again.

use std::collections::HashMap;

use crate::layout::{Layout, number_of};
use crate::script::Version;

/// What comparing has found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Bytes compared.
    pub verified: u64,
    /// Bytes older than promised.
    pub lost: u64,
    /// Bytes that were never written there.
    pub wrong: u64,
    /// Records that are old in one sector and new in another.
    pub torn: u64,
    /// Pieces that are old in one byte and new in another.
    pub mixed: u64,
    /// The first loss or wrong byte, in words.
    pub first: Option<String>,
}

impl Findings {
    /// Adds others, found later.
    pub fn add(&mut self, later: Self) {
        self.verified += later.verified;
        self.lost += later.lost;
        self.wrong += later.wrong;
        self.torn += later.torn;
        self.mixed += later.mixed;
        self.first = self.first.take().or(later.first);
    }

    /// Notes something wrong that was seen otherwise than by comparing a file.
    pub fn note_wrong(&mut self, bytes: u64, what: String) {
        self.wrong += bytes;
        self.first.get_or_insert(what);
    }
}

/// The oldest version that each piece may be.
#[derive(Clone, Debug)]
pub struct Ledger {
    promised: Vec<Version>,
    /// Pieces that were found as mixtures.
    mixtures: HashMap<usize, Vec<u8>>,
}

impl Ledger {
    /// Of a file of zeros.
    pub fn new(layout: &Layout) -> Self {
        Self { promised: vec![Version::NEVER; layout.pieces()], mixtures: HashMap::new() }
    }

    /// The oldest version that a piece may be.
    pub fn promised(&self, piece: usize) -> Version {
        self.promised[piece]
    }

    /// What a piece was found to be, if it was no whole record.
    pub fn mixture(&self, piece: usize) -> Option<&[u8]> {
        self.mixtures.get(&piece).map(Vec::as_slice)
    }

    /// A flush has promised a version of a record.
    pub fn promise(&mut self, layout: &Layout, slot: usize, version: Version) {
        for (piece, _) in layout.pieces_of(slot) {
            if version.number > self.promised[piece].number {
                self.promised[piece] = version;
                self.mixtures.remove(&piece);
            }
        }
    }

    /// Takes a file for what it is: it was compared by another process.
    pub fn adopt(&mut self, layout: &Layout, file: &[u8]) {
        for slot in 0..layout.slots() {
            for (piece, place) in layout.pieces_of(slot) {
                let bytes = held(file, &place);
                match number_of(piece, &bytes) {
                    Some(0) => self.promised[piece] = Version::NEVER,
                    Some(number) => self.promised[piece] = Version { number, zeroes: false },
                    None => drop(self.mixtures.insert(piece, bytes)),
                }
            }
        }
    }

    /// The bytes of a version of a piece.
    fn bytes_of(layout: &Layout, slot: usize, piece: usize, version: Version) -> Vec<u8> {
        layout.piece(slot, piece, if version.zeroes { 0 } else { version.number })
    }

    /// Whether each byte is that of the promised version, or of one of those begun later.
    pub(crate) fn is_mixture(
        &self,
        layout: &Layout,
        slot: usize,
        piece: usize,
        bytes: &[u8],
        begun: &[Version],
    ) -> bool {
        let promised = self.promised[piece];
        let base = match self.mixtures.get(&piece) {
            Some(mixture) => mixture.clone(),
            None => Self::bytes_of(layout, slot, piece, promised),
        };
        let later = begun.iter().filter(|version| version.number > promised.number);
        let later = later.map(|version| Self::bytes_of(layout, slot, piece, *version));
        let candidates: Vec<Vec<u8>> = later.chain([base]).collect();
        (0..bytes.len()).all(|at| candidates.iter().any(|candidate| candidate[at] == bytes[at]))
    }

    /// Compares a file with what must be in it; `begun` says whether a record of that number was
    /// ever begun in a slot, `all_begun` which versions were. What is found is what must be found
    /// the next time.
    pub fn settle(
        &mut self,
        layout: &Layout,
        file: &[u8],
        begun: impl Fn(usize, u64) -> bool,
        all_begun: impl Fn(usize) -> Vec<Version>,
    ) -> Findings {
        let mut findings = Findings::default();
        for slot in 0..layout.slots() {
            let mut numbers = layout.pieces_of(slot).map(|(piece, place)| {
                let length = place.end - place.start;
                findings.verified += length;
                let bytes = held(file, &place);
                let promised = self.promised[piece];
                let found = number_of(piece, &bytes);
                let known = self.mixtures.get(&piece);
                let due = if promised.zeroes { 0 } else { promised.number };
                // Zeroes are of the last change that made some.
                let zeroes = (found == Some(0) && (due > 0 || known.is_some())).then(|| {
                    let later = |v: &Version| v.zeroes && v.number > promised.number;
                    all_begun(slot).into_iter().rfind(later)
                });
                let zeroes = zeroes.flatten();
                let what = match found {
                    _ if known == Some(&bytes) => None,
                    Some(number) if number == due && known.is_none() => None,
                    _ if zeroes.is_some() => None,
                    Some(number) if number < promised.number => {
                        findings.lost += length;
                        Some(format!("is record {number:#x}, and {promised} was promised"))
                    }
                    Some(number) if begun(slot, number) => None,
                    Some(number) => {
                        findings.wrong += length;
                        Some(format!("is record {number:#x}, which was never written there"))
                    }
                    None if self.is_mixture(layout, slot, piece, &bytes, &all_begun(slot)) => {
                        findings.mixed += 1;
                        None
                    }
                    None => {
                        findings.wrong += length;
                        Some("has bytes that were never written there".into())
                    }
                };
                if let Some(what) = what {
                    findings
                        .first
                        .get_or_insert(format!("slot {slot}, byte {}: {what}", place.start));
                }
                match found {
                    Some(number) => {
                        let number = if number > 0 { number } else { promised.number };
                        let version = Version { number, zeroes: found == Some(0) };
                        self.promised[piece] = zeroes.unwrap_or(version);
                        self.mixtures.remove(&piece);
                    }
                    None => drop(self.mixtures.insert(piece, bytes)),
                }
                found
            });
            let first = numbers.next();
            let mut torn = false;
            for number in numbers {
                torn |= Some(number) != first;
            }
            findings.torn += u64::from(torn);
        }
        findings
    }
}

/// The bytes of a place. What a shorter file has not got was never written.
fn held(file: &[u8], place: &std::ops::Range<u64>) -> Vec<u8> {
    let length = (place.end - place.start) as usize;
    let held = file.get(place.start as usize..).unwrap_or_default();
    let mut bytes = held[..held.len().min(length)].to_vec();
    bytes.resize(length, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64) -> Version {
        Version { number, zeroes: false }
    }

    fn zeroes(number: u64) -> Version {
        Version { number, zeroes: true }
    }

    #[test]
    fn zeroes_are_right_from_the_moment_they_are_begun_and_due_once_they_are_promised() {
        let layout = Layout::new(1 << 16);
        let mut ledger = Ledger::new(&layout);
        ledger.promise(&layout, 4, record(9));
        let bytes = layout.record(4, 9).len() as u64;
        let (old, gone) = (file(&layout, |_| 9), vec![0; 1 << 16]);
        let settle = |ledger: &Ledger, file: &[u8], begun: &[Version]| {
            let found =
                ledger.clone().settle(&layout, file, |_, number| number == 9, |_| begun.to_vec());
            (found.lost, found.wrong)
        };
        assert_eq!(settle(&ledger, &gone, &[]), (bytes, 0));
        assert_eq!(settle(&ledger, &gone, &[zeroes(8)]), (bytes, 0), "they came before");
        assert_eq!(settle(&ledger, &gone, &[zeroes(10)]), (0, 0));
        assert_eq!(settle(&ledger, &old, &[zeroes(10)]), (0, 0));
        ledger.promise(&layout, 4, zeroes(10));
        assert_eq!(settle(&ledger, &gone, &[]), (0, 0));
        assert_eq!(settle(&ledger, &old, &[]), (bytes, 0), "what was cut off is back");
        let mut half = old;
        half[layout.slot(4).start as usize..][..40].fill(0);
        assert!(settle(&ledger, &half, &[]).1 > 0, "a part of it is back");
    }

    fn file(layout: &Layout, numbers: impl Fn(usize) -> u64) -> Vec<u8> {
        (0..layout.slots()).flat_map(|slot| layout.record(slot, numbers(slot))).collect()
    }

    #[test]
    fn what_was_promised_or_is_newer_is_right_and_all_else_is_not() {
        let layout = Layout::new(1 << 16);
        let mut ledger = Ledger::new(&layout);
        ledger.promise(&layout, 4, record(9));
        let fine = ledger.clone().settle(
            &layout,
            &file(&layout, |_| 9),
            |_, number| number == 9,
            |_| Vec::new(),
        );
        assert_eq!((fine.verified, fine.lost, fine.wrong, fine.first), (1 << 16, 0, 0, None));
        let older =
            ledger.clone().settle(&layout, &file(&layout, |_| 8), |_, _| true, |_| Vec::new());
        assert_eq!((older.lost, older.wrong), (layout.record(4, 8).len() as u64, 0));
        let never = ledger.clone().settle(
            &layout,
            &file(&layout, |_| 10),
            |slot, _| slot != 2,
            |_| Vec::new(),
        );
        assert_eq!((never.lost, never.wrong), (0, layout.record(2, 10).len() as u64));
        let mut broken = file(&layout, |_| 9);
        broken[100] ^= 4;
        let wrong = ledger.clone().settle(&layout, &broken, |_, _| true, |_| Vec::new());
        assert_eq!((wrong.lost, wrong.wrong), (0, 192));
        let short = ledger.clone().settle(&layout, &[], |_, _| true, |_| Vec::new());
        assert_eq!(short.lost, layout.record(4, 9).len() as u64, "a file that has lost its end");
    }

    #[test]
    fn what_was_found_must_be_found_again_and_torn_records_are_counted() {
        let layout = Layout::new(1 << 16);
        let mut ledger = Ledger::new(&layout);
        let mut mixed = file(&layout, |_| 1);
        let newer = file(&layout, |_| 2);
        mixed[512..1024].copy_from_slice(&newer[512..1024]);
        let found = ledger.settle(&layout, &mixed, |_, _| true, |_| Vec::new());
        assert_eq!((found.lost, found.wrong), (0, 0));
        assert!(found.torn > 0);
        let again = ledger.settle(&layout, &file(&layout, |_| 1), |_, _| true, |_| Vec::new());
        assert_eq!(again.lost, 512, "what was there once may not go");
    }

    #[test]
    fn a_mixture_of_bytes_begun_since_the_promise_is_right_and_stays_as_it_was_found() {
        let layout = Layout::new(1 << 16);
        let mut ledger = Ledger::new(&layout);
        ledger.promise(&layout, 5, record(3));
        let mut mixed = file(&layout, |slot| if slot == 5 { 3 } else { 0 });
        let place = layout.slot(5).start as usize;
        let newer = layout.record(5, 7);
        mixed[place + 100..place + 300].copy_from_slice(&newer[100..300]);
        let wrong = ledger.clone().settle(&layout, &mixed, |_, _| true, |_| vec![record(6)]);
        assert!(wrong.wrong > 0, "7 was never begun");
        let found = ledger.settle(&layout, &mixed, |_, _| true, |_| vec![record(6), record(7)]);
        assert!(found.mixed > 0);
        assert_eq!((found.lost, found.wrong), (0, 0));
        let again = ledger.clone().settle(&layout, &mixed, |_, _| false, |_| Vec::new());
        assert_eq!((again.lost, again.wrong, again.mixed), (0, 0, 0));
        let old = file(&layout, |slot| if slot == 5 { 3 } else { 0 });
        let back = ledger.clone().settle(&layout, &old, |_, _| false, |_| Vec::new());
        assert!(back.lost + back.wrong > 0, "what was found once may not go");
    }
}
