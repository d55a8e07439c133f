//! Promises about pictures, drawn into memory: what is needed is there at 80x24, and a large
//! terminal is used.

use lowtide_status::{
    Curve, Generation, Origin, PagerStatus, Point, ProcessStat, Stat, Status, TenantStat,
    TenantStatus,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};

use super::draw::look::Look;
use super::draw::{self, Caption, Scene};
use super::keys::Key;
use super::model::navigation::{Effect, Navigation};
use super::model::processes::Processes;
use super::model::sample::{Sample, Seen};

const GIB: u64 = 1 << 30;
const SECOND: u64 = 1_000_000_000;
const PLAIN: Look = Look { has_colour: false, is_ascii: false };

/// Misses fall from all at nothing to a tenth at 2 GiB.
fn curve() -> Curve {
    let at =
        |quarter: u64| Point { bytes: GIB / 4 * quarter, misses: 1000.0 - 112.5 * quarter as f64 };
    Curve {
        seconds: 300.0,
        accesses: 1000.0,
        cold: 100.0,
        samples: 4000,
        error: 0.003,
        missed: 560.0,
        points: (0..=8).map(at).collect(),
        ..Curve::default()
    }
}

fn tenant(path: &str, second: u64) -> TenantStatus {
    TenantStatus {
        path: path.into(),
        stat: TenantStat {
            usage_bytes: GIB * 3 / 4,
            peak_bytes: GIB,
            max_bytes: Some(GIB),
            file_bytes: GIB / 2,
            anon_bytes: GIB / 4,
            dirty_bytes: 12 << 20,
            faults: second * 1234,
            refaults: second * 321,
            evicted: second * 777,
            stall_some_ns: second * 250_000_000,
            stall_some_avg10: 24.5,
            max_events: 42,
            ..TenantStat::default()
        },
        generations: vec![
            Generation { age_ns: SECOND / 2, file_bytes: GIB / 8, anon_bytes: 0 },
            Generation { age_ns: 95 * SECOND, file_bytes: GIB / 2, anon_bytes: GIB / 8 },
        ],
        files: vec!["/data/vectors.bin".into()],
        curve: Some(curve()),
    }
}

fn using(usage_bytes: u64, mut tenant: TenantStatus) -> TenantStatus {
    tenant.stat.usage_bytes = usage_bytes;
    tenant
}

fn status(pid: u32, second: u64) -> Status {
    let mut stat = Stat::default();
    (stat.hits, stat.misses) = (second * 970, second * 30);
    (stat.io.ahead_pages, stat.io.ahead_used, stat.io.ahead_wasted) = (100, 80, 5);
    Status {
        pid,
        start_ticks: 1,
        program: format!("prog{pid}"),
        origin: Origin::Run,
        written_ns: second * SECOND,
        stat: ProcessStat {
            device_read_bytes: second * (3 << 20),
            device_write_bytes: second << 20,
            ..ProcessStat::default()
        },
        pagers: vec![PagerStatus {
            policy: "mglru".into(),
            stat,
            tenants: vec![
                tenant("/", second),
                using(GIB / 2, tenant("/users", second)),
                using(GIB / 4, tenant("/users/ann", second)),
            ],
            ..PagerStatus::default()
        }],
        ..Status::default()
    }
}

/// Some processes, seen for a minute; one is unreadable, and one has just ended.
fn known() -> Processes {
    let mut processes = Processes::default();
    for second in 1..=60 {
        let mut seen = vec![
            Seen::page(status(11, second)),
            Seen::page(status(12, second)),
            Seen::unreadable(13, "it has format 9".into()),
        ];
        if second < 60 {
            seen.push(Seen::page(status(14, second)));
        }
        processes.take(&Sample { at_ns: second * SECOND, processes: seen });
    }
    processes
}

/// A picture, after some keys.
struct Picture {
    backend: TestBackend,
    navigation: Navigation,
}

impl Picture {
    fn text(&self) -> String {
        let buffer = self.backend.buffer();
        let rows = buffer.content.chunks(buffer.area.width as usize);
        rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>() + "\n").collect()
    }

    fn has(&self, wanted: &[&str]) {
        let text = self.text();
        for wanted in wanted {
            assert!(text.contains(wanted), "{wanted:?} is missing in\n{text}");
        }
    }

    fn lacks(&self, unwanted: &[&str]) {
        let text = self.text();
        for unwanted in unwanted {
            assert!(!text.contains(unwanted), "{unwanted:?} is in\n{text}");
        }
    }
}

fn draw_with(
    (width, height): (u16, u16),
    keys: &str,
    processes: &Processes,
    caption: &Caption,
    look: Look,
) -> Picture {
    let mut navigation = Navigation::new();
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let mut draw = |navigation: &mut Navigation| {
        let scene = Scene { processes, navigation, caption, look };
        terminal.draw(|frame| draw::screen(frame, scene)).unwrap();
    };
    draw(&mut navigation);
    for c in keys.chars() {
        let key = if c == '\n' { Key::Enter } else { Key::Char(c) };
        let effect = navigation.press(key, processes);
        assert_eq!(effect, Effect::None);
        draw(&mut navigation);
    }
    Picture { backend: terminal.backend().clone(), navigation }
}

fn draw(size: (u16, u16), keys: &str) -> Picture {
    let caption = Caption { source: "every 1 s".into(), ..Caption::default() };
    draw_with(size, keys, &known(), &caption, PLAIN)
}

#[test]
fn a_small_terminal_shows_what_is_needed_of_a_process() {
    let picture = draw((80, 24), "");
    picture.has(&["3 processes", "every 1 s", "PID PROGRAM", "USED", "FAULT/s", "STALL", "HIT"]);
    picture.has(&["11 prog11", "768M", " 1G ", "1234", "321", "25.0%"]);
    // Under `run` no hit is counted; the curve says which share of accesses memory answers.
    picture.has(&["44.0%", "3M", "q quit", "? help"]);
    picture.has(&["13 ?", "page not readable: it has format 9", "14 prog14", "ended"]);
    // What has no column is below: the way in, the policy, what is dirty, the last minute.
    picture.has(&["run, mglru, 3 tenants", "dirty 12M", "peak 1G", "faults", "stall", "last 51 s"]);
}

#[test]
fn a_large_terminal_has_all_columns_and_a_curve_next_to_them() {
    let picture = draw((200, 50), "");
    picture.has(&["WAY", "POLICY", "PEAK", "EVICT/s", "SCAN/s", "DIRTY", "TEN", "777"]);
    picture.has(&["Misses by memory", "X you are here: 1G", "o used: 768M", "Half 512M: 78 %"]);
}

#[test]
fn going_down_shows_tenants_as_a_tree_and_a_page_of_each() {
    let picture = draw((80, 24), "\n");
    picture.has(&["> 11 prog11", "TENANT", "\n>/ ", "\n! users ", "\n!  ann ", "STALL", "768M"]);
    let picture = draw((80, 24), "\nj\n");
    picture.has(&[
        "> 11 prog11 > /users",
        "used 512M of 1G",
        "peak 1G",
        "file 512M anon 256M swap 0",
    ]);
    picture.has(&["faults 1234/s", "stall 25.0% (10 s: 24.5 %)", "read ahead 100: used 80.0%"]);
    picture.has(&["Pages by age", "0.5 s", "95 s", "/data/vectors.bin", "Last 5"]);
    picture.has(&["Here 1G: 55 % (measured 56 %)", "Half 512M", "Twice 2G: 10 %, 82 % fewer"]);
    assert!(matches!(picture.navigation.view, super::model::navigation::View::Tenant(..)));
}

#[test]
fn no_picture_has_a_line_that_is_cut_off_in_the_middle_of_a_fact() {
    for size in [(80, 24), (100, 30), (200, 50)] {
        draw(size, "\n\n").has(&["wasted 5.0%", "full 0%", "no room 0", "+-0.3 points"]);
    }
}

#[test]
fn help_explains_keys_and_columns_and_fits_the_smallest_screen() {
    let picture = draw((80, 24), "?");
    picture.has(&["reverse", "REFLT/s: that had been evicted before", "Help"]);
    picture.has(&[
        "sort by next, last",
        "interval up, down",
        "wait for memory 10 % of the time or more",
    ]);
}

#[test]
fn a_screen_that_is_too_small_says_so_and_any_size_is_drawn() {
    draw((59, 24), "").has(&["needs 60 columns and 15 lines; here are 59"]);
    for width in (1..=220).step_by(7) {
        for height in (1..=60).step_by(7) {
            for keys in ["", "\n", "\n\n", "?", "/x"] {
                draw((width, height), keys);
            }
        }
    }
}

#[test]
fn without_a_process_it_says_how_to_get_one() {
    let empty = Processes::default();
    let picture = draw_with((80, 24), "", &empty, &Caption::default(), PLAIN);
    picture.has(&["0 processes", "lowtide run --max 1G -- PROGRAM"]);
}

#[test]
fn a_filter_that_finds_nothing_is_still_shown() {
    let picture = draw((80, 24), "/zzz");
    picture.has(&["Filter: zzz", "nothing matches the filter"]);
    draw((80, 24), "/zzz\n").has(&["filter: zzz"]);
    draw((80, 24), "/prog12\n").lacks(&["prog11"]);
}

#[test]
fn a_selected_row_that_is_unreadable_says_all_of_why() {
    let long = "it has format 9, and this lowtide reads formats up to 1: use the lowtide that \
                the process was started with, or a newer one";
    let mut processes = known();
    let seen = vec![Seen::unreadable(13, long.into())];
    processes.take(&Sample { at_ns: 90 * SECOND, processes: seen });
    let picture = draw_with((80, 24), "G", &processes, &Caption::default(), PLAIN);
    let text = picture.text().replace(['│', '\n'], " ");
    let words: Vec<&str> = text.split_whitespace().collect();
    assert!(words.join(" ").contains(long), "{}", picture.text());
}

#[test]
fn a_terminal_of_ascii_gets_nothing_else() {
    let look = Look { has_colour: true, is_ascii: true };
    for keys in ["", "\n", "\n\n", "?"] {
        let picture = draw_with((200, 50), keys, &known(), &Caption::default(), look);
        assert!(picture.text().is_ascii(), "{}", picture.text());
    }
    draw_with((80, 24), "", &known(), &Caption::default(), look).has(&["[###", "+---"]);
}

#[test]
fn without_colours_there_are_none_and_the_selection_is_seen_all_the_same() {
    let colours = |look| {
        let picture = draw_with((200, 50), "", &known(), &Caption::default(), look);
        let cells = &picture.backend.buffer().content;
        let coloured = |cell: &&ratatui::buffer::Cell| cell.fg != Color::Reset;
        let selected = cells.iter().filter(|cell| cell.modifier.contains(Modifier::REVERSED));
        (cells.iter().filter(coloured).count() > 0, selected.count() > 0)
    };
    assert_eq!(colours(PLAIN), (false, true));
    assert_eq!(colours(Look { has_colour: true, is_ascii: false }), (true, true));
}

#[test]
fn the_selected_row_of_a_long_list_is_seen() {
    let mut processes = Processes::default();
    for second in 1..=3 {
        let seen = (100..150).map(|pid| Seen::page(status(pid, second))).collect();
        processes.take(&Sample { at_ns: second * SECOND, processes: seen });
    }
    let caption = Caption::default();
    let picture =
        draw_with((80, 24), "jjjjjjjjjjjjjjjjjjjjjjjjjjjjjj", &processes, &caption, PLAIN);
    picture.has(&["50 processes", ">    130 prog130"]);
    picture.lacks(&["prog100"]);
}
