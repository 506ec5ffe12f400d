//! What can be said of the manifests without a cluster: nothing lies around, and what they name is
//! there. What an API server says to them is told by `cargo xtask e2e kubernetes`.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use broker_tests::process::binary;
use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// The version of all that we build.
const VERSION: &str = env!("CARGO_PKG_VERSION");
const KUSTOMIZATION: &str = "kustomization.yaml";
/// What the broker may take to end when its grace time is over: sessions, driver programs, spans.
const LAST_MOMENTS: Duration = Duration::from_secs(20);

fn manifests() -> PathBuf {
    Path::new(ROOT).join("manifests").canonicalize().expect("the folder is there")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("one").path());
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    entries.flat_map(below).collect()
}

/// The objects of a YAML file.
fn documents(path: &Path) -> Vec<Value> {
    let text = read(path);
    serde_saphyr::from_multiple(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// All that is written for an API server.
fn objects() -> Vec<Value> {
    let is_yaml = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "yaml");
    let yaml = files(&manifests()).into_iter().filter(is_yaml);
    let all = yaml.flat_map(|path| documents(&path));
    all.filter(|object| !object["apiVersion"].is_null() && object["kind"] != "Kustomization")
        .collect()
}

fn of_kind(kind: &str) -> Vec<Value> {
    objects().into_iter().filter(|object| object["kind"] == kind).collect()
}

/// Every value of a field of this name, however deep it lies.
fn all<'a>(value: &'a Value, field: &str) -> Vec<&'a Value> {
    let inner: Vec<&Value> = match value {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    let deeper = inner.into_iter().flat_map(|value| all(value, field));
    value.get(field).into_iter().chain(deeper).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}"))
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().map(text).collect()
}

fn container(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["spec"]["containers"][0]
}

fn deployment(name: &str) -> Value {
    let mut found = of_kind("Deployment");
    found.retain(|deployment| deployment["metadata"]["name"] == name);
    found.pop().expect("it is there")
}

fn variable(deployment: &Value, name: &str) -> String {
    let variables = container(deployment)["env"].as_array().expect("a list").iter();
    let mut found = variables.filter(|variable| variable["name"] == name);
    text(&found.next().expect("it is set")["value"]).to_owned()
}

#[test]
fn every_file_is_part_of_a_kustomization_and_every_part_is_there() {
    let manifests = manifests();
    let all = files(&manifests);
    let mut parts = BTreeSet::new();
    let kustomizations = all.iter().filter(|path| path.ends_with(KUSTOMIZATION));
    for path in kustomizations.clone() {
        let folder = path.parent().expect("a file lies in a folder");
        let content = documents(path).pop().expect("it says something");
        let mut named = [texts(&content["resources"]), texts(&content["components"])].concat();
        for generator in content["configMapGenerator"].as_array().into_iter().flatten() {
            let files = texts(&generator["files"]).into_iter();
            named.extend(files.map(|file| file.rsplit('=').next().expect("rsplit gives one")));
        }
        for name in named {
            let part = folder.join(name).canonicalize();
            let part = part.unwrap_or_else(|e| panic!("{}: {name}: {e}", path.display()));
            parts.insert(if part.is_dir() { part.join(KUSTOMIZATION) } else { part });
        }
    }
    // What one applies.
    let entries = ["crds", "overlays/demo", "overlays/complete"];
    parts.extend(entries.map(|entry| manifests.join(entry).join(KUSTOMIZATION)));
    let image = manifests.join("image");
    let unused: Vec<_> =
        all.iter().filter(|path| !parts.contains(*path) && !path.starts_with(&image)).collect();
    assert_eq!(unused, Vec::<&PathBuf>::new());
    assert!(kustomizations.count() > 10);
}

#[test]
fn every_image_is_one_that_we_build_and_of_this_version() {
    let dockerfile = read(&manifests().join("image/Dockerfile"));
    let objects = objects();
    let images: Vec<&str> =
        objects.iter().flat_map(|object| all(object, "image")).filter_map(Value::as_str).collect();
    assert!(images.len() >= 2, "{images:?}");
    for image in images {
        let (name, tag) = image.split_once(':').expect("a tag");
        assert!(dockerfile.contains(&format!("\nFROM scratch AS {name}\n")), "{name}");
        assert_eq!(tag, VERSION, "{image}");
    }
}

#[test]
fn every_variable_is_a_setting_of_its_program() {
    let help = |program: &str, args: &[&str]| {
        let help = Command::new(binary(program)).args(args).output().expect("it runs").stdout;
        String::from_utf8(help).expect("UTF-8")
    };
    for (name, help) in [
        ("machine-broker", help("machine-broker", &["serve", "--help"])),
        ("sim-driver", help("sim-driver", &["--help"])),
    ] {
        let deployment = deployment(name);
        let variables = container(&deployment)["env"].as_array().expect("a list");
        let ours = variables.iter().map(|variable| text(&variable["name"]));
        let ours: Vec<_> = ours.filter(|name| *name != "POD_IP").collect();
        assert!(ours.len() > 4, "{ours:?}");
        for variable in &ours {
            let known = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            assert!(known.into_iter().any(|word| word == *variable), "{name}: {variable}");
        }
    }
}

#[test]
fn a_pod_is_given_the_time_that_its_program_takes_to_end() {
    let broker = deployment("machine-broker");
    let given = |deployment: &Value| {
        let pod = &deployment["spec"]["template"]["spec"];
        Duration::from_secs(pod["terminationGracePeriodSeconds"].as_u64().expect("a number"))
    };
    let grace = variable(&broker, "BROKER_GRACE");
    let grace = Duration::from_secs(grace.trim_end_matches('s').parse().expect("seconds"));
    let waits = container(&broker)["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64();
    let waits = Duration::from_secs(waits.expect("a number"));
    assert!(given(&broker) >= waits + grace + LAST_MOMENTS);

    let drains = driver_client::Config::default().drain_grace;
    assert!(given(&deployment("sim-driver")) > drains);
}

#[test]
fn every_policy_is_right_and_names_accounts_and_certificates_that_are_there() {
    let accounts = of_kind("ServiceAccount");
    let accounts = accounts.iter().map(|account| text(&account["metadata"]["name"]));
    let account = |name: &str| format!("system:serviceaccount:machine-broker:{name}");
    let certificates = of_kind("Certificate");
    let uris = certificates.iter().flat_map(|certificate| texts(&certificate["spec"]["uris"]));
    let known: BTreeSet<String> = accounts.map(account).chain(uris.map(str::to_owned)).collect();
    let policies: Vec<_> =
        files(&manifests()).into_iter().filter(|path| path.ends_with("policy.yaml")).collect();
    assert_eq!(policies.len(), 3, "{policies:?}");
    for path in policies {
        let check =
            Command::new(binary("machine-broker")).args(["policy", "check"]).arg(&path).output();
        let check = check.expect("it runs");
        assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
        let policy = documents(&path).pop().expect("it says something");
        for who in all(&policy, "who") {
            let named = who.as_str().map_or_else(|| texts(who), |one| vec![one]);
            let strangers: Vec<_> = named.iter().filter(|name| !known.contains(**name)).collect();
            assert!(strangers.is_empty(), "{}: {strangers:?}", path.display());
        }
    }
}

#[test]
fn the_rules_for_the_operator_of_prometheus_are_the_alerts() {
    let folder = manifests();
    let rules = folder.join("components/prometheus/alerts.yaml");
    let rules = documents(&rules).pop().expect("one");
    let alerts = documents(&folder.join("monitoring/alerts.yaml")).pop().expect("one");
    assert!(alerts["groups"].as_array().is_some_and(|groups| !groups.is_empty()));
    let anew = "cd manifests && { sed '/^spec:$/q' components/prometheus/alerts.yaml; \
                grep -v '^#' monitoring/alerts.yaml | sed 's/^./  &/'; } > alerts.new \
                && mv alerts.new components/prometheus/alerts.yaml";
    assert_eq!(rules["spec"], alerts, "write it anew:\n{anew}");
}

#[test]
fn whatever_selects_pods_finds_them_and_their_ports() {
    let deployments = of_kind("Deployment");
    let templates: Vec<&Value> = deployments.iter().map(|of| &of["spec"]["template"]).collect();
    // The first label selectors of each object, and the ports that it names of what they select.
    let selectors = objects().into_iter().filter_map(|object| {
        let spec = &object["spec"];
        let selector = match text(&object["kind"]) {
            "Service" => &spec["selector"],
            "PodDisruptionBudget" | "PodMonitor" => &spec["selector"]["matchLabels"],
            "NetworkPolicy" => &spec["podSelector"]["matchLabels"],
            _ => return None,
        };
        let ports = [&spec["ports"], &spec["ingress"], &spec["podMetricsEndpoints"]];
        let ports = ports.iter().flat_map(|part| {
            let named = [all(part, "targetPort"), all(part, "port")].concat();
            named.into_iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
        });
        Some((object["metadata"]["name"].clone(), selector.clone(), ports.collect::<Vec<_>>()))
    });
    let mut seen = 0;
    for (name, selector, ports) in selectors {
        // One that selects all has none.
        let Some(wanted) = selector.as_object() else { continue };
        let labels = |template: &&&Value| {
            let labels = &template["metadata"]["labels"];
            wanted.iter().all(|(key, value)| labels[key] == *value)
        };
        let selected: Vec<_> = templates.iter().filter(labels).collect();
        assert_eq!(selected.len(), 1, "{name} selects pods of one Deployment");
        let has = all(&selected[0]["spec"]["containers"][0]["ports"], "name");
        for port in ports {
            assert!(has.iter().any(|name| **name == *port), "{name}: no port {port}");
        }
        seen += 1;
    }
    assert!(seen > 5, "only {seen}");
}

#[test]
fn every_secret_that_a_pod_waits_for_is_made_by_cert_manager() {
    let certificates = of_kind("Certificate");
    let made: BTreeSet<&str> =
        certificates.iter().map(|certificate| text(&certificate["spec"]["secretName"])).collect();
    let pods = of_kind("Deployment");
    let volumes =
        pods.iter().flat_map(|pod| all(&pod["spec"]["template"]["spec"]["volumes"], "secretName"));
    let monitors = of_kind("PodMonitor");
    let shown = monitors.iter().flat_map(|of| all(&of["spec"]["podMetricsEndpoints"], "tlsConfig"));
    let shown = shown.flat_map(|tls| all(tls, "name"));
    let wanted: Vec<&str> = volumes.chain(shown).map(text).collect();
    assert!(wanted.len() >= 5, "{wanted:?}");
    for secret in wanted {
        assert!(made.contains(secret), "nobody makes {secret}");
    }
}

/// A Dockerfile, as far as we need to know it.
struct Dockerfile(String);

impl Dockerfile {
    fn ours() -> Self {
        let text = read(&manifests().join("image/Dockerfile"));
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        Self(lines.collect::<Vec<_>>().join("\n").replace("\\\n", " "))
    }

    /// What follows an instruction, wherever it is given.
    fn given<'a>(&'a self, instruction: &'a str) -> impl Iterator<Item = Vec<&'a str>> + 'a {
        let lines = self.0.lines().filter_map(move |line| line.strip_prefix(instruction));
        lines.map(|rest| rest.split_whitespace().collect())
    }
}

#[test]
fn the_image_is_built_from_what_is_there() {
    let file = Dockerfile::ours();
    let copies: Vec<_> = file.given("COPY ").collect();
    let (from_stages, from_here): (Vec<_>, Vec<_>) =
        copies.iter().partition(|words| words[0].starts_with("--from="));
    let sources: BTreeSet<&str> =
        from_here.iter().flat_map(|words| &words[..words.len() - 1]).copied().collect();
    let ignored = read(&manifests().join("image/Dockerfile.dockerignore"));
    for source in &sources {
        assert!(Path::new(ROOT).join(source).exists(), "there is no {source}");
        assert!(ignored.lines().any(|line| line == format!("!{source}")), "{source} is ignored");
    }
    // Cargo wants all members, whatever it builds of them.
    let workspace = read(&Path::new(ROOT).join("Cargo.toml"));
    let (_, members) = workspace.split_once("members = [").expect("members");
    let members = members.split(']').next().expect("split gives one");
    for member in members.split('"').skip(1).step_by(2) {
        let top = member.split('/').next().expect("split gives one");
        assert!(sources.contains(top), "{member} is not copied");
    }
    // Each program that is copied on is one of ours, was copied out of the build, and is what runs.
    let out: BTreeSet<String> = file
        .given("RUN ")
        .flatten()
        .filter_map(|word| word.strip_prefix("target/release/"))
        .map(|name| format!("/out/{name}"))
        .collect();
    assert_eq!(from_stages.len(), 3, "{from_stages:?}");
    for words in from_stages {
        let [_, built, program] = words.as_slice() else { panic!("{words:?}") };
        assert!(out.contains(*built), "{built} is not copied out of the build");
        assert!(
            binary(program.trim_start_matches('/')).exists(),
            "{program} is no program of ours"
        );
        let runs = format!("\nENTRYPOINT [\"{program}\"]");
        assert!(file.0.contains(&runs), "{program} is never run");
    }
}

#[test]
fn the_image_is_pinned_and_nobody_in_it_is_root() {
    let file = Dockerfile::ours();
    let stages: Vec<_> = file.given("FROM ").collect();
    let [build, others @ ..] = stages.as_slice() else { panic!("no stages") };
    assert!(others.iter().all(|stage| stage[0] == "scratch"), "{others:?}");
    // One for every image.
    let users: Vec<_> = file.given("USER ").map(|words| words[0].to_owned()).collect();
    assert_eq!(users.len(), others.len());
    for pod in of_kind("Deployment") {
        let context = &pod["spec"]["template"]["spec"]["securityContext"];
        let user = format!("{}:{}", context["runAsUser"], context["runAsGroup"]);
        assert!(users.iter().all(|inside| *inside == user), "{users:?}, and {user} in the pod");
        assert!(!user.starts_with("0:"));
    }

    let (_, tag) = build[0].split_once("rust:").expect("an image with Rust");
    let (version, _) = tag.split_once('-').expect("a version and a system");
    let set: Vec<_> = file.given("ENV RUSTUP_TOOLCHAIN=").collect();
    assert_eq!(set, [[version]], "the toolchain is that of the image");
    let number = |text: &str| -> Vec<u32> {
        text.split('.').map(|part| part.parse().expect("a number")).collect()
    };
    let field = |file: &str, name: &str| {
        let text = read(&Path::new(ROOT).join(file));
        let start = format!("{name} = \"");
        let line = text.lines().find_map(|line| line.strip_prefix(&*start)).expect("it is set");
        line.trim_end_matches('"').to_owned()
    };
    assert_eq!(number(version).len(), 3, "a whole version");
    let oldest = field("Cargo.toml", "rust-version");
    assert!(number(version) >= number(&oldest), "{version} is older than {oldest}");
    let channel = field("rust-toolchain.toml", "channel");
    assert!(channel == "stable" || version.starts_with(&channel), "{channel}, and {version}");
}
