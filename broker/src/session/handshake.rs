//! The first message of a driver: who it is, what it serves, in or out. Pure.

use std::{sync::Arc, time::Duration};

use broker_proto::{
    passing::{DriverSide, driver_side::Response},
    v1::{self, reject::Reason},
};

use super::Terms;
use crate::{
    catalog::class_name,
    driver::{DriverKey, Instance, Verb},
};

/// The protocol version that this broker speaks with native drivers.
pub const PROTOCOL: u32 = 1;

const MAX_KINDS: usize = 64;
const MAX_VERBS: usize = 64;
const MAX_CONNECTED: usize = 1024;
const MAX_NAME: usize = 253;
const MAX_CAPACITY: u32 = 100_000;

/// A driver's registration, checked.
#[derive(Debug)]
pub struct Hello {
    pub name: String,
    pub keys: Vec<DriverKey>,
    pub instance: Instance,
    pub version: String,
    /// 0: the protocol of 2018.
    pub protocol: u32,
    pub verbs: Vec<Verb>,
    pub resumes: bool,
    /// Had a session with this broker or another replica before.
    pub returning: bool,
    /// What it runs, and what it did lately. Not checked.
    pub resumed: Vec<v1::Resumed>,
    /// The replicas that it has a session with, as far as it knows.
    pub connected: Vec<String>,
    pub terms: Terms,
}

/// Why a driver was not let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Rejection {
    pub reason: Reason,
    pub message: String,
    pub retry_after: Option<Duration>,
}

impl Rejection {
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), retry_after: None }
    }

    pub fn retry_after(self, retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..self }
    }

    pub fn is_retryable(&self) -> bool {
        // A policy is mended while the driver waits, with all that it remembers.
        matches!(
            self.reason,
            Reason::Duplicate
                | Reason::Draining
                | Reason::Busy
                | Reason::Denied
                | Reason::Connected
        )
    }
}

/// Reads the first frame. `peer` names a historic driver, which has no instance id of its own.
pub fn read(frame: DriverSide, peer: &str) -> Result<Hello, Rejection> {
    let Some(Response::Registration(registration)) = frame.response else {
        return Err(invalid(format!(
            "the first message must be a registration, not {:?}",
            bounded(&String::from_utf8_lossy(&frame.operation_type))
        )));
    };
    if registration.name.len() > MAX_NAME {
        return Err(invalid(format!("the driver's name is longer than {MAX_NAME} bytes")));
    }
    // People read it in logs and tables, line by line.
    if registration.name.chars().any(char::is_control) {
        return Err(invalid("the driver's name is not printable".to_owned()));
    }
    match registration.hello {
        Some(_) => native(*registration),
        None => historic(*registration, peer),
    }
}

fn historic(registration: v1::Registration, peer: &str) -> Result<Hello, Rejection> {
    let key = historic_key(&registration)?;
    let who = if registration.name.is_empty() { "driver" } else { registration.name.as_str() };
    Ok(Hello {
        instance: Instance { id: format!("{who}@{peer}").into(), boot: None },
        keys: vec![key],
        version: String::new(),
        protocol: 0,
        verbs: Verb::HISTORIC.to_vec(),
        resumes: false,
        returning: false,
        resumed: Vec::new(),
        connected: Vec::new(),
        // It serves one operation at a time and reads nothing meanwhile.
        terms: Terms { native: false, cancel: false, drain: false, capacity: 1 },
        name: registration.name,
    })
}

fn native(registration: v1::Registration) -> Result<Hello, Rejection> {
    let historic = (!registration.kind.is_empty()).then(|| historic_key(&registration));
    let hello = registration.hello.unwrap_or_default();
    if hello.protocol_min > PROTOCOL || hello.protocol_max < PROTOCOL {
        return Err(Rejection::new(
            Reason::Protocol,
            format!(
                "the driver speaks protocol versions {} to {}, this broker speaks {PROTOCOL}",
                hello.protocol_min, hello.protocol_max
            ),
        ));
    }
    let mut keys = historic.into_iter().collect::<Result<Vec<_>, _>>()?;
    for kind in &hello.kinds {
        keys.push(key(&kind.api_version, &kind.kind, &kind.provider)?);
    }
    keys.sort_unstable();
    keys.dedup();
    // Kept for as long as the session.
    keys.shrink_to_fit();
    if keys.is_empty() {
        return Err(invalid("the driver names no kind to serve".to_owned()));
    }
    if keys.len() > MAX_KINDS {
        return Err(invalid(format!("the driver names more than {MAX_KINDS} kinds")));
    }
    // A later driver may know more than we do, but not that many.
    if hello.verbs.len() > MAX_VERBS {
        return Err(invalid(format!("the driver names more than {MAX_VERBS} verbs")));
    }
    let mut verbs: Vec<Verb> =
        hello.verbs.iter().filter_map(|verb| Verb::from_wire(verb)).collect();
    if hello.verbs.is_empty() {
        verbs.extend(Verb::HISTORIC);
    }
    if hello.connected.len() > MAX_CONNECTED {
        return Err(invalid(format!("the driver names more than {MAX_CONNECTED} replicas")));
    }
    for id in [&hello.instance_id, &hello.boot_id] {
        if id.is_empty() || id.len() > MAX_NAME || id.chars().any(char::is_control) {
            return Err(invalid(format!(
                "instance id and boot id must have 1 to {MAX_NAME} printable characters"
            )));
        }
    }
    if hello.driver_version.len() > MAX_NAME {
        return Err(invalid(format!("the driver's version is longer than {MAX_NAME} bytes")));
    }
    if hello.driver_version.chars().any(char::is_control) {
        return Err(invalid("the driver's version is not printable".to_owned()));
    }
    let capacity = hello.capacity.clamp(1, MAX_CAPACITY) as usize;
    Ok(Hello {
        name: registration.name,
        keys,
        instance: Instance { id: hello.instance_id.into(), boot: Some(hello.boot_id.into()) },
        version: hello.driver_version,
        protocol: PROTOCOL,
        verbs,
        resumes: hello.resume,
        returning: hello.returning,
        resumed: hello.resumed,
        connected: hello.connected,
        terms: Terms { native: true, cancel: hello.cancel, drain: hello.drain, capacity },
    })
}

fn historic_key(registration: &v1::Registration) -> Result<DriverKey, Rejection> {
    let api_version = if registration.group.is_empty() {
        registration.version.clone()
    } else {
        format!("{}/{}", registration.group, registration.version)
    };
    key(&api_version, &registration.kind, "")
}

fn key(api_version: &str, kind: &str, provider: &str) -> Result<DriverKey, Rejection> {
    class_name::valid_kind(kind)
        .map_err(|error| invalid(format!("kind {:?}: {error}", bounded(kind))))?;
    class_name::valid_api_version(api_version).map_err(|error| {
        invalid(format!("apiVersion {:?} of kind {kind}: {error}", bounded(api_version)))
    })?;
    if provider.len() > MAX_NAME || provider.chars().any(char::is_control) {
        return Err(invalid(format!("the provider of kind {kind} is too long or not printable")));
    }
    Ok(DriverKey {
        api_version: api_version.into(),
        kind: kind.into(),
        provider: (!provider.is_empty()).then(|| Arc::from(provider)),
    })
}

fn invalid(message: String) -> Rejection {
    Rejection::new(Reason::Invalid, message)
}

/// Enough of a peer's text to recognise it by.
fn bounded(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registration(registration: v1::Registration) -> DriverSide {
        DriverSide {
            response: Some(Response::Registration(registration.into())),
            ..Default::default()
        }
    }

    fn kind(kind: &str) -> v1::Kind {
        v1::Kind { api_version: "v1".into(), kind: kind.into(), provider: String::new() }
    }

    fn hello() -> v1::Hello {
        v1::Hello {
            protocol_min: 1,
            protocol_max: 1,
            instance_id: "a".into(),
            boot_id: "b".into(),
            kinds: vec![kind("SimMachineClass")],
            ..Default::default()
        }
    }

    fn rejected(hello: v1::Hello) -> Reason {
        let frame = registration(v1::Registration { hello: Some(hello), ..Default::default() });
        read(frame, "peer").unwrap_err().reason
    }

    #[test]
    fn a_registration_of_2018_is_a_driver_with_one_kind_and_one_operation_at_a_time() {
        let hello = read(
            registration(v1::Registration {
                name: "externalDriver".into(),
                group: "machine.sapcloud.io".into(),
                kind: "AWSMachineClass".into(),
                version: "v1alpha1".into(),
                hello: None,
            }),
            "127.0.0.1:4711",
        )
        .unwrap();
        assert_eq!(&*hello.keys[0].api_version, "machine.sapcloud.io/v1alpha1");
        assert_eq!(hello.terms.capacity, 1);
        assert_eq!(hello.protocol, 0);
    }

    #[test]
    fn the_core_group_is_a_version_alone() {
        let frame = registration(v1::Registration {
            kind: "K".into(),
            version: "v1".into(),
            ..Default::default()
        });
        assert_eq!(&*read(frame, "peer").unwrap().keys[0].api_version, "v1");
    }

    #[test]
    fn a_driver_without_a_kind_is_invalid() {
        assert_eq!(
            read(registration(v1::Registration::default()), "peer").unwrap_err().reason,
            Reason::Invalid
        );
        assert_eq!(rejected(v1::Hello { kinds: vec![], ..hello() }), Reason::Invalid);
        assert_eq!(rejected(v1::Hello { kinds: vec![kind("")], ..hello() }), Reason::Invalid);
        assert_eq!(rejected(v1::Hello { kinds: vec![kind("a/b")], ..hello() }), Reason::Invalid);
        let many = (0..65).map(|n| kind(&format!("K{n}"))).collect();
        assert_eq!(rejected(v1::Hello { kinds: many, ..hello() }), Reason::Invalid);
    }

    #[test]
    fn what_is_too_long_or_too_many_is_invalid() {
        let long = "x".repeat(MAX_NAME + 1);
        let of_provider = v1::Kind { provider: long.clone(), ..kind("K") };
        for hello in [
            v1::Hello { instance_id: long.clone(), ..hello() },
            v1::Hello { boot_id: long.clone(), ..hello() },
            v1::Hello { driver_version: long.clone(), ..hello() },
            v1::Hello { kinds: vec![kind(&long)], ..hello() },
            v1::Hello { kinds: vec![of_provider], ..hello() },
            v1::Hello { verbs: vec!["list".to_owned(); MAX_VERBS + 1], ..hello() },
        ] {
            assert_eq!(rejected(hello), Reason::Invalid);
        }
        let frame = registration(v1::Registration {
            name: long,
            hello: Some(hello()),
            ..Default::default()
        });
        let rejection = read(frame, "peer").unwrap_err();
        assert_eq!(rejection.reason, Reason::Invalid);
        assert!(rejection.message.len() < 300, "{rejection}");
    }

    #[test]
    fn protocols_that_do_not_meet_are_told_so() {
        let newer = v1::Hello { protocol_min: 2, protocol_max: 3, ..hello() };
        assert_eq!(rejected(newer), Reason::Protocol);
        let wider = v1::Hello { protocol_min: 1, protocol_max: 7, ..hello() };
        let frame = registration(v1::Registration { hello: Some(wider), ..Default::default() });
        assert_eq!(read(frame, "peer").unwrap().protocol, 1);
    }

    #[test]
    fn a_first_message_that_is_no_registration_is_invalid() {
        assert_eq!(read(DriverSide::default(), "peer").unwrap_err().reason, Reason::Invalid);
    }

    #[test]
    fn capacity_is_at_least_one_and_verbs_default_to_the_historic_three() {
        let frame = registration(v1::Registration { hello: Some(hello()), ..Default::default() });
        let hello = read(frame, "peer").unwrap();
        assert_eq!(hello.terms.capacity, 1);
        assert_eq!(hello.verbs, Verb::HISTORIC);
    }
}
