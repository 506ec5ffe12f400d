//! What `top` knows, and what keys do with it. Pure.

use std::time::SystemTime;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::commands::{drivers::DriverView, operations::OperationView, status::StatusView};

/// As far as a page goes.
const PAGE: usize = 10;

#[derive(Debug)]
pub(super) struct Model {
    pub(super) address: String,
    pub(super) colour: bool,
    pub(super) now: SystemTime,
    /// None before the first reading.
    pub(super) status: Option<StatusView>,
    pub(super) drivers: Vec<DriverView>,
    /// The oldest first.
    pub(super) operations: Vec<OperationView>,
    /// Why there is no connection. What is shown is then as old as the last reading.
    pub(super) lost: Option<String>,
    pub(super) focus: Pane,
    /// The session and the operation that are marked: they move as the tables do.
    chosen: [String; 2],
    pub(super) help: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pane {
    Drivers,
    Operations,
}

/// What was learned from the broker.
pub(super) enum Reading {
    Fresh { status: Box<StatusView>, drivers: Vec<DriverView>, operations: Vec<OperationView> },
    Lost(String),
}

/// What to do after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Stay,
    Leave,
}

impl Model {
    pub(super) fn new(address: String, colour: bool) -> Self {
        Self {
            address,
            colour,
            now: SystemTime::now(),
            status: None,
            drivers: Vec::new(),
            operations: Vec::new(),
            lost: None,
            focus: Pane::Drivers,
            chosen: [String::new(), String::new()],
            help: false,
        }
    }

    pub(super) fn read(&mut self, reading: Reading) {
        match reading {
            Reading::Lost(why) => self.lost = Some(why),
            Reading::Fresh { status, drivers, mut operations } => {
                operations
                    .sort_by(|a, b| (b.time, &a.operation_id).cmp(&(a.time, &b.operation_id)));
                self.now = SystemTime::now();
                self.lost = None;
                self.status = Some(*status);
                self.drivers = drivers;
                self.operations = operations;
            }
        }
    }

    /// The marked line of a table.
    pub(super) fn marked(&self, pane: Pane) -> Option<usize> {
        let chosen = &self.chosen[pane as usize];
        let ids = self.ids(pane);
        let found = ids.iter().position(|id| id == chosen);
        found.or((!ids.is_empty()).then_some(0))
    }

    fn ids(&self, pane: Pane) -> Vec<&str> {
        match pane {
            Pane::Drivers => self.drivers.iter().map(|one| one.session_id.as_str()).collect(),
            Pane::Operations => {
                self.operations.iter().map(|one| one.operation_id.as_str()).collect()
            }
        }
    }

    pub(super) fn press(&mut self, key: KeyEvent) -> Then {
        let ctrl_c =
            key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            _ if ctrl_c => return Then::Leave,
            KeyCode::Esc if self.help => self.help = false,
            KeyCode::Char('q') | KeyCode::Esc => return Then::Leave,
            KeyCode::Char('?') => self.help = !self.help,
            KeyCode::Tab | KeyCode::BackTab | KeyCode::Left | KeyCode::Right => {
                self.focus = match self.focus {
                    Pane::Drivers => Pane::Operations,
                    Pane::Operations => Pane::Drivers,
                };
            }
            KeyCode::Up | KeyCode::Char('k') => self.step(|at| at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.step(|at| at + 1),
            KeyCode::PageUp => self.step(|at| at.saturating_sub(PAGE)),
            KeyCode::PageDown => self.step(|at| at + PAGE),
            KeyCode::Home => self.step(|_| 0),
            KeyCode::End => self.step(|_| usize::MAX),
            _ => {}
        }
        Then::Stay
    }

    fn step(&mut self, to: impl Fn(usize) -> usize) {
        let Some(at) = self.marked(self.focus) else { return };
        let ids = self.ids(self.focus);
        let chosen = ids[to(at).min(ids.len() - 1)].to_owned();
        self.chosen[self.focus as usize] = chosen;
    }
}
