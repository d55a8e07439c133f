//! Comparisons of rows: ratios to a base, published results, and whether they are reproduced.

use lowtide::Policy;
use lowtide_experiments::client::tenants::BUCKETS_S;
use lowtide_experiments::published::{
    Arm, Criterion, Measured, MeasuredTenants, Published, PublishedTenants, published,
    published_tenants, tenants_verdict, verdict,
};
use lowtide_report::row::{Bucket, Row, RowLatency, TenantsRow, Workers, named};
use lowtide_report::verdict::CriterionRow;

/// The row that others are compared with: `mglru-7.1`, so that rows with more and more of its
/// switches show the effect of each; otherwise the first.
fn base(rows: &[Row]) -> Option<&Row> {
    let name = Policy::MGLRU_7_1.to_string();
    rows.iter().find(|row| row.policy == name).or_else(|| rows.first())
}

/// Gives every row its ratio to the base.
pub(crate) fn with_ratios(rows: Vec<Row>) -> Vec<Row> {
    match base(&rows).cloned() {
        Some(base) => rows.into_iter().map(|row| row.compared_with(&base)).collect(),
        None => rows,
    }
}

/// Names the base of the ratios.
pub(crate) fn ratio_line(rows: &[Row]) -> Vec<String> {
    let to = rows.iter().find_map(|row| row.ratio.as_ref()).map(|ratio| &ratio.to);
    to.map(|to| format!("\nratios are to {to}")).into_iter().collect()
}

/// Adds the published results of an arm below its row.
pub(crate) fn with_published(rows: Vec<Row>) -> Vec<Row> {
    let mut all = Vec::with_capacity(4 * rows.len());
    for row in rows {
        let postings = arm(&row).map(published).unwrap_or_default();
        let postings: Vec<Row> =
            postings.into_iter().map(|posting| published_row(&row, posting)).collect();
        all.push(row);
        all.extend(postings);
    }
    all
}

/// The same for tenants.
pub(crate) fn with_published_tenants(rows: Vec<Row>) -> Vec<Row> {
    let mut all = Vec::with_capacity(5 * rows.len());
    for row in rows {
        let postings = arm(&row).map(published_tenants).unwrap_or_default();
        let postings: Vec<Row> =
            postings.iter().map(|posting| published_tenants_row(&row, posting)).collect();
        all.push(row);
        all.extend(postings);
    }
    all
}

/// A published row, for comparison with a simulated one of the same arm.
fn published_row(beside: &Row, published: Published) -> Row {
    Row {
        workload: beside.workload,
        world: "real",
        system: "published",
        source: Some(published.posting),
        policy: beside.policy.clone(),
        machine: beside.machine.clone(),
        max_bytes: beside.max_bytes,
        page_bytes: beside.page_bytes,
        threads: beside.threads,
        seconds: published.ops_per_s.zip(beside.ops).map(|(rate, ops)| ops as f64 / rate),
        ops: beside.ops,
        ops_per_s: published.ops_per_s,
        latency_us: published.mean_us.map(|mean| RowLatency::Mean { mean }),
        stat: named(published.stat),
        ..Row::default()
    }
}

/// A published row about tenants, for comparison with a simulated one of the same arm.
fn published_tenants_row(beside: &Row, published: &PublishedTenants) -> Row {
    Row {
        workload: beside.workload,
        world: "real",
        system: "published",
        source: Some(published.posting),
        policy: beside.policy.clone(),
        machine: beside.machine.clone(),
        page_bytes: beside.page_bytes,
        threads: beside.threads,
        ops: published.total,
        ..Row::default()
    }
    .with(TenantsRow {
        jain: published.jain,
        workers: Some(Workers {
            mean: published.mean.or(published.ci95.map(|(low, high)| low.midpoint(high))),
            ci95: published.ci95.map(|(low, high)| [low, high]),
            stdev: published.stdev,
            ..Workers::default()
        }),
        latency_buckets: published.buckets.map(|counts| Bucket::all(&BUCKETS_S, &counts)),
    })
}

fn arm(row: &Row) -> Option<Arm> {
    row.policy.parse().ok().and_then(Arm::of)
}

/// The criteria, if both rows (before and after) exist.
pub(crate) fn database_verdict(rows: &[Row]) -> Vec<CriterionRow> {
    let of = |wanted| rows.iter().find(|row| arm(row) == Some(wanted)).map(measured);
    let (Some(before), Some(after)) = (of(Arm::Before), of(Arm::After)) else { return Vec::new() };
    judged(None, &verdict(&before, &after, of(Arm::Classical).as_ref()))
}

/// The same for tenants.
pub(crate) fn verdict_on_tenants(rows: &[Row]) -> Vec<CriterionRow> {
    let of = |wanted| rows.iter().find(|row| arm(row) == Some(wanted)).map(measured_tenants);
    let (Some(before), Some(after)) = (of(Arm::Before), of(Arm::After)) else { return Vec::new() };
    judged(None, &tenants_verdict(&before, &after, of(Arm::Classical).as_ref()))
}

/// Criteria as they are in results; `policy` is that which they are about, if each has its own.
pub(crate) fn judged(policy: Option<&str>, criteria: &[Criterion]) -> Vec<CriterionRow> {
    let finite = |value: f64| value.is_finite().then_some(value);
    let row = |criterion: &Criterion| CriterionRow {
        policy: policy.map(Into::into),
        what: criterion.what.into(),
        kind: criterion.kind.text().into(),
        value: finite(criterion.value),
        least: criterion.least,
        most: finite(criterion.most),
        published: criterion.published.into(),
        outcome: criterion.outcome.text().into(),
    };
    criteria.iter().map(row).collect()
}

/// A row of tenants in the verdict's form.
fn measured_tenants(row: &Row) -> MeasuredTenants {
    let worker = |of: fn(&Workers) -> Option<f64>| {
        row.own::<TenantsRow>().workers.as_ref().and_then(of).unwrap_or(f64::NAN)
    };
    let ops_from = |from, to| {
        let buckets = row.own::<TenantsRow>().latency_buckets.into_iter().flatten();
        buckets
            .filter(|bucket| (from..to).contains(&bucket.from_s))
            .map(|bucket| bucket.ops as f64)
            .sum()
    };
    MeasuredTenants {
        total: row.ops.unwrap_or(0) as f64,
        mean: worker(|workers| workers.mean),
        ci95: worker(|workers| workers.ci95.map(|[low, high]| (high - low) / 2.0)),
        jain: row.own::<TenantsRow>().jain.unwrap_or(f64::NAN),
        below_1s: ops_from(0, 1),
        from_4s_to_8s: ops_from(4, 8),
        from_8s: ops_from(8, u64::MAX),
    }
}

/// A row in the verdict's form.
fn measured(row: &Row) -> Measured {
    Measured {
        ops: row.ops.unwrap_or(0) as f64,
        ops_per_s: row.ops_per_s.unwrap_or(f64::NAN),
        read: row.count("pgpgin") as f64,
        written: row.count("pgpgout") as f64,
        refault_file: row.count("workingset_refault_file") as f64,
        refault_anon: row.count("workingset_refault_anon") as f64,
        oom: row.oom.unwrap_or(0) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: &str = "mglru-7.1+series";

    fn row(policy: &str, ops_per_s: f64, pgpgin: u64) -> Row {
        Row {
            policy: policy.into(),
            ops_per_s: Some(ops_per_s),
            ops: Some(6_000_000),
            stat: named([
                ("pgpgin", pgpgin),
                ("pgpgout", 5),
                ("workingset_refault_file", 2 * pgpgin),
            ]),
            ..Row::default()
        }
    }

    #[test]
    fn a_ladder_is_compared_with_its_lowest_rung() {
        let rows = with_ratios(vec![
            row("mglru", 3.0, 6),
            row("mglru-7.1+S10", 2.5, 8),
            row("mglru-7.1", 2.0, 10),
        ]);
        let ratios: Vec<f64> =
            rows.iter().map(|row| row.ratio.as_ref().unwrap().ops_per_s).collect();
        assert_eq!(ratios, [1.5, 1.25, 1.0]);
        assert!((rows[0].ratio.as_ref().unwrap().workingset_refault_file - 0.6).abs() < 1e-9);
        assert!(ratio_line(&rows)[0].ends_with("mglru-7.1"));
        let rows = with_ratios(vec![row("mglru", 3.0, 6), row("lru", 1.5, 6)]);
        assert_eq!(rows[1].ratio.as_ref().unwrap().to, "mglru", "the first, without mglru-7.1");
    }

    #[test]
    fn published_rows_stand_below_their_arm_only() {
        let rows = with_published(vec![
            row("mglru-7.1", 2.0, 1),
            row("mglru-7.1+S10", 2.0, 1),
            row("lru", 2.0, 1),
        ]);
        let order: Vec<(&str, Option<&str>)> =
            rows.iter().map(|row| (row.policy.as_str(), row.source)).collect();
        let before = |source| ("mglru-7.1", source);
        assert_eq!(
            order,
            [
                before(None),
                before(Some("v2")),
                before(Some("v3")),
                before(Some("v7")),
                ("mglru-7.1+S10", None),
                ("lru", None),
                ("lru", Some("v7")),
            ]
        );
        let posting = &rows[3];
        assert_eq!((posting.world, posting.system), ("real", "published"));
        assert!((posting.seconds.unwrap() - 98.9).abs() < 0.1, "6 M operations at 60,653 a second");
    }

    #[test]
    fn a_verdict_needs_before_and_after() {
        assert!(database_verdict(&[row(AFTER, 2.0, 1), row("lru", 2.0, 1)]).is_empty());
        let found = database_verdict(&[row("mglru-7.1", 2.0, 100), row(AFTER, 2.6, 70)]);
        assert_eq!(found.len(), 8);
        assert_eq!((found[0].value_text().as_str(), found[0].is_met()), ("1.300", true));
    }
}
