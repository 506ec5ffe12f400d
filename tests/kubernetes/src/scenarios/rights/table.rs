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

/// Every right of the broker has its reason here.
pub(super) const RIGHTS: &[Right] = &[
    right(
        Everywhere,
        "authentication.k8s.io",
        "tokenreviews",
        "create",
        "who shows a token of an account",
    ),
    right(
        Everywhere,
        "sim.machinebroker.dev",
        "simmachineclasses",
        "list",
        "the classes that there are",
    ),
    right(
        Everywhere,
        "sim.machinebroker.dev",
        "simmachineclasses",
        "watch",
        "and what becomes of them",
    ),
    right(
        Everywhere,
        "machine.sapcloud.io",
        "machineclasses",
        "list",
        "the same for drivers of today",
    ),
    right(Everywhere, "machine.sapcloud.io", "machineclasses", "watch", "the same"),
    right(There, "", "secrets", "get", "a secret that a class names"),
    right(There, "", "secrets", "watch", "its rotation, by its name"),
    right(There, "coordination.k8s.io", "leases", "get", "its own presence, and that of a peer"),
    right(There, "coordination.k8s.io", "leases", "list", "which replicas there are"),
    right(There, "coordination.k8s.io", "leases", "watch", "who comes and goes"),
    right(There, "coordination.k8s.io", "leases", "create", "its own presence"),
    right(There, "coordination.k8s.io", "leases", "update", "still there"),
    right(There, "coordination.k8s.io", "leases", "patch", "still there, by server-side apply"),
    right(There, "coordination.k8s.io", "leases", "delete", "it goes, and says so"),
    right(There, "machinebroker.dev", "drivers", "get", "what other replicas say of a driver"),
    right(There, "machinebroker.dev", "drivers", "list", "those that are there after a restart"),
    right(There, "machinebroker.dev", "drivers", "watch", "what other replicas write"),
    right(There, "machinebroker.dev", "drivers", "create", "a driver that is new"),
    right(There, "machinebroker.dev", "drivers", "patch", "by server-side apply"),
    right(There, "machinebroker.dev", "drivers", "delete", "one that is gone"),
    right(There, "machinebroker.dev", "drivers/status", "get", "what was written last"),
    right(There, "machinebroker.dev", "drivers/status", "patch", "how a driver is"),
    right(There, "machinebroker.dev", "drivers/status", "update", "the same"),
    right(There, "", "events", "create", "what happened to a driver"),
    right(There, "", "events", "patch", "that it happened again"),
    right(There, "events.k8s.io", "events", "create", "what happened to a driver"),
    right(There, "events.k8s.io", "events", "patch", "that it happened again"),
];

/// What nothing makes the broker use so far: it waits for replicas and for drivers as objects.
pub(super) const UNUSED: &[&str] = &["leases", "drivers", "drivers/status", "events"];

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
