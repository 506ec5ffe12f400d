//! The rights of the broker with their reasons, beside what is granted and what was asked for.

use std::collections::BTreeSet;

use serde_json::Value;

/// One verb on one sort of objects, and what the broker needs it for.
pub(super) struct Right {
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
    pub(super) verb: &'static str,
    pub(super) reach: Reach,
    pub(super) why: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Reach {
    Everywhere,
    /// In one namespace.
    There,
}

use Reach::{Everywhere, There};

const SIM: &str = "sim.machinebroker.dev";
const TODAY: &str = "machine.sapcloud.io";
const LEASES: &str = "coordination.k8s.io";
const OURS: &str = "machinebroker.dev";
const EVENTS: &str = "events.k8s.io";

/// Every right of the broker has its reason here.
pub(super) const RIGHTS: &[Right] = &[
    right(Everywhere, "authentication.k8s.io", "tokenreviews", "create", "whose a token is"),
    right(Everywhere, SIM, "simmachineclasses", "list", "the classes that there are"),
    right(Everywhere, SIM, "simmachineclasses", "watch", "and what becomes of them"),
    right(Everywhere, TODAY, "machineclasses", "list", "the same for drivers of today"),
    right(Everywhere, TODAY, "machineclasses", "watch", "the same for drivers of today"),
    right(There, "", "secrets", "get", "a secret that a class names"),
    right(There, "", "secrets", "watch", "its rotation, by its name"),
    right(There, LEASES, "leases", "get", "whether its own is there"),
    right(There, LEASES, "leases", "list", "which replicas there are"),
    right(There, LEASES, "leases", "watch", "who comes and goes"),
    right(There, LEASES, "leases", "create", "that it is there"),
    right(There, LEASES, "leases", "update", "that it still is"),
    right(There, LEASES, "leases", "delete", "that it goes"),
    right(There, OURS, "drivers", "list", "those that are shown already"),
    right(There, OURS, "drivers", "watch", "what other replicas write"),
    right(There, OURS, "drivers", "create", "one that is new, by server-side apply"),
    right(There, OURS, "drivers", "patch", "how it is"),
    right(There, OURS, "drivers", "delete", "one that is gone"),
    right(There, EVENTS, "events", "create", "what happened to a driver"),
    right(There, EVENTS, "events", "patch", "that it happened again"),
];

/// Those that it uses when it stops.
pub(super) const AT_THE_END: [(&str, &str); 1] = [("leases", "delete")];

const fn right(
    reach: Reach,
    group: &'static str,
    resource: &'static str,
    verb: &'static str,
    why: &'static str,
) -> Right {
    Right { group, resource, verb, reach, why }
}

impl Right {
    pub(super) fn named(&self) -> (Reach, String) {
        (self.reach, self.what())
    }

    pub(super) fn what(&self) -> String {
        what(self.group, self.resource, self.verb)
    }
}

fn what(group: &str, resource: &str, verb: &str) -> String {
    format!("{verb} {resource} of {group:?}")
}

/// What the roles in the manifests come to. All of them are the broker's.
pub(super) fn granted(objects: &[Value]) -> BTreeSet<(Reach, String)> {
    let of_kind = |kind: &str| {
        let kind = kind.to_owned();
        objects.iter().filter(move |object| object["kind"] == *kind)
    };
    let mut granted = BTreeSet::new();
    for (role, reach) in [("ClusterRole", Everywhere), ("Role", There)] {
        for binding in of_kind(&format!("{role}Binding")) {
            let subjects = binding["subjects"].as_array().expect("a list");
            assert_eq!(subjects.len(), 1, "{binding}");
            assert_eq!(subjects[0]["kind"], "ServiceAccount", "{binding}");
            assert_eq!(subjects[0]["name"], "broker", "{binding}");
            let bound = &binding["roleRef"];
            assert_eq!(bound["kind"], role, "a binding of ours is to a role of its reach");
            let mut found = of_kind(role).filter(|role| role["metadata"]["name"] == bound["name"]);
            let rules = found.next().expect("the role is there")["rules"].clone();
            for rule in rules.as_array().expect("a list") {
                let words = |field: &str| {
                    let words = rule[field].as_array().expect("a list").clone();
                    words.into_iter().map(|word| word.as_str().expect("a word").to_owned())
                };
                for group in words("apiGroups") {
                    for resource in words("resources") {
                        granted.extend(
                            words("verbs").map(|verb| (reach, what(&group, &resource, &verb))),
                        );
                    }
                }
            }
        }
    }
    granted
}

/// The rights that a line of the API server's audit log took, if it is about objects.
pub(super) fn requests(event: &Value) -> Vec<String> {
    let of = &event["objectRef"];
    let (Some(resource), Some(verb)) = (of["resource"].as_str(), event["verb"].as_str()) else {
        return Vec::new();
    };
    let resource = match of["subresource"].as_str() {
        None => resource.to_owned(),
        Some(sub) => format!("{resource}/{sub}"),
    };
    let right = |verb: &str| what(of["apiGroup"].as_str().unwrap_or_default(), &resource, verb);
    // Who applies what is not there creates it.
    let created = verb == "patch" && event["responseStatus"]["code"] == 201;
    [Some(right(verb)), created.then(|| right("create"))].into_iter().flatten().collect()
}
