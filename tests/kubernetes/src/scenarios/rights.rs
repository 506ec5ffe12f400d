//! What accounts may do: all that they need, and nothing else.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    actors::{DRIVER, World, until},
    cluster::{AUDIENCE, Cluster},
};

/// One verb on one sort of objects, and what the broker needs it for.
struct Right {
    group: &'static str,
    resource: &'static str,
    verb: &'static str,
    reach: Reach,
    why: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Reach {
    Everywhere,
    /// In one namespace.
    There,
}

use Reach::{Everywhere, There};

/// Every right of the broker has its reason here.
const RIGHTS: &[Right] = &[
    right(
        Everywhere,
        "authentication.k8s.io tokenreviews create",
        "who shows a token of an account",
    ),
    right(Everywhere, "sim.machinebroker.dev simmachineclasses list", "the classes that there are"),
    right(Everywhere, "sim.machinebroker.dev simmachineclasses watch", "and what becomes of them"),
    right(Everywhere, "machine.sapcloud.io machineclasses list", "the same for drivers of today"),
    right(Everywhere, "machine.sapcloud.io machineclasses watch", "the same"),
    right(There, " secrets get", "a secret that a class names"),
    right(There, " secrets watch", "its rotation, by its name"),
    right(There, "coordination.k8s.io leases get", "its own presence, and that of a peer"),
    right(There, "coordination.k8s.io leases list", "which replicas there are"),
    right(There, "coordination.k8s.io leases watch", "who comes and goes"),
    right(There, "coordination.k8s.io leases create", "its own presence"),
    right(There, "coordination.k8s.io leases update", "still there"),
    right(There, "coordination.k8s.io leases patch", "still there, by server-side apply"),
    right(There, "coordination.k8s.io leases delete", "it goes, and says so"),
    right(There, "machinebroker.dev drivers get", "what other replicas say of a driver"),
    right(There, "machinebroker.dev drivers list", "those that are there after a restart"),
    right(There, "machinebroker.dev drivers watch", "what other replicas write"),
    right(There, "machinebroker.dev drivers create", "a driver that is new"),
    right(There, "machinebroker.dev drivers patch", "by server-side apply"),
    right(There, "machinebroker.dev drivers delete", "one that is gone"),
    right(There, "machinebroker.dev drivers/status get", "what was written last"),
    right(There, "machinebroker.dev drivers/status patch", "how a driver is"),
    right(There, "machinebroker.dev drivers/status update", "the same"),
    right(There, " events create", "what happened to a driver"),
    right(There, " events patch", "that it happened again"),
    right(There, "events.k8s.io events create", "what happened to a driver"),
    right(There, "events.k8s.io events patch", "that it happened again"),
];

/// What the story below does not make the broker do: they wait for replicas and for drivers as objects.
const UNUSED: &[&str] = &["leases", "drivers", "drivers/status", "events"];

const fn right(reach: Reach, what: &'static str, why: &'static str) -> Right {
    let (group, rest) = split(what);
    let (resource, verb) = split(rest);
    Right { group, resource, verb, reach, why }
}

/// Both sides of the first blank.
const fn split(text: &'static str) -> (&'static str, &'static str) {
    let mut at = 0;
    while text.as_bytes()[at] != b' ' {
        at += 1;
    }
    let (before, after) = text.split_at(at);
    (before, after.split_at(1).1)
}

pub(super) async fn every_right_of_the_broker_has_a_reason(cluster: &Cluster) {
    let world = World::new(cluster);
    let granted = granted(&world.objects());
    let reasons: BTreeSet<_> = RIGHTS.iter().map(|right| right.named()).collect();
    assert!(RIGHTS.iter().all(|right| !right.why.is_empty()));
    let without: Vec<_> = granted.difference(&reasons).collect();
    assert!(without.is_empty(), "granted without a reason: {without:?}");
    let missing: Vec<_> = reasons.difference(&granted).collect();
    assert!(missing.is_empty(), "a reason, and not granted: {missing:?}");
}

pub(super) async fn the_broker_uses_its_rights_and_asks_for_no_more(cluster: &Cluster) {
    let mut world = World::new(cluster);
    world.secret("credentials", 7);
    world.class("small", "{secretRef: {name: credentials}}");
    cluster.apply(&format!(
        "apiVersion: machine.sapcloud.io/v1alpha1\nkind: MachineClass\n\
         metadata: {{name: aws, namespace: {}}}\nproviderSpec: {{}}\nprovider: AWS\n",
        world.namespace
    ));
    let mut driver = world.driver().await;
    world.create_patiently("worker-0", world.class_ref("small")).await;
    driver.kill();
    let today = ["--kind=MachineClass", "--api-version=machine.sapcloud.io/v1alpha1"];
    let _driver = world.driver_of(&today).await;
    world.until_status("its class", &["classes"], |text| text.contains("aws")).await;

    let of = |right: &Right| (right.group, right.resource, right.verb);
    let expected = RIGHTS.iter().filter(|right| !UNUSED.contains(&right.resource));
    let expected: BTreeSet<_> = expected.map(of).map(|(g, r, v)| what(g, r, v)).collect();
    let asked = || cluster.asked_by(&world.namespace, "broker");
    let used = || asked().iter().filter_map(request).collect::<BTreeSet<_>>();
    until("every right is used", || used().is_superset(&expected)).await;
    // It also goes with what it has.
    world.broker.process.signal("-TERM");
    assert!(world.broker.process.end().is_some_and(|status| status.success()));
    // Classes of other scenarios are there as well, with secrets that are none of its business.
    let is_ours = |event: &Value| {
        let namespace = &event["objectRef"]["namespace"];
        namespace.is_null() || *namespace == *world.namespace
    };
    let is_denied = |event: &Value| event["responseStatus"]["code"] == 403;
    let denied: Vec<_> = asked().into_iter().filter(|e| is_denied(e) && is_ours(e)).collect();
    assert!(denied.is_empty(), "{denied:#?}");
    let unexpected: Vec<_> = used()
        .into_iter()
        .filter(|used| {
            !RIGHTS.iter().any(|right| *used == what(right.group, right.resource, right.verb))
        })
        .collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
}

pub(super) async fn what_is_not_granted_is_denied(cluster: &Cluster) {
    let world = World::new(cluster);
    let (ours, other) = (world.namespace.as_str(), cluster.namespace());
    let other = other.as_str();
    world.secret("credentials", 7);
    // The group, the resource and the verb, and where; "" is everywhere.
    let broker = [
        ("", "secrets", "list", ours),
        ("", "secrets", "list", ""),
        ("", "secrets", "get", other),
        ("", "secrets", "watch", other),
        ("", "secrets", "watch", ""),
        ("", "secrets", "create", ours),
        ("", "secrets", "update", ours),
        ("", "secrets", "patch", ours),
        ("", "secrets", "delete", ours),
        ("", "configmaps", "get", ours),
        ("", "pods", "get", ours),
        ("", "pods", "create", ours),
        ("", "pods/exec", "create", ours),
        ("", "namespaces", "list", ""),
        ("", "nodes", "list", ""),
        ("", "serviceaccounts", "get", ours),
        ("", "serviceaccounts/token", "create", ours),
        ("", "serviceaccounts", "impersonate", ours),
        ("", "users", "impersonate", ""),
        ("", "events", "create", other),
        ("", "events", "list", ours),
        ("sim.machinebroker.dev", "simmachineclasses", "get", ours),
        ("sim.machinebroker.dev", "simmachineclasses", "create", ours),
        ("sim.machinebroker.dev", "simmachineclasses", "update", ours),
        ("sim.machinebroker.dev", "simmachineclasses", "patch", ours),
        ("sim.machinebroker.dev", "simmachineclasses", "delete", ours),
        ("machine.sapcloud.io", "machineclasses", "update", ours),
        ("machine.sapcloud.io", "machines", "list", ""),
        ("machinebroker.dev", "drivers", "list", other),
        ("machinebroker.dev", "drivers", "create", other),
        ("machinebroker.dev", "drivers", "list", ""),
        ("coordination.k8s.io", "leases", "get", other),
        ("coordination.k8s.io", "leases", "get", "kube-system"),
        ("coordination.k8s.io", "leases", "update", "kube-system"),
        ("coordination.k8s.io", "leases", "list", ""),
        ("apps", "deployments", "get", ours),
        ("apps", "deployments/scale", "update", ours),
        ("authorization.k8s.io", "subjectaccessreviews", "create", ""),
        ("rbac.authorization.k8s.io", "rolebindings", "create", ours),
        ("rbac.authorization.k8s.io", "roles", "escalate", ours),
        ("apiextensions.k8s.io", "customresourcedefinitions", "create", ""),
    ];
    let of = |account: &str| format!("system:serviceaccount:{ours}:{account}");
    let asked: Vec<_> = broker.iter().map(|what| review(&of("broker"), *what)).collect();
    let answers = reviews(cluster, asked);
    let allowed: Vec<_> =
        broker.iter().zip(answers).filter_map(|(what, yes)| yes.then_some(what)).collect();
    assert!(allowed.is_empty(), "the broker may {allowed:?}");
    // So that the questions are known to be good ones: what is granted is answered with yes.
    let granted = RIGHTS.iter().map(|right| {
        let namespace = if right.reach == Everywhere { "" } else { ours };
        review(&of("broker"), (right.group, right.resource, right.verb, namespace))
    });
    assert!(reviews(cluster, granted.collect()).into_iter().all(|yes| yes));

    // All others may do what everybody may, whom the cluster knows: ask what there is.
    let may = |account: &str| {
        let who = format!("--as={}", of(account));
        let groups = format!("--as-group=system:serviceaccounts:{ours}");
        let groups =
            ["--as-group=system:serviceaccounts", &groups, "--as-group=system:authenticated"];
        cluster.kubectl(&[&["auth", "can-i", "--list", "-n", ours, &who], &groups[..]].concat())
    };
    let nobody = may("nobody");
    assert!(nobody.contains("selfsubjectaccessreviews"), "{nobody}");
    for account in [DRIVER, "controller", "operator"] {
        assert_eq!(may(account), nobody, "{account}");
    }
}

pub(super) async fn a_stolen_token_opens_nothing_else(cluster: &Cluster) {
    let world = World::new(cluster);
    let (ours, other) = (world.namespace.as_str(), cluster.namespace());
    world.secret("credentials", 7);
    world.class("small", "{}");
    cluster.kubectl(&["create", "secret", "generic", "foreign", "-n", &other]);
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: []}}";
    let patch = ["patch", "simmachineclass", "small", "-n", ours, "--type=merge", "-p={}"];
    let tries: [(&[&str], &str); 6] = [
        (&["get", "secrets", "-n", ours], ""),
        (&["get", "secret", "foreign", "-n", &other], ""),
        (&["create", "-f", "-", "-n", ours], pod),
        (&patch, ""),
        (&["get", "leases", "-n", "kube-system"], ""),
        (&["create", "token", "controller", "-n", ours], ""),
    ];
    let known = |account: &str, audience| {
        let name = format!("{ours}-{account}-stolen");
        cluster.kubeconfig(&name, &cluster.token(ours, account, audience));
        name
    };
    let (broker, driver) = (known("broker", None), known(DRIVER, None));
    for (words, input) in tries {
        for who in [&broker, &driver] {
            let denied = cluster.try_kubectl_as(who, words, input).unwrap_err();
            assert!(denied.contains("is forbidden") || denied.contains("cannot"), "{denied}");
        }
    }
    // What the broker may, the same way: the one secret, by its name.
    let one = ["get", "secret", "credentials", "-n", ours, "-o=name"];
    cluster.try_kubectl_as(&broker, &one, "").expect("it may");
    cluster.try_kubectl_as(&driver, &one, "").unwrap_err();
    // What a driver's pod really has is no credential of the cluster at all.
    let in_the_pod = known(DRIVER, Some(AUDIENCE));
    let denied = cluster.try_kubectl_as(&in_the_pod, &one, "").unwrap_err();
    assert!(denied.contains("Unauthorized") || denied.contains("must be logged in"), "{denied}");
}

impl Right {
    fn named(&self) -> (Reach, String) {
        (self.reach, what(self.group, self.resource, self.verb))
    }
}

fn what(group: &str, resource: &str, verb: &str) -> String {
    format!("{verb} {resource} of {group:?}")
}

/// What the roles in the manifests come to. All of them are the broker's.
fn granted(objects: &[Value]) -> BTreeSet<(Reach, String)> {
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

/// What a line of the API server's audit log is about, if it is about objects.
fn request(event: &Value) -> Option<String> {
    let of = &event["objectRef"];
    let resource = of["resource"].as_str()?;
    let resource = match of["subresource"].as_str() {
        None => resource.to_owned(),
        Some(sub) => format!("{resource}/{sub}"),
    };
    Some(what(of["apiGroup"].as_str().unwrap_or_default(), &resource, event["verb"].as_str()?))
}

fn review(user: &str, (group, resource, verb, namespace): (&str, &str, &str, &str)) -> Value {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": ["system:authenticated", "system:serviceaccounts"], "resourceAttributes": {
            "group": group, "resource": resource, "subresource": subresource,
            "verb": verb, "namespace": namespace,
        }},
    })
}

/// The API server's answers: whether they may.
fn reviews(cluster: &Cluster, asked: Vec<Value>) -> Vec<bool> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": asked}).to_string();
    let words = ["create", "-f", "-", "-o=jsonpath={.status.allowed}{\"\\n\"}"];
    let answers = cluster.try_kubectl(&words, &list).expect("they can be asked");
    let answers: Vec<bool> =
        answers.split_whitespace().map(|word| word.parse().expect("yes or no")).collect();
    assert_eq!(answers.len(), asked.len(), "an answer each");
    answers
}
