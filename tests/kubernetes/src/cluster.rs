//! An etcd and a kube-apiserver of our own, and kubectl to talk to it. Dropping it kills them.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use broker_tests::process::{Process, until};
use broker_tls::issue::{Authority, Subject};
use serde_json::{Value, json};

use crate::{ports, token};

const ISSUER: &str = "https://kubernetes.default.svc";
const ADMIN: &str = "the-administrators-token";
/// Who of our accounts asked for what, and whether it was given. Of others nothing is written down.
const AUDIT_POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ['system:serviceaccounts']}
- {level: None}
";
const AUDIT_LOG: &str = "audit.jsonl";
/// What tokens for the broker say whom they are for.
pub(crate) const AUDIENCE: &str = "machine-broker";

pub(crate) struct Cluster {
    tools: PathBuf,
    /// What others define: cert-manager, the Prometheus operator.
    pub(crate) definitions: PathBuf,
    folder: tempfile::TempDir,
    port: u16,
    etcd_port: u16,
    ca: String,
    signing_key: String,
    namespaces: AtomicUsize,
    _etcd: Process,
    api_server: Mutex<Option<Process>>,
}

impl Cluster {
    /// Starts both and waits until the API server is ready.
    pub(crate) fn start(tools: &Path, definitions: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let day = Duration::from_secs(24 * 60 * 60);
        let ca = Authority::new(&Subject::new("e2e-ca", day)).expect("a CA");
        let subject = Subject::new("kube-apiserver", day).host("127.0.0.1");
        let server = ca.issue(&subject).expect("a certificate");
        let signer = ca.issue(&Subject::new("service-accounts", day)).expect("a key");
        for (name, text) in [
            ("server.crt", &server.certificate),
            ("server.key", &server.key),
            ("service-accounts.key", &signer.key),
            ("service-accounts.crt", &signer.certificate),
            ("tokens.csv", &format!("{ADMIN},admin,admin,\"system:masters\"\n")),
            ("audit-policy.yaml", &AUDIT_POLICY.to_owned()),
        ] {
            fs::write(path(name), text).expect("a file");
        }
        let (etcd_port, peer_port, port) = (ports::free(), ports::free(), ports::free());
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let etcd = start(
            Command::new(tools.join("etcd"))
                .arg(format!("--data-dir={}", path("etcd").display()))
                .arg(format!("--listen-client-urls={}", url(etcd_port)))
                .arg(format!("--advertise-client-urls={}", url(etcd_port)))
                .arg(format!("--listen-peer-urls={}", url(peer_port)))
                .arg(format!("--initial-advertise-peer-urls={}", url(peer_port)))
                .arg(format!("--initial-cluster=default={}", url(peer_port)))
                // Nothing here has to survive a power cut.
                .args(["--unsafe-no-fsync", "--log-level=error"]),
        );
        until(|| ports::is_owned_by(etcd_port, etcd.id()).then_some(()))
            .unwrap_or_else(|| panic!("etcd does not listen:\n{}", etcd.output()));
        let cluster = Self {
            tools: tools.to_owned(),
            definitions: definitions.to_owned(),
            port,
            etcd_port,
            ca: ca.certificate(),
            signing_key: signer.key,
            namespaces: AtomicUsize::new(0),
            folder,
            _etcd: etcd,
            api_server: Mutex::new(None),
        };
        cluster.kubeconfig("admin", ADMIN);
        cluster.start_api_server();
        cluster
    }

    /// Starts the API server, if it does not run, and waits until it is ready.
    pub(crate) fn start_api_server(&self) {
        let mut running = self.api_server.lock().expect("no panic");
        if running.is_some() {
            return;
        }
        let path = |name: &str| self.folder.path().join(name);
        let file = |flag: &str, name: &str| format!("--{flag}={}", path(name).display());
        let server = start(
            Command::new(self.tools.join("kube-apiserver"))
                .arg(format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port))
                .arg(format!("--secure-port={}", self.port))
                .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
                .arg("--service-cluster-ip-range=10.0.0.0/24")
                .arg(file("cert-dir", "generated"))
                .arg(file("tls-cert-file", "server.crt"))
                .arg(file("tls-private-key-file", "server.key"))
                .arg(format!("--service-account-issuer={ISSUER}"))
                .arg(file("service-account-key-file", "service-accounts.crt"))
                .arg(file("service-account-signing-key-file", "service-accounts.key"))
                .arg(file("token-auth-file", "tokens.csv"))
                .arg(file("audit-policy-file", "audit-policy.yaml"))
                .arg(file("audit-log-path", AUDIT_LOG))
                // Nobody is here who would make the default service accounts.
                .args(["--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount"])
                .args(["--v=0", "--endpoint-reconciler-type=none"]),
        );
        until(|| ports::is_owned_by(self.port, server.id()).then_some(()))
            .unwrap_or_else(|| panic!("the API server does not listen:\n{}", server.output()));
        let ready = until(|| self.try_kubectl(&["get", "--raw=/readyz"], "").ok());
        ready.unwrap_or_else(|| panic!("the API server is not ready:\n{}", server.output()));
        *running = Some(server);
    }

    /// From one moment to the next.
    pub(crate) fn kill_api_server(&self) {
        if let Some(mut server) = self.api_server.lock().expect("no panic").take() {
            server.kill();
        }
    }

    /// A namespace that nobody else uses.
    pub(crate) fn namespace(&self) -> String {
        let name = self.fresh_name();
        self.kubectl(&["create", "namespace", &name]);
        name
    }

    /// The name of a namespace that is still to be made.
    pub(crate) fn fresh_name(&self) -> String {
        format!("e2e-{}", self.namespaces.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn kubectl(&self, words: &[&str]) -> String {
        self.try_kubectl(words, "").unwrap_or_else(|error| panic!("kubectl {words:?}: {error}"))
    }

    /// Server-side, as operators of today do.
    pub(crate) fn apply(&self, yaml: &str) {
        let words = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        self.try_kubectl(&words, yaml).unwrap_or_else(|error| panic!("{error}\nof\n{yaml}"));
    }

    /// As the administrator; what it prints, or what it complains of.
    pub(crate) fn try_kubectl(&self, words: &[&str], input: &str) -> Result<String, String> {
        self.try_kubectl_as("admin", words, input)
    }

    /// As whoever the kubeconfig of this name is for.
    pub(crate) fn try_kubectl_as(
        &self,
        name: &str,
        words: &[&str],
        input: &str,
    ) -> Result<String, String> {
        let mut kubectl = self
            .kubectl_command(name)
            .arg("--request-timeout=20s")
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl starts");
        // It may have ended without reading it.
        kubectl.stdin.take().expect("piped").write_all(input.as_bytes()).ok();
        let output = kubectl.wait_with_output().expect("it is ours");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    pub(crate) fn kubectl_command(&self, name: &str) -> Command {
        let mut kubectl = Command::new(self.tools.join("kubectl"));
        kubectl.arg("--kubeconfig").arg(self.folder.path().join(format!("{name}.kubeconfig")));
        kubectl
    }

    /// An object of the API server, as JSON.
    pub(crate) fn get(&self, what: &str, namespace: &str) -> Value {
        let text = self.kubectl(&["get", what, "--namespace", namespace, "--output=json"]);
        serde_json::from_str(&text).expect("kubectl writes JSON")
    }

    /// What a service account asked the API server for so far, by its audit log.
    pub(crate) fn asked_by(&self, namespace: &str, account: &str) -> Vec<Value> {
        let who = format!("system:serviceaccount:{namespace}:{account}");
        let log = fs::read_to_string(self.folder.path().join(AUDIT_LOG)).expect("there is one");
        let lines = log.lines().filter(|line| line.contains(&who));
        // The last line may still be written.
        let events = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events.filter(|event| event["user"]["username"] == *who).collect()
    }

    /// A file with the way to this cluster as the holder of a token. An account is where it is, as in a
    /// pod.
    pub(crate) fn kubeconfig(&self, name: &str, token: &str) -> PathBuf {
        let ca = self.folder.path().join("ca.crt");
        fs::write(&ca, &self.ca).expect("a file");
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "e2e", "cluster": {
                "server": format!("https://127.0.0.1:{}", self.port),
                "certificate-authority": ca,
            }}],
            "users": [{"name": "e2e", "user": {"token": token}}],
            "contexts": [{"name": "e2e", "context": {
                "cluster": "e2e",
                "user": "e2e",
                "namespace": token::namespace(token),
            }}],
            "current-context": "e2e",
        });
        let file = self.folder.path().join(format!("{name}.kubeconfig"));
        fs::write(&file, config.to_string()).expect("a file");
        file
    }

    /// A token of a service account, as its pod would have it; `None` for the API server itself.
    pub(crate) fn token(&self, namespace: &str, account: &str, audience: Option<&str>) -> String {
        let audience = audience.map(|audience| format!("--audience={audience}"));
        let mut words = vec!["create", "token", account, "--namespace", namespace];
        words.extend(audience.as_deref());
        self.kubectl(&words).trim().to_owned()
    }

    /// The same for the broker and so short a time that only we make it.
    pub(crate) fn short_token(&self, namespace: &str, account: &str, lives: Duration) -> String {
        let uid =
            ["get", "serviceaccount", account, "-n", namespace, "-o=jsonpath={.metadata.uid}"];
        let uid = self.kubectl(&uid);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        let now = now.as_secs();
        let claims = json!({
            "iss": ISSUER,
            "sub": format!("system:serviceaccount:{namespace}:{account}"),
            "aud": [AUDIENCE],
            "iat": now, "nbf": now, "exp": now + lives.as_secs(),
            "kubernetes.io": {
                "namespace": namespace,
                "serviceaccount": {"name": account, "uid": uid},
            },
        });
        token::sign(&claims, &self.signing_key)
    }
}

/// Starts a server that does not outlive us, not even if we are killed.
fn start(command: &mut Command) -> Process {
    let mut leashed = Command::new("setpriv");
    leashed.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program());
    Process::start(leashed.args(command.get_args()))
}
