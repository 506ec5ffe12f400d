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
///   secretKeys: [token]           # without them FAILED_PRECONDITION
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    #[serde(deserialize_with = "duration")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub create_delay: Duration,
    #[serde(deserialize_with = "duration")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub delete_delay: Duration,
    #[serde(deserialize_with = "duration")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub list_delay: Duration,
    pub failures: Vec<Failure>,
    #[serde(deserialize_with = "verbs")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub hang: Vec<Verb>,
    pub capacity: Option<usize>,
    pub require_initialize: bool,
    pub addresses: Vec<VmAddress>,
    /// Keys that the secret must have.
    pub secret_keys: Vec<String>,
}

/// Makes a share of the calls fail.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Failure {
    #[serde(deserialize_with = "verb")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub verb: Verb,
    #[serde(deserialize_with = "code")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub code: Code,
    /// From 0, never, to 1, always.
    pub rate: f64,
}

impl Spec {
    /// The code this call shall fail with, if it shall.
    pub fn failure(&self, verb: Verb) -> Option<Code> {
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
