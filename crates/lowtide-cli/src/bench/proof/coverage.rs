//! Which faults happened, what cuts of the power did, and which places that deal with faults were
//! reached.
//!
//! A proof in which something never happened has proved nothing about it, so a long one fails for
//! that, too.

use std::collections::BTreeMap;

use lowtide::{FaultSite, InjectOp, Pager};
use lowtide_proof::disk::{Cut, Fault, FaultyDisk};
use lowtide_proof::script::Change;
use lowtide_proof::shape::{Beginning, Shape};
use serde::Serialize;

use crate::bench::error::BenchError;
use crate::table;

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Coverage {
    faults: BTreeMap<(InjectOp, Fault), u64>,
    sites: BTreeMap<FaultSite, u64>,
    cuts: DiskRow,
    drawn: BTreeMap<String, u64>,
}

/// What cuts did, as it stands in the JSON.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct DiskRow {
    sectors_undecided: u64,
    sectors_dropped: u64,
    sectors_intermediate: u64,
    sectors_kept: u64,
    sectors_mixed: u64,
    writes_torn: u64,
    cuts_reordered: u64,
    cuts_shortened: u64,
    cuts_lengthened: u64,
    sectors_refilled: u64,
    names_lost: u64,
}

/// How often a kind of request suffered a fault, as it stands in the JSON.
#[derive(Clone, Debug, Serialize)]
pub(super) struct FaultRow {
    op: &'static str,
    fault: &'static str,
    count: u64,
}

/// How often a place was reached, as it stands in the JSON.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SiteRow {
    site: &'static str,
    count: u64,
}

/// How often something was drawn, as it stands in the JSON.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DrawnRow {
    what: String,
    count: u64,
}

impl Coverage {
    /// Adds what a disk did.
    pub(super) fn add_disk(&mut self, disk: &FaultyDisk) {
        for (key, count) in disk.hits() {
            *self.faults.entry(key).or_default() += count;
        }
    }

    /// Adds what a pager did about it.
    pub(super) fn add_pager(&mut self, pager: &Pager) {
        for (site, count) in pager.fault_sites() {
            *self.sites.entry(site).or_default() += count;
        }
    }

    /// Adds a cut of the power.
    pub(super) fn add_cut(&mut self, cut: Cut) {
        let cuts = &mut self.cuts;
        cuts.sectors_undecided += cut.undecided;
        cuts.sectors_dropped += cut.dropped;
        cuts.sectors_intermediate += cut.intermediate;
        cuts.sectors_kept += cut.kept;
        cuts.sectors_mixed += cut.mixed;
        cuts.writes_torn += cut.torn;
        cuts.cuts_reordered += u64::from(cut.reordered);
        cuts.cuts_shortened += u64::from(cut.shortened);
        cuts.cuts_lengthened += u64::from(cut.lengthened);
        cuts.sectors_refilled += cut.refilled;
        cuts.names_lost += u64::from(cut.unnamed);
    }

    /// What never happened.
    pub(super) fn missing(&self) -> Vec<String> {
        let faults = self.faults.iter().filter(|(_, count)| **count == 0);
        let faults = faults.map(|((op, fault), _)| format!("{} {fault}", op.name()));
        let sites =
            self.sites.iter().filter(|(_, count)| **count == 0).map(|(site, _)| site.to_string());
        let cuts = [
            (self.cuts.sectors_dropped, "a dropped sector"),
            (self.cuts.sectors_intermediate, "a sector of an older write"),
            (self.cuts.sectors_kept, "a kept sector"),
            (self.cuts.sectors_mixed, "a sector that is old and new"),
            (self.cuts.writes_torn, "a torn write"),
            (self.cuts.cuts_reordered, "writes out of order"),
            (self.cuts.cuts_shortened, "an older length that is shorter"),
            (self.cuts.cuts_lengthened, "an older length that is longer"),
            (self.cuts.sectors_refilled, "zeroes that are lost"),
            (self.cuts.names_lost, "a lost name"),
        ];
        let cuts =
            cuts.into_iter().filter(|(count, _)| *count == 0).map(|(_, what)| what.to_owned());
        faults.chain(sites).chain(cuts).chain(self.missing_draws()).collect()
    }

    /// Adds what a cycle drew.
    pub(super) fn add_shape(&mut self, shape: &Shape) {
        for row in shape.rows() {
            *self.drawn.entry(row).or_default() += 1;
        }
    }

    /// Adds something that was drawn or done.
    pub(super) fn count(&mut self, row: &str, times: u64) {
        *self.drawn.entry(row.to_owned()).or_default() += times;
    }

    fn all_draws() -> impl Iterator<Item = String> {
        let others = Beginning::ROWS.into_iter().chain(Change::ROWS).map(str::to_owned);
        Shape::all_rows().chain(others)
    }

    /// What was never drawn.
    pub(super) fn missing_draws(&self) -> Vec<String> {
        Self::all_draws().filter(|row| !self.drawn.contains_key(row)).collect()
    }

    /// Fails if a proof that was long enough never met something.
    ///
    /// # Errors
    /// [`BenchError::Uncovered`].
    pub(super) fn must_have(long: bool, missing: &[String]) -> Result<(), BenchError> {
        if long && !missing.is_empty() {
            return Err(BenchError::Uncovered { missing: missing.join(", ") });
        }
        Ok(())
    }

    /// For people: how often pages, folios and views of each kind were drawn, and what was done
    /// to files.
    pub(super) fn drawn_table(&self) -> String {
        let mut drawn = table::new(&["drawn", "times"], 1);
        for row in Self::all_draws() {
            let count = self.drawn.get(&row).copied().unwrap_or(0);
            drawn.add_row([row, table::thousands(count as f64)]);
        }
        drawn.to_string()
    }

    /// For the JSON.
    pub(super) fn drawn_rows(&self) -> Vec<DrawnRow> {
        self.drawn.iter().map(|(what, &count)| DrawnRow { what: what.clone(), count }).collect()
    }

    /// For people: a table of faults, one of places, and a line about cuts.
    pub(super) fn tables(&self) -> [String; 4] {
        let heads: Vec<&str> =
            std::iter::once("fault").chain(InjectOp::ALL.map(InjectOp::name)).collect();
        let mut faults = table::new(&heads, 1);
        for fault in Fault::HONEST {
            let counts = InjectOp::ALL.map(|op| match self.faults.get(&(op, *fault)) {
                Some(count) => table::thousands(*count as f64),
                None => "-".to_owned(),
            });
            faults.add_row(std::iter::once(fault.to_string()).chain(counts));
        }
        let mut sites = table::new(&["place that deals with a fault", "reached"], 1);
        for (site, count) in &self.sites {
            sites.add_row([site.to_string(), table::thousands(*count as f64)]);
        }
        let cuts = &self.cuts;
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
        [faults.to_string(), sites.to_string(), self.drawn_table(), cuts]
    }

    /// For the JSON.
    pub(super) fn disk_row(&self) -> DiskRow {
        self.cuts.clone()
    }

    /// For the JSON.
    pub(super) fn fault_rows(&self) -> Vec<FaultRow> {
        let row = |(&(op, fault), &count): (&(InjectOp, Fault), &u64)| FaultRow {
            op: op.name(),
            fault: fault.name(),
            count,
        };
        self.faults.iter().map(row).collect()
    }

    /// For the JSON.
    pub(super) fn site_rows(&self) -> Vec<SiteRow> {
        self.sites.iter().map(|(site, &count)| SiteRow { site: site.name(), count }).collect()
    }
}
