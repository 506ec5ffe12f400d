//! Which drivers a replica has, as it tells the others. Pure, but for reading the registry.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use crate::{
    driver::DriverKey,
    registry::Registry,
    session::{Health, SessionHandle},
};

/// An annotation has to hold it, and every replica reads those of all.
const MOST_KEYS: usize = 100;
const LONGEST: usize = 32 * 1024;

/// How many drivers a replica has for each key. Only those that go to every replica count: of a key
/// that drivers of 2018 alone serve it is zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report(BTreeMap<DriverKey, usize>);

/// One key in the text of a report.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    api_version: String,
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    drivers: usize,
}

impl Report {
    /// What is connected now. One that drains leaves the other replicas, too.
    pub fn of(registry: &Registry) -> Self {
        let mut instances: HashMap<DriverKey, BTreeSet<_>> = HashMap::new();
        let sessions = registry.sessions();
        let stays = |session: &&SessionHandle| !matches!(session.health(), Health::Draining(_));
        for session in sessions.iter().filter(stays) {
            for key in &session.info().keys {
                let instances = instances.entry(key.clone()).or_default();
                if session.is_native() {
                    instances.insert(session.info().instance.id.clone());
                }
            }
        }
        Self(instances.into_iter().map(|(key, instances)| (key, instances.len())).collect())
    }

    #[cfg(test)]
    pub(super) fn with(key: DriverKey, drivers: usize) -> Self {
        Self([(key, drivers)].into())
    }

    /// Whether it has a driver for a key. One for all providers serves every provider.
    pub(super) fn serves(&self, wanted: &DriverKey) -> bool {
        self.0.keys().any(|key| {
            key.kind == wanted.kind
                && (key.api_version == wanted.api_version || wanted.has_any_version())
                && (key.provider == wanted.provider || key.provider.is_none())
        })
    }

    /// The first key that it has more drivers for than `other`, and how many each has.
    pub(super) fn exceeds(&self, other: &Report) -> Option<(&DriverKey, usize, usize)> {
        self.0.iter().find_map(|(key, drivers)| {
            let there = other.0.get(key).copied().unwrap_or(0);
            (*drivers > there).then_some((key, *drivers, there))
        })
    }

    /// As the others read it: as much as there is room for.
    pub fn to_text(&self) -> String {
        let line = |(key, drivers): (&DriverKey, &usize)| Line {
            api_version: key.api_version.to_string(),
            kind: key.kind.to_string(),
            provider: key.provider.as_deref().map(str::to_owned),
            drivers: *drivers,
        };
        let mut lines: Vec<Line> = self.0.iter().take(MOST_KEYS).map(line).collect();
        loop {
            let text = serde_json::to_string(&lines).expect("it is only text and numbers");
            if text.len() <= LONGEST {
                return text;
            }
            lines.truncate(lines.len() / 2);
        }
    }

    /// What another one wrote; nothing where that makes no sense.
    pub fn from_text(text: &str) -> Self {
        if text.len() > LONGEST {
            return Self::default();
        }
        let lines: Vec<Line> = serde_json::from_str(text).unwrap_or_default();
        let key = |line: Line| {
            let key = DriverKey {
                api_version: line.api_version.into(),
                kind: line.kind.into(),
                provider: line.provider.map(Into::into),
            };
            (key, line.drivers)
        };
        Self(lines.into_iter().take(MOST_KEYS).map(key).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: &str, provider: Option<&str>) -> DriverKey {
        DriverKey {
            api_version: "a.b/v1".into(),
            kind: kind.into(),
            provider: provider.map(Into::into),
        }
    }

    #[test]
    fn a_report_reads_as_it_was_written() {
        let keys = [(key("K", None), 2), (key("K", Some("aws")), 0), (key("L", None), 1)];
        let report = Report(keys.into());
        assert_eq!(
            report.to_text(),
            r#"[{"apiVersion":"a.b/v1","kind":"K","drivers":2},{"apiVersion":"a.b/v1","kind":"K","provider":"aws","drivers":0},{"apiVersion":"a.b/v1","kind":"L","drivers":1}]"#
        );
        assert_eq!(Report::from_text(&report.to_text()), report);
    }

    #[test]
    fn what_makes_no_sense_is_nothing() {
        for text in ["", "{}", "[{}]", "[1]", "nonsense", &"[".repeat(LONGEST + 1)] {
            assert_eq!(Report::from_text(text), Report::default(), "{text}");
        }
    }

    #[test]
    fn a_report_is_bounded_however_many_kinds_there_are_and_however_long_their_names() {
        let many = (0..10_000).map(|n| (key(&format!("K{n}"), None), 1)).collect();
        assert_eq!(Report::from_text(&Report(many).to_text()).0.len(), MOST_KEYS);
        let long = (0..200).map(|n| (key(&format!("{n}{}", "K".repeat(500)), None), 1)).collect();
        let text = Report(long).to_text();
        assert!(text.len() <= LONGEST && text.len() > LONGEST / 4, "{}", text.len());
    }

    #[test]
    fn a_driver_for_all_providers_serves_each_of_them() {
        let report = Report([(key("All", None), 1), (key("One", Some("aws")), 1)].into());
        assert!(report.serves(&key("All", Some("gcp"))));
        assert!(report.serves(&key("One", Some("aws"))));
        assert!(!report.serves(&key("One", Some("gcp"))));
        assert!(!report.serves(&key("Other", None)));
        let any = DriverKey::of_any_version("All");
        assert!(report.serves(&any));
    }
}
