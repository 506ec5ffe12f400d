//! What accounts may do: all that they need, and nothing else.

mod table;

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use broker_tests::process::PATIENCE;
use serde_json::{Value, json};
use tokio::time::sleep;

use self::table::{AT_THE_END, RIGHTS, Reach, Right, granted, requests};
use crate::{
    actors::{API_VERSION, DRIVER, KIND, World, until},
    cluster::{AUDIENCE, Cluster},
    home::Home,
    pods::Extra,
};

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

/// With pods as the manifests have them, so that all is done that they are set up for.
pub(super) async fn the_broker_uses_its_rights_and_asks_for_no_more(cluster: &Cluster) {
    let home = Home::new(cluster);
    let namespace = home.namespace.as_str();
    cluster.apply(&format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: credentials, namespace: {namespace}}}\n\
         stringData: {{token: t}}\n\
         ---\napiVersion: {API_VERSION}\nkind: {KIND}\n\
         metadata: {{name: small, namespace: {namespace}}}\n\
         spec: {{secretKeys: [token], secretRef: {{name: credentials}}}}\n\
         ---\napiVersion: machine.sapcloud.io/v1alpha1\nkind: MachineClass\n\
         metadata: {{name: today, namespace: {namespace}}}\nproviderSpec: {{}}\n"
    ));
    let mut broker = home.pod("machine-broker", &Extra::default());
    let at = broker.port("grpc");
    let hosts = [("machine-broker-drivers:5000", at)];
    let driver = home.pod(DRIVER, &Extra { hosts: &hosts, args: &[] });
    let create = ["machines", "create", "worker-0", "--wait", "--timeout=1m", "--class=small"];
    let of = ["--kind", KIND, "--namespace", namespace];
    let said = || format!("{}\n{}", broker.process.output(), driver.process.output());
    until("a machine", || home.brokerctl(at, &[&create[..], &of].concat()).contains("worker-0"))
        .await;
    assert!(!said().contains("Forbidden"), "{}", said());
    drop(driver);
    let today = ["--kind=MachineClass", "--api-version=machine.sapcloud.io/v1alpha1"];
    let driver = home.pod(DRIVER, &Extra { hosts: &hosts, args: &today });
    until("the other class is read", || home.brokerctl(at, &["classes"]).contains("today")).await;
    drop(driver);

    let asked = || cluster.asked_by(namespace, "broker");
    let used = || asked().iter().flat_map(requests).collect::<BTreeSet<_>>();
    let unused = |at_the_end: bool| {
        let used = used();
        let expected = RIGHTS
            .iter()
            .filter(|right| at_the_end || !AT_THE_END.contains(&(right.resource, right.verb)));
        expected.map(Right::what).filter(|right| !used.contains(right)).collect::<Vec<_>>()
    };
    let give_up = Instant::now() + PATIENCE;
    while !unused(false).is_empty() {
        assert!(Instant::now() < give_up, "granted and not used: {:?}", unused(false));
        sleep(Duration::from_millis(200)).await;
    }
    broker.process.signal("-TERM");
    assert!(broker.process.end().is_some_and(|status| status.success()));
    assert_eq!(unused(true), Vec::<String>::new(), "granted and not used");
    let all: BTreeSet<_> = RIGHTS.iter().map(Right::what).collect();
    let unexpected: Vec<_> = used().difference(&all).cloned().collect();
    assert!(unexpected.is_empty(), "asked for and not granted: {unexpected:?}");
    // Classes of other scenarios are there as well, but their namespaces are not in the policy.
    let denied = asked().into_iter().filter(|event| event["responseStatus"]["code"] == 403);
    let denied: Vec<_> = denied.collect();
    assert!(denied.is_empty(), "{denied:#?}");
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
        ("", "events", "create", ours),
        ("events.k8s.io", "events", "create", other),
        ("", "events", "list", ours),
        ("sim.machinebroker.dev", "simmachineclasses", "get", ours),
        ("sim.machinebroker.dev", "simmachineclasses", "create", ours),
        ("sim.machinebroker.dev", "simmachineclasses", "update", ours),
        ("sim.machinebroker.dev", "simmachineclasses", "patch", ours),
        ("sim.machinebroker.dev", "simmachineclasses", "delete", ours),
        ("machine.sapcloud.io", "machineclasses", "update", ours),
        ("machine.sapcloud.io", "machines", "list", ""),
        ("machinebroker.dev", "drivers", "get", ours),
        ("machinebroker.dev", "drivers/status", "patch", ours),
        ("machinebroker.dev", "drivers", "list", other),
        ("machinebroker.dev", "drivers", "create", other),
        ("machinebroker.dev", "drivers", "list", ""),
        ("coordination.k8s.io", "leases", "patch", ours),
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
        let namespace = if right.reach == Reach::Everywhere { "" } else { ours };
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
