//! The admin port: what the page is told, how it is kept safe, and what probes hear.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use broker::{
    catalog::Static,
    server::{Broker, Settings},
};
use broker_tests::{Admin, Answer, Hello, TestBroker, failed, hello};
use serde_json::{Value, json};
use tokio_stream::StreamExt as _;
use tonic::Code;

async fn ask(broker: &TestBroker, method: Method, path: &str) -> Answer {
    Admin::of(&broker.broker).ask(method, path, &[], "").await
}

async fn get(broker: &TestBroker, path: &str) -> Answer {
    ask(broker, Method::GET, path).await
}

#[tokio::test(start_paused = true)]
async fn drivers_and_operations_are_told_as_json() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let mut driver = broker.driver_with(Hello { capacity: 3, ..hello("a") }).await;
    let create = controller.creating("w");
    let frame = driver.next_operation().await;
    broker.until_running(1).await;
    tokio::time::sleep(Duration::from_secs(6)).await;

    let drivers = get(&broker, "/api/drivers").await.json();
    let told = &drivers["drivers"][0];
    assert_eq!(told["session"], json!(driver.session));
    assert_eq!(told["instance"], "a");
    assert_eq!((&told["inFlight"], &told["capacity"]), (&json!(1), &json!(3)));
    assert_eq!(told["kinds"][0]["kind"], "SimMachineClass");
    assert!(told["oldestPending"].as_f64().unwrap() >= 6.0, "in seconds");

    let running = get(&broker, "/api/operations").await.json()["operations"][0].clone();
    assert_eq!((&running["machine"], &running["delivery"]), (&json!("w"), &json!("sent")));
    assert_eq!(running["class"], "default/small");
    assert_eq!(running["stuck"], "not accepted for 6s");
    let status = get(&broker, "/api/status").await.json();
    assert_eq!((&status["ready"], &status["operationsRunning"]), (&json!(true), &json!(1)));
    assert_eq!(status["concerns"][0]["what"], "create of w is stuck: not accepted for 6s");

    driver.accept(&frame);
    driver.answer(&frame, failed(Code::PermissionDenied, "not with this role"));
    create.error().await;
    let finished = get(&broker, "/api/operations").await.json()["operations"][0].clone();
    assert_eq!(finished["outcome"], "PERMISSION_DENIED");
    assert_eq!((&finished["finished"], &finished["stuck"]), (&json!(true), &json!("")));
}

#[tokio::test(start_paused = true)]
async fn a_driver_can_be_looked_at_after_it_left() {
    let broker = TestBroker::start();
    let driver = broker.driver("a").await;
    let path = format!("/api/drivers/{}", driver.session);
    let details = get(&broker, &path).await.json();
    assert_eq!(details["driver"]["instance"], "a");
    assert_eq!(details["history"][0]["what"], "registered");

    driver.vanish();
    broker.until_drivers(0).await;
    let details = get(&broker, &path).await.json();
    assert_eq!((&details["driver"]["state"], &details["moreHistory"]), (&json!("gone"), &json!(0)));
    assert!(
        details["driver"]["goneAt"].is_string() && details["driver"]["stateReason"].is_string()
    );
    assert_eq!(details["history"][0]["what"], "over");
    assert_eq!(get(&broker, "/api/drivers/a").await.json(), details, "by its instance, too");
    let unknown = get(&broker, "/api/drivers/0123456789abcdef").await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn events_tell_everything_every_second_and_end_with_the_broker() {
    let broker = TestBroker::start();
    let controller = broker.controller().await;
    let driver = broker.driver("a").await.serve();
    for n in 0..3 {
        controller.status(&format!("w-{n}")).await.unwrap();
    }
    let response = Admin::of(&broker.broker).open(Method::GET, "/api/events", &[], "").await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(response.headers()["cache-control"], "no-store");
    let mut frames = response.into_body().into_data_stream();
    for _ in 0..3 {
        let frame = frames.next().await.unwrap().unwrap();
        let text = std::str::from_utf8(&frame).unwrap();
        let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        let told: Value = serde_json::from_str(data).unwrap();
        assert_eq!(told["drivers"][0]["state"], "ready");
        assert_eq!((&told["driversInAll"], &told["runningInAll"]), (&json!(1), &json!(0)));
        assert_eq!(told["finished"].as_array().unwrap().len(), 3);
        let pace = &told["pace"][0];
        assert_eq!(
            (&pace["verb"], &pace["kind"]),
            (&json!("get_status"), &json!("SimMachineClass"))
        );
        assert_eq!((&pace["total"]["count"], &pace["total"]["failed"]), (&json!(3), &json!(0)));
    }
    drop(driver);
    broker.broker.stop(Duration::from_secs(1)).await;
    while frames.next().await.is_some() {}
}

#[tokio::test(start_paused = true)]
async fn only_so_many_pages_are_served_at_once() {
    let broker = TestBroker::start();
    let admin = Admin::of(&broker.broker);
    let open = async || admin.open(Method::GET, "/api/events", &[], "").await;
    let mut pages = Vec::new();
    for _ in 0..100 {
        pages.push(open().await);
    }
    assert_eq!(open().await.status(), StatusCode::SERVICE_UNAVAILABLE);
    pages.pop();
    assert_eq!(open().await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn every_answer_is_kept_from_framing_sniffing_caching_and_foreign_scripts() {
    let broker = TestBroker::start();
    let assets = ["/", "/page.css", "/page.js", "/dom.js", "/charts.js", "/steer.js", "/icon.svg"];
    let others = ["/api/status", "/livez", "/readyz", "/nowhere"];
    for path in assets.into_iter().chain(others) {
        let headers = get(&broker, path).await.headers;
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{path}: {policy}");
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"));
        assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(headers["referrer-policy"], "same-origin", "{path}");
        assert_eq!(headers["cache-control"], "no-store", "{path}");
    }
    for path in assets {
        let text = get(&broker, path).await.text;
        for foreign in ["https://", "innerHTML", "eval(", "style=\"", " onclick"] {
            assert!(!text.contains(foreign), "{path} has {foreign}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_can_be_changed_from_here() {
    let broker = TestBroker::start();
    for path in ["/", "/api/drivers", "/api/drivers/x", "/api/operations", "/api/events"] {
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let status = ask(&broker, method, path).await.status;
            assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{path}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn probes_give_their_reasons() {
    let starting = Broker::new(Settings::new(Static::sample()));
    let starting = Admin::of(&starting).get("/readyz", &[]).await;
    assert_eq!(starting.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(starting.text, "[-] started: the gRPC port is not served yet\nnot ok\n");

    let broker = TestBroker::start();
    broker.until_drivers(0).await;
    let ready = get(&broker, "/readyz").await;
    assert_eq!((ready.status, ready.text.as_str()), (StatusCode::OK, "ok\n"));
    let verbose = get(&broker, "/readyz?verbose").await;
    assert_eq!(verbose.text, "[+] started\n[+] not-stopping\n[+] has-drivers-of-replicas\nok\n");

    broker.broker.stop(Duration::from_secs(1)).await;
    let stopping = get(&broker, "/readyz").await;
    let reason = "[-] not-stopping: the broker is stopping and takes no new work\nnot ok\n";
    assert_eq!(
        (stopping.status, stopping.text.as_str()),
        (StatusCode::SERVICE_UNAVAILABLE, reason)
    );
    for path in ["/livez", "/healthz"] {
        let alive = get(&broker, path).await;
        assert_eq!((alive.status, alive.text.as_str()), (StatusCode::OK, "ok\n"), "{path}");
    }
}
