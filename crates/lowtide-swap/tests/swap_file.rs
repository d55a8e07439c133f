//! What a swap file promises, on a real file and on one that fails.

use crate::common::{Call, Planned, Trouble, page};
use lowtide_swap::{
    Alone, Fault, Incoming, Neighbours, Outgoing, PAGE_BYTES, ReadAhead, ReadError, Slot, SwapFile,
    WriteError,
};
use std::collections::HashMap;

fn write<B: lowtide_swap::Backing>(
    file: &SwapFile<B>,
    numbers: std::ops::Range<u64>,
) -> Result<Vec<Slot>, WriteError> {
    let pages: Vec<(u64, Vec<u8>)> = numbers.map(|number| (number, page(number))).collect();
    let out: Vec<Outgoing> =
        pages.iter().map(|(tag, bytes)| Outgoing { bytes, tag: *tag }).collect();
    file.write(&out)
}

/// Takes all neighbours and checks them.
#[derive(Default)]
struct All(HashMap<u64, Slot>);

impl Neighbours for All {
    fn wants(&mut self, _: Slot, tag: u64) -> bool {
        !self.0.contains_key(&tag)
    }

    fn take(&mut self, slot: Slot, tag: u64, bytes: &[u8]) -> bool {
        assert_eq!(bytes, page(tag), "the contents of page {tag}");
        assert!(self.0.insert(tag, slot).is_none(), "page {tag} was not wanted");
        true
    }
}

#[test]
fn pages_come_back_from_a_real_file_in_any_order_and_its_space_goes_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = SwapFile::create(dir.path(), 500).expect("a swap file");
    let mut slots = Vec::new();
    for (begin, end) in [(0, 1), (1, 64), (64, 193), (193, 300)] {
        slots.extend(write(&file, begin..end).expect("free slots"));
    }
    let mut back = vec![0; PAGE_BYTES];
    for n in (0..300).map(|n| n * 7 % 300) {
        file.read_alone(slots[n], &mut back).expect("what was written");
        assert_eq!(back, page(n as u64), "page {n}");
    }
    let stat = file.stat();
    assert_eq!((stat.used, stat.written, stat.read, stat.read_requests), (300, 300, 300, 300));
    // 1, 63, 64 + 64 + 1, and 63 + 44.
    assert_eq!(stat.write_requests, 7);
    slots.into_iter().for_each(|slot| file.free(slot));
    assert_eq!(file.stat().used, 0);
    assert_eq!(file.discard(100) as u64 + file.stat().punch_errors, 4, "the fifth one is open");
    assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0);
}

#[test]
fn a_batch_that_does_not_fit_is_refused_as_a_whole() {
    let file = SwapFile::on(Planned::default(), 100).expect("a swap file");
    write(&file, 0..60).expect("free slots");
    let error = write(&file, 0..41).expect_err("40 slots are free");
    assert!(matches!(error, WriteError::Full { free: 40, slots: 100, wanted: 41 }), "{error}");
    assert_eq!((file.stat().used, file.stat().refused), (60, 1));
    write(&file, 0..40).expect("free slots");
    let odd = [Outgoing { bytes: &[0; 100], tag: 0 }];
    assert!(matches!(file.write(&odd), Err(WriteError::Size { bytes: 100 })));
    assert!(SwapFile::on(Planned::default(), 0).is_err());
}

/// Writes batches, frees every third page, writes more into the holes, reads all with read-ahead,
/// frees all and discards. Failures may happen anywhere; wrong bytes and leaks may not. Returns the
/// calls that were made and the errors that were met.
fn play(plan: Vec<(usize, Trouble)>) -> (Vec<Call>, Vec<String>) {
    let file = SwapFile::on(Planned::with(plan), 200).expect("a swap file");
    let mut stored = HashMap::new();
    let mut errors = Vec::new();
    let mut batch = |stored: &mut HashMap<u64, Slot>, numbers: std::ops::Range<u64>| {
        let before = file.stat().used;
        match write(&file, numbers.clone()) {
            Ok(slots) => stored.extend(numbers.zip(slots)),
            Err(error) => {
                assert!(matches!(error, WriteError::Io { .. }), "{error}");
                assert_eq!(file.stat().used, before, "a failed batch has no slots");
                errors.push(error.to_string());
            }
        }
    };
    batch(&mut stored, 0..64);
    batch(&mut stored, 64..74);
    batch(&mut stored, 74..190);
    let third: Vec<u64> = stored.keys().copied().filter(|number| number % 3 == 0).collect();
    for number in third {
        file.free(stored.remove(&number).expect("stored"));
    }
    batch(&mut stored, 200..230);
    let (ahead, mut all) = (ReadAhead::default(), All::default());
    let mut back = vec![0; PAGE_BYTES];
    let mut numbers: Vec<u64> = stored.keys().copied().collect();
    numbers.sort_unstable();
    for number in numbers.into_iter().step_by(2) {
        let slot = stored[&number];
        if all.0.contains_key(&number) {
            assert!(file.touched(slot, &ahead));
            continue;
        }
        match file.read(slot, &mut back, &ahead, &mut all) {
            Ok(()) => assert_eq!(back, page(number), "page {number}"),
            Err(ReadError::Io { slot: at, .. }) => {
                assert_eq!(at, slot);
                errors.push("read".into());
                let again = (0..2).any(|_| file.read_alone(slot, &mut back).is_ok());
                assert!(again, "it is still there");
                assert_eq!(back, page(number), "page {number}");
            }
            Err(error @ ReadError::Corrupt { fault: Fault::Checksum { .. }, .. }) => {
                errors.push(error.to_string());
            }
            Err(error) => panic!("{error}"),
        }
    }
    let stat = file.stat();
    assert_eq!(stat.used as usize, stored.len());
    stored.into_values().for_each(|slot| file.free(slot));
    file.discard(10);
    let stat = file.stat();
    assert_eq!(stat.used, 0, "all slots are free");
    assert_eq!(stat.ahead, stat.ahead_hits + stat.ahead_unused, "each page ahead is one of both");
    write(&file, 0..200).expect("every slot can be used again");
    (file.backing().calls()[..].to_vec(), errors)
}

#[test]
fn trouble_at_every_call_loses_no_slot_and_gives_no_wrong_byte() {
    let (calls, errors) = play(Vec::new());
    assert!(errors.is_empty(), "{errors:?}");
    // The last four are the writes into all slots at the end.
    let calls = &calls[..calls.len() - 4];
    assert!(calls.iter().filter(|&&call| call == Call::Read).count() > 10, "{calls:?}");
    assert!(calls.contains(&Call::Punch));
    let (eio, enospc) = (5, 28);
    for (n, &call) in calls.iter().enumerate() {
        let write = call == Call::Write;
        for trouble in [Trouble::Error(if write { enospc } else { eio }), Trouble::Error(eio)] {
            let (_, errors) = play(vec![(n, trouble)]);
            // A read that fails with neighbours is repeated without.
            assert!(errors.len() <= 1, "call {n}: {errors:?}");
            assert!(!write || errors.len() == 1, "a write that fails is reported");
        }
        for trouble in [Trouble::Interrupted, Trouble::Short] {
            let (_, errors) = play(vec![(n, trouble)]);
            assert!(errors.is_empty(), "call {n}, {trouble:?}: {errors:?}");
        }
        for trouble in [Trouble::Flip, Trouble::Lost] {
            // Contents are checked by the player: errors or right bytes.
            play(vec![(n, trouble)]);
        }
        if call == Call::Read {
            let twice = (n..n + 2).map(|n| (n, Trouble::Error(eio))).collect();
            let (_, errors) = play(twice);
            assert!(!errors.is_empty(), "the page alone cannot be read, either");
        }
    }
}

#[test]
fn a_page_is_read_alone_when_it_cannot_be_read_with_its_neighbours() {
    let file = SwapFile::on(Planned::default(), 64).expect("a swap file");
    let slots = write(&file, 0..64).expect("free slots");
    file.backing().plan_next([Trouble::Error(5)]);
    let (mut all, mut back) = (All::default(), vec![0; PAGE_BYTES]);
    file.read(slots[9], &mut back, &ReadAhead::default(), &mut all).expect("the page alone");
    assert_eq!((back, all.0.len()), (page(9), 0));
    let stat = file.stat();
    assert_eq!((stat.read, stat.read_requests, stat.read_errors, stat.ahead), (1, 2, 0, 0));
}

#[test]
fn wrong_contents_are_an_error_and_never_data() {
    let file = SwapFile::on(Planned::default(), 64).expect("a swap file");
    let slots = write(&file, 0..64).expect("free slots");
    let ahead = ReadAhead::default();
    for (n, &slot) in (0..).zip(&slots) {
        let at = n * PAGE_BYTES + n * 61 % PAGE_BYTES;
        file.backing().flip(at);
        let mut all = All::default();
        let mut back = vec![0; PAGE_BYTES];
        let error = file.read(slot, &mut back, &ahead, &mut all).expect_err("a bit is wrong");
        let text = error.to_string();
        assert!(text.contains(&slot.to_string()) && text.contains("checksum"), "{text}");
        // As a neighbour it is not given out.
        let other = slots[n ^ 1];
        let wide = ReadAhead::new(64);
        file.read(other, &mut back, &wide, &mut all).expect("its neighbour is right");
        assert!(!all.0.contains_key(&(n as u64)), "page {n} is wrong");
        file.backing().flip(at);
        file.read(slot, &mut back, &ahead, &mut Alone).expect("it is right again");
    }
    assert_eq!(file.stat().corrupt, 128);
    let mut short = vec![0; 100];
    let error = file.read_alone(slots[0], &mut short).expect_err("no page");
    assert!(matches!(error, ReadError::Corrupt { fault: Fault::Buffer(100), .. }));
}

#[test]
fn a_slot_that_was_freed_is_missing_and_freeing_it_twice_is_refused() {
    let file = SwapFile::on(Planned::default(), 64).expect("a swap file");
    let slots = write(&file, 0..2).expect("free slots");
    file.free(slots[0]);
    let mut back = vec![0; PAGE_BYTES];
    for slot in [slots[0], Slot::from_bits(Slot::MAX), Slot::from_bits(63)] {
        let error = file.read_alone(slot, &mut back).expect_err("nothing is there");
        assert!(matches!(error, ReadError::Corrupt { fault: Fault::Missing, .. }), "{error}");
    }
    let twice = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| file.free(slots[0])));
    assert!(twice.is_err());
    file.read_alone(slots[1], &mut back).expect("the file works as before");
}

#[test]
fn read_ahead_is_credited_for_touches_only() {
    let file = SwapFile::on(Planned::default(), 640).expect("a swap file");
    let slots = write(&file, 0..640).expect("free slots");
    let mut back = vec![0; PAGE_BYTES];
    // A sequential reader touches all that was read ahead: few requests.
    let (ahead, mut all) = (ReadAhead::new(16), All::default());
    for number in 0..320_u64 {
        let slot = slots[number as usize];
        if all.0.remove(&number).is_some() {
            assert!(file.touched(slot, &ahead), "page {number} was read ahead");
            assert!(!file.touched(slot, &ahead), "a second touch is no hit");
        } else {
            file.read(slot, &mut back, &ahead, &mut all).expect("what was written");
        }
    }
    let stat = file.stat();
    assert!(stat.read_requests <= 320 / 16 + 4, "{} requests", stat.read_requests);
    assert_eq!(stat.read + stat.ahead_hits, 320);
    // One that touches nothing reads single pages soon, however many neighbours are there: what
    // it reads ahead again and again is no hit.
    let ahead = ReadAhead::new(16);
    let before = file.stat();
    for n in 0..100 {
        let slot = slots[320 + n * 37 % 320];
        file.read(slot, &mut back, &ahead, &mut All::default()).expect("what was written");
    }
    let stat = file.stat();
    assert!(stat.ahead - before.ahead < 16 + 8 + 4 + 2, "{} pages", stat.ahead - before.ahead);
    assert_eq!(stat.ahead_hits, before.ahead_hits);
    slots.into_iter().for_each(|slot| file.free(slot));
    let stat = file.stat();
    assert_eq!(stat.ahead, stat.ahead_hits + stat.ahead_unused);
}

#[test]
fn clusters_that_cannot_be_punched_are_used_again() {
    let file = SwapFile::on(Planned::default(), 128).expect("a swap file");
    let slots = write(&file, 0..128).expect("free slots");
    slots.into_iter().for_each(|slot| file.free(slot));
    file.backing().plan_next([Trouble::Error(95)]);
    assert_eq!(file.discard(10), 1);
    let stat = file.stat();
    assert_eq!((stat.punched, stat.punch_errors), (1, 1));
    let slots = write(&file, 0..128).expect("free slots");
    let mut back = vec![0; PAGE_BYTES];
    file.read_alone(slots[127], &mut back).expect("what was written");
    assert_eq!(back, page(127));
}

#[test]
fn pages_that_are_read_together_take_a_request_for_each_span_of_slots_and_fail_alone() {
    let file = SwapFile::on(Planned::default(), 500).expect("a swap file");
    let slots = write(&file, 0..300).expect("free slots");
    // Two in one span, with a hole between them; a span of its own; and one that is freed.
    let wanted = [3_usize, 7, 100, 101, 200];
    file.free(slots[200]);
    let mut bytes = vec![vec![0; PAGE_BYTES]; wanted.len()];
    let before = file.stat().read_requests;
    let mut incoming: Vec<Incoming> =
        wanted.iter().zip(&mut bytes).map(|(&n, to)| Incoming { slot: slots[n], to }).collect();
    let read = file.read_together(&mut incoming);
    assert!(read[..4].iter().all(Result::is_ok), "{read:?}");
    assert!(
        matches!(read[4], Err(ReadError::Corrupt { fault: Fault::Missing, .. })),
        "nothing is stored there: {read:?}"
    );
    assert_eq!(file.stat().read_requests - before, 2, "none for the one that is not there");
    for (n, bytes) in wanted[..4].iter().zip(&bytes) {
        assert_eq!(*bytes, page(*n as u64), "page {n}");
    }
}

#[test]
fn a_request_for_many_pages_that_fails_is_made_again_for_each() {
    // The first call is the write.
    for (trouble, wrong) in [(Trouble::Error(5), 0), (Trouble::Flip, 1)] {
        let file = SwapFile::on(Planned::with(vec![(1, trouble)]), 100).expect("a swap file");
        let slots = write(&file, 0..10).expect("free slots");
        let mut bytes = vec![vec![0; PAGE_BYTES]; 10];
        let mut incoming: Vec<Incoming> =
            slots.iter().zip(&mut bytes).map(|(&slot, to)| Incoming { slot, to }).collect();
        let read = file.read_together(&mut incoming);
        let failed: Vec<_> = read.iter().filter(|read| read.is_err()).collect();
        assert_eq!(failed.len(), wrong, "{failed:?}");
        for (n, bytes) in bytes.iter().enumerate().filter(|(n, _)| read[*n].is_ok()) {
            assert_eq!(*bytes, page(n as u64), "page {n}");
        }
        slots.into_iter().for_each(|slot| file.free(slot));
    }
}
