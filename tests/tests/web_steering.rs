//! Who gets to do what from the operators' page, and what no other site can have a browser do.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use broker_proto::v1::broker_side::Control;
use broker_tests::guarded::{FORM, Guarded, JSON, ORIGIN, OURS, SCRIPT, STEERER, bearer};
use serde_json::json;

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
