//! What a class of this driver may say, under `spec` or `providerSpec`.

use std::time::Duration;

use driver_client::{Code, Verb};
use serde::{Deserialize, Deserializer, de::Error as _};

use crate::cloud::VmAddress;

/// All of it is optional, and fields of others are ignored. An example:
///
/// ```yaml
/// spec:
///   createDelay: 300ms            # also deleteDelay, listDelay
///   capacity: 100                 # VMs of this class; beyond it RESOURCE_EXHAUSTED
///   requireInitialize: true       # create answers UNINITIALIZED until initialize was called
///   addresses: [{type: InternalIP, address: 10.0.0.1}]
///   failures:                     # one create in ten fails, before it has any effect
///     - {verb: create, code: UNAVAILABLE, rate: 0.1}
///   hang: [delete]                # never ends, until it is cancelled
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spec {
    #[serde(deserialize_with = "duration")]
    pub(crate) create_delay: Duration,
    #[serde(deserialize_with = "duration")]
    pub(crate) delete_delay: Duration,
    #[serde(deserialize_with = "duration")]
    pub(crate) list_delay: Duration,
    pub(crate) failures: Vec<Failure>,
    #[serde(deserialize_with = "verbs")]
    pub(crate) hang: Vec<Verb>,
    pub(crate) capacity: Option<usize>,
    pub(crate) require_initialize: bool,
    pub(crate) addresses: Vec<VmAddress>,
}

/// Makes a share of the calls fail.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Failure {
    #[serde(deserialize_with = "verb")]
    pub(crate) verb: Verb,
    #[serde(deserialize_with = "code")]
    pub(crate) code: Code,
    /// From 0, never, to 1, always.
    pub(crate) rate: f64,
}

impl Spec {
    /// The code this call shall fail with, if it shall.
    pub(crate) fn failure(&self, verb: Verb) -> Option<Code> {
        let hit = |failure: &&Failure| failure.verb == verb && rand::random::<f64>() < failure.rate;
        self.failures.iter().find(hit).map(|failure| failure.code)
    }
}

fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    humantime::parse_duration(&text).map_err(|error| D::Error::custom(format!("{text:?}: {error}")))
}

fn code<'de, D: Deserializer<'de>>(from: D) -> Result<Code, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

fn verb<'de, D: Deserializer<'de>>(from: D) -> Result<Verb, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

fn verbs<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Verb>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    names.iter().map(|name| name.parse().map_err(D::Error::custom)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_full_spec_is_understood_and_strange_fields_are_ignored() {
        let spec: Spec = serde_json::from_value(json!({
            "createDelay": "1m 300ms",
            "failures": [{"verb": "create", "code": "UNAVAILABLE", "rate": 1}],
            "hang": ["get_status"],
            "capacity": 3,
            "machineType": "m5.large",
        }))
        .unwrap();
        assert_eq!(spec.create_delay, Duration::from_millis(60_300));
        assert_eq!(spec.delete_delay, Duration::ZERO);
        assert_eq!(spec.failure(Verb::Create), Some(Code::Unavailable));
        assert_eq!(spec.failure(Verb::Delete), None);
        assert_eq!(spec.hang, [Verb::GetStatus]);
        assert_eq!(spec.capacity, Some(3));
    }

    #[test]
    fn mistakes_are_named() {
        for (spec, hint) in [
            (json!({"createDelay": "soon"}), "soon"),
            (json!({"hang": ["reboot"]}), "reboot"),
            (json!({"failures": [{"verb": "list", "code": "OOPS", "rate": 1}]}), "OOPS"),
        ] {
            let error = serde_json::from_value::<Spec>(spec).unwrap_err().to_string();
            assert!(error.contains(hint), "{error}");
        }
    }

    #[test]
    fn a_rate_of_zero_never_fails() {
        let failure = Failure { verb: Verb::List, code: Code::Internal, rate: 0.0 };
        let spec = Spec { failures: vec![failure], ..Spec::default() };
        assert!((0..1000).all(|_| spec.failure(Verb::List).is_none()));
    }
}
