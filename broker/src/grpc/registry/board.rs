//! What watchers see: a table whose changes are numbered, so that a watcher can go on where it was.
//! Pure.

use std::collections::{BTreeMap, VecDeque};

/// How many rows that went are remembered. Who was away for longer starts again.
const REMEMBERED: usize = 4_096;

/// Rows by id. A row is what watchers are told of it, without what changes all the time.
#[derive(Debug)]
pub(super) struct Board<T> {
    rows: BTreeMap<String, (u64, T)>,
    gone: VecDeque<(u64, String)>,
    revision: u64,
    /// Nothing before this can be told any more.
    oldest: u64,
}

/// What is new since some revision.
#[derive(Debug, PartialEq)]
pub(super) struct News<T> {
    /// Everything is told, since what was before is not known any more.
    pub(super) reset: bool,
    pub(super) changed: Vec<T>,
    pub(super) gone: Vec<String>,
    pub(super) revision: u64,
}

impl<T> Default for Board<T> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), gone: VecDeque::new(), revision: 1, oldest: 1 }
    }
}

impl<T: Clone + PartialEq> Board<T> {
    /// Takes in what is there now.
    pub(super) fn update(&mut self, now: impl IntoIterator<Item = (String, T)>) {
        let next = self.revision + 1;
        let mut before = std::mem::take(&mut self.rows);
        let mut changed = false;
        for (id, row) in now {
            let revision = match before.remove(&id) {
                Some((revision, old)) if old == row => revision,
                _ => {
                    changed = true;
                    next
                }
            };
            self.rows.insert(id, (revision, row));
        }
        changed |= !before.is_empty();
        for id in before.into_keys() {
            if self.gone.len() == REMEMBERED
                && let Some((revision, _)) = self.gone.pop_front()
            {
                self.oldest = revision;
            }
            self.gone.push_back((next, id));
        }
        if changed {
            self.revision = next;
        }
    }

    /// What is new since `revision`; `None` asks for everything.
    pub(super) fn since(&self, revision: Option<u64>) -> News<T> {
        let known = revision.filter(|known| (self.oldest..=self.revision).contains(known));
        let after = known.unwrap_or(0);
        let rows = self.rows.values().filter(|(revision, _)| *revision > after);
        let gone = self.gone.iter().filter(|(revision, _)| known.is_some() && *revision > after);
        News {
            reset: known.is_none(),
            changed: rows.map(|(_, row)| row.clone()).collect(),
            gone: gone.map(|(_, id)| id.clone()).collect(),
            revision: self.revision,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[(&str, u32)]) -> Vec<(String, u32)> {
        rows.iter().map(|(id, row)| ((*id).to_owned(), *row)).collect()
    }

    #[test]
    fn a_new_watcher_is_told_everything_and_then_only_changes() {
        let mut board = Board::default();
        board.update(rows(&[("a", 1), ("b", 2)]));
        let first = board.since(None);
        assert_eq!((first.reset, first.changed), (true, vec![1, 2]));

        board.update(rows(&[("a", 1), ("b", 3), ("c", 4)]));
        let second = board.since(Some(first.revision));
        assert_eq!((second.reset, second.changed, second.gone), (false, vec![3, 4], vec![]));

        board.update(rows(&[("b", 3)]));
        let third = board.since(Some(second.revision));
        assert_eq!((third.changed, third.gone), (vec![], vec!["a".to_owned(), "c".to_owned()]));
    }

    #[test]
    fn nothing_new_is_no_news() {
        let mut board = Board::default();
        board.update(rows(&[("a", 1)]));
        let revision = board.since(None).revision;
        board.update(rows(&[("a", 1)]));
        let news = board.since(Some(revision));
        assert_eq!((news.changed, news.gone, news.revision), (vec![], vec![], revision));
    }

    #[test]
    fn who_was_away_for_too_long_starts_again() {
        let mut board = Board::default();
        board.update(rows(&[("a", 1)]));
        let early = board.since(None).revision;
        for number in 0..=REMEMBERED {
            board.update(rows(&[(&format!("row-{number}"), 1)]));
        }
        board.update(rows(&[("last", 7)]));
        let news = board.since(Some(early));
        assert_eq!((news.reset, news.changed, news.gone), (true, vec![7], vec![]));
        assert!(board.since(Some(u64::MAX)).reset, "nor can it come from the future");
    }
}
