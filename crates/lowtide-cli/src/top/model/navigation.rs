//! Which list or page is shown, what is selected in it, and what a key does.
//!
//! A selection is a row's identity, not its number: a list that sorts itself again every second
//! must not slip another process below the cursor. What ends the command or concerns its source
//! (the interval) is returned as an [`Effect`].

use super::columns::{self, Column};
use super::processes::{Key, Place, Process, Processes};
use super::rows::{self, Id, Order, Row};
use crate::top::keys::Key as Pressed;

/// What is shown.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum View {
    Processes,
    Process(Key),
    Tenant(Key, Place),
}

/// What a key asks of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    /// End it, with success.
    Quit,
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-Z.
    Suspend,
    /// Hold the picture, or go on.
    Pause,
    /// A longer interval, or a shorter one.
    More,
    Less,
}

/// A list, and the place in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct List {
    pub(crate) order: Order,
    selected: Option<Id>,
    /// Where the selection was, for when its row is gone.
    at: usize,
}

impl List {
    /// The number of the selected row.
    pub(crate) fn selection(&self, rows: &[Row]) -> usize {
        let found = rows.iter().position(|row| self.selected.as_ref() == Some(&row.id));
        found.unwrap_or(self.at.min(rows.len().saturating_sub(1)))
    }

    fn select(&mut self, rows: &[Row], at: usize) {
        self.at = at.min(rows.len().saturating_sub(1));
        self.selected = rows.get(self.at).map(|row| row.id.clone());
    }

    fn sort_by_next(&mut self, columns: &[Column], step: usize) {
        let at = columns.iter().position(|column| *column == self.order.by).unwrap_or(0);
        self.order.by = columns[(at + step) % columns.len()];
    }
}

/// The place in what is shown.
#[derive(Clone, Debug)]
pub(crate) struct Navigation {
    pub(crate) view: View,
    processes: List,
    tenants: List,
    /// Whether keys are letters of the filter.
    pub(crate) is_editing: bool,
    pub(crate) has_help: bool,
    /// Rows of a list that fit on the screen, and the columns of it.
    pub(crate) page_rows: usize,
    pub(crate) shown: Vec<Column>,
}

impl Navigation {
    /// At the list of processes.
    pub(crate) fn new() -> Self {
        Self {
            view: View::Processes,
            processes: List::default(),
            tenants: List::default(),
            is_editing: false,
            has_help: false,
            page_rows: 10,
            shown: Vec::new(),
        }
    }

    /// The list of the present view, or the one that the present page belongs to.
    pub(crate) const fn list(&self) -> &List {
        match self.view {
            View::Processes => &self.processes,
            View::Process(_) | View::Tenant(..) => &self.tenants,
        }
    }

    const fn list_mut(&mut self) -> &mut List {
        match self.view {
            View::Processes => &mut self.processes,
            View::Process(_) | View::Tenant(..) => &mut self.tenants,
        }
    }

    /// The process whose tenants, or one of them, are shown.
    pub(crate) fn process<'a>(&self, processes: &'a Processes) -> Option<&'a Process> {
        match self.view {
            View::Processes => None,
            View::Process(key) | View::Tenant(key, _) => processes.get(key),
        }
    }

    /// The rows of the present list.
    pub(crate) fn rows(&self, processes: &Processes) -> Vec<Row> {
        match self.view {
            View::Processes => rows::processes(processes, &self.processes.order),
            View::Process(_) | View::Tenant(..) => self
                .process(processes)
                .map_or_else(Vec::new, |process| rows::tenants(process, &self.tenants.order)),
        }
    }

    /// Shows the tenants of a process.
    pub(crate) fn enter(&mut self, key: Key) {
        self.view = View::Process(key);
        self.tenants.select(&[], 0);
        self.tenants.order.filter.clear();
    }

    /// What a key does.
    pub(crate) fn press(&mut self, key: Pressed, processes: &Processes) -> Effect {
        match key {
            Pressed::Control('c') => return Effect::Interrupt,
            Pressed::Control('z') => return Effect::Suspend,
            _ => {}
        }
        if self.has_help {
            self.has_help = false;
            return Effect::None;
        }
        if self.is_editing {
            self.edit(key);
            return Effect::None;
        }
        match key {
            Pressed::Char('q') => return Effect::Quit,
            Pressed::Char('p' | ' ') => return Effect::Pause,
            Pressed::Char('+' | '=') => return Effect::More,
            Pressed::Char('-' | '_') => return Effect::Less,
            Pressed::Char('?') => self.has_help = true,
            Pressed::Char('/') => self.is_editing = true,
            Pressed::Char('s' | '>' | '<' | 'r') => self.sort(key),
            Pressed::Esc if !self.list().order.filter.is_empty() && !self.is_page() => {
                self.list_mut().order.filter.clear();
            }
            Pressed::Esc | Pressed::Backspace | Pressed::Left | Pressed::Char('h') => self.up(),
            Pressed::Enter | Pressed::Right | Pressed::Char('l') => self.down(processes),
            key => self.travel(key, processes),
        }
        Effect::None
    }

    const fn is_page(&self) -> bool {
        matches!(self.view, View::Tenant(..))
    }

    /// A key while a filter is written.
    fn edit(&mut self, key: Pressed) {
        match key {
            Pressed::Enter => self.is_editing = false,
            Pressed::Esc => {
                self.is_editing = false;
                self.list_mut().order.filter.clear();
            }
            Pressed::Backspace => {
                self.list_mut().order.filter.pop();
            }
            Pressed::Control('u') => self.list_mut().order.filter.clear(),
            Pressed::Char(c) => {
                self.list_mut().order.filter.extend(c.to_lowercase());
            }
            _ => {}
        }
    }

    fn sort(&mut self, key: Pressed) {
        // One sorts by what one sees.
        let shown = std::mem::take(&mut self.shown);
        let columns = match self.view {
            _ if !shown.is_empty() => &shown[..],
            View::Processes => columns::PROCESSES,
            View::Process(_) | View::Tenant(..) => columns::TENANTS,
        };
        let list = self.list_mut();
        match key {
            Pressed::Char('r') => list.order.reversed ^= true,
            Pressed::Char('<') => list.sort_by_next(columns, columns.len() - 1),
            _ => list.sort_by_next(columns, 1),
        }
        self.shown = shown;
    }

    /// One level up.
    fn up(&mut self) {
        match &self.view {
            View::Processes => {}
            View::Process(_) => self.view = View::Processes,
            View::Tenant(key, _) => self.view = View::Process(*key),
        }
    }

    /// What the selected row is about.
    fn down(&mut self, processes: &Processes) {
        let rows = self.rows(processes);
        let at = self.list().selection(&rows);
        let Some(row) = rows.get(at) else { return };
        self.list_mut().select(&rows, at);
        match (&row.id, &self.view) {
            (Id::Process(key), _) => self.enter(*key),
            (Id::Tenant(place), View::Process(key)) => {
                self.view = View::Tenant(*key, place.clone());
            }
            (Id::Tenant(_), _) => {}
        }
    }

    /// Up and down in the list; on a page of a tenant, to the next one.
    fn travel(&mut self, key: Pressed, processes: &Processes) {
        let rows = self.rows(processes);
        let at = self.list().selection(&rows);
        let page = self.page_rows.max(1);
        let to = match key {
            Pressed::Up | Pressed::Char('k') => at.saturating_sub(1),
            Pressed::Down | Pressed::Char('j') => at + 1,
            Pressed::PageUp => at.saturating_sub(page),
            Pressed::PageDown => at + page,
            Pressed::Home | Pressed::Char('g') => 0,
            Pressed::End | Pressed::Char('G') => usize::MAX,
            _ => return,
        };
        self.list_mut().select(&rows, to);
        let selected = self.list().selected.clone();
        if let (View::Tenant(key, _), Some(Id::Tenant(place))) = (&self.view, selected) {
            self.view = View::Tenant(*key, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::processes::tests::{page, sample};
    use super::*;

    fn known(second: u64, used: [u64; 3]) -> Processes {
        let mut processes = Processes::default();
        let pages = [1, 2, 3].map(|pid| {
            let used = used[pid as usize - 1];
            page(pid, second, &[("/", used), ("/a", used / 2), ("/b", used / 3)])
        });
        processes.take(&sample(second, pages.to_vec()));
        processes
    }

    fn press(navigation: &mut Navigation, processes: &Processes, keys: &str) -> Vec<Effect> {
        let code = |c| match c {
            '\n' => Pressed::Enter,
            '\x1b' => Pressed::Esc,
            '\x08' => Pressed::Backspace,
            c => Pressed::Char(c),
        };
        let keys = keys.chars().map(code);
        keys.map(|key| navigation.press(key, processes)).collect()
    }

    fn selected(navigation: &Navigation, processes: &Processes) -> Id {
        let rows = navigation.rows(processes);
        rows[navigation.list().selection(&rows)].id.clone()
    }

    fn process(pid: u32) -> Id {
        Id::Process(Key { pid, start_ticks: 5 })
    }

    #[test]
    fn the_selection_stays_with_its_process_when_the_list_sorts_itself() {
        let (one, two) = (known(1, [30, 20, 10]), known(2, [10, 20, 30]));
        let mut navigation = Navigation::new();
        press(&mut navigation, &one, "j");
        assert_eq!(selected(&navigation, &one), process(2));
        press(&mut navigation, &one, "k");
        assert_eq!(selected(&navigation, &one), process(1));
        assert_eq!(selected(&navigation, &two), process(1), "it is the last now");
        press(&mut navigation, &two, "jjjj");
        assert_eq!(selected(&navigation, &two), process(1), "the list ends");
    }

    #[test]
    fn when_the_selected_row_is_gone_the_next_one_is_selected() {
        let processes = known(1, [30, 20, 10]);
        let mut navigation = Navigation::new();
        press(&mut navigation, &processes, "j");
        let mut fewer = Processes::default();
        fewer.take(&sample(1, vec![page(1, 1, &[("/", 9)]), page(3, 1, &[("/", 5)])]));
        assert_eq!(selected(&navigation, &fewer), process(3));
    }

    #[test]
    fn enter_goes_down_to_a_tenant_and_escape_up_again() {
        let processes = known(1, [30, 20, 10]);
        let key = Key { pid: 1, start_ticks: 5 };
        let mut navigation = Navigation::new();
        press(&mut navigation, &processes, "\n");
        assert_eq!(navigation.view, View::Process(key));
        press(&mut navigation, &processes, "j\n");
        assert_eq!(navigation.view, View::Tenant(key, (0, "/a".into())));
        press(&mut navigation, &processes, "j");
        assert_eq!(navigation.view, View::Tenant(key, (0, "/b".into())), "the next tenant");
        press(&mut navigation, &processes, "\n\x1b");
        assert_eq!(navigation.view, View::Process(key));
        assert_eq!(selected(&navigation, &processes), Id::Tenant((0, "/b".into())));
        press(&mut navigation, &processes, "\x08\x1b");
        assert_eq!(navigation.view, View::Processes);
    }

    #[test]
    fn a_filter_takes_letters_that_are_keys_elsewhere() {
        let processes = known(1, [30, 20, 10]);
        let mut navigation = Navigation::new();
        assert_eq!(press(&mut navigation, &processes, "/q-P2\x08"), vec![Effect::None; 6]);
        assert_eq!(navigation.list().order.filter, "q-p");
        press(&mut navigation, &processes, "\x1b/gram-2\n");
        assert_eq!(selected(&navigation, &processes), process(2));
        press(&mut navigation, &processes, "\x1b");
        assert_eq!(navigation.rows(&processes).len(), 3, "escape takes the filter away first");
    }

    #[test]
    fn keys_sort_by_the_next_column_and_by_the_one_before() {
        let processes = known(1, [30, 20, 10]);
        let mut navigation = Navigation::new();
        press(&mut navigation, &processes, "s");
        assert_eq!(navigation.list().order.by, Column::Max);
        press(&mut navigation, &processes, "<<r");
        let order = &navigation.list().order;
        assert_eq!((order.by, order.reversed), (Column::Policy, true));
        press(&mut navigation, &processes, "<<<<");
        assert_eq!(navigation.list().order.by, *columns::PROCESSES.last().unwrap());
    }

    #[test]
    fn keys_that_end_it_are_effects_and_help_takes_one_key() {
        let processes = Processes::default();
        let mut navigation = Navigation::new();
        assert_eq!(press(&mut navigation, &processes, "?"), [Effect::None]);
        assert!(navigation.has_help);
        assert_eq!(press(&mut navigation, &processes, "qq"), [Effect::None, Effect::Quit]);
        press(&mut navigation, &processes, "/");
        assert_eq!(navigation.press(Pressed::Control('c'), &processes), Effect::Interrupt);
        assert_eq!(navigation.press(Pressed::Control('z'), &processes), Effect::Suspend);
    }
}
