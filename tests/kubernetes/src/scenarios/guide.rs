//! What docs/kubernetes.md says to type, typed.
//!
//! Pods are started as processes where the guide waits for them, since nobody else does so here; and
//! images are not built, since no engine runs. Everything else is done as it stands.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
};

use broker_tests::process::{binary, until};

use crate::{
    cluster::Cluster,
    pods::{Extra, Pod},
};

const GUIDE: &str = "docs/kubernetes.md";
const SECTION: &str = "## From an empty cluster to a machine";
const NAMESPACE: &str = "machine-broker";
/// Where `kubectl port-forward` would have the broker.
const FORWARDED: &str = "localhost:5000";

/// A reader with a cluster and an empty folder, but for our manifests.
struct Reader<'a> {
    cluster: &'a Cluster,
    folder: tempfile::TempDir,
    exported: Vec<(String, String)>,
    pods: Vec<Pod>,
    typed: usize,
}

pub(super) async fn the_guide_leads_from_an_empty_cluster_to_a_machine(cluster: &Cluster) {
    let folder = tempfile::tempdir().expect("a folder");
    let ours = Path::new("manifests").canonicalize().expect("it is there");
    symlink(ours, folder.path().join("manifests")).expect("a link");
    let mut reader = Reader { cluster, folder, exported: Vec::new(), pods: Vec::new(), typed: 0 };
    let page = fs::read_to_string(GUIDE).expect("it is there");
    for (command, output) in commands(section(&page, SECTION)) {
        reader.type_in(&command, &output);
    }
    assert!(reader.typed > 10, "only {} commands were run", reader.typed);
    assert_eq!(reader.pods.len(), 2, "a broker and a driver");
    reader.writes_an_overlay(section(&page, "## Your own overlay"));
}

impl Reader<'_> {
    fn type_in(&mut self, command: &str, expected: &str) {
        let words = shell_words::split(command).expect("a command");
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let words = words.as_slice();
        match words {
            // No engine runs here; a test looks at what the file says.
            ["docker", "build", ..] => return,
            ["kubectl", .., "rollout", "status", deployment, _] => self.start(deployment),
            ["kubectl", .., "port-forward", _, "5000", "&"] => {
                assert!(!self.pods.is_empty(), "nothing to forward to");
            }
            ["export", variables @ ..] => {
                let pairs = variables.iter().map(|pair| pair.split_once('=').expect("a value"));
                let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
                self.exported.extend(pairs);
            }
            ["kubectl", args @ ..] => {
                let mut kubectl = self.cluster.kubectl_command("admin");
                self.run(command, &mut kubectl, args, expected);
            }
            [program @ ("brokerctl" | "machine-broker"), args @ ..] => {
                if *program == "brokerctl" {
                    self.wait_for_driver(args);
                }
                self.run(command, &mut Command::new(binary(program)), args, expected);
            }
            _ => panic!("nobody knows how to run: {command}"),
        }
        self.typed += 1;
    }

    /// The overlay that the page shows, with a policy beside it, can be built.
    fn writes_an_overlay(&self, section: &str) {
        let (_, yaml) = section.split_once("```yaml\n").expect("an overlay");
        let yaml = yaml.split("```").next().expect("split gives one");
        let here = self.folder.path();
        fs::write(here.join("kustomization.yaml"), yaml).expect("a file");
        fs::copy(here.join("manifests/base/policy.yaml"), here.join("policy.yaml"))
            .expect("a copy");
        fs::create_dir(here.join("machine-broker")).expect("a folder");
        let ours = here.join("manifests").canonicalize().expect("it is there");
        symlink(ours, here.join("machine-broker/manifests")).expect("a link");
        let built = self.cluster.kubectl(&["kustomize", here.to_str().expect("UTF-8")]);
        assert!(built.contains("image: registry.example/machine-broker:0.1.0"), "{built}");
        assert!(built.contains("kind: Certificate"), "{built}");
    }

    /// Does what the kubelet would have done meanwhile.
    fn start(&mut self, deployment: &str) {
        let deployment = deployment.strip_prefix("deployment/").expect("a deployment");
        let broker = self.pods.first().map(|broker| broker.port("grpc"));
        // The headless Service.
        let hosts: Vec<_> =
            broker.into_iter().map(|at| ("machine-broker-drivers:5000", at)).collect();
        let extra = Extra { hosts: &hosts, ..Extra::default() };
        let pod = Pod::start(self.cluster, NAMESPACE, deployment, self.folder.path(), &extra);
        self.pods.push(pod);
    }

    /// A person looks again; so do we.
    fn wait_for_driver(&self, args: &[&str]) {
        let token: Vec<&str> = args.iter().copied().take(2).collect();
        let look = [&token[..], &["drivers", "--no-headers"]].concat();
        let seen = until(|| {
            let drivers = self.output(&mut Command::new(binary("brokerctl")), &look);
            // Who may not look has to believe it.
            let denied = String::from_utf8_lossy(&drivers.stderr).contains("may not");
            (denied || !drivers.stdout.is_empty()).then_some(())
        });
        let said = |pod: &Pod| pod.process.output();
        assert!(seen.is_some(), "no driver:\n{}", self.pods.iter().map(said).collect::<String>());
    }

    fn run(&self, command: &str, program: &mut Command, args: &[&str], expected: &str) {
        let (args, file) = match args {
            [args @ .., ">", file] => (args, Some(*file)),
            args => (args, None),
        };
        let output = self.output(program, args);
        let complaint = String::from_utf8_lossy(&output.stderr);
        let pods: String = self.pods.iter().map(|pod| pod.process.output()).collect();
        assert!(output.status.success(), "{command}\n{complaint}\n{pods}");
        if let Some(file) = file {
            fs::write(self.folder.path().join(file), &output.stdout).expect("a file");
        }
        // Where the page shows nothing, it does not matter.
        if !expected.is_empty() {
            let printed = String::from_utf8_lossy(&output.stdout);
            assert_eq!(plain(&printed), plain(expected), "{command}\nprints\n{printed}");
        }
    }

    fn output(&self, program: &mut Command, args: &[&str]) -> Output {
        let forwarded = self.pods.first().map(|broker| broker.port("grpc").port());
        let here = |value: &str| match forwarded {
            Some(port) => value.replace(FORWARDED, &format!("localhost:{port}")),
            None => value.to_owned(),
        };
        let exported = self.exported.iter().map(|(name, value)| (name, here(value)));
        program.args(args).envs(exported).current_dir(self.folder.path());
        program.output().expect("it starts")
    }
}

/// What is below a heading.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, section) = page.split_once(heading).expect("the section is there");
    section.split("\n## ").next().expect("split gives one")
}

/// Each command with the lines that it is said to print.
fn commands(section: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    let mut shown = false;
    for line in section.lines() {
        match (line, line.strip_prefix("$ ")) {
            ("```console", _) => shown = true,
            ("```", _) => shown = false,
            (_, Some(command)) if shown => commands.push((command.to_owned(), String::new())),
            _ if shown => {
                let (_, output) = commands.last_mut().expect("output has a command");
                *output += &format!("{line}\n");
            }
            _ => {}
        }
    }
    commands
}

/// Line by line, and word by word, where a word with a digit stands for any such word.
fn plain(text: &str) -> Vec<Vec<&str>> {
    let word = |word| if str::contains(word, |c: char| c.is_ascii_digit()) { "#" } else { word };
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| line.split_whitespace().map(word).collect()).collect()
}
