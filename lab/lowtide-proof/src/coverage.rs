//! What a proof has counted: what was done, which faults happened, what cuts of the power did, and
//! which places that deal with faults were reached.
//!
//! A proof in which something never happened has proved nothing about it, so a long one fails for
//! that, too.

use std::collections::BTreeMap;

use lowtide::Pager;
use lowtide::instruments::{FaultSite, InjectOp};
use lowtide::map::MapMode;
use serde::Serialize;

use crate::disk::{Cut, Fault, FaultyDisk};
use crate::heap::Heap;
use crate::ledger::Findings;
use crate::script::Change;
use crate::shape::{Beginning, Shape};

/// Pages that came back from compressed memory.
const ZCACHED: &str = "pages of files that were compressed";

/// See the module documentation.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// How often each kind of request suffered each fault.
    pub faults: BTreeMap<(InjectOp, Fault), u64>,
    /// How often each place that deals with a fault was reached.
    pub sites: BTreeMap<FaultSite, u64>,
    /// What cuts of the power did.
    pub cuts: Cuts,
    /// How often something was drawn or done.
    pub drawn: BTreeMap<String, u64>,
    /// The ways in which files can be mapped.
    pub ways: Vec<MapMode>,
}

/// What cuts did. The names are those of the JSON.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cuts {
    /// Sectors of which more than one content was possible.
    pub sectors_undecided: u64,
    /// Those that lost everything since they were durable.
    pub sectors_dropped: u64,
    /// Those that kept an older write.
    pub sectors_intermediate: u64,
    /// Those that kept everything.
    pub sectors_kept: u64,
    /// Those that are a mixture of old and new bytes.
    pub sectors_mixed: u64,
    /// Writes of which a part was kept.
    pub writes_torn: u64,
    /// Cuts that kept a later write and dropped an earlier one.
    pub cuts_reordered: u64,
    /// Cuts with an older length that is shorter.
    pub cuts_shortened: u64,
    /// Cuts with an older length that is longer.
    pub cuts_lengthened: u64,
    /// Sectors whose zeroes are lost.
    pub sectors_refilled: u64,
    /// Files that lost their name.
    pub names_lost: u64,
}

/// What was done, and what was found.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Cycles that have ended.
    pub cycles: u64,
    /// Changes of records; of killed processes, those that a flush had promised.
    pub writes: u64,
    /// Records read and compared before the end.
    pub reads: u64,
    /// Flushes that returned well.
    pub flushes: u64,
    /// Operations that ended in an error.
    pub refused: u64,
    /// What comparing has found.
    pub findings: Findings,
}

impl Coverage {
    /// Adds what a disk did.
    pub fn add_disk(&mut self, disk: &FaultyDisk) {
        for (key, count) in disk.hits() {
            *self.faults.entry(key).or_default() += count;
        }
    }

    /// Adds what a pager did about it.
    pub fn add_pager(&mut self, pager: &Pager) {
        for (site, count) in pager.fault_sites() {
            *self.sites.entry(site).or_default() += count;
        }
        if let Ok(stat) = pager.root().zcache_stat()
            && stat.loaded > 0
        {
            self.count(ZCACHED, stat.loaded);
        }
    }

    /// Adds a cut of the power.
    pub fn add_cut(&mut self, cut: Cut) {
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
    pub fn missing(&self) -> Vec<String> {
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
        let regions = Heap::ROWS.into_iter().filter(|row| !self.drawn.contains_key(*row));
        let others = (!self.drawn.contains_key(ZCACHED)).then_some(ZCACHED);
        let regions = regions.chain(others).map(str::to_owned);
        faults.chain(sites).chain(cuts).chain(regions).chain(self.missing_draws()).collect()
    }

    /// Adds what a cycle drew.
    pub fn add_shape(&mut self, shape: &Shape) {
        for row in shape.rows() {
            *self.drawn.entry(row).or_default() += 1;
        }
    }

    /// Adds something that was drawn or done.
    pub fn count(&mut self, row: &str, times: u64) {
        *self.drawn.entry(row.to_owned()).or_default() += times;
    }

    /// The rows of everything that can be drawn or done.
    pub fn all_draws(&self) -> impl Iterator<Item = String> + '_ {
        let others = Beginning::ROWS.into_iter().chain(Change::ROWS).map(str::to_owned);
        Shape::all_rows(&self.ways).chain(others)
    }

    /// What was never drawn.
    pub fn missing_draws(&self) -> Vec<String> {
        self.all_draws().filter(|row| !self.drawn.contains_key(row)).collect()
    }
}
