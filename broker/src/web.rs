//! The admin port: the operators' page, its data as JSON and as events, probes and metrics.
//!
//! Nothing here changes anything: every route is read-only.

mod api;
mod events;
mod facts;
mod page;
mod probes;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    Router,
    http::{HeaderName, HeaderValue, header},
    middleware::map_response,
    response::Response,
    routing::get,
};
use tokio_util::sync::CancellationToken;

use self::events::Board;
use crate::{inspect::Rooms, metrics::Exposition};

/// The page comes in separate files, all of them from here, so that nothing else need be allowed.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    // For browsers that do not know frame-ancestors.
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Whether the broker takes work. Cheap to clone: every clone is the same.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    pub fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Release);
    }

    pub fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What every route can look at.
#[derive(Clone, Debug)]
struct Web {
    readiness: Readiness,
    rooms: Arc<Rooms>,
    board: Arc<Board>,
    /// Ends the streams of events.
    stopped: CancellationToken,
}

pub fn router(
    readiness: Readiness,
    rooms: Arc<Rooms>,
    metrics: Exposition,
    stopped: CancellationToken,
) -> Router {
    let board = Arc::new(Board::default());
    Router::new()
        .route("/", get(page::html))
        .route("/page.css", get(page::css))
        .route("/page.js", get(page::js))
        .route("/charts.js", get(page::charts))
        .route("/dom.js", get(page::dom))
        .route("/icon.svg", get(page::icon))
        .route("/api/status", get(api::status))
        .route("/api/drivers", get(api::drivers))
        .route("/api/drivers/{session}", get(api::driver))
        .route("/api/operations", get(api::operations))
        .route("/api/events", get(events::stream))
        .route("/livez", get(probes::livez))
        .route("/healthz", get(probes::livez))
        .route("/readyz", get(probes::readyz))
        .route("/metrics", metrics.route())
        .with_state(Web { readiness, rooms, board, stopped })
        .layer(map_response(secured))
}

async fn secured(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
