//! A broker that lets in only whom its policy names, and what browsers send to its admin port.

use std::{fs, sync::Arc, time::Duration};

use axum::http::StatusCode;
use broker::{
    audit::{Audit, Rotation, Target},
    auth::{self, Authenticator, make_token},
    server::{Broker, Settings},
};
use broker_tls::server::Server;
use serde_json::Value;
use tempfile::TempDir;

use crate::{Admin, Answer, Driver, TestBroker, catalog::catalog, hello};

pub const DRIVER: &str = "spiffe://test/driver";
pub const READER: &str = "spiffe://test/reader";
pub const STEERER: &str = "spiffe://test/steerer";
pub const STRANGER: &str = "spiffe://test/stranger";

pub const POLICY: &str = "
rules:
- who: [spiffe://test/driver, token:driver]
  driver: {kinds: [SimMachineClass]}
- who: [spiffe://test/reader, token:reader]
  operator: read
- who: [spiffe://test/steerer, token:steerer]
  operator: steer
";

pub const HTML: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
pub const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");
pub const JSON: (&str, &str) = ("content-type", "application/json");
pub const SCRIPT: (&str, &str) = ("x-machine-broker", "page");
pub const OURS: (&str, &str) = ("sec-fetch-site", "same-origin");
pub const ORIGIN: (&str, &str) = ("origin", "http://127.0.0.1:8080");

/// A broker with a policy and a token file, and its admin port.
pub struct Guarded {
    folder: TempDir,
    audit: Audit,
    pub broker: TestBroker,
    pub admin: Admin,
    /// Of reader, steerer and driver.
    pub tokens: [String; 3],
}

impl Guarded {
    pub fn start() -> Self {
        Self::with(None)
    }

    pub fn with(tls: Option<Server>) -> Self {
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
        let settings = Settings { audit: audit.clone(), auth, ..crate::settings(catalog()) };
        let broker = Broker::new(settings);
        broker.follow(files);
        let admin = Admin::of(&broker);
        let tokens = made.map(|(token, _)| token.to_string());
        Self { folder, audit, broker: TestBroker::serving(broker), admin, tokens }
    }

    pub fn change(&self, file: &str, from: &str, to: &str) {
        let file = self.folder.path().join(file);
        let text = fs::read_to_string(&file).expect("it is there");
        assert!(text.contains(from));
        fs::write(file, text.replace(from, to)).expect("the folder is ours");
    }

    pub async fn driver(&self, instance: &str) -> Driver {
        Driver::welcomed(self.broker.channel_of(DRIVER).await, hello(instance)).await
    }

    pub async fn log_in(&self, token: &str) -> Answer {
        self.admin.post("/login", &[HTML, FORM, OURS, ORIGIN], &format!("token={token}")).await
    }

    /// Logs in, and returns what the browser sends from then on.
    pub async fn cookie(&self, token: &str) -> String {
        let answer = self.log_in(token).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
        cookie_of(&answer)
    }

    /// How many were denied for this reason, as metrics count them.
    pub async fn denials(&self, reason: &str) -> u64 {
        let authorization = bearer(&self.tokens[0]);
        let metrics = self.admin.get("/metrics", &[("authorization", &authorization)]).await.text;
        let name = format!("denials_total{{reason=\"{reason}\"}} ");
        let count = metrics.lines().find_map(|line| line.split_once(&name)).expect("it is counted");
        count.1.parse().expect("a number")
    }

    pub async fn audited(&self, event: &str) -> Vec<Value> {
        self.audit.close(Duration::from_secs(60)).await;
        let text = fs::read_to_string(self.folder.path().join("audit.log")).expect("a file");
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        lines.filter(|line: &Value| line["event"] == event).collect()
    }
}

pub fn cookie_of(answer: &Answer) -> String {
    let set = answer.headers["set-cookie"].to_str().unwrap();
    set.split(';').next().unwrap().to_owned()
}

pub fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}
