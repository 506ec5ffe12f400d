//! `Driver`: a connected driver, as the brokers see it. Nobody writes it but they, so there is no
//! `status` subresource: one write says everything.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::time;

pub const GROUP: &str = "machinebroker.dev";
pub const VERSION: &str = "v1alpha1";
pub const KIND: &str = "Driver";
pub const PLURAL: &str = "drivers";

/// A driver that is connected to brokers. They write it, and remove it when it is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "definitions", derive(schemars::JsonSchema))]
pub struct Driver {
    #[serde(default)]
    pub spec: Spec,
    #[serde(default)]
    pub status: Status,
}

/// What the driver said of itself when it registered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
#[cfg_attr(feature = "definitions", derive(schemars::JsonSchema))]
pub struct Spec {
    /// Which of several equal drivers; kept over its restarts.
    pub instance: String,
    /// The kinds of machine classes that it serves.
    #[cfg_attr(feature = "definitions", schemars(extend("x-kubernetes-list-type" = "atomic")))]
    pub kinds: Vec<Served>,
    /// The version of the driver.
    pub version: String,
    /// The version of the protocol that it speaks; 0 is that of 2018.
    pub protocol: u32,
}

/// A kind of machine classes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "definitions", derive(schemars::JsonSchema))]
pub struct Served {
    pub api_version: String,
    pub kind: String,
    /// Only classes of this provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
}

/// What the brokers see of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
#[cfg_attr(feature = "definitions", derive(schemars::JsonSchema))]
pub struct Status {
    /// The worst that any broker sees.
    pub state: State,
    /// The kinds that it serves, in a line.
    pub serves: String,
    /// How many brokers see it.
    pub replicas: u32,
    /// Operations that it has of all brokers, when this was last written.
    pub in_flight: u32,
    /// When any broker last heard of it, give or take some minutes while all is quiet.
    #[serde(with = "time::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "definitions", schemars(schema_with = "time::schema"))]
    pub last_heard: Option<SystemTime>,
    /// Its session with each broker.
    #[cfg_attr(
        feature = "definitions",
        schemars(extend(
            "x-kubernetes-list-type" = "map",
            "x-kubernetes-list-map-keys" = ["replica"]
        ))
    )]
    pub sessions: Vec<Session>,
    #[cfg_attr(
        feature = "definitions",
        schemars(extend(
            "x-kubernetes-list-type" = "map",
            "x-kubernetes-list-map-keys" = ["type"]
        ))
    )]
    pub conditions: Vec<Condition>,
}

/// Whether it gets new work. The last one is the worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[cfg_attr(feature = "definitions", derive(schemars::JsonSchema))]
pub enum State {
    #[default]
    Ready,
    Draining,
    Suspect,
}

/// A session with one broker.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "definitions", derive(schemars::JsonSchema))]
pub struct Session {
    /// The broker.
    pub replica: String,
    /// As `brokerctl` calls it.
    pub session: String,
    pub state: State,
    /// Why it gets no new work, if it does not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(with = "time")]
    #[cfg_attr(feature = "definitions", schemars(schema_with = "time::schema"))]
    pub connected_since: SystemTime,
    #[serde(with = "time")]
    #[cfg_attr(feature = "definitions", schemars(schema_with = "time::schema"))]
    pub last_heard: SystemTime,
    pub in_flight: u32,
    /// Why this broker cannot read classes of the driver, if it cannot.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub trouble: String,
}

/// As all of Kubernetes has them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "definitions", derive(schemars::JsonSchema))]
pub struct Condition {
    /// `Ready`, or `ClassesRead`.
    pub r#type: String,
    /// `True` or `False`.
    pub status: String,
    pub reason: String,
    #[serde(default)]
    pub message: String,
    #[serde(with = "time")]
    #[cfg_attr(feature = "definitions", schemars(schema_with = "time::schema"))]
    pub last_transition_time: SystemTime,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Draining => "Draining",
            Self::Suspect => "Suspect",
        }
    }
}

#[cfg(feature = "definitions")]
pub(crate) fn definition() -> crate::definition::Definition {
    use crate::definition::{Column, Definition, Names, strict_schema_of};
    Definition {
        names: Names { group: GROUP, kind: KIND, plural: PLURAL, short: "mbd" },
        version: VERSION,
        schema: strict_schema_of::<Driver>(),
        columns: vec![
            Column::text("Kinds", ".status.serves"),
            Column::text("Version", ".spec.version"),
            Column::text("State", ".status.state"),
            Column::number("Replicas", ".status.replicas"),
            Column::number("In-Flight", ".status.inFlight"),
            Column::date("Last-Heard", ".status.lastHeard"),
            Column::date("Age", ".metadata.creationTimestamp"),
            Column::text("Instance", ".spec.instance").wide(),
            Column::number("Protocol", ".spec.protocol").wide(),
            Column::text("Classes-Read", ".status.conditions[?(@.type=='ClassesRead')].status")
                .wide(),
            Column::text("Message", ".status.conditions[?(@.type=='Ready')].message").wide(),
        ],
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_times_are_as_in_kubernetes() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let session = Session {
            replica: "broker-0".to_owned(),
            session: "0123456789abcdef".to_owned(),
            state: State::Suspect,
            reason: "silent".to_owned(),
            connected_since: at,
            last_heard: at,
            in_flight: 3,
            trouble: String::new(),
        };
        let driver = Driver {
            spec: Spec { instance: "sim-0".to_owned(), ..Spec::default() },
            status: Status {
                last_heard: Some(at),
                sessions: vec![session],
                state: State::Suspect,
                ..Status::default()
            },
        };
        let json = serde_json::to_value(&driver).unwrap();
        assert_eq!(json["status"]["sessions"][0]["lastHeard"], "2001-09-09T01:46:40Z");
        assert_eq!(serde_json::from_value::<Driver>(json).unwrap(), driver);
    }

    #[test]
    fn an_object_of_which_nothing_is_written_is_read_too() {
        let empty = serde_json::json!({"status": {"state": "Ready"}});
        assert_eq!(serde_json::from_value::<Driver>(empty).unwrap(), Driver::default());
    }
}
