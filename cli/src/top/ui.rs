//! What the user has chosen, and what keys do. Pure.

use std::collections::HashSet;
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::model::{Model, WINDOWS};

#[derive(Debug)]
pub(super) struct Ui {
    pub(super) colours: bool,
    pub(super) mode: Mode,
    paused: bool,
    window: usize,
    sort: Sort,
    reverse: bool,
    /// Names of columns that the user does not want to see.
    hidden: HashSet<String>,
    /// Columns scrolled past, and rows.
    pub(super) left: usize,
    pub(super) top: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Main,
    Help,
    /// Picking columns, with the cursor on one.
    Columns(usize),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Slot,
    State,
    Column(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    Stay,
    Quit,
}

impl Ui {
    pub(super) fn new(colours: bool) -> Self {
        Ui {
            colours,
            mode: Mode::Main,
            paused: false,
            window: 1,
            sort: Sort::Slot,
            reverse: false,
            hidden: HashSet::new(),
            left: 0,
            top: 0,
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    pub(super) fn window(&self) -> Duration {
        WINDOWS[self.window]
    }

    /// What rows are sorted by, for people.
    pub(super) fn sorted_by(&self) -> String {
        let by = match &self.sort {
            Sort::Slot => "slot",
            Sort::State => "state",
            Sort::Column(name) => name,
        };
        format!("{by}{}", if self.reverse { " ↑" } else { "" })
    }

    /// The columns to be seen, as positions in the model's: first those that have anything.
    pub(super) fn columns(&self, model: &Model) -> Vec<usize> {
        let shown = |c: &usize| !self.hidden.contains(&model.columns[*c].name);
        let mut columns: Vec<usize> = (0..model.columns.len()).filter(shown).collect();
        columns.sort_by_key(|column| model.is_empty(*column));
        columns
    }

    pub(super) fn is_hidden(&self, name: &str) -> bool {
        self.hidden.contains(name)
    }

    /// The rows in order, as positions among the slots that were ever claimed.
    pub(super) fn rows(&self, model: &Model) -> Vec<usize> {
        let slots: Vec<_> = model.slots().collect();
        let mut rows: Vec<usize> = (0..slots.len()).collect();
        match &self.sort {
            Sort::Slot => {}
            Sort::State => rows.sort_by_key(|row| model.state(slots[*row]).0),
            Sort::Column(name) => {
                if let Some(column) = model.columns.iter().position(|c| c.name == *name) {
                    // The largest first; who has no value comes last.
                    let value = |row: usize| {
                        let cell = model.cell(column, slots[row].slot, self.window());
                        cell.unwrap_or(f64::NEG_INFINITY)
                    };
                    rows.sort_by(|a, b| value(*b).total_cmp(&value(*a)));
                }
            }
        }
        if self.reverse {
            rows.reverse();
        }
        rows
    }

    pub(super) fn key(&mut self, key: KeyEvent, model: &Model) -> Done {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Done::Quit;
        }
        match self.mode {
            Mode::Main => return self.main_key(key.code, model),
            Mode::Help => self.mode = Mode::Main,
            Mode::Columns(cursor) => self.columns_key(key.code, cursor, model),
        }
        Done::Stay
    }

    fn main_key(&mut self, code: KeyCode, model: &Model) -> Done {
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return Done::Quit,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('w') => self.window = (self.window + 1) % WINDOWS.len(),
            KeyCode::Char('s') => self.sort = self.next_sort(model),
            KeyCode::Char('r') => self.reverse = !self.reverse,
            KeyCode::Char('c') if !model.columns.is_empty() => self.mode = Mode::Columns(0),
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            // How far one can go depends on the size, which only the drawing knows.
            KeyCode::Left => self.left = self.left.saturating_sub(1),
            KeyCode::Right => self.left += 1,
            KeyCode::Up => self.top = self.top.saturating_sub(1),
            KeyCode::Down => self.top += 1,
            KeyCode::PageUp => self.top = self.top.saturating_sub(10),
            KeyCode::PageDown => self.top += 10,
            KeyCode::Home => (self.left, self.top) = (0, 0),
            _ => {}
        }
        Done::Stay
    }

    fn next_sort(&self, model: &Model) -> Sort {
        let columns = self.columns(model);
        let name = |at: usize| match columns.get(at) {
            Some(column) => Sort::Column(model.columns[*column].name.clone()),
            None => Sort::Slot,
        };
        match &self.sort {
            Sort::Slot => Sort::State,
            Sort::State => name(0),
            Sort::Column(sorted) => {
                let at = columns.iter().position(|c| model.columns[*c].name == *sorted);
                at.map_or(Sort::Slot, |at| name(at + 1))
            }
        }
    }

    fn columns_key(&mut self, code: KeyCode, cursor: usize, model: &Model) {
        let last = model.columns.len().saturating_sub(1);
        match code {
            KeyCode::Up => self.mode = Mode::Columns(cursor.saturating_sub(1)),
            KeyCode::Down => self.mode = Mode::Columns((cursor + 1).min(last)),
            KeyCode::Char(' ') => {
                if let Some(column) = model.columns.get(cursor)
                    && !self.hidden.remove(&column.name)
                {
                    self.hidden.insert(column.name.clone());
                }
            }
            KeyCode::Char('a') => self.hidden.clear(),
            _ => self.mode = Mode::Main,
        }
    }
}
