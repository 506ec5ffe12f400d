//! What the API server says to our manifests.

use serde_json::{Value, json};

use crate::{cluster::Cluster, manifests};

pub(super) async fn all_components_together_are_taken(cluster: &Cluster) {
    manifests::install_definitions(cluster);
    // Those of cert-manager and of the Prometheus operator, as they are: what we write is held against
    // their schemas.
    let theirs = cluster.definitions.to_str().expect("UTF-8");
    cluster.kubectl(&["apply", "--server-side", "-f", theirs]);
    cluster.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]);
    let complete = "manifests/overlays/complete";
    cluster.kubectl(&["apply", "--server-side", "--validate=strict", "-k", complete]);
    for kind in ["issuer", "certificate", "podmonitor", "prometheusrule"] {
        let there = cluster.kubectl(&["get", kind, "-n", "machine-broker", "-o=name"]);
        assert!(there.contains("machine-broker"), "no {kind}: {there}");
    }
    // Again, nothing changes.
    let words = ["diff", "--server-side", "-k", complete];
    let differs = cluster.try_kubectl(&words, "");
    assert_eq!(differs.as_deref(), Ok(""), "a second apply would change something");
}

pub(super) async fn pods_of_ours_are_allowed_where_others_are_not(cluster: &Cluster) {
    let folder = tempfile::tempdir().expect("a folder");
    let namespace = cluster.fresh_name();
    let overlay = manifests::Overlay::new(&namespace, folder.path());
    manifests::install_definitions(cluster);
    overlay.apply(cluster);
    let objects = overlay.objects(cluster);
    let templates = objects.iter().filter(|object| object["kind"] == "Deployment");
    let pods: Vec<Value> = templates.map(|deployment| pod(deployment, &namespace)).collect();
    assert_eq!(pods.len(), 2, "the broker and the driver");
    let create = |pods: &[Value]| {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": pods});
        cluster.try_kubectl(&["create", "--dry-run=server", "-f", "-"], &list.to_string())
    };
    create(&pods).expect("both are as restricted as it takes");

    // Each takes away one thing that makes them so.
    type Spoil = fn(&mut Value);
    let spoilt: [(&str, Spoil); 6] = [
        ("runAsNonRoot", |pod| drop(pod["securityContext"]["runAsNonRoot"].take())),
        ("seccompProfile", |pod| drop(pod["securityContext"]["seccompProfile"].take())),
        ("allowPrivilegeEscalation", |pod| {
            pod["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
        }),
        ("capabilities", |pod| {
            drop(pod["containers"][0]["securityContext"]["capabilities"].take());
        }),
        ("host namespaces", |pod| pod["hostNetwork"] = json!(true)),
        ("hostPath", |pod| {
            pod["volumes"] = json!([{"name": "tls", "hostPath": {"path": "/"}}, {"name": "policy", "emptyDir": {}}]);
        }),
    ];
    for (what, spoil) in spoilt {
        let mut pod = pods[0].clone();
        spoil(&mut pod["spec"]);
        let denied = create(&[pod]).expect_err(what);
        assert!(denied.contains("violates PodSecurity \"restricted:latest\""), "{denied}");
        assert!(denied.contains(what), "{what}: {denied}");
    }
}

/// The pod that a Deployment would have made.
fn pod(deployment: &Value, namespace: &str) -> Value {
    let template = &deployment["spec"]["template"];
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": deployment["metadata"]["name"],
            "namespace": namespace,
            "labels": template["metadata"]["labels"],
        },
        "spec": template["spec"],
    })
}
