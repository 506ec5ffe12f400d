//! Who gets to see what on the admin port, and who is logged in.

use std::{fs, path::Path, time::Duration};

use axum::{
    body::Body,
    http::{Method, StatusCode},
};
use broker_tests::{
    Admin, TestBroker,
    guarded::{
        DRIVER, FORM, Guarded, HTML, JSON, ORIGIN, OURS, READER, SCRIPT, STEERER, STRANGER, bearer,
        cookie_of,
    },
};
use broker_tls::{
    issue::{Authority, Subject},
    server::{Files, Server},
};
use serde_json::json;
use tokio::time::{advance, sleep};
use tokio_stream::StreamExt as _;

const FACTS: [&str; 6] =
    ["/api/me", "/api/status", "/api/drivers", "/api/operations", "/api/events", "/metrics"];

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
