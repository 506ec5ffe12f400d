//! The admin port, asked in memory.

use std::sync::Arc;

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::ConnectInfo,
    http::{HeaderMap, HeaderName, Method, Request, StatusCode, header::HOST},
    response::Response,
};
use broker::{grpc::Peer, server::Broker};
use broker_tls::PeerCertificate;
use serde_json::Value;
use tower::ServiceExt as _;

/// A client of the admin port of one broker. Cheap to clone: every clone asks the same one.
#[derive(Clone)]
pub struct Admin {
    router: Router,
    certificate: Option<Arc<PeerCertificate>>,
}

pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Admin {
    pub const HOST: &str = "127.0.0.1:8080";

    pub fn of(broker: &Broker) -> Self {
        Self { router: broker.admin(), certificate: None }
    }

    /// The same port, asked by somebody with a certificate of this URI.
    pub fn with_certificate(&self, uri: &str) -> Self {
        Self { certificate: Some(Arc::new(super::certificate(uri))), ..self.clone() }
    }

    /// Asks without waiting for the end of the answer. A `Host` is sent unless there is one.
    pub async fn open(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &str)],
        body: impl Into<Body>,
    ) -> Response {
        let mut request = Request::builder().method(method).uri(path);
        if !headers.iter().any(|(name, _)| *name == HOST.as_str()) {
            request = request.header(HOST, Self::HOST);
        }
        for (name, value) in headers {
            request = request.header(HeaderName::from_static(name), *value);
        }
        let peer = Peer { certificate: self.certificate.clone(), ..Peer::new("memory:0") };
        let request = request.extension(ConnectInfo(peer)).body(body.into()).expect("a request");
        self.router.clone().oneshot(request).await.expect("routers answer")
    }

    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        let (parts, body) = self.open(method, path, headers, body).await.into_parts();
        let bytes = to_bytes(body, usize::MAX).await.expect("it ends");
        let text = String::from_utf8(bytes.to_vec()).expect("text");
        Answer { status: parts.status, headers: parts.headers, text }
    }

    pub async fn get(&self, path: &str, headers: &[(&'static str, &str)]) -> Answer {
        self.ask(Method::GET, path, headers, Body::empty()).await
    }

    pub async fn post(&self, path: &str, headers: &[(&'static str, &str)], body: &str) -> Answer {
        self.ask(Method::POST, path, headers, body.to_owned()).await
    }
}

impl Answer {
    pub fn json(&self) -> Value {
        assert_eq!(self.headers["content-type"], "application/json", "{}", self.text);
        serde_json::from_str(&self.text).expect("it says so")
    }
}
