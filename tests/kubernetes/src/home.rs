//! The manifests in a namespace of their own, with certificates and a policy, so that their pods can be
//! started as they are.

use std::{fs, net::SocketAddr, process::Command};

use broker_tests::process::binary;
use serde_json::json;

use crate::{
    actors::DRIVER,
    cluster::{AUDIENCE, Cluster},
    manifests::{self, Overlay},
    pods::{Extra, Pod},
};

/// All that pods wait for is there.
pub(crate) struct Home<'a> {
    cluster: &'a Cluster,
    pub(crate) namespace: String,
    folder: tempfile::TempDir,
}

impl<'a> Home<'a> {
    pub(crate) fn new(cluster: &'a Cluster) -> Self {
        let namespace = cluster.fresh_name();
        let folder = tempfile::tempdir().expect("a folder");
        manifests::install_definitions(cluster);
        Overlay::new(&namespace, folder.path()).apply(cluster);
        let certs = folder.path().join("certs");
        let made = Command::new(binary("machine-broker"))
            .args(["certs", "init", "--name=machine-broker"])
            .arg(&certs)
            .output();
        assert!(made.expect("it runs").status.success());
        let from = |key: &str, file: &str| format!("--from-file={key}={}/{file}", certs.display());
        let ca = from("ca.crt", "ca.crt");
        let (cert, key) = (from("tls.crt", "broker.crt"), from("tls.key", "broker.key"));
        let secret = ["create", "secret", "generic", "--namespace", &namespace];
        cluster.kubectl(&[&secret[..], &["broker-tls", &ca, &cert, &key]].concat());
        cluster.kubectl(&[&secret[..], &["sim-driver-tls", &ca]].concat());
        let account = |name: &str| format!("system:serviceaccount:{namespace}:{name}");
        let policy = json!({"rules": [
            {"who": account(DRIVER), "driver": {"kinds": ["*"], "namespaces": [namespace]}},
            {"who": account("controller"), "controller": {"kinds": ["*"]}, "operator": "steer"},
        ]});
        let token = cluster.token(&namespace, "controller", Some(AUDIENCE));
        fs::write(folder.path().join("token"), token).expect("a file");
        cluster.apply(
            &json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "broker-policy", "namespace": namespace},
                "data": {"policy.yaml": policy.to_string()},
            })
            .to_string(),
        );
        Self { cluster, namespace, folder }
    }

    pub(crate) fn pod(&self, deployment: &str, extra: &Extra<'_>) -> Pod {
        Pod::start(self.cluster, &self.namespace, deployment, self.folder.path(), extra)
    }

    /// What an operator sees who is a controller, too.
    pub(crate) fn brokerctl(&self, broker: SocketAddr, words: &[&str]) -> String {
        let output = Command::new(binary("brokerctl"))
            .args(words)
            .arg(format!("--broker=https://{broker}"))
            .arg("--ca")
            .arg(self.folder.path().join("certs/ca.crt"))
            .arg("--token-file")
            .arg(self.folder.path().join("token"))
            .output()
            .expect("brokerctl starts");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}
