//! Markers in everything that is secret, the whole system as real processes with all of their logs, and
//! a search for the markers in all that anybody can read afterwards.

use std::{
    collections::BTreeMap, fs, net::SocketAddr, path::Path, process::Command, time::Duration,
};

use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD, Engine as _};
use broker_proto::v1::{self, MachineRequest};
use broker_tests::{
    Controller, Driver,
    catalog::{OTHER_API_VERSION, OTHER_KIND, class},
    hello, kind, machine,
    process::{Process, binary, channel},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tonic::{Code, Request, metadata::MetadataValue};

// Each with something that encodings change.
const IN_DATA: &str = "marker/in+data";
const IN_STRING_DATA: &str = "marker/in+string-data";
const IN_USER_DATA: &str = "marker/in+user-data-of-the-secret";
const IN_ANNOTATION: &str = "marker/in+last-applied";
const ROTATED: &str = "marker/after+rotation";
const GIVEN_USER_DATA: &str = "marker/in+user-data-of-the-caller";
const ASKED_STATE: &str = "marker/in+last-known-state-asked";
const TOLD_STATE: &str = "marker/in+last-known-state-told";
const WRONG_TOKEN: &str = "marker-of-a-wrong-token";
const WRONG_SCHEME: &str = "marker-of-another-scheme";
const WRONG_SESSION: &str = "marker-of-a-wrong-session-token";
const ADMIN_TOKEN: &str = "marker-at-the-admin-port";
const ADMIN_COOKIE: &str = "marker-in-a-cookie";
const LOGIN_TOKEN: &str = "marker-at-the-login-page";
const SLIPS: [&str; 6] = [
    "marker-of-an-alias",
    "marker-of-a-tag",
    "marker-of-an-open-quote",
    "marker-of-a-flow",
    "marker-in-the-token-file",
    "marker-in-a-block",
];

const POLICY: &str = "
rules:
- who: child:sim-driver
  driver: {kinds: [SimMachineClass]}
- who: token:ci
  controller: {kinds: ['*']}
- who: token:ci
  operator: steer
- who: anonymous
  driver: {kinds: [OtherMachineClass]}
";

fn catalog(password: &str) -> String {
    let data = BASE64_STANDARD.encode(IN_DATA);
    format!(
        r#"
apiVersion: sim.machinebroker.dev/v1alpha1
kind: SimMachineClass
metadata: {{name: small}}
spec: {{secretRef: {{name: base}}, credentialsSecretRef: {{name: credentials}}}}
---
apiVersion: sim.machinebroker.dev/v1alpha1
kind: SimMachineClass
metadata: {{name: broken}}
spec: {{secretRef: {{name: base}}, failures: [{{verb: create, code: INTERNAL, rate: 1}}]}}
---
apiVersion: {OTHER_API_VERSION}
kind: {OTHER_KIND}
metadata: {{name: other}}
secretRef: {{name: base}}
---
apiVersion: v1
kind: Secret
metadata:
  name: base
  annotations: {{kubectl.kubernetes.io/last-applied-configuration: "{IN_ANNOTATION}"}}
data: {{key: {data}}}
stringData: {{userData: "{IN_USER_DATA}"}}
---
apiVersion: v1
kind: Secret
metadata: {{name: credentials}}
stringData: {{password: "{password}"}}
"#
    )
}

/// A running broker with a child driver, and all that was seen of them.
struct World {
    folder: TempDir,
    broker: Process,
    drivers: SocketAddr,
    admin: SocketAddr,
    /// Who has the right to be let in.
    token: String,
    seen: BTreeMap<String, String>,
}

impl World {
    fn start(format: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let made = Command::new(binary("machine-broker")).args(["tokens", "new", "ci"]).output();
        let made = made.expect("it runs");
        let token = String::from_utf8(made.stdout).expect("text").trim().to_owned();
        let entry = String::from_utf8(made.stderr).expect("text");
        let entry = entry.split("\n\n").nth(1).expect("the entry").to_owned();
        fs::create_dir(path("catalog")).expect("a folder");
        fs::write(path("catalog/all.yaml"), catalog(IN_STRING_DATA)).expect("a file");
        fs::write(path("policy.yaml"), POLICY).expect("a file");
        fs::write(path("tokens.yaml"), format!("tokens:\n{entry}\n")).expect("a file");
        fs::write(path("token"), &token).expect("a file");
        fs::write(path("user-data"), GIVEN_USER_DATA).expect("a file");
        let program = binary("sim-driver").display().to_string();
        let child = shell_words::join([&program, "--cloud", &path("cloud")]);
        let broker = Process::start(
            Command::new(binary("machine-broker"))
                .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
                .args(["--catalog", &format!("dir:{}", path("catalog"))])
                .args(["--driver-command", &child, "--settle", "0s"])
                .args(["--policy", &path("policy.yaml"), "--tokens", &path("tokens.yaml")])
                .args(["--audit", &path("audit.log"), "--log", "trace", "--log-format", format])
                // For the child.
                .env("RUST_LOG", "trace"),
        );
        let (drivers, admin) = broker.line("the addresses", |line| {
            let address = |name: &str| {
                let (_, rest) = line.split_once(&format!("{name}="))?;
                rest.split_whitespace().next()?.parse().ok()
            };
            let in_json = |name: &str| {
                let line: serde_json::Value = serde_json::from_str(line).ok()?;
                line["fields"][name].as_str()?.parse().ok()
            };
            let find = |name: &str| in_json(name).or_else(|| address(&format!(" {name}")));
            line.contains("listening").then(|| Some((find("drivers")?, find("admin")?)))?
        });
        Self { folder, broker, drivers, admin, token, seen: BTreeMap::new() }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn says(&self, what: &str) {
        self.broker.line(what, |line| line.contains(what).then_some(()));
    }

    /// Runs brokerctl and keeps what it prints.
    fn brokerctl(&mut self, words: &[&str]) -> bool {
        let output = Command::new(binary("brokerctl"))
            .args(words)
            .env("BROKERCTL_CONFIG", self.path("contexts.yaml"))
            .env("RUST_LOG", "trace")
            .output()
            .expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        self.seen.insert(format!("brokerctl {}", words.join(" ")), said);
        output.status.success()
    }

    /// Reads something from the admin port, headers and all: as an operator, as nobody, and as somebody who
    /// shows what is wrong.
    async fn browse(&mut self, path: &str) {
        let status = if path == "/api/none" { 404 } else { 200 };
        let operator = format!("Authorization: Bearer {}", self.token);
        self.look(path, "an operator", &[&operator], &[status]).await;
        let denied = [status, 401, 403];
        self.look(path, "nobody", &[], &denied).await;
        let wrong = format!("Authorization: Bearer {ADMIN_TOKEN}");
        self.look(path, "somebody with a wrong token", &[&wrong], &denied).await;
        let wrong = format!("Cookie: {}={ADMIN_COOKIE}", self.cookie_name());
        self.look(path, "somebody with a wrong cookie", &[&wrong], &denied).await;
    }

    async fn look(&mut self, path: &str, who: &str, headers: &[&str], expected: &[u16]) {
        let seen = self.ask(&format!("GET {path}"), headers, "").await;
        let status = seen.split(' ').nth(1).and_then(|status| status.parse().ok());
        assert!(status.is_some_and(|status| expected.contains(&status)), "{path} as {who}: {seen}");
        self.seen.insert(format!("admin {path} as {who}"), seen);
    }

    /// Logs in as the page does, looks at what the page looks at, and logs out. Returns the secret in the
    /// cookie.
    async fn log_in_and_out(&mut self) -> String {
        let origin = format!("Origin: http://{}", self.admin);
        let form = "Content-Type: application/x-www-form-urlencoded";
        for (who, body) in [
            ("a wrong token", format!("token={LOGIN_TOKEN}")),
            ("two tokens", format!("token={LOGIN_TOKEN}&token={LOGIN_TOKEN}")),
            ("another field", format!("{LOGIN_TOKEN}={LOGIN_TOKEN}")),
        ] {
            let denied = self.ask("POST /login", &[&origin, form], &body).await;
            assert!(denied.starts_with("HTTP/1.1 4"), "{denied}");
            self.seen.insert(format!("admin /login with {who}"), denied);
        }
        let body = format!("token={}", self.token);
        let foreign = ["Origin: http://evil.example", form];
        let denied = self.ask("POST /login", &foreign, &body).await;
        assert!(denied.starts_with("HTTP/1.1 403"), "{denied}");
        self.seen.insert("admin /login from another site".to_owned(), denied);

        let answer = self.ask("POST /login", &[&origin, form], &body).await;
        assert!(answer.starts_with("HTTP/1.1 303"), "{answer}");
        let name = self.cookie_name();
        let (_, set) = answer.split_once(&format!("set-cookie: {name}=")).expect("a cookie");
        let secret = set.split(';').next().expect("its value").to_owned();
        assert_eq!(secret.len(), 64);
        // It is told here, once.
        let rest = answer.replacen(&secret, "", 1);
        self.seen.insert("admin /login with a token".to_owned(), rest);
        let cookie = format!("Cookie: {name}={secret}");
        for path in ["/", "/api/me", "/api/status", "/api/drivers", "/api/events", "/metrics"] {
            self.look(path, "somebody who logged in", &[&cookie], &[200]).await;
        }
        let answer = self.ask("POST /logout", &[&origin, &cookie], "").await;
        assert!(answer.starts_with("HTTP/1.1 303"), "{answer}");
        self.seen.insert("admin /logout".to_owned(), answer);
        self.look("/api/me", "somebody who logged out", &[&cookie], &[401]).await;
        secret
    }

    fn cookie_name(&self) -> String {
        format!("machine-broker-{}", self.admin.port())
    }

    /// To its end or for a while.
    async fn ask(&self, what: &str, headers: &[&str], body: &str) -> String {
        let mut stream = TcpStream::connect(self.admin).await.expect("it listens");
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let request = format!(
            "{what} HTTP/1.1\r\nHost: {}\r\n{headers}Content-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            self.admin,
            body.len(),
        );
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let mut answer = Vec::new();
        // Events go on for ever: a second is enough for all that is told at the start.
        let end = timeout(Duration::from_secs(1), stream.read_to_end(&mut answer)).await;
        assert!(end.is_ok() || what.ends_with("/api/events"), "{what} does not end");
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The command lines of the broker and of all processes below it; and the token of the driver.
    fn processes(&mut self) -> String {
        let mut ours = vec![self.broker.id().to_string()];
        let mut token = None;
        for entry in fs::read_dir("/proc").expect("Linux").flatten() {
            let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
            let status = String::from_utf8_lossy(&read("status")).into_owned();
            let parent = status.lines().find_map(|line| line.strip_prefix("PPid:\t"));
            if parent.is_some_and(|parent| ours.iter().any(|pid| pid == parent)) {
                ours.push(entry.file_name().to_string_lossy().into_owned());
                let environment = String::from_utf8_lossy(&read("environ")).into_owned();
                let found = environment.split('\0').find_map(|v| v.strip_prefix("BROKER_TOKEN="));
                token = found.map(str::to_owned).or(token);
            }
        }
        assert!(ours.len() >= 3, "the broker, the leash, the driver: {ours:?}");
        for pid in ours {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            self.seen.insert(
                format!("the command line of {pid}"),
                String::from_utf8_lossy(&line).into_owned(),
            );
        }
        token.expect("the driver has a token")
    }

    fn bearer<T>(&self, message: T) -> Request<T> {
        with_authorization(message, &format!("Bearer {}", self.token))
    }
}

fn with_authorization<T>(message: T, value: &str) -> Request<T> {
    let mut request = Request::new(message);
    let value: MetadataValue<_> = value.parse().expect("a header");
    request.metadata_mut().insert("authorization", value);
    request
}

/// All the ways in which somebody might print a text.
fn disguises(marker: &str) -> Vec<String> {
    let bytes = marker.as_bytes();
    let list = |bytes: &[u8]| bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
    let percent = |byte: &u8| match byte {
        b'-' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(*byte).to_string(),
        other => format!("%{other:02X}"),
    };
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut all = vec![
        marker.to_owned(),
        hex.to_uppercase(),
        hex,
        list(bytes),
        bytes.iter().map(percent).collect(),
        marker.replace('/', "\\/"),
    ];
    // As a part of something longer, base64 looks different for each place modulo three; the edges
    // depend on the neighbours.
    for shift in 0..3 {
        let padded = [&vec![0; shift][..], bytes].concat();
        let encoded = BASE64_STANDARD_NO_PAD.encode(padded);
        all.push(encoded[4.min(shift * 4)..encoded.len() - 2].to_owned());
    }
    all
}

async fn whole_system(format: &str) {
    let mut world = World::start(format);
    let sim_class = |name: &str| v1::ClassRef { name: name.to_owned(), ..Controller::class() };
    world.says("driver registered");
    let child_token = world.processes();

    // The operator and the controller at the command line.
    let (address, token_file) = (world.drivers.to_string(), world.path("token"));
    let set = ["contexts", "set", "x", "--address", &address, "--token-file", &token_file];
    assert!(world.brokerctl(&set));
    assert!(world.brokerctl(&["contexts", "use", "x"]));
    let user_data = world.path("user-data");
    let of_small = ["--kind", "SimMachineClass", "--class", "small"];
    let create = ["machines", "create", "one", "--user-data", &user_data, "--wait"];
    assert!(world.brokerctl(&[&create[..], &of_small].concat()), "{:?}", world.seen);
    let broken = ["machines", "create", "two", "--user-data", &user_data, "--kind"];
    assert!(!world.brokerctl(&[&broken[..], &["SimMachineClass", "--class", "broken"]].concat()));
    assert!(!world.brokerctl(&["machines", "create", "three", "--kind", "No", "--class", "no"]));

    // A controller with user data, and with what was last known.
    let controller = Controller::new(channel(world.drivers).await);
    let request = |machine: &str, class: v1::ClassRef| MachineRequest {
        class: Some(class),
        user_data: Some(GIVEN_USER_DATA.into()),
        last_known_state: ASKED_STATE.to_owned(),
        ..Controller::request(machine)
    };
    let small = || sim_class("small");
    controller.create_with(world.bearer(request("four", small()))).await.expect("it is made");
    let repeated = MachineRequest { user_data: None, ..request("four", small()) };
    controller.create_with(world.bearer(repeated)).await.ok();
    let misnamed = world.bearer(request("Bad Name", small()));
    assert_eq!(controller.create_with(misnamed).await.unwrap_err().code(), Code::InvalidArgument);
    let mut hurried = world.bearer(request("five", sim_class("broken")));
    hurried.set_timeout(Duration::from_millis(1));
    controller.create_with(hurried).await.expect_err("there is no time");
    let other = format!("Basic {WRONG_SCHEME}");
    for authorization in [format!("Bearer {WRONG_TOKEN}"), other] {
        let request = with_authorization(request("six", small()), &authorization);
        let denied = controller.create_with(request).await.unwrap_err();
        assert_eq!(denied.code(), Code::Unauthenticated);
    }
    let nobody = controller.create_with(request("six", small())).await.unwrap_err();
    assert!(matches!(nobody.code(), Code::PermissionDenied | Code::Unauthenticated), "{nobody:?}");

    // A driver of our own, whose session token we know.
    let hello =
        broker_tests::Hello { kinds: vec![kind(OTHER_API_VERSION, OTHER_KIND)], ..hello("ours") };
    let mut driver = Driver::welcomed(channel(world.drivers).await, hello).await;
    let session_token = driver.token.clone();
    assert!(session_token.len() >= 32);
    let secret = driver.get_secret("default", "base").await.expect("its own");
    assert!(secret.data.contains(&BASE64_STANDARD.encode(IN_USER_DATA)), "the secret is whole");
    driver.get_secret("default", "credentials").await.expect_err("a foreign one");
    let call = controller.creating_with(
        world.bearer(request("seven", class(OTHER_API_VERSION, OTHER_KIND, "other"))),
    );
    let operation = driver.take().await;
    let params = operation.params.as_ref().expect("an operation has params");
    assert_eq!(params.user_data.as_deref(), Some(GIVEN_USER_DATA.as_bytes()));
    let mut answer = machine("id-seven");
    if let Some(v1::operation_result::Payload::Machine(machine)) = &mut answer.payload {
        machine.last_known_state = TOLD_STATE.to_owned();
    }
    driver.answer(&operation, answer);
    assert_eq!(call.answer().await.expect("it is made").last_known_state, TOLD_STATE);
    driver.token = WRONG_SESSION.to_owned();
    driver.get_secret("default", "base").await.expect_err("not of this session");
    driver.get_class("other").await.expect_err("not of this session");

    // Slips of people who write files.
    let all = world.path("catalog/all.yaml");
    let [alias, tag, quote, flow, in_tokens, block] = SLIPS;
    let secret = |rest: &str| {
        format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData:\n  p: {rest}\n")
    };
    for (number, broken) in [
        secret(&format!("*{alias}")),
        secret(&format!("!{tag} [")),
        secret(&format!("\"{quote}")),
        secret(&format!("{{{flow}: {flow}, {flow}: [")),
        secret(&format!("|\n  {block}\n {block}\n{block}")),
        format!("{}  {flow}\n  {flow}: 1\n  {flow}: 2\n", secret("x")),
    ]
    .into_iter()
    .enumerate()
    {
        // Each in a file of its own, whose name is in what is said of it.
        let name = format!("slip-{number}.yaml");
        fs::write(world.path(&format!("catalog/{name}")), broken).expect("a file");
        world.says(&name);
    }
    fs::write(&all, catalog(ROTATED)).expect("a file");
    let tokens = world.path("tokens.yaml");
    let good = fs::read_to_string(&tokens).expect("a file");
    fs::write(&tokens, format!("{good}- name: {in_tokens}\n  sha256: {in_tokens}\n")).unwrap();
    world.says("sha256 must be");
    fs::write(&tokens, good).expect("a file");

    // All that can be looked at.
    for path in [
        "/",
        "/page.js",
        "/login",
        "/api/me",
        "/api/status",
        "/api/drivers",
        "/api/drivers/ours",
        "/api/operations",
        "/api/events",
        "/api/none",
        "/livez",
        "/readyz",
        "/metrics",
    ] {
        world.browse(path).await;
    }
    let cookie = world.log_in_and_out().await;
    for format in ["table", "wide", "json", "yaml"] {
        for words in [
            &["status"][..],
            &["drivers"],
            &["drivers", "describe", "ours"],
            &["operations"],
            &["contexts"],
            &["machines", "status", "one", "--kind", "SimMachineClass", "--class", "small"],
            &["machines", "list", "--kind", "SimMachineClass", "--class", "small"],
        ] {
            world.brokerctl(&[words, &["-o", format]].concat());
        }
    }
    assert!(world.brokerctl(&["drivers", "drain", "ours", "--reason", "over"]));
    driver.vanish();
    world.broker.signal("-TERM");
    assert!(world.broker.end().expect("it ends").success());

    let log = world.broker.output();
    let audit = fs::read_to_string(world.path("audit.log")).expect("a file");
    let (vms, files) = written(Path::new(&world.path("cloud")));
    // Otherwise there would be nothing to find.
    assert!(log.contains("TRACE") && log.contains("frame"), "{log}");
    assert!(audit.contains("caller_denied") && audit.contains("secret_denied"), "{audit}");
    assert!(vms.contains(&format!("\"userDataBytes\": {}", GIVEN_USER_DATA.len())), "{vms}");
    world.seen.insert("the log".to_owned(), log);
    world.seen.insert("the audit log".to_owned(), audit);
    world.seen.insert(format!("the {files} files of the driver"), vms);

    let token = world.token.clone();
    let mut markers = vec![
        IN_DATA,
        IN_STRING_DATA,
        IN_USER_DATA,
        IN_ANNOTATION,
        ROTATED,
        GIVEN_USER_DATA,
        ASKED_STATE,
        TOLD_STATE,
        WRONG_TOKEN,
        WRONG_SCHEME,
        WRONG_SESSION,
        ADMIN_TOKEN,
        ADMIN_COOKIE,
        LOGIN_TOKEN,
        &cookie,
        &token,
        &child_token,
        &session_token,
    ];
    markers.extend(SLIPS);
    let mut leaks = Vec::new();
    for marker in markers {
        for disguise in disguises(marker) {
            for (place, text) in &world.seen {
                if let Some(line) = text.lines().find(|line| line.contains(&disguise)) {
                    leaks.push(format!("{marker} in {place}: {line}"));
                }
            }
        }
    }
    assert!(leaks.is_empty(), "{} leaks:\n{}", leaks.len(), leaks.join("\n"));
}

/// What is in the files of a folder, and how many there are.
fn written(folder: &Path) -> (String, usize) {
    let files: Vec<_> = fs::read_dir(folder).expect("a folder").flatten().collect();
    let texts = files.iter().filter_map(|file| fs::read_to_string(file.path()).ok());
    (texts.collect::<Vec<_>>().join("\n"), files.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_anywhere_in_a_system_that_logs_all_it_can_as_text() {
    whole_system("text").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_anywhere_in_a_system_that_logs_all_it_can_as_json() {
    whole_system("json").await;
}

#[test]
fn a_marker_is_found_in_every_disguise() {
    let marker = IN_DATA;
    let seen = |text: &str| disguises(marker).iter().any(|disguise| text.contains(disguise));
    for before in ["", "a", "ab", "abc"] {
        let longer = format!("{before}{marker}, and more");
        assert!(seen(&longer) && seen(&BASE64_STANDARD.encode(&longer)), "{longer}");
    }
    assert!(seen(&format!("{:?}", marker.as_bytes())));
    assert!(seen(&marker.bytes().map(|byte| format!("{byte:02X}")).collect::<String>()));
    assert!(seen("marker%2Fin%2Bdata") && !seen("marker"));
}
