//! The coverage of a proof, as tables and as rows of the JSON.

use crate::error::LabError;
use lowtide::instruments::InjectOp;
use lowtide_bench::error::BenchError;
use lowtide_proof::coverage::Coverage;
use lowtide_proof::disk::Fault;
use lowtide_report::table;
use serde::Serialize;

/// Number of faults of a kind of request, as in the JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct FaultRow {
    op: &'static str,
    fault: &'static str,
    count: u64,
}

/// Number of times that a place was reached, as in the JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SiteRow {
    site: &'static str,
    count: u64,
}

/// Number of times that a variant was drawn, as in the JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DrawnRow {
    what: String,
    count: u64,
}

/// Fails if a sufficiently long proof has not covered every case.
///
/// # Errors
/// [`LabError::Uncovered`].
pub(crate) fn must_have(long: bool, missing: &[String]) -> Result<(), BenchError> {
    if long && !missing.is_empty() {
        return Err(LabError::Uncovered { missing: missing.join(", ") }.into());
    }
    Ok(())
}

/// For people: how often pages, folios and views of each kind were drawn, and what was done
/// to files.
pub(crate) fn drawn_table(coverage: &Coverage) -> String {
    let mut drawn = table::new(&["drawn", "times"], 1);
    for row in coverage.all_draws() {
        let count = coverage.drawn.get(&row).copied().unwrap_or(0);
        drawn.add_row([row, table::thousands(count as f64)]);
    }
    drawn.to_string()
}

/// For the JSON.
pub(crate) fn drawn_rows(coverage: &Coverage) -> Vec<DrawnRow> {
    coverage.drawn.iter().map(|(what, &count)| DrawnRow { what: what.clone(), count }).collect()
}

/// For people: a table of faults, one of places, and a line about cuts.
pub(crate) fn tables(coverage: &Coverage) -> [String; 4] {
    let heads: Vec<&str> =
        std::iter::once("fault").chain(InjectOp::ALL.map(InjectOp::name)).collect();
    let mut faults = table::new(&heads, 1);
    for fault in Fault::HONEST {
        let counts = InjectOp::ALL.map(|op| match coverage.faults.get(&(op, *fault)) {
            Some(count) => table::thousands(*count as f64),
            None => "-".to_owned(),
        });
        faults.add_row(std::iter::once(fault.to_string()).chain(counts));
    }
    let mut sites = table::new(&["place that deals with a fault", "reached"], 1);
    for (site, count) in &coverage.sites {
        sites.add_row([site.to_string(), table::thousands(*count as f64)]);
    }
    let cuts = &coverage.cuts;
    let cuts = format!(
        "cuts: {} sectors undecided, of which {} lost all, {} kept an older write, {} kept \
         all, {} are mixtures; {} writes torn; {} cuts with writes \
         out of order, {} with an older length that is shorter, {} with one that is longer; \
         {} sectors of lost zeroes; {} names lost",
        cuts.sectors_undecided,
        cuts.sectors_dropped,
        cuts.sectors_intermediate,
        cuts.sectors_kept,
        cuts.sectors_mixed,
        cuts.writes_torn,
        cuts.cuts_reordered,
        cuts.cuts_shortened,
        cuts.cuts_lengthened,
        cuts.sectors_refilled,
        cuts.names_lost
    );
    [faults.to_string(), sites.to_string(), drawn_table(coverage), cuts]
}

/// For the JSON.
pub(crate) fn fault_rows(coverage: &Coverage) -> Vec<FaultRow> {
    let row = |(&(op, fault), &count): (&(InjectOp, Fault), &u64)| FaultRow {
        op: op.name(),
        fault: fault.name(),
        count,
    };
    coverage.faults.iter().map(row).collect()
}

/// For the JSON.
pub(crate) fn site_rows(coverage: &Coverage) -> Vec<SiteRow> {
    coverage.sites.iter().map(|(site, &count)| SiteRow { site: site.name(), count }).collect()
}
