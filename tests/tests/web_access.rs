//! Who gets to see and to do what on the admin port, and what no other site can have a browser do.

use std::{fs, path::Path, sync::Arc, time::Duration};

use axum::{
    body::Body,
    http::{Method, StatusCode},
};
use broker::{
    audit::{Audit, Rotation, Target},
    auth::{self, Authenticator, make_token},
    server::{Broker, Settings},
};
use broker_proto::v1::broker_side::Control;
use broker_tests::{Admin, Answer, Driver, TestBroker, catalog::catalog, hello};
use broker_tls::{
    issue::{Authority, Subject},
    server::{Files, Server},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{advance, sleep};
use tokio_stream::StreamExt as _;

const DRIVER: &str = "spiffe://test/driver";
const READER: &str = "spiffe://test/reader";
const STEERER: &str = "spiffe://test/steerer";
const STRANGER: &str = "spiffe://test/stranger";

const POLICY: &str = "
rules:
- who: [spiffe://test/driver, token:driver]
  driver: {kinds: [SimMachineClass]}
- who: [spiffe://test/reader, token:reader]
  operator: read
- who: [spiffe://test/steerer, token:steerer]
  operator: steer
";

const FACTS: [&str; 6] =
    ["/api/me", "/api/status", "/api/drivers", "/api/operations", "/api/events", "/metrics"];
const HTML: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
const JSON: (&str, &str) = ("content-type", "application/json");
const SCRIPT: (&str, &str) = ("x-machine-broker", "page");
const OURS: (&str, &str) = ("sec-fetch-site", "same-origin");
const ORIGIN: (&str, &str) = ("origin", "http://127.0.0.1:8080");

/// A broker with a policy and a token file, and its admin port.
struct Guarded {
    folder: TempDir,
    audit: Audit,
    broker: TestBroker,
    admin: Admin,
    /// Of reader, steerer and driver.
    tokens: [String; 3],
}

impl Guarded {
    fn start() -> Self {
        Self::with(None)
    }

    fn with(tls: Option<Server>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let log = Target::File(folder.path().join("audit.log"), Rotation::default());
        let audit = Audit::open(&log).expect("the folder is ours");
        let made = ["reader", "steerer", "driver"].map(|name| make_token(name).expect("a token"));
        let entries: String = made.iter().map(|(_, entry)| entry.as_str()).collect();
        let (policy, tokens) = (folder.path().join("policy.yaml"), folder.path().join("tokens"));
        fs::write(&policy, POLICY).expect("the folder is ours");
        fs::write(&tokens, format!("tokens:\n{entries}")).expect("the folder is ours");
        let (files, policy, tokens) =
            auth::Files::open(Some(&policy), Some(&tokens)).expect("both are right");
        let authenticators =
            vec![Arc::new(tokens.expect("there is one")) as Arc<dyn Authenticator>];
        let auth = auth::Settings { policy, authenticators, tls, ..auth::Settings::default() };
        let settings = Settings { audit: audit.clone(), auth, ..Settings::new(catalog()) };
        let broker = Broker::new(settings);
        broker.follow(files);
        let admin = Admin::of(&broker);
        let tokens = made.map(|(token, _)| token.to_string());
        Self { folder, audit, broker: TestBroker::serving(broker), admin, tokens }
    }

    fn change(&self, file: &str, from: &str, to: &str) {
        let file = self.folder.path().join(file);
        let text = fs::read_to_string(&file).expect("it is there");
        assert!(text.contains(from));
        fs::write(file, text.replace(from, to)).expect("the folder is ours");
    }

    async fn driver(&self, instance: &str) -> Driver {
        Driver::welcomed(self.broker.channel_of(DRIVER).await, hello(instance)).await
    }

    async fn log_in(&self, token: &str) -> Answer {
        self.admin.post("/login", &[HTML, FORM, OURS, ORIGIN], &format!("token={token}")).await
    }

    /// Logs in, and returns what the browser sends from then on.
    async fn cookie(&self, token: &str) -> String {
        let answer = self.log_in(token).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
        cookie_of(&answer)
    }

    /// How many were denied for this reason, as metrics count them.
    async fn denials(&self, reason: &str) -> u64 {
        let authorization = bearer(&self.tokens[0]);
        let metrics = self.admin.get("/metrics", &[("authorization", &authorization)]).await.text;
        let name = format!("denials_total{{reason=\"{reason}\"}} ");
        let count = metrics.lines().find_map(|line| line.split_once(&name)).expect("it is counted");
        count.1.parse().expect("a number")
    }

    async fn audited(&self, event: &str) -> Vec<Value> {
        self.audit.close(Duration::from_secs(60)).await;
        let text = fs::read_to_string(self.folder.path().join("audit.log")).expect("a file");
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        lines.filter(|line: &Value| line["event"] == event).collect()
    }
}

fn cookie_of(answer: &Answer) -> String {
    let set = answer.headers["set-cookie"].to_str().unwrap();
    set.split(';').next().unwrap().to_owned()
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

// ---- without a policy ----

#[tokio::test(start_paused = true)]
async fn without_a_policy_everybody_can_look_and_nobody_can_steer() {
    let broker = TestBroker::start();
    let admin = Admin::of(&broker.broker);
    let mut driver = broker.driver("a").await;
    let me = admin.get("/api/me", &[]).await.json();
    assert_eq!(me, json!({"identity": "anonymous", "maySteer": false, "loggedIn": false}));
    for act in ["drain", "evict"] {
        let path = format!("/api/drivers/{}/{act}", driver.session);
        let answer = admin.post(&path, &[OURS, ORIGIN, JSON, SCRIPT], "{}").await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN);
        assert!(answer.text.contains("brokerctl"), "{}", answer.text);
    }
    driver.hears_nothing_for(Duration::from_secs(1)).await;
    let login = admin.post("/login", &[OURS, FORM], "token=x").await;
    assert_eq!(
        (login.status, &login.headers["location"]),
        (StatusCode::SEE_OTHER, &"/".parse().unwrap())
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_policy_no_foreign_name_is_answered_to() {
    let broker = TestBroker::start();
    let admin = Admin::of(&broker.broker);
    for path in ["/", "/api/status", "/api/events", "/metrics"] {
        for host in ["evil.example:8080", "localhost.evil.example", ""] {
            let answer = admin.get(path, &[("host", host), HTML]).await;
            assert_eq!(answer.status, StatusCode::MISDIRECTED_REQUEST, "{path} {host}");
            assert!(answer.text.contains("Host"), "{}", answer.text);
        }
    }
    for host in ["localhost:8080", "127.0.0.1:8080", "[::1]:8080"] {
        assert_eq!(admin.get("/api/status", &[("host", host)]).await.status, StatusCode::OK);
    }
    // Whoever probes may know us by any name.
    assert_eq!(admin.get("/livez", &[("host", "broker.svc")]).await.status, StatusCode::OK);
}

// ---- who may look ----

#[tokio::test(start_paused = true)]
async fn with_a_policy_nobody_learns_anything_without_credentials() {
    let guarded = Guarded::start();
    let _driver = guarded.driver("the-driver").await;
    for path in FACTS {
        let answer = guarded.admin.get(path, &[]).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path}");
        assert!(answer.headers["www-authenticate"].to_str().unwrap().starts_with("Bearer"));
        assert!(answer.text.contains("Authorization: Bearer TOKEN"), "{}", answer.text);
    }
    let page = guarded.admin.get("/", &[HTML]).await;
    assert_eq!(page.status, StatusCode::UNAUTHORIZED);
    assert!(page.text.contains("<form") && page.text.contains("action=\"/login\""));
    let denied = guarded.audited("caller_denied").await;
    assert_eq!(denied.len(), FACTS.len() + 1);
    assert_eq!(denied[0]["identity"], "anonymous");
    let why = "GET /api/me: no credentials: show a client certificate or a bearer token";
    assert_eq!(denied[0]["message"], why);
}

#[tokio::test(start_paused = true)]
async fn who_is_turned_away_again_and_again_does_not_fill_the_audit_log() {
    const TIMES: usize = 2_000;
    let guarded = Guarded::start();
    for _ in 0..TIMES {
        assert_eq!(guarded.admin.get("/api/me", &[]).await.status, StatusCode::UNAUTHORIZED);
    }
    let headers = [("authorization", bearer(&guarded.tokens[2]))];
    let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
    assert_eq!(guarded.admin.get("/api/me", &headers).await.status, StatusCode::FORBIDDEN);
    assert_eq!(guarded.denials("no_credentials").await, TIMES as u64);
    // Those without a line are summed up.
    sleep(Duration::from_secs(2)).await;
    let denied = guarded.audited("caller_denied").await;
    let strangers = denied.iter().filter(|line| line["identity"] == "anonymous").count();
    assert!((1..TIMES / 2).contains(&strangers), "{strangers}");
    let untold = guarded.audited("refusals_untold").await;
    let untold: u64 = untold.iter().map(|line| line["lines"].as_u64().expect("a number")).sum();
    assert_eq!(untold as usize, TIMES - strangers);
    assert!(denied.iter().any(|line| line["identity"] == "token:driver"), "known ones are told");
}

#[tokio::test(start_paused = true)]
async fn probes_and_plain_files_are_open_and_name_no_driver() {
    let guarded = Guarded::start();
    let _driver = guarded.driver("the-driver").await;
    let probes = ["/livez", "/healthz", "/readyz", "/readyz?verbose"];
    let files = ["/page.css", "/page.js", "/steer.js", "/dom.js", "/charts.js", "/icon.svg"];
    for path in probes.into_iter().chain(files).chain(["/login"]) {
        let answer = guarded.admin.get(path, &[]).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        assert!(!answer.text.contains("the-driver"), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_and_certificates_open_what_the_policy_says() {
    let guarded = Guarded::start();
    let [reader, steerer, driver] = guarded.tokens.each_ref().map(|token| bearer(token));
    let (unknown, basic) = (bearer("mb_0"), "Basic cmVhZGVyOg==".to_owned());
    for (authorization, status, says) in [
        (reader, StatusCode::OK, "token:reader"),
        (steerer, StatusCode::OK, "token:steerer"),
        (driver, StatusCode::FORBIDDEN, "token:driver may not read as operator"),
        (unknown, StatusCode::UNAUTHORIZED, "not known"),
        (basic, StatusCode::UNAUTHORIZED, "not a bearer token"),
    ] {
        let headers = [("authorization", authorization.as_str())];
        let me = guarded.admin.get("/api/me", &headers).await;
        assert_eq!(me.status, status, "{says}");
        assert!(me.text.contains(says), "{}", me.text);
        assert_eq!(guarded.admin.get("/metrics", &headers).await.status, status);
    }
    for (uri, status, says) in [
        (READER, StatusCode::OK, "\"maySteer\":false"),
        (STEERER, StatusCode::OK, "\"maySteer\":true"),
        (DRIVER, StatusCode::FORBIDDEN, "may not read as operator"),
        (STRANGER, StatusCode::FORBIDDEN, "no rule of the policy names spiffe://test/stranger"),
    ] {
        let admin = guarded.admin.with_certificate(uri);
        let me = admin.get("/api/me", &[]).await;
        assert_eq!(me.status, status, "{uri}");
        assert!(me.text.contains(says), "{}", me.text);
    }
    // A wrong credential is not taken for none.
    let headers = [("authorization", "Bearer mb_0")];
    let both = guarded.admin.with_certificate(READER).get("/api/me", &headers).await;
    assert_eq!(both.status, StatusCode::UNAUTHORIZED);
    let headers = [("cookie", "machine-broker-8080=0123")];
    let both = guarded.admin.with_certificate(READER).get("/api/me", &headers).await;
    assert_eq!(both.status, StatusCode::UNAUTHORIZED);
    let page = guarded.admin.with_certificate(STRANGER).get("/", &[HTML]).await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
    assert!(page.text.contains("no rule of the policy names spiffe://test/stranger"));
}

// ---- logging in ----

#[tokio::test(start_paused = true)]
async fn a_token_logs_a_browser_in_until_it_logs_out() {
    let guarded = Guarded::start();
    let answer = guarded.log_in(&guarded.tokens[0]).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
    assert_eq!(answer.headers["location"], "/");
    let set = answer.headers["set-cookie"].to_str().unwrap();
    let (secret, attributes) = set.split_once("; ").unwrap();
    assert_eq!(secret.strip_prefix("machine-broker-8080=").unwrap().len(), 64);
    assert_eq!(attributes, "HttpOnly; SameSite=Strict; Path=/");
    assert!(!set.contains(&guarded.tokens[0]));

    let other = "x=y; theme=dark; ".to_owned() + secret;
    let me = guarded.admin.get("/api/me", &[("cookie", &other)]).await.json();
    let expected = json!({"identity": "token:reader", "maySteer": false, "loggedIn": true});
    assert_eq!(me, expected);
    assert!(guarded.admin.get("/", &[HTML, ("cookie", secret)]).await.text.contains("page.js"));

    let out = guarded.admin.post("/logout", &[OURS, ("cookie", secret)], "").await;
    assert_eq!(
        (out.status, &out.headers["location"]),
        (StatusCode::SEE_OTHER, &"/".parse().unwrap())
    );
    assert!(out.headers["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    let after = guarded.admin.get("/api/me", &[("cookie", secret)]).await;
    assert_eq!(after.status, StatusCode::UNAUTHORIZED);
    assert!(after.text.contains("log in again"), "{}", after.text);
    let logged_in = guarded.audited("logged_in").await;
    assert_eq!(
        (&logged_in[0]["identity"], &logged_in[0]["outcome"]),
        (&json!("token:reader"), &json!("ok"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_wrong_or_of_no_operator_does_not_log_in() {
    let guarded = Guarded::start();
    let wrong = guarded.log_in("mb_hunter2").await;
    assert_eq!(wrong.status, StatusCode::UNAUTHORIZED);
    assert!(wrong.text.contains("the bearer token is not known") && wrong.text.contains("<form"));
    assert!(!wrong.text.contains("hunter2"));
    let driver = guarded.log_in(&guarded.tokens[2]).await;
    assert_eq!(driver.status, StatusCode::FORBIDDEN);
    assert!(driver.text.contains("token:driver may not read as operator"), "{}", driver.text);
    for answer in [wrong, driver, guarded.log_in("").await] {
        assert!(!answer.headers.contains_key("set-cookie"));
    }
    let headers = [FORM, OURS];
    let nothing = guarded.admin.post("/login", &headers, "").await;
    assert_eq!(nothing.status, StatusCode::UNPROCESSABLE_ENTITY);
    let long = guarded.admin.post("/login", &headers, &"x".repeat(20_000)).await;
    assert_eq!(long.status, StatusCode::PAYLOAD_TOO_LARGE);
    let never = Body::from_stream(tokio_stream::pending::<Result<Vec<u8>, std::io::Error>>());
    let slow = guarded.admin.ask(Method::POST, "/login", &headers, never).await;
    assert_eq!(slow.status, StatusCode::REQUEST_TIMEOUT);
    let denied = guarded.audited("caller_denied").await;
    assert_eq!(denied[0]["message"], "POST /login: the bearer token is not known, or no longer");
    assert_eq!(denied[1]["identity"], "token:driver");
}

#[tokio::test(start_paused = true)]
async fn no_other_site_logs_anybody_in_or_out() {
    let guarded = Guarded::start();
    let body = format!("token={}", guarded.tokens[0]);
    let cookie = guarded.cookie(&guarded.tokens[0]).await;
    for said in [
        vec![],
        vec![("sec-fetch-site", "cross-site"), ("origin", "https://evil.example")],
        vec![("sec-fetch-site", "same-site"), ("origin", "http://127.0.0.1:9999")],
        vec![("origin", "https://evil.example")],
        vec![("origin", "null")],
    ] {
        let login = [[HTML, FORM].as_slice(), &said].concat();
        let login = guarded.admin.post("/login", &login, &body).await;
        assert_eq!(login.status, StatusCode::FORBIDDEN, "{said:?}");
        assert!(!login.headers.contains_key("set-cookie"), "{said:?}");
        let logout = [[FORM, ("cookie", cookie.as_str())].as_slice(), &said].concat();
        let logout = guarded.admin.post("/logout", &logout, "").await;
        assert_eq!(logout.status, StatusCode::FORBIDDEN, "{said:?}");
    }
    assert_eq!(guarded.admin.get("/api/me", &[("cookie", &cookie)]).await.status, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn who_fails_to_log_in_too_often_has_to_wait_and_who_has_a_token_does_not() {
    let guarded = Guarded::start();
    let foreign = [HTML, FORM, ("sec-fetch-site", "cross-site")];
    for _ in 0..20 {
        let answer = guarded.admin.post("/login", &foreign, "token=mb_0").await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN);
        guarded.cookie(&guarded.tokens[0]).await;
    }
    for _ in 0..10 {
        assert_eq!(guarded.log_in("mb_0").await.status, StatusCode::UNAUTHORIZED);
    }
    let one_more = guarded.log_in("mb_0").await;
    assert_eq!(one_more.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(one_more.headers["retry-after"], "1");
    guarded.cookie(&guarded.tokens[0]).await;
    advance(Duration::from_secs(1)).await;
    assert_eq!(guarded.log_in("mb_0").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(guarded.denials("cross_site").await, 20);
    assert_eq!(guarded.denials("bad_token").await, 12);
    let denied = guarded.audited("caller_denied").await;
    let wrong = "POST /login: the bearer token is not known, or no longer";
    assert_eq!(denied.iter().filter(|line| line["message"] == wrong).count(), 12);
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_when_idle_when_old_and_when_there_are_newer_ones() {
    let guarded = Guarded::start();
    let cookie = guarded.cookie(&guarded.tokens[0]).await;
    let look = async |cookie: &str| guarded.admin.get("/api/me", &[("cookie", cookie)]).await;
    advance(Duration::from_secs(3599)).await;
    assert_eq!(look(&cookie).await.status, StatusCode::OK);
    advance(Duration::from_secs(3600)).await;
    let idle = look(&cookie).await;
    assert_eq!(idle.status, StatusCode::UNAUTHORIZED);
    assert!(idle.headers["set-cookie"].to_str().unwrap().contains("Max-Age=0"));

    let cookie = guarded.cookie(&guarded.tokens[0]).await;
    for _ in 0..23 {
        advance(Duration::from_secs(1800)).await;
        assert_eq!(look(&cookie).await.status, StatusCode::OK);
    }
    advance(Duration::from_secs(1800)).await;
    assert_eq!(look(&cookie).await.status, StatusCode::UNAUTHORIZED, "twelve hours");

    let first = guarded.cookie(&guarded.tokens[0]).await;
    let of_other = guarded.cookie(&guarded.tokens[1]).await;
    for _ in 0..10 {
        advance(Duration::from_secs(1)).await;
        guarded.cookie(&guarded.tokens[0]).await;
    }
    assert_eq!(look(&first).await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(look(&of_other).await.status, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn a_session_holds_no_longer_than_its_token_and_its_role() {
    let guarded = Guarded::start();
    let reader = guarded.cookie(&guarded.tokens[0]).await;
    let steerer = guarded.cookie(&guarded.tokens[1]).await;
    let look = async |cookie: &str| guarded.admin.get("/api/me", &[("cookie", cookie)]).await;
    guarded.change("tokens", "name: reader", "name: former-reader");
    guarded.change("policy.yaml", "operator: steer", "operator: read");
    while look(&reader).await.status == StatusCode::OK {
        sleep(Duration::from_millis(100)).await;
    }
    while look(&steerer).await.json()["maySteer"] == true {
        sleep(Duration::from_millis(100)).await;
    }
    guarded.change("policy.yaml", "token:steerer", "token:nobody");
    let now = loop {
        let now = look(&steerer).await;
        if now.status != StatusCode::OK {
            break now;
        }
        sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(now.status, StatusCode::FORBIDDEN);
    assert!(now.text.contains("no rule of the policy names token:steerer"), "{}", now.text);
}

// ---- open streams ----

#[tokio::test(start_paused = true)]
async fn events_end_with_the_right_to_read_them() {
    for (file, from, to) in [
        ("policy.yaml", "token:reader", "token:nobody"),
        ("tokens", "name: reader", "name: former-reader"),
    ] {
        let guarded = Guarded::start();
        let cookie = guarded.cookie(&guarded.tokens[0]).await;
        let authorization = bearer(&guarded.tokens[0]);
        for credential in [("cookie", cookie.as_str()), ("authorization", &authorization)] {
            let events = guarded.admin.open(Method::GET, "/api/events", &[credential], "").await;
            assert_eq!(events.status(), StatusCode::OK);
            let mut events = events.into_body().into_data_stream();
            for _ in 0..3 {
                events.next().await.expect("it goes on").unwrap();
            }
            guarded.change(file, from, to);
            let end = async { while events.next().await.is_some() {} };
            let ended = tokio::time::timeout(Duration::from_secs(60), end).await;
            ended.unwrap_or_else(|_| panic!("{file}: it never ends for {credential:?}"));
            guarded.change(file, to, from);
            while guarded.admin.get("/api/me", &[("authorization", &authorization)]).await.status
                != StatusCode::OK
            {
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn events_end_with_the_session_and_an_open_page_is_not_idle() {
    let guarded = Guarded::start();
    let cookie = guarded.cookie(&guarded.tokens[0]).await;
    let open = async |cookie: &str| {
        let headers = [("cookie", cookie)];
        let events = guarded.admin.open(Method::GET, "/api/events", &headers, "").await;
        events.into_body().into_data_stream()
    };
    let mut events = open(&cookie).await;
    events.next().await.expect("it goes on").unwrap();
    let out = guarded.admin.post("/logout", &[OURS, ("cookie", &cookie)], "").await;
    assert_eq!(out.status, StatusCode::SEE_OTHER);
    assert!(events.next().await.is_none(), "logged out");

    let cookie = guarded.cookie(&guarded.tokens[0]).await;
    let began = tokio::time::Instant::now();
    let mut events = open(&cookie).await;
    while events.next().await.is_some() {
        // Or it would be twelve hours of seconds.
        advance(Duration::from_secs(60)).await;
    }
    let hours = began.elapsed().as_secs_f64() / 3600.0;
    assert!((12.0..12.1).contains(&hours), "{hours}");
}

// ---- steering ----

#[tokio::test(start_paused = true)]
async fn an_operator_who_may_steer_drains_and_evicts_from_the_page() {
    let guarded = Guarded::start();
    let mut driver = guarded.driver("a").await;
    let cookie = guarded.cookie(&guarded.tokens[1]).await;
    let steer = async |act: &str, name: &str, body: &str| {
        let headers = [OURS, ORIGIN, JSON, SCRIPT, ("cookie", cookie.as_str())];
        guarded.admin.post(&format!("/api/drivers/{name}/{act}"), &headers, body).await
    };
    let drained = steer("drain", &driver.session, r#"{"reason": "new version"}"#).await;
    assert_eq!(drained.status, StatusCode::OK, "{}", drained.text);
    assert_eq!(drained.json()["state"], "draining");
    let (_, told) = driver.next_control().await;
    let Control::Drain(drain) = told else { panic!("{told:?}") };
    assert_eq!(drain.reason, "new version");
    let path = format!("/api/drivers/{}", driver.session);
    let history = guarded.admin.get(&path, &[("cookie", &cookie)]).await.json()["history"].clone();
    assert!(history.to_string().contains("\"asked to leave\""), "{history}");

    for (name, body, status) in [
        ("nobody", "{}", StatusCode::NOT_FOUND),
        ("a", "{", StatusCode::BAD_REQUEST),
        ("a", r#"{"why": "x"}"#, StatusCode::UNPROCESSABLE_ENTITY),
        ("a", &json!({"reason": "x".repeat(1025)}).to_string(), StatusCode::BAD_REQUEST),
        ("a", &json!({"reason": "x".repeat(20_000)}).to_string(), StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        assert_eq!(steer("evict", name, body).await.status, status, "{name} {:.40}", body);
    }
    let evicted = steer("evict", "a", r#"{"reason": "it hangs"}"#).await;
    assert_eq!(evicted.status, StatusCode::OK, "{}", evicted.text);
    assert!(driver.end().await.unwrap_err().message().contains("it hangs"));
    let again = steer("evict", "a", "{}").await;
    assert_eq!(again.status, StatusCode::NOT_FOUND);
    assert!(again.text.contains("is gone since"), "{}", again.text);

    let lines = guarded.audited("driver_drained").await;
    assert_eq!(
        (&lines[0]["identity"], &lines[0]["message"]),
        (&json!("token:steerer"), &json!("new version"))
    );
    let lines = guarded.audited("driver_evicted").await;
    let ok: Vec<_> = lines.iter().filter(|line| line["outcome"] == "ok").collect();
    assert_eq!((ok.len(), &ok[0]["driver"]), (1, &json!("a")));
}

#[tokio::test(start_paused = true)]
async fn who_may_only_read_steers_nothing() {
    let guarded = Guarded::start();
    let mut driver = guarded.driver("a").await;
    let cookie = guarded.cookie(&guarded.tokens[0]).await;
    let authorization = bearer(&guarded.tokens[0]);
    for act in ["drain", "evict"] {
        let path = format!("/api/drivers/{}/{act}", driver.session);
        for credential in [("cookie", cookie.as_str()), ("authorization", &authorization)] {
            let headers = [OURS, ORIGIN, JSON, SCRIPT, credential];
            let answer = guarded.admin.post(&path, &headers, "{}").await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN);
            assert_eq!(answer.text, "token:reader may not steer as operator\n");
        }
        let nobody = guarded.admin.post(&path, &[OURS, ORIGIN, JSON, SCRIPT], "{}").await;
        assert_eq!(nobody.status, StatusCode::UNAUTHORIZED);
    }
    driver.hears_nothing_for(Duration::from_secs(1)).await;
    let denied = guarded.audited("caller_denied").await;
    let message = denied[0]["message"].as_str().unwrap();
    assert!(message.ends_with("/drain: token:reader may not steer as operator"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn no_cross_site_request_steers_anything() {
    let guarded = Guarded::start();
    let mut driver = guarded.driver("a").await;
    let cookie = guarded.cookie(&guarded.tokens[1]).await;
    let with_certificate = guarded.admin.with_certificate(STEERER);
    let foreign = ("origin", "https://evil.example");
    let attacks: &[&[(&'static str, &str)]] = &[
        // The credentials alone.
        &[],
        &[JSON],
        &[JSON, SCRIPT],
        // A form of another site, or of a service on another port of this host.
        &[("sec-fetch-site", "cross-site"), foreign, FORM],
        &[("sec-fetch-site", "same-site"), ("origin", "http://127.0.0.1:9999"), FORM],
        &[("sec-fetch-site", "cross-site"), foreign, ("content-type", "text/plain")],
        // A script of another site, if a browser sent what it must not.
        &[("sec-fetch-site", "cross-site"), foreign, JSON, SCRIPT],
        &[("sec-fetch-site", "same-site"), JSON, SCRIPT],
        &[("sec-fetch-site", "none"), JSON, SCRIPT],
        &[foreign, JSON, SCRIPT],
        &[("origin", "null"), JSON, SCRIPT],
        &[OURS, foreign, JSON, SCRIPT],
        // Of ours, but as a form can do it.
        &[OURS, ORIGIN, JSON],
        &[OURS, ORIGIN, SCRIPT],
        &[OURS, ORIGIN, SCRIPT, FORM],
        &[OURS, ORIGIN, SCRIPT, ("content-type", "text/plain")],
    ];
    for act in ["drain", "evict"] {
        let path = format!("/api/drivers/{}/{act}", driver.session);
        for attack in attacks {
            let headers = [attack, [("cookie", cookie.as_str())].as_slice()].concat();
            let answer = guarded.admin.post(&path, &headers, "{}").await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{attack:?}");
            assert!(answer.text.contains("another site"), "{}", answer.text);
            let answer = with_certificate.post(&path, attack, "{}").await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{attack:?}");
        }
        // Nor does any other method, and nobody gets leave to ask.
        let preflight =
            [foreign, ("access-control-request-method", "POST"), ("cookie", cookie.as_str())];
        let leave = guarded.admin.ask(Method::OPTIONS, &path, &preflight, "").await;
        assert_eq!(leave.status, StatusCode::METHOD_NOT_ALLOWED);
        assert!(!leave.headers.keys().any(|name| name.as_str().starts_with("access-control")));
        let get = guarded.admin.get(&path, &[OURS, ("cookie", &cookie)]).await;
        assert_eq!(get.status, StatusCode::METHOD_NOT_ALLOWED);
    }
    driver.hears_nothing_for(Duration::from_secs(1)).await;
    // The same from the page itself does it, so it was for these reasons.
    let path = format!("/api/drivers/{}/drain", driver.session);
    let answer = with_certificate.post(&path, &[ORIGIN, JSON, SCRIPT], "{}").await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    assert_eq!(guarded.audited("driver_drained").await.len(), 1);
}

// ---- headers ----

#[tokio::test(start_paused = true)]
async fn every_answer_has_the_security_headers_also_those_that_say_no() {
    let guarded = Guarded::start();
    let mut answers = vec![
        guarded.admin.get("/", &[HTML]).await,
        guarded.admin.get("/api/status", &[]).await,
        guarded.admin.get("/api/me", &[("authorization", &bearer(&guarded.tokens[2]))]).await,
        guarded.admin.get("/nowhere", &[]).await,
        guarded.admin.post("/logout", &[], "").await,
        guarded.log_in(&guarded.tokens[0]).await,
    ];
    for _ in 0..10 {
        answers.push(guarded.log_in("mb_0").await);
    }
    for answer in answers {
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && policy.contains("form-action 'self'"));
        assert!(!policy.contains("unsafe"), "{policy}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "same-origin"),
            ("cache-control", "no-store"),
            ("cross-origin-resource-policy", "same-origin"),
            ("cross-origin-opener-policy", "same-origin"),
        ] {
            assert_eq!(answer.headers[name], value, "{}", answer.status);
        }
        assert!(!answer.headers.contains_key("strict-transport-security"), "there is no TLS");
    }
}

#[tokio::test(start_paused = true)]
async fn with_tls_cookies_are_secure_and_browsers_are_told_to_stay_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let guarded = Guarded::with(Some(tls(folder.path())));
    let headers = [FORM, OURS, ("origin", "https://127.0.0.1:8080")];
    let body = format!("token={}", guarded.tokens[1]);
    let answer = guarded.admin.post("/login", &headers, &body).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
    let set = answer.headers["set-cookie"].to_str().unwrap();
    assert!(set.starts_with("__Host-machine-broker-8080="), "{set}");
    assert!(set.ends_with("; HttpOnly; SameSite=Strict; Secure; Path=/"), "{set}");
    assert_eq!(answer.headers["strict-transport-security"], "max-age=15768000");
    let cookie = cookie_of(&answer);
    let me = guarded.admin.get("/api/me", &[("cookie", &cookie)]).await.json();
    assert_eq!(me["identity"], "token:steerer");
    // A certificate of a CA that is not ours, or no longer, is looked at with every request.
    let foreign = guarded.admin.with_certificate(READER).get("/api/me", &[]).await;
    assert_eq!(foreign.status, StatusCode::UNAUTHORIZED);
    assert!(foreign.text.contains("no longer good"), "{}", foreign.text);
    // A page without TLS is not ours.
    let headers = [ORIGIN, JSON, SCRIPT, ("cookie", cookie.as_str())];
    let plain = guarded.admin.post("/api/drivers/a/evict", &headers, "{}").await;
    assert_eq!(plain.status, StatusCode::FORBIDDEN);
}

/// Files of a CA and of a broker, as they would be mounted.
fn tls(folder: &Path) -> Server {
    let long = Duration::from_secs(3600);
    let authority = Authority::new(&Subject::new("CA", long)).unwrap();
    let issued = authority.issue(&Subject::new("broker", long).host("127.0.0.1")).unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.join(name);
        fs::write(&file, text).unwrap();
        file
    };
    let (cert, key) = (write("tls.crt", &issued.certificate), write("tls.key", &issued.key));
    let client_ca = Some(write("ca.crt", &authority.certificate()));
    Server::open(Files { cert, key, client_ca }).unwrap()
}
