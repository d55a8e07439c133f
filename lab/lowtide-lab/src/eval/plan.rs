//! What `eval` plays: each published experiment as the command line that performs it.
//!
//! The experiment itself, its sizes and its rule are where that command is defined; here is only
//! which options an evaluation gives it. So every result can be repeated alone, by the line that
//! stands in it.
//!
//! `--quick` is for a quarter of an hour on two processors. It keeps full size where the rule needs
//! it (locks are contended by as many threads as were published, and constants of reclaim do not
//! shrink with memory), and takes fewer seconds, seeds or threads elsewhere; `note` says which.

/// The arms of the reclaim-loop series: before, after, and the classical lists.
const ARMS: &str = "mglru-7.1,mglru-7.1+series,lru";

/// Where an experiment is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum World {
    /// On a simulated machine
    Sim,
    /// On real memory
    Real,
}

/// How an experiment is repeated with several seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seeds {
    /// The experiment counts over seeds itself: its usual number of them, quick and not.
    Own { quick: u32, full: u32 },
    /// The command is run again with another seed; the verdict is that of the median.
    Again,
    /// It makes no random choice.
    None,
}

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Experiment {
    /// Its name in results: the workload's, and a word if it is played twice.
    pub(super) name: &'static str,
    pub(super) world: World,
    /// The command line.
    words: &'static [&'static str],
    /// What `--quick` adds.
    quick: &'static [&'static str],
    /// How the quick run differs, for its result.
    quick_note: &'static str,
    /// The workload in the table of published figures, and the beginning of the variant there.
    pub(super) published: Option<(&'static str, &'static str)>,
    /// Whether figures of the quick run compare with published ones, besides their ratios.
    quick_absolute: bool,
    /// The same of the full run.
    absolute: bool,
    pub(super) seeds: Seeds,
    /// Seconds of the quick and of the full run, as measured with two processors.
    seconds: (f64, f64),
}

impl Experiment {
    /// The command line, with what `--quick` adds.
    pub(super) fn words(&self, quick: bool) -> Vec<String> {
        let more = if quick { self.quick } else { &[] };
        self.words.iter().chain(more).map(|&word| word.to_owned()).collect()
    }

    pub(super) const fn note(&self, quick: bool) -> &'static str {
        if quick { self.quick_note } else { "" }
    }

    pub(super) const fn is_absolute(&self, quick: bool) -> bool {
        if quick { self.quick_absolute } else { self.absolute }
    }

    /// Whether a run decides a condition of the rule.
    pub(super) fn decides(&self, what: &str, quick: bool) -> bool {
        !(quick && QUICK_LEAVES_OPEN.contains(&(self.name, what)))
    }

    /// An estimate, in seconds.
    pub(super) fn seconds(&self, quick: bool, seeds: Option<u32>) -> f64 {
        let each = if quick { self.seconds.0 } else { self.seconds.1 };
        let Some(seeds) = seeds.map(f64::from) else { return each };
        match self.seeds {
            Seeds::Own { quick: few, full } => {
                each * seeds / f64::from(if quick { few } else { full })
            }
            Seeds::Again => each * seeds,
            Seeds::None => each,
        }
    }
}

/// Conditions that a quick run is too small or too short to decide: they count as not measured. How
/// often a retry misses depends on the number of threads, and how far workers are apart on the
/// number of their requests.
const QUICK_LEAVES_OPEN: [(&str, &str); 4] = [
    ("mmap-thrash", "miss / drop, mmap-lock-retry less vma-lock-retry, points"),
    ("mmap-thrash-noise", "miss / drop, mmap-lock-retry less vma-lock-retry, points"),
    ("tenants", "Jain's index, least of any arm"),
    ("tenants", "confidence interval / mean, most of any arm"),
];

/// All of them, in the order in which they are played: the short ones first.
pub(super) const ALL: [Experiment; 15] = [
    Experiment {
        name: "dd-oom",
        world: World::Sim,
        words: &["lowtide-lab", "sim", "dd-oom", "--policy", ARMS],
        quick: &[],
        quick_note: "",
        published: None,
        quick_absolute: true,
        absolute: true,
        seeds: Seeds::None,
        seconds: (1.0, 1.0),
    },
    Experiment {
        name: "high-thrash",
        world: World::Sim,
        words: &["lowtide-lab", "sim", "high-thrash", "--policy", "mglru-7.1"],
        quick: &[],
        quick_note: "",
        published: Some(("high_thrash", "")),
        quick_absolute: true,
        absolute: true,
        seeds: Seeds::Again,
        seconds: (15.0, 15.0),
    },
    Experiment {
        name: "mmap-thrash",
        world: World::Sim,
        words: &[
            "lowtide-lab",
            "sim",
            "mmap-thrash",
            "--policy",
            "mglru",
            "--fault-path",
            "mmap-lock-retry,vma-lock-retry,hold",
        ],
        quick: &["--scale", "0.125", "--seconds", "1"],
        quick_note: "an eighth of the threads, processors and memory, one virtual second",
        published: Some(("fault_retry", "500x16M_run")),
        quick_absolute: false,
        absolute: true,
        seeds: Seeds::Again,
        seconds: (28.0, 650.0),
    },
    Experiment {
        name: "mmap-thrash-noise",
        world: World::Sim,
        words: &[
            "lowtide-lab",
            "sim",
            "mmap-thrash",
            "--noise",
            "--policy",
            "mglru",
            "--fault-path",
            "mmap-lock-retry,vma-lock-retry,hold",
        ],
        quick: &["--scale", "0.125", "--seconds", "1"],
        quick_note: "an eighth of the threads, processors and memory, one virtual second",
        published: Some(("fault_retry", "500x16M_noise")),
        quick_absolute: false,
        absolute: true,
        seeds: Seeds::Again,
        seconds: (30.0, 700.0),
    },
    Experiment {
        name: "fio-mmap-zipf",
        world: World::Sim,
        words: &["lowtide-lab", "sim", "fio-mmap", "--distribution", "zipf", "--policy", ARMS],
        quick: &["--scale", "0.0625", "--seconds", "1"],
        quick_note: "a sixteenth of the files and of the memory, one virtual second",
        published: Some(("fio_mmap_randread", "zipf")),
        quick_absolute: false,
        absolute: true,
        seeds: Seeds::Again,
        seconds: (40.0, 900.0),
    },
    Experiment {
        name: "fio-mmap-uniform",
        world: World::Sim,
        words: &["lowtide-lab", "sim", "fio-mmap", "--distribution", "uniform", "--policy", ARMS],
        quick: &["--scale", "0.0625", "--seconds", "1"],
        quick_note: "a sixteenth of the files and of the memory, one virtual second",
        published: Some(("fio_mmap_randread", "uniform")),
        quick_absolute: false,
        absolute: true,
        seeds: Seeds::Again,
        seconds: (40.0, 900.0),
    },
    Experiment {
        name: "sysbench-ro",
        world: World::Sim,
        words: &["lowtide-lab", "sim", "sysbench-ro", "--policy", ARMS],
        quick: &["--seconds", "2"],
        quick_note: "two virtual seconds instead of ten",
        published: Some(("mysql_ro", "")),
        quick_absolute: true,
        absolute: true,
        seeds: Seeds::Again,
        seconds: (42.0, 70.0),
    },
    Experiment {
        name: "kernel-build",
        world: World::Sim,
        words: &["lowtide-lab", "sim", "kernel-build", "--scale", "1", "--policy", ARMS],
        quick: &["--scale", "0.25"],
        quick_note: "a quarter of the jobs, processors, memory and units",
        published: Some(("kernel_build", "")),
        quick_absolute: false,
        absolute: true,
        seeds: Seeds::Again,
        seconds: (135.0, 600.0),
    },
    Experiment {
        name: "android",
        world: World::Sim,
        words: &[
            "lowtide-lab",
            "sim",
            "android",
            "--scale",
            "1",
            "--policy",
            "mglru-7.1,mglru-7.1+series",
        ],
        quick: &["--scale", "0.25"],
        quick_note: "a quarter of the sizes",
        published: Some(("android_cold_start", "")),
        quick_absolute: false,
        absolute: true,
        seeds: Seeds::Again,
        seconds: (20.0, 90.0),
    },
    Experiment {
        name: "tenants",
        world: World::Sim,
        words: &["lowtide-lab", "sim", "tenants", "--policy", ARMS],
        quick: &["--seconds", "120"],
        quick_note: "two virtual minutes instead of ten",
        published: Some(("chrome_node", "")),
        quick_absolute: false,
        absolute: true,
        seeds: Seeds::Again,
        seconds: (70.0, 350.0),
    },
    Experiment {
        name: "file-anon-mix",
        world: World::Sim,
        words: &[
            "lowtide-lab",
            "sim",
            "file-anon-mix",
            "--seed",
            "1",
            "--rounds",
            "40",
            "--policy",
            ARMS,
        ],
        quick: &["--rounds", "20"],
        quick_note: "20 rounds of the 40 in which a kill counts, and fewer seeds than 20",
        published: None,
        quick_absolute: false,
        absolute: false,
        seeds: Seeds::Own { quick: 4, full: 20 },
        seconds: (65.0, 700.0),
    },
    Experiment {
        name: "ycsb-b",
        world: World::Sim,
        words: &["lowtide-lab", "sim", "ycsb-b", "--seed", "1", "--policy", ARMS],
        quick: &[],
        quick_note: "",
        published: Some(("mongodb_ycsb_b", "")),
        quick_absolute: true,
        absolute: true,
        seeds: Seeds::Again,
        seconds: (120.0, 120.0),
    },
    Experiment {
        name: "dd-oom-real",
        world: World::Real,
        words: &["lowtide-lab", "bench", "dd-oom", "--policy", ARMS],
        quick: &["--delay", "100ms"],
        quick_note: "writes are delayed by 100 ms instead of one second",
        published: None,
        quick_absolute: false,
        absolute: false,
        seeds: Seeds::None,
        seconds: (8.0, 45.0),
    },
    Experiment {
        name: "high-thrash-real",
        world: World::Real,
        words: &["lowtide-lab", "bench", "high-thrash", "--policy", "mglru-7.1"],
        quick: &["--seconds", "2"],
        quick_note: "two seconds for each run, after as many to warm",
        published: None,
        quick_absolute: false,
        absolute: false,
        seeds: Seeds::Again,
        seconds: (60.0, 270.0),
    },
    Experiment {
        name: "tenants-real",
        world: World::Real,
        words: &["lowtide-lab", "bench", "tenants", "--policy", ARMS],
        quick: &[],
        quick_note: "",
        published: None,
        quick_absolute: false,
        absolute: false,
        seeds: Seeds::Again,
        seconds: (25.0, 25.0),
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use lowtide_experiments::published::{
        MeasuredStorm, MeasuredTenants, storm_verdict, tenants_verdict,
    };

    use super::super::perform::understood;
    use super::*;

    #[test]
    fn every_line_is_understood_quick_and_not() {
        let mut names = BTreeSet::new();
        for experiment in ALL {
            assert!(names.insert(experiment.name), "{} twice", experiment.name);
            for quick in [false, true] {
                let words = experiment.words(quick);
                understood(&words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
                assert!(quick || experiment.note(quick).is_empty());
            }
            assert_eq!(experiment.quick.is_empty(), experiment.quick_note.is_empty());
        }
    }

    #[test]
    fn what_a_quick_run_leaves_open_is_in_a_rule() {
        let storm = Some(MeasuredStorm { rounds_per_s: 1.0, miss_per_drop_pct: 1.0 });
        let nothing = MeasuredTenants::default();
        let rules = [
            ("mmap-thrash", storm_verdict(storm, storm, storm)),
            ("mmap-thrash-noise", storm_verdict(storm, storm, storm)),
            ("tenants", tenants_verdict(&nothing, &nothing, None)),
        ];
        for (name, what) in QUICK_LEAVES_OPEN {
            let rule = &rules.iter().find(|(of, _)| *of == name).unwrap().1;
            assert!(rule.iter().any(|criterion| criterion.what == what), "{name}: {what}");
            let experiment = ALL.into_iter().find(|experiment| experiment.name == name).unwrap();
            assert!(!experiment.decides(what, true) && experiment.decides(what, false));
        }
    }

    #[test]
    fn a_quick_evaluation_takes_less_than_a_quarter_of_an_hour() {
        let sum: f64 = ALL.iter().map(|experiment| experiment.seconds(true, None)).sum();
        assert!(sum < 900.0, "{sum} s");
    }
}
