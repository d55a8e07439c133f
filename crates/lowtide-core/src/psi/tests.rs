use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const SEC: u64 = NS_PER_SEC;
const PERIOD: u64 = 2_001 * MS;

fn group() -> Psi {
    Psi::new(1000, 0)
}

/// Some and full of a task alone on a CPU, in milliseconds.
fn some_full_ms(psi: &mut Psi, now: u64) -> (u64, u64) {
    let p = psi.read(now);
    (p.some.total.as_millis() as u64, p.full.total.as_millis() as u64)
}

/// `docs/kernel/memcg.md` §14.1.
#[test]
fn full_needs_that_no_task_without_a_stall_could_run() {
    let mut psi = group();
    let (mut a, mut b) = (TaskPsi::new(0), TaskPsi::new(0));
    psi.apply(a.run(0), 0);
    psi.apply(b.wait_for_cpu(0), 0);
    psi.apply(a.enter_stall(), 0);
    psi.apply(a.block(true), 0);
    psi.apply(b.run(0), 0);
    assert_eq!(some_full_ms(&mut psi, 100 * MS), (100, 0), "b runs");
    psi.apply(b.block(false), 100 * MS);
    assert_eq!(some_full_ms(&mut psi, 150 * MS), (150, 50), "no task runs");
    psi.apply(a.run(0), 150 * MS);
    psi.apply(b.wait_for_cpu(0), 150 * MS);
    assert_eq!(
        some_full_ms(&mut psi, 250 * MS),
        (250, 150),
        "the current task reclaims, b cannot have the CPU"
    );
    psi.apply(a.leave_stall(), 250 * MS);
    assert_eq!(some_full_ms(&mut psi, 900 * MS), (250, 150));
}

/// `docs/kernel/memcg.md` §14.3: a CPU that is busy for longer weighs more. 300 ms stalled of 300
/// busy, 0 of 100.
#[test]
fn cpus_are_weighted_by_how_long_they_were_not_idle() {
    let mut psi = group();
    let (mut a, mut b) = (TaskPsi::new(0), TaskPsi::new(1));
    psi.apply(a.run(0), 0);
    psi.apply(a.enter_stall(), 0);
    psi.apply(b.run(1), 0);
    psi.apply(b.block(false), 100 * MS);
    psi.apply(a.leave_stall(), 300 * MS);
    psi.apply(a.block(false), 300 * MS);
    let expected = 300 * 300 / (300 + 100);
    assert_eq!(some_full_ms(&mut psi, SEC), (expected, expected));
}

/// `docs/kernel/memcg.md` §14.2.
#[test]
fn a_stall_within_a_stall_is_one_stall() {
    let mut psi = group();
    let mut task = TaskPsi::new(0);
    psi.apply(task.enter_stall(), 0);
    let nested = task.enter_stall();
    assert_eq!(nested.from, nested.to);
    psi.apply(nested, 10 * MS);
    psi.apply(task.leave_stall(), 20 * MS);
    psi.apply(task.leave_stall(), 30 * MS);
    psi.apply(task.leave_stall(), 40 * MS);
    assert_eq!(some_full_ms(&mut psi, SEC), (30, 30));
}

/// `docs/kernel/memcg.md` §8.7, 17.
#[test]
fn throttle_sleep_is_pressure_and_can_be_subtracted_exactly() {
    let mut psi = group();
    let (mut sleeper, mut other) = (TaskPsi::new(0), TaskPsi::new(0));
    psi.apply(sleeper.enter_throttle(), 0);
    psi.apply(other.enter_stall(), 100 * MS);
    psi.apply(other.leave_stall(), 140 * MS);
    psi.apply(sleeper.leave_throttle(), 300 * MS);
    psi.apply(other.enter_stall(), 400 * MS);
    psi.apply(other.leave_stall(), 460 * MS);
    let p = psi.read(SEC);
    assert_eq!(p.some.total.as_millis(), 360);
    assert_eq!((p.some.total - p.throttle.total).as_millis(), 100, "what the other lost");
}

/// `docs/kernel/memcg.md` §14.4: the vectors, through the group. After one period 18.11 / 3.27 /
/// 0.68.
#[test]
fn the_text_is_that_of_memory_pressure() {
    let mut psi = group();
    let mut task = TaskPsi::new(0);
    psi.apply(task.enter_stall(), 0);
    assert_eq!(
        psi.read(PERIOD).to_string(),
        "some avg10=18.11 avg60=3.27 avg300=0.68 total=2001000\nfull avg10=18.11 avg60=3.27 \
         avg300=0.68 total=2001000\n"
    );
    assert_eq!(
        psi.read(15 * PERIOD).some.averages,
        [9501, 3928, 978],
        "samples are taken as they were due"
    );
    assert!(
        Psi::new(100, 0)
            .read(0)
            .to_string()
            .starts_with("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
    );
}

/// `docs/kernel/memcg.md` §16, 15: after k idle periods an average has decayed by e^k, within
/// rounding.
#[test]
fn an_idle_group_decays_whether_or_not_it_is_read() {
    let run = |reads: &[u64]| {
        let mut psi = group();
        let mut task = TaskPsi::new(0);
        psi.apply(task.enter_stall(), 0);
        psi.apply(task.leave_stall(), 10 * PERIOD);
        for &at in reads {
            psi.read(10 * PERIOD + at);
        }
        psi.read(15 * PERIOD).some
    };
    let once = run(&[]);
    let often = run(&[1, PERIOD / 2, PERIOD, PERIOD * 2 + 5, PERIOD * 4]);
    assert_eq!(once.total, often.total);
    let expected = 8644.0 * (1677.0f64 / 2048.0).powi(5);
    for line in [once, often] {
        assert!((f64::from(line.averages[0]) - expected).abs() < 15.0, "{line:?}, {expected}");
    }
    assert_eq!(run(&[1_000_000 * SEC]).total, once.total, "years of idleness are one step");
}

#[test]
fn a_stall_of_days_is_caught_up_with_in_bounded_work() {
    let mut psi = group();
    let mut task = TaskPsi::new(0);
    psi.apply(task.enter_stall(), 0);
    let year = 365 * 86_400 * SEC;
    let p = psi.read(year);
    assert_eq!((p.some.averages, p.some.total), ([10_000; 3], Duration::from_nanos(year)));
    // 9 thousand million samples, were they taken one by one.
    assert_eq!(psi.read(u64::MAX).some.averages, [10_000; 3]);
    psi.apply(task.leave_stall(), u64::MAX);
    assert_eq!(psi.read(u64::MAX).some.total, Duration::from_nanos(u64::MAX));
}

/// The departure of the module's documentation.
#[test]
fn reading_often_loses_no_time_shorter_than_a_tick() {
    let mut psi = Psi::new(100, 0);
    let mut task = TaskPsi::new(0);
    for k in 0..1000 {
        let at = k * 20 * MS;
        psi.apply(task.enter_stall(), at);
        psi.apply(task.leave_stall(), at + MS);
        psi.read(at + 2 * MS);
    }
    assert!(psi.read(20 * SEC).some.total >= Duration::from_millis(990));
}

#[test]
fn what_happens_while_accounting_is_off_is_not_counted() {
    let mut psi = group();
    let mut task = TaskPsi::new(0);
    psi.apply(task.enter_stall(), 0);
    psi.set_enabled(false, 100 * MS);
    psi.set_enabled(true, 500 * MS);
    assert_eq!(some_full_ms(&mut psi, 600 * MS), (200, 200), "the task stalls still");
}

#[test]
fn a_group_that_no_task_enters_owns_no_memory_for_cpus() {
    let mut psi = group();
    psi.read(100 * SEC);
    assert_eq!(psi.cpus.capacity(), 0);
    assert!(size_of::<Psi>() <= 320, "{} bytes for each of 10,000 idle groups", size_of::<Psi>());
}

#[test]
fn a_task_that_moves_to_another_group_takes_its_stall_along() {
    let (mut old, mut new) = (group(), group());
    let mut task = TaskPsi::new(0);
    old.apply(task.enter_stall(), 0);
    old.apply(task.leave(), 50 * MS);
    new.apply(task.arrive(), 50 * MS);
    new.apply(task.leave_stall(), 80 * MS);
    assert_eq!(some_full_ms(&mut old, SEC), (50, 50));
    assert_eq!(some_full_ms(&mut new, SEC), (30, 30));
}

proptest! {
    /// `docs/kernel/memcg.md` §16, 15: averages within 0 and 100, full at most some, throttle at
    /// most some, nothing beyond the time that passed.
    #[test]
    fn totals_and_averages_stay_in_order(
        steps in prop::collection::vec((0usize..4, 0u8..7, 0u16..3, 0u64..3 * SEC), 1..200),
    ) {
        let mut psi = group();
        let mut tasks = [TaskPsi::new(0); 4];
        let mut now = 0;
        for (task, what, cpu, pause) in steps {
            now += pause;
            let task = &mut tasks[task];
            let change = match what {
                0 => task.run(cpu),
                1 => task.wait_for_cpu(cpu),
                2 => task.block(cpu == 0),
                3 => task.enter_stall(),
                4 => task.leave_stall(),
                5 => task.enter_throttle(),
                _ => task.leave_throttle(),
            };
            psi.apply(change, now);
            let p = psi.read(now);
            let some = p.some.total;
            prop_assert!(p.full.total <= some && p.throttle.total <= some);
            prop_assert!(p.some.total <= Duration::from_nanos(now));
            for line in [p.some, p.full, p.throttle] {
                prop_assert!(line.averages.iter().all(|&a| a <= 10_000));
            }
        }
    }
}
