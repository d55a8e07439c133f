//! Statistics of equal workers: how much each did, and how evenly.
//!
//! The formulas are those of `docs/kernel/workloads.md` §0.5, which reproduce what was published
//! from its parts: the sample standard deviation, a 95 % confidence interval of the mean by
//! Student's t, and Jain's index of fairness.

/// The amounts of a number of workers. Without workers everything is 0.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Spread {
    /// Workers.
    pub workers: u64,
    /// What all did together.
    pub total: f64,
    /// What one did, on average.
    pub mean: f64,
    /// Sample standard deviation; 0 for a single worker.
    pub stdev: f64,
    /// Half the width of the 95 % confidence interval of the mean; 0 for a single worker.
    pub ci95: f64,
    /// (Σx)² / (n·Σx²): 1 when all did the same, 1/n when one did everything. 1 when all are 0.
    pub jain: f64,
    /// What the worker that did least did.
    pub least: f64,
    /// What the worker that did most did.
    pub most: f64,
}

impl Spread {
    /// The spread of what each worker did. O(workers).
    #[must_use]
    pub fn of(amounts: &[u64]) -> Self {
        let n = amounts.len() as f64;
        if amounts.is_empty() {
            return Self::default();
        }
        let of = || amounts.iter().map(|&amount| amount as f64);
        let total: f64 = of().sum();
        let squares: f64 = of().map(|x| x * x).sum();
        let mean = total / n;
        let (stdev, ci95) = match amounts.len() as u64 - 1 {
            0 => (0.0, 0.0),
            freedom => {
                let variance = of().map(|x| (x - mean).powi(2)).sum::<f64>() / freedom as f64;
                (variance.sqrt(), t_975(freedom) * (variance / n).sqrt())
            }
        };
        Self {
            workers: amounts.len() as u64,
            total,
            mean,
            stdev,
            ci95,
            jain: if squares > 0.0 { total * total / (n * squares) } else { 1.0 },
            least: of().fold(f64::INFINITY, f64::min),
            most: of().fold(0.0, f64::max),
        }
    }
}

/// The 97.5 % point of Student's t for 1 to 30 degrees of freedom.
const T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// The same for more, against one over the degrees of freedom, in which it is nearly a straight
/// line.
const T_975_TAIL: [(f64, f64); 5] = [
    (1.0 / 30.0, 2.042),
    (1.0 / 40.0, 2.021),
    (1.0 / 60.0, 2.000),
    (1.0 / 120.0, 1.980),
    (0.0, 1.960),
];

/// The 97.5 % point of Student's t.
fn t_975(freedom: u64) -> f64 {
    if let Some(&t) = T_975.get((freedom as usize).wrapping_sub(1)) {
        return t;
    }
    let at = 1.0 / freedom as f64;
    let lines = T_975_TAIL.iter().zip(&T_975_TAIL[1..]);
    let between = lines.filter(|((more, _), (less, _))| (*less..=*more).contains(&at));
    between
        .map(|((x0, y0), (x1, y1))| y0 + (at - x0) * (y1 - y0) / (x1 - x0))
        .next()
        .unwrap_or(1.960)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64, by: f64) {
        assert!((a - b).abs() <= by, "{a} is not {b}");
    }

    /// `docs/kernel/workloads.md` §0.5: s = 119.1 gives ±29.7, mean 1278.6, Jain 0.99153 (published
    /// 0.991530, [1248.8, 1308.4]).
    #[test]
    fn the_published_spread_follows_from_its_parts() {
        // 64 workers in two groups, as far from the mean as the published deviation wants, in
        // thousandths of a request.
        let off = 119_100.0 * (63.0_f64 / 64.0).sqrt();
        let (low, high) = ((1_278_600.0 - off) as u64, (1_278_600.0 + off) as u64);
        let spread = Spread::of(&[[low; 32], [high; 32]].concat());
        near(spread.mean / 1e3, 1278.6, 0.05);
        near(spread.stdev / 1e3, 119.1, 0.05);
        near(spread.ci95 / 1e3, 29.75, 0.05);
        near(spread.jain, 0.991_530, 0.000_005);
        assert_eq!((spread.workers, spread.least, spread.most), (64, low as f64, high as f64));
    }

    #[test]
    fn the_points_of_students_t_are_those_of_the_tables() {
        near(t_975(63), 1.998, 0.0006);
        near(t_975(1), 12.706, 0.0);
        near(t_975(15), 2.131, 0.0);
        near(t_975(30), 2.042, 0.0);
        near(t_975(31), 2.040, 0.001);
        near(t_975(50), 2.009, 0.001);
        near(t_975(100), 1.984, 0.001);
        near(t_975(1_000_000), 1.960, 0.001);
    }

    #[test]
    fn equal_workers_are_fair_and_one_that_takes_all_is_not() {
        let equal = Spread::of(&[7; 5]);
        assert_eq!((equal.jain, equal.stdev, equal.ci95, equal.total), (1.0, 0.0, 0.0, 35.0));
        near(Spread::of(&[0, 0, 0, 9]).jain, 0.25, 1e-12);
        assert_eq!(Spread::of(&[0, 0]).jain, 1.0);
        assert_eq!(Spread::of(&[3]).ci95, 0.0);
        assert_eq!(Spread::of(&[]), Spread::default());
        // By hand: deviations -1, 0, 1; variance 1; t(2) = 4.303.
        let three = Spread::of(&[1, 2, 3]);
        near(three.stdev, 1.0, 1e-12);
        near(three.ci95, 4.303 / 3.0_f64.sqrt(), 1e-12);
        near(three.jain, 36.0 / 42.0, 1e-12);
    }
}
