//! The rows of a list: filtered, sorted, tenants as a tree by their paths.
//!
//! A tree sorts among siblings: a tenant stays below its parent whatever the column. A filter keeps
//! the parents of what it finds, so that a tenant is never without its place.

use lowtide_status::printable;
use std::collections::{BTreeMap, BTreeSet};

use super::columns::{self, Column};
use super::measures::Measures;
use super::processes::{Key, Place, Process, Processes, State};

/// What a row is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Id {
    Process(Key),
    Tenant(Place),
}

/// A row.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) id: Id,
    pub(crate) pid: u32,
    /// Name of the program, or the path of a tenant below the row above it, indented.
    pub(crate) name: String,
    pub(crate) way: &'static str,
    pub(crate) policy: String,
    pub(crate) tenants: usize,
    pub(crate) state: State,
    pub(crate) measures: Measures,
}

/// How a list is sorted and filtered.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) by: Column,
    pub(crate) reversed: bool,
    /// A part of a name, in lowercase; empty for all.
    pub(crate) filter: String,
}

impl Default for Order {
    fn default() -> Self {
        Self { by: Column::Used, reversed: false, filter: String::new() }
    }
}

impl Order {
    fn finds(&self, text: &str) -> bool {
        self.filter.is_empty() || text.to_lowercase().contains(&self.filter)
    }

    fn sort(&self, rows: &mut [Row]) {
        rows.sort_by(|one, other| {
            let order = self.by.compare(one, other);
            if self.reversed { order.reverse() } else { order }
        });
    }
}

/// The name of a process, or what stands for one that never said it.
pub(crate) fn program(process: &Process) -> String {
    if process.status.program.is_empty() { "?".into() } else { printable(&process.status.program) }
}

fn process_row(process: &Process) -> Row {
    Row {
        id: Id::Process(process.key),
        pid: process.key.pid,
        name: program(process),
        way: columns::way(process.status.origin),
        policy: printable(&process.policy()),
        tenants: process.tenants.len(),
        state: process.state.clone(),
        measures: process.measures,
    }
}

/// The rows of the list of processes.
pub(crate) fn processes(all: &Processes, order: &Order) -> Vec<Row> {
    let mut rows: Vec<Row> = all.iter().map(process_row).collect();
    rows.retain(|row| order.finds(&format!("{} {} {} {}", row.pid, row.name, row.way, row.policy)));
    order.sort(&mut rows);
    rows
}

/// The rows of the list of tenants of a process.
pub(crate) fn tenants(process: &Process, order: &Order) -> Vec<Row> {
    let mut shown: BTreeSet<&Place> = BTreeSet::new();
    for place in process.tenants.keys().filter(|place| order.finds(&place.1)) {
        let mut next = Some(place);
        while let Some(place) = next.filter(|place| shown.insert(place)) {
            next = parent(process, place);
        }
    }
    let mut tree = Tree { process, order, children: BTreeMap::new(), rows: Vec::new() };
    for place in shown {
        tree.children.entry(parent(process, place)).or_default().push(place);
    }
    tree.add_below(None, 0);
    tree.rows
}

/// The nearest tenant above one, of those that there are. The page may have no place for all.
fn parent<'a>(process: &'a Process, of: &Place) -> Option<&'a Place> {
    let mut path = of.1.as_str();
    while let Some(slash) = path.rfind('/').filter(|_| path.len() > 1) {
        path = if slash == 0 { "/" } else { &path[..slash] };
        if let Some((place, _)) = process.tenants.get_key_value(&(of.0, path.to_owned())) {
            return Some(place);
        }
    }
    None
}

/// Tenants by the one above them, and the rows made so far.
struct Tree<'a> {
    process: &'a Process,
    order: &'a Order,
    children: BTreeMap<Option<&'a Place>, Vec<&'a Place>>,
    rows: Vec<Row>,
}

impl<'a> Tree<'a> {
    /// Adds the children of a tenant, each followed by its own.
    fn add_below(&mut self, above: Option<&'a Place>, depth: usize) {
        let children = self.children.remove(&above).unwrap_or_default();
        let mut level: Vec<Row> =
            children.into_iter().map(|place| self.row(place, above, depth)).collect();
        self.order.sort(&mut level);
        for row in level {
            let place = match &row.id {
                Id::Tenant(place) => self.process.tenants.get_key_value(place),
                Id::Process(_) => None,
            };
            self.rows.push(row);
            if let Some((place, _)) = place {
                self.add_below(Some(place), depth + 1);
            }
        }
    }

    fn row(&self, place: &Place, above: Option<&Place>, depth: usize) -> Row {
        let name = match above {
            Some(above) => place.1[above.1.len()..].trim_start_matches('/'),
            None => &place.1,
        };
        let is_one_of_many = above.is_none() && self.process.status.pagers.len() > 1;
        let pager = if is_one_of_many { format!("pager {} ", place.0 + 1) } else { String::new() };
        Row {
            id: Id::Tenant(place.clone()),
            name: format!("{:depth$}{pager}{}", "", printable(name)),
            measures: self.process.tenants[place].measures,
            ..process_row(self.process)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::processes::tests::{page, sample};
    use super::*;

    fn names(rows: &[Row]) -> Vec<&str> {
        rows.iter().map(|row| row.name.as_str()).collect()
    }

    fn known() -> Processes {
        let mut processes = Processes::default();
        for second in 1..=2 {
            let count = second * 10;
            let tenants = [
                ("/", count),
                ("/users", count / 2),
                ("/users/ann", 4),
                ("/users/bob", 6),
                ("/jobs", 7),
            ];
            let pages = vec![
                page(3, second, &[("/", count * 3)]),
                page(1, second, &tenants),
                page(2, second, &[("/", 5)]),
            ];
            processes.take(&sample(second, pages));
        }
        processes
    }

    #[test]
    fn processes_sort_by_a_column_and_in_reverse() {
        let processes = known();
        let rows = |by, reversed| {
            let order = Order { by, reversed, ..Order::default() };
            super::processes(&processes, &order).iter().map(|row| row.pid).collect::<Vec<_>>()
        };
        assert_eq!(rows(Column::Used, false), [3, 1, 2]);
        assert_eq!(rows(Column::Used, true), [2, 1, 3]);
        assert_eq!(rows(Column::Pid, false), [1, 2, 3]);
        assert_eq!(rows(Column::Faults, false), [3, 1, 2]);
    }

    #[test]
    fn a_filter_finds_parts_of_what_a_row_says() {
        let processes = known();
        let rows = |filter: &str| {
            let order = Order { filter: filter.into(), ..Order::default() };
            super::processes(&processes, &order).iter().map(|row| row.pid).collect::<Vec<_>>()
        };
        assert_eq!(rows("program-2"), [2]);
        assert_eq!(rows("mglru"), [3, 1, 2]);
        assert_eq!(rows("nothing"), [0; 0]);
    }

    #[test]
    fn tenants_are_a_tree_that_sorts_among_siblings() {
        let processes = known();
        let process = processes.with_pid(1).unwrap();
        let rows = tenants(process, &Order::default());
        assert_eq!(names(&rows), ["/", " users", "  bob", "  ann", " jobs"]);
        let reversed = Order { reversed: true, ..Order::default() };
        let rows = tenants(process, &reversed);
        assert_eq!(names(&rows), ["/", " jobs", " users", "  ann", "  bob"]);
    }

    #[test]
    fn a_filter_keeps_the_parents_of_what_it_finds() {
        let processes = known();
        let order = Order { filter: "ann".into(), ..Order::default() };
        let rows = tenants(processes.with_pid(1).unwrap(), &order);
        assert_eq!(names(&rows), ["/", " users", "  ann"]);
    }

    #[test]
    fn a_tenant_whose_parent_has_no_place_is_below_the_next() {
        let mut processes = Processes::default();
        processes.take(&sample(1, vec![page(1, 1, &[("/", 9), ("/a/b/c", 2)])]));
        let rows = tenants(processes.with_pid(1).unwrap(), &Order::default());
        assert_eq!(names(&rows), ["/", " a/b/c"]);
    }

    #[test]
    fn names_of_other_processes_do_not_reach_the_terminal_as_they_are() {
        let status = lowtide_status::Status { program: "a\x1b[2Jb\n".into(), ..page(1, 1, &[]) };
        let mut processes = Processes::default();
        processes.take(&sample(1, vec![status]));
        assert_eq!(names(&super::processes(&processes, &Order::default())), ["a?[2Jb?"]);
    }
}
