//! What must be in the file.
//!
//! For each piece the ledger has the number that was last promised: found after the last crash, or flushed since. After the next crash a piece must be that
//! one or a newer one that was really begun.

use super::layout::{Layout, number_of};

/// What comparing has found.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    /// Bytes compared.
    pub(super) verified: u64,
    /// Bytes older than promised.
    pub(super) lost: u64,
    /// Bytes that were never written there.
    pub(super) wrong: u64,
    /// Records that are old in one sector and new in another.
    pub(super) torn: u64,
    /// The first loss or wrong byte, in words.
    pub(super) first: Option<String>,
}

impl Findings {
    /// Adds others, found later.
    pub(super) fn add(&mut self, later: Self) {
        self.verified += later.verified;
        self.lost += later.lost;
        self.wrong += later.wrong;
        self.torn += later.torn;
        self.first = self.first.take().or(later.first);
    }

    /// Notes something wrong that was seen otherwise than by comparing a file.
    pub(super) fn note_wrong(&mut self, bytes: u64, what: String) {
        self.wrong += bytes;
        self.first.get_or_insert(what);
    }
}

/// The least number that each piece may have.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    promised: Vec<u64>,
}

impl Ledger {
    /// Of a file of zeros.
    pub(super) fn new(layout: &Layout) -> Self {
        Self { promised: vec![0; layout.pieces()] }
    }

    /// The least number of a piece.
    pub(super) fn promised(&self, piece: usize) -> u64 {
        self.promised[piece]
    }

    /// A flush has promised a record.
    pub(super) fn promise(&mut self, layout: &Layout, slot: usize, number: u64) {
        for (piece, _) in layout.pieces_of(slot) {
            self.promised[piece] = self.promised[piece].max(number);
        }
    }

    /// Compares a file with what must be in it; `begun` says whether a record of that number was ever begun in a slot. What is
    /// found is what must be found the next time.
    pub(super) fn settle(
        &mut self,
        layout: &Layout,
        file: &[u8],
        begun: impl Fn(usize, u64) -> bool,
    ) -> Findings {
        let mut findings = Findings::default();
        for slot in 0..layout.slots() {
            let mut numbers = layout.pieces_of(slot).map(|(piece, place)| {
                let length = place.end - place.start;
                findings.verified += length;
                let held = file.get(place.start as usize..).unwrap_or_default();
                let mut bytes = held[..held.len().min(length as usize)].to_vec();
                // What a shorter file has not got was never written.
                bytes.resize(length as usize, 0);
                let promised = self.promised[piece];
                let found = number_of(piece, &bytes);
                let what = match found {
                    Some(number) if number == promised => None,
                    Some(number) if number < promised => {
                        findings.lost += length;
                        Some(format!("is record {number:#x}, and {promised:#x} was promised"))
                    }
                    Some(number) if begun(slot, number) => None,
                    Some(number) => {
                        findings.wrong += length;
                        Some(format!("is record {number:#x}, which was never written there"))
                    }
                    None => {
                        findings.wrong += length;
                        Some("has bytes that were never written there".into())
                    }
                };
                if let Some(what) = what {
                    findings.first.get_or_insert(format!("slot {slot}, byte {}: {what}", place.start));
                }
                self.promised[piece] = found.unwrap_or(promised);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn file(layout: &Layout, numbers: impl Fn(usize) -> u64) -> Vec<u8> {
        (0..layout.slots()).flat_map(|slot| layout.record(slot, numbers(slot))).collect()
    }

    #[test]
    fn what_was_promised_or_is_newer_is_right_and_all_else_is_not() {
        let layout = Layout::new(1 << 16);
        let mut ledger = Ledger::new(&layout);
        ledger.promise(&layout, 4, 9);
        let fine = ledger.clone().settle(&layout, &file(&layout, |_| 9), |_, number| number == 9);
        assert_eq!((fine.verified, fine.lost, fine.wrong, fine.first), (1 << 16, 0, 0, None));
        let older = ledger.clone().settle(&layout, &file(&layout, |_| 8), |_, _| true);
        assert_eq!((older.lost, older.wrong), (layout.record(4, 8).len() as u64, 0));
        let never = ledger.clone().settle(&layout, &file(&layout, |_| 10), |slot, _| slot != 2);
        assert_eq!((never.lost, never.wrong), (0, layout.record(2, 10).len() as u64));
        let mut broken = file(&layout, |_| 9);
        broken[100] ^= 4;
        let wrong = ledger.clone().settle(&layout, &broken, |_, _| true);
        assert_eq!((wrong.lost, wrong.wrong), (0, 192));
        let short = ledger.clone().settle(&layout, &[], |_, _| true);
        assert_eq!(short.lost, layout.record(4, 9).len() as u64, "a file that has lost its end");
    }

    #[test]
    fn what_was_found_must_be_found_again_and_torn_records_are_counted() {
        let layout = Layout::new(1 << 16);
        let mut ledger = Ledger::new(&layout);
        let mut mixed = file(&layout, |_| 1);
        let newer = file(&layout, |_| 2);
        mixed[512..1024].copy_from_slice(&newer[512..1024]);
        let found = ledger.settle(&layout, &mixed, |_, _| true);
        assert_eq!((found.lost, found.wrong), (0, 0));
        assert!(found.torn > 0);
        let again = ledger.settle(&layout, &file(&layout, |_| 1), |_, _| true);
        assert_eq!(again.lost, 512, "what was there once may not go");
    }
}
