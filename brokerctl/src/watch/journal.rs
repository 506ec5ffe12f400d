//! What was shown of a watch, so that only what is new gets a line.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
};

use serde::Serialize;

use crate::{
    Failure,
    args::Format,
    output::{Look, Output},
    table::{Cell, Column, Ledger, Table},
};

/// What all words for events fit into, so that later lines are in line with the first.
const LONGEST_WORD: usize = "FINISHED".len();

/// Something that can be watched.
pub(crate) trait Watched: Clone + Serialize + 'static {
    const COLUMNS: &'static [Column<Self>];
    /// Whether restless columns say something about a moment in the past.
    const KEEPS_RESTLESS: bool;
    fn id(&self) -> &str;
}

/// One message of a watch, in the words that all of them share.
pub(crate) enum Event<T> {
    Reset,
    Changed(T),
    Removed(String),
    Synced,
}

/// What becomes of something that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is shown, and followed from now on.
    Stays,
    /// This is the last that is to be shown of it.
    Ends,
    /// It is not what the operator asked for. Where it was shown before, it is once more.
    Leaves,
}

/// Lines with a time and a word on what happened, one for each change.
pub(crate) struct Journal<T> {
    fate: fn(&T, &str) -> Fate,
    /// What `fate` goes by.
    filter: String,
    known: BTreeMap<String, T>,
    /// What has arrived of a snapshot, until it is complete.
    arriving: Option<Vec<T>>,
    ledger: Option<Ledger>,
}

/// A change as data.
#[derive(Serialize)]
struct Change<'a, T> {
    at: String,
    r#type: &'static str,
    object: &'a T,
}

impl<T: Watched> Journal<T> {
    pub(crate) fn new(filter: impl Into<String>, fate: fn(&T, &str) -> Fate) -> Self {
        Self {
            fate,
            filter: filter.into(),
            known: BTreeMap::new(),
            arriving: Some(Vec::new()),
            ledger: None,
        }
    }

    /// Shows what there is to show of an event.
    pub(crate) fn see(
        &mut self,
        event: Event<T>,
        output: &mut Output<'_, '_>,
    ) -> Result<ControlFlow<()>, Failure> {
        let (look, format) = (output.look(), output.format());
        let text = self.text(event, format, look);
        if text.is_empty() { Ok(ControlFlow::Continue(())) } else { output.write(&text) }
    }

    fn text(&mut self, event: Event<T>, format: Format, look: Look) -> String {
        let all = Look { wide: look.wide || matches!(format, Format::Json | Format::Yaml), ..look };
        let changes = match event {
            Event::Reset => {
                self.arriving = Some(Vec::new());
                vec![]
            }
            Event::Changed(item) => match &mut self.arriving {
                Some(arriving) => {
                    arriving.push(item);
                    vec![]
                }
                None => self.changed(item, &all).into_iter().collect(),
            },
            Event::Removed(id) => self.removed(&id).into_iter().collect(),
            Event::Synced => self.synced(&all),
        };
        self.write(&changes, format, look)
    }

    fn changed(&mut self, item: T, look: &Look) -> Option<(&'static str, T)> {
        let fate = (self.fate)(&item, &self.filter);
        let before = self.known.remove(item.id());
        let what = match (&before, fate) {
            (None, Fate::Stays) => "ADDED",
            (_, Fate::Ends) => "FINISHED",
            (None, Fate::Leaves) => return None,
            (Some(_), Fate::Stays | Fate::Leaves) => "CHANGED",
        };
        let news = fate != Fate::Stays
            || before.is_none_or(|before| signature(&before, look) != signature(&item, look));
        let shown = news.then(|| (what, item.clone()));
        if fate == Fate::Stays {
            self.known.insert(item.id().to_owned(), item);
        }
        shown
    }

    fn removed(&mut self, id: &str) -> Option<(&'static str, T)> {
        if let Some(arriving) = &mut self.arriving {
            arriving.retain(|item| item.id() != id);
        }
        self.known.remove(id).map(|item| ("REMOVED", item))
    }

    /// Of a snapshot that came again, only the differences are news.
    fn synced(&mut self, look: &Look) -> Vec<(&'static str, T)> {
        let Some(arrived) = self.arriving.take() else { return vec![] };
        let here: BTreeSet<_> = arrived.iter().map(|item| item.id().to_owned()).collect();
        let gone: Vec<_> = self.known.keys().filter(|id| !here.contains(*id)).cloned().collect();
        let mut changes: Vec<_> = gone.iter().filter_map(|id| self.removed(id)).collect();
        changes.extend(arrived.into_iter().filter_map(|item| self.changed(item, look)));
        changes
    }

    fn write(&mut self, changes: &[(&'static str, T)], format: Format, look: Look) -> String {
        const PLAIN: &str = "views are plain data";
        let at = || humantime::format_rfc3339_seconds(look.now).to_string();
        let change = |(what, item): &(&'static str, T)| match format {
            Format::Yaml => {
                let change = Change { at: at(), r#type: what, object: item };
                format!("---\n{}", serde_saphyr::to_string(&change).expect(PLAIN))
            }
            _ => {
                let change = Change { at: at(), r#type: what, object: item };
                serde_json::to_string(&change).expect(PLAIN) + "\n"
            }
        };
        if matches!(format, Format::Json | Format::Yaml) {
            return changes.iter().map(change).collect();
        }
        let shown = |column: &&Column<T>| {
            (look.wide || !column.wide) && (T::KEEPS_RESTLESS || !column.restless)
        };
        let shown: Vec<_> = T::COLUMNS.iter().filter(shown).collect();
        let headers = ["AT", "EVENT"].into_iter().chain(shown.iter().map(|column| column.header));
        let mut table = Table::new(headers.collect::<Vec<_>>());
        for (what, item) in changes {
            let cells = shown.iter().map(|column| (column.cell)(item, &look));
            let first = [Cell::from(at()), Cell::from(format!("{what:LONGEST_WORD$}"))];
            table.row(first.into_iter().chain(cells).collect::<Vec<_>>());
        }
        self.ledger.get_or_insert_with(|| Ledger::new(look.headers, look.colour)).lines(table)
    }
}

/// What an operator sees of it, but for what changes by itself.
fn signature<T: Watched>(item: &T, look: &Look) -> Vec<String> {
    let calm = T::COLUMNS.iter().filter(|column| !column.restless && (look.wide || !column.wide));
    calm.map(|column| (column.cell)(item, look).text().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fitting;

    #[derive(Clone, Serialize)]
    struct Lamp {
        name: &'static str,
        light: &'static str,
        #[serde(skip)]
        age: u32,
    }

    impl Watched for Lamp {
        const COLUMNS: &'static [Column<Self>] = &[
            Column::new("NAME", |lamp, _| lamp.name.into()),
            Column::new("LIGHT", |lamp, _| lamp.light.into()),
            Column::restless("AGE", |lamp, _| lamp.age.to_string().into()),
        ];
        const KEEPS_RESTLESS: bool = false;

        fn id(&self) -> &str {
            self.name
        }
    }

    fn lamp(name: &'static str, light: &'static str, age: u32) -> Event<Lamp> {
        Event::Changed(Lamp { name, light, age })
    }

    fn watch(format: Format, events: Vec<Event<Lamp>>) -> String {
        let mut journal = Journal::new("", |_: &Lamp, _| Fate::Stays);
        let text = |event| journal.text(event, format, fitting::look());
        events.into_iter().map(text).collect()
    }

    #[test]
    fn lines_stay_in_line_and_only_news_are_lines() {
        let events = vec![
            lamp("hall", "on", 1),
            lamp("roof", "off", 1),
            Event::Synced,
            lamp("hall", "on", 2),
            lamp("hall", "off", 3),
            Event::Removed("roof".into()),
            Event::Removed("cellar".into()),
        ];
        let expected = "\
AT                     EVENT      NAME   LIGHT
1970-01-01T01:00:00Z   ADDED      hall   on
1970-01-01T01:00:00Z   ADDED      roof   off
1970-01-01T01:00:00Z   CHANGED    hall   off
1970-01-01T01:00:00Z   REMOVED    roof   off
";
        assert_eq!(watch(Format::Table, events), expected);
    }

    #[test]
    fn changes_are_documents() {
        let events = || vec![lamp("hall", "on", 1), Event::Synced];
        let expected =
            r#"{"at":"1970-01-01T01:00:00Z","type":"ADDED","object":{"name":"hall","light":"on"}}"#;
        assert_eq!(watch(Format::Json, events()), format!("{expected}\n"));
        let expected = "\
---
at: \"1970-01-01T01:00:00Z\"
type: ADDED
object:
  name: hall
  light: \"on\"
";
        assert_eq!(watch(Format::Yaml, events()), expected);
    }
}
