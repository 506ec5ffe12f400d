//! What a kubelet makes of the Deployments that are in the cluster, as far as a process goes: its
//! arguments, its environment, its volumes, and the token of its service account. Nobody else would
//! start them here.

use std::{
    collections::HashMap,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use broker_tests::process::{Process, binary, until};
use serde_json::Value;

use crate::{cluster::Cluster, ports};

/// A pod of a Deployment, running.
pub(crate) struct Pod {
    pub(crate) process: Process,
    /// Where its ports are, by their names.
    ports: HashMap<String, SocketAddr>,
}

/// What a pod is started with, beside what its Deployment says.
#[derive(Default)]
pub(crate) struct Extra<'a> {
    /// More arguments.
    pub(crate) args: &'a [&'a str],
    /// Names that it may dial, and where they lead.
    pub(crate) hosts: &'a [(&'a str, SocketAddr)],
}

/// All that a pod is made of.
struct Recipe<'a> {
    cluster: &'a Cluster,
    namespace: &'a str,
    deployment: &'a str,
    spec: Value,
    args: &'a [&'a str],
    /// What is mounted where, and where it really is.
    mounts: Vec<(String, PathBuf)>,
    /// Names in the network and where they lead.
    hosts: Vec<(String, String)>,
}

impl Pod {
    /// Starts a pod of a Deployment and waits until it listens on its ports. Its volumes are put into
    /// the folder.
    pub(crate) fn start(
        cluster: &Cluster,
        namespace: &str,
        deployment: &str,
        folder: &Path,
        extra: &Extra<'_>,
    ) -> Self {
        let object = cluster.get(&format!("deployment/{deployment}"), namespace);
        let spec = object["spec"]["template"]["spec"].clone();
        let hosts = extra.hosts.iter().map(|(name, at)| ((*name).to_owned(), at.to_string()));
        let (hosts, args) = (hosts.collect(), extra.args);
        let mut recipe =
            Recipe { cluster, namespace, deployment, spec, args, mounts: Vec::new(), hosts };
        let mut ports = HashMap::new();
        for port in list(&recipe.container()["ports"]) {
            let here = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()));
            ports.insert(text(&port["name"]), here);
            let there = &port["containerPort"];
            for ip in ["0.0.0.0", "127.0.0.1"] {
                recipe.hosts.push((format!("{ip}:{there}"), here.to_string()));
            }
        }
        recipe.mount(folder);
        let process = Process::start(&mut recipe.command());
        for port in ports.values() {
            until(|| ports::is_owned_by(port.port(), process.id()).then_some(()))
                .unwrap_or_else(|| panic!("{deployment} does not listen:\n{}", process.output()));
        }
        Self { process, ports }
    }

    pub(crate) fn port(&self, name: &str) -> SocketAddr {
        self.ports[name]
    }
}

impl Recipe<'_> {
    fn container(&self) -> Value {
        let containers = list(&self.spec["containers"]);
        assert_eq!(containers.len(), 1, "one is all that we know to start");
        containers[0].clone()
    }

    /// Puts the volumes into a folder.
    fn mount(&mut self, folder: &Path) {
        for volume in list(&self.spec["volumes"]) {
            let name = text(&volume["name"]);
            let here = folder.join(format!("{}-{name}", self.deployment));
            fs::create_dir_all(&here).expect("a folder");
            for (file, content) in self.files(volume) {
                fs::write(here.join(file), content).expect("a file");
            }
            let container = self.container();
            let mounts = list(&container["volumeMounts"]).iter();
            for mount in mounts.filter(|mount| mount["name"] == *name) {
                self.mounts.push((text(&mount["mountPath"]), here.clone()));
            }
        }
    }

    /// What is in a volume.
    fn files(&self, volume: &Value) -> Vec<(String, Vec<u8>)> {
        let get = |what: &str, name: &Value| {
            self.cluster.get(&format!("{what}/{}", text(name)), self.namespace)["data"].clone()
        };
        if let Some(secret) = volume.get("secret") {
            let data = get("secret", &secret["secretName"]);
            let decode = |value: &Value| BASE64_STANDARD.decode(text(value)).expect("base64");
            return match secret["items"].as_array() {
                None => fields(&data).map(|(key, value)| (key.clone(), decode(value))).collect(),
                Some(items) => items
                    .iter()
                    .map(|item| (text(&item["path"]), decode(&data[&text(&item["key"])])))
                    .collect(),
            };
        }
        if let Some(config) = volume.get("configMap") {
            let data = get("configmap", &config["name"]);
            return fields(&data).map(|(key, value)| (key.clone(), text(value).into())).collect();
        }
        let token = |source: &Value| {
            let token = &source["serviceAccountToken"];
            let made = self.token(Some(&text(&token["audience"])));
            (text(&token["path"]), made.into_bytes())
        };
        match volume.get("projected") {
            Some(projected) => list(&projected["sources"]).iter().map(token).collect(),
            None => {
                assert!(volume.get("emptyDir").is_some(), "no volume that we know: {volume}");
                Vec::new()
            }
        }
    }

    fn token(&self, audience: Option<&str>) -> String {
        self.cluster.token(self.namespace, &text(&self.spec["serviceAccountName"]), audience)
    }

    fn command(&self) -> Command {
        let container = self.container();
        let image = text(&container["image"]);
        // Images of ours are called as the program in them.
        let program = image.split(':').next().expect("split gives one");
        let mut command = Command::new(binary(program));
        command.args(list(&container["args"]).iter().map(text)).args(self.args).env_clear();
        let mut known: Vec<(String, String)> = Vec::new();
        for variable in list(&container["env"]) {
            let value = self.value(variable, &known);
            known.push((text(&variable["name"]), value));
        }
        for (name, value) in &known {
            command.env(name, self.here(value));
        }
        if self.spec["automountServiceAccountToken"] == true {
            // In a pod it is at a place that all programs know.
            let name = format!("{}-{}", self.namespace, self.deployment);
            command.env("KUBECONFIG", self.cluster.kubeconfig(&name, &self.token(None)));
        }
        command
    }

    /// The value of a variable, with those that were there before it.
    fn value(&self, variable: &Value, known: &[(String, String)]) -> String {
        if let Some(value) = variable["value"].as_str() {
            let put_in = |value: String, (name, it): &(String, String)| {
                value.replace(&format!("$({name})"), it)
            };
            return known.iter().fold(value.to_owned(), put_in);
        }
        match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
            Some("metadata.name") => format!("{}-0", self.deployment),
            Some("status.podIP") => Ipv4Addr::LOCALHOST.to_string(),
            _ => panic!("no variable that we know: {variable}"),
        }
    }

    /// Names of the pod's world in that of a process.
    fn here(&self, value: &str) -> String {
        let mut value = value.to_owned();
        for (there, here) in &self.mounts {
            if let Some(rest) = value.strip_prefix(there.as_str()) {
                value = format!("{}{rest}", here.display());
            }
        }
        for (there, here) in &self.hosts {
            value = value.replace(there, here);
        }
        value
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}")).to_owned()
}

/// The items of a list; none if it is not there.
fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}
