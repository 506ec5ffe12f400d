use std::sync::Arc;

use broker_crds::driver::{Served, Spec, State};

use super::*;

const START: u64 = 1_800_000_000;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(START + seconds)
}

fn spec(version: &str) -> Arc<Spec> {
    let kind = |kind: &str, provider: Option<&str>| Served {
        api_version: "a/v1".to_owned(),
        kind: kind.to_owned(),
        provider: provider.map(ToOwned::to_owned),
    };
    Arc::new(Spec {
        instance: "sim-0".to_owned(),
        kinds: vec![kind("SimMachineClass", None), kind("MachineClass", Some("AWS"))],
        version: version.to_owned(),
        protocol: 1,
    })
}

fn fact(connected: u64) -> Fact {
    Fact {
        spec: spec("v1"),
        session: format!("session-{connected}").into(),
        connected: at(connected),
        heard: at(connected),
        state: State::Ready,
        reason: "",
        in_flight: 0,
        trouble: None,
    }
}

fn live(replicas: &[&str]) -> BTreeSet<Arc<str>> {
    replicas.iter().map(|replica| Arc::from(*replica)).collect()
}

/// A broker that looks at the one object there is.
struct Broker(&'static str, Option<BTreeSet<Arc<str>>>);

impl Broker {
    fn here(&self, now: u64) -> Here<'_> {
        Here { replica: self.0, live: self.1.as_ref(), now: at(now) }
    }

    fn why(&self, seen: Option<&Object>, fact: Option<&Fact>, now: u64) -> Option<Why> {
        self.here(now).why(seen, fact)
    }

    fn writes(&self, seen: Option<&Object>, fact: Option<&Fact>, now: u64) -> Option<Object> {
        let driver = self.here(now).object(seen, fact)?;
        let [name, uid, version] = ["sim-0", "uid", "1"].map(ToOwned::to_owned);
        Some(Object { name, uid, version, driver })
    }
}

fn a() -> Broker {
    Broker("a", Some(live(&["a", "b"])))
}

fn b() -> Broker {
    Broker("b", Some(live(&["a", "b"])))
}

fn replicas(object: &Object) -> Vec<&str> {
    object.driver.status.sessions.iter().map(|session| session.replica.as_str()).collect()
}

#[test]
fn what_is_written_says_all_and_is_not_written_again() {
    let (fact, broker) = (Fact { in_flight: 3, ..fact(0) }, a());
    assert_eq!(broker.why(None, Some(&fact), 0), Some(Why::News));
    let object = broker.writes(None, Some(&fact), 7).unwrap();
    let Driver { spec, status } = &object.driver;
    assert_eq!(*spec, *fact.spec);
    assert_eq!(status.serves, "SimMachineClass,MachineClass/AWS");
    assert_eq!((status.state, status.replicas, status.in_flight), (State::Ready, 1, 3));
    assert_eq!(status.last_heard, Some(at(0)));
    let conditions: Vec<_> =
        status.conditions.iter().map(|c| (&*c.r#type, &*c.status, &*c.reason)).collect();
    assert_eq!(conditions, [("Ready", "True", "Ready"), ("ClassesRead", "True", "Read")]);
    assert_eq!(broker.why(Some(&object), Some(&fact), 0), None);
    // Hearing of it is no news, and neither is a bit more to do.
    let later = Fact { heard: at(299), in_flight: 4, ..fact.clone() };
    assert_eq!(broker.why(Some(&object), Some(&later), 299), None);
    let later = Fact { heard: at(300), ..fact };
    assert_eq!(broker.why(Some(&object), Some(&later), 300), Some(Why::Old));
}

#[test]
fn load_is_told_coarsely() {
    for (before, now, other) in [
        (0, 0, false),
        (0, 1, true),
        (1, 0, true),
        (5, 9, false),
        (5, 10, true),
        (10, 5, true),
        (10, 6, false),
        (u32::MAX, u32::MAX - 1, false),
    ] {
        assert_eq!(is_other_load(before, now), other, "{before} {now}");
    }
    let object = a().writes(None, Some(&fact(0)), 0);
    let busy = Fact { in_flight: 5, ..fact(0) };
    assert_eq!(a().why(object.as_ref(), Some(&busy), 0), Some(Why::Load));
}

#[test]
fn the_worst_that_a_broker_sees_is_the_state_and_conditions_say_since_when() {
    let object = a().writes(None, Some(&fact(0)), 0);
    let object = b().writes(object.as_ref(), Some(&fact(1)), 1).unwrap();
    assert_eq!(replicas(&object), ["a", "b"]);
    assert_eq!(object.driver.status.conditions[0].last_transition_time, at(0));

    let reason = "has not been heard of for too long";
    let suspect = Fact { state: State::Suspect, reason, ..fact(1) };
    assert_eq!(b().why(Some(&object), Some(&suspect), 9), Some(Why::News));
    let object = b().writes(Some(&object), Some(&suspect), 9).unwrap();
    let status = &object.driver.status;
    assert_eq!(status.state, State::Suspect);
    let ready = &status.conditions[0];
    assert_eq!((&*ready.status, &*ready.reason), ("False", "Suspect"));
    assert_eq!(ready.message, "for b it has not been heard of for too long");
    assert_eq!(ready.last_transition_time, at(9));
    assert_eq!(status.conditions[1].last_transition_time, at(0), "nothing happened to it");
    // The other one has nothing to add.
    assert_eq!(a().why(Some(&object), Some(&fact(0)), 9), None);

    let object = b().writes(Some(&object), Some(&fact(1)), 20).unwrap();
    assert_eq!(object.driver.status.conditions[0].last_transition_time, at(20));
    assert_eq!(object.driver.status.state, State::Ready);
}

#[test]
fn a_kind_that_cannot_be_read_is_a_condition() {
    let object = a().writes(None, Some(&fact(0)), 0).unwrap();
    let trouble = Some(Arc::from("install its CustomResourceDefinition"));
    let troubled = Fact { trouble, ..fact(0) };
    assert_eq!(a().why(Some(&object), Some(&troubled), 1), Some(Why::News));
    let object = a().writes(Some(&object), Some(&troubled), 1).unwrap();
    let read = &object.driver.status.conditions[1];
    assert_eq!((&*read.r#type, &*read.status, &*read.reason), ("ClassesRead", "False", "NotRead"));
    assert_eq!(read.message, "install its CustomResourceDefinition");
    assert_eq!(object.driver.status.state, State::Ready, "it is not the driver's fault");
}

#[test]
fn what_the_driver_told_last_is_what_it_is() {
    let old = a().writes(None, Some(&fact(0)), 0);
    let restarted = Fact { spec: spec("v2"), ..fact(5) };
    let object = b().writes(old.as_ref(), Some(&restarted), 5).unwrap();
    assert_eq!(object.driver.spec.version, "v2");
    // The broker that still has the old session does not write it back…
    assert_eq!(a().why(Some(&object), Some(&fact(0)), 6), None);
    // …not even when it has something else to say.
    let busy = Fact { in_flight: 1, ..fact(0) };
    let object = a().writes(Some(&object), Some(&busy), 6).unwrap();
    assert_eq!(object.driver.spec.version, "v2");
    let again = Fact { spec: spec("v3"), ..fact(7) };
    assert_eq!(a().why(Some(&object), Some(&again), 7), Some(Why::News));
    assert_eq!(a().writes(Some(&object), Some(&again), 7).unwrap().driver.spec.version, "v3");
}

#[test]
fn who_is_gone_is_removed_by_those_who_are_there_and_the_last_one_removes_all() {
    let object = a().writes(None, Some(&fact(0)), 0);
    let object = b().writes(object.as_ref(), Some(&fact(1)), 1);
    // The driver left a.
    assert_eq!(a().why(object.as_ref(), None, 2), Some(Why::Leftover));
    let left = a().writes(object.as_ref(), None, 2).unwrap();
    assert_eq!(replicas(&left), ["b"]);
    assert_eq!(a().why(Some(&left), None, 2), None, "not ours");
    // Or a died.
    let alone = Broker("b", Some(live(&["b"])));
    assert_eq!(alone.why(object.as_ref(), Some(&fact(1)), 2), Some(Why::Leftover));
    let left = alone.writes(object.as_ref(), Some(&fact(1)), 2).unwrap();
    assert_eq!((replicas(&left), left.driver.status.replicas), (vec!["b"], 1));
    // Or came back with another name, and the driver did not.
    let renamed = Broker("c", Some(live(&["c"])));
    assert_eq!(renamed.why(object.as_ref(), None, 2), Some(Why::Leftover));
    assert_eq!(renamed.writes(object.as_ref(), None, 2), None);
    assert_eq!(alone.writes(Some(&left), None, 3), None);
}

#[test]
fn while_it_is_not_known_who_is_there_only_what_is_old_goes() {
    let object = a().writes(None, Some(&fact(0)), 0);
    let unknowing = Broker("b", None);
    assert_eq!(unknowing.why(object.as_ref(), None, 899), None);
    assert_eq!(unknowing.why(object.as_ref(), None, 900), Some(Why::Leftover));
    assert_eq!(unknowing.writes(object.as_ref(), None, 900), None);
}

#[test]
fn an_object_without_sessions_is_nobodys() {
    let object = a().writes(None, Some(&fact(0)), 0).unwrap();
    let empty = Object { driver: Driver::default(), ..object };
    assert_eq!(a().why(Some(&empty), None, 0), Some(Why::Leftover));
    assert_eq!(a().writes(Some(&empty), None, 0), None);
    assert_eq!(a().why(None, None, 0), None);
}

#[test]
fn everyone_has_another_turn_at_what_is_left_over() {
    let all = live(&["a", "b", "c"]);
    for name in ["sim-0", "sim-1", "x", "y"] {
        let turn = |replica| Here { replica, live: Some(&all), now: at(0) }.turn(name);
        let turns = BTreeSet::from(["a", "b", "c"].map(turn));
        assert_eq!(turns, BTreeSet::from([0, 1, 2]), "{name}");
    }
}
