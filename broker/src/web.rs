//! The admin port: the operators' page, its data as JSON and as events, probes and metrics.
//!
//! With a policy only operators get to see more than probes and plain files, and those who may steer
//! can drain and evict. Without one everybody can look, if only under an address of ours, and nobody can
//! change anything.

mod api;
mod entrance;
mod events;
mod facts;
mod login;
mod origin;
mod page;
mod probes;
mod sessions;
mod steer;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    extract::{DefaultBodyLimit, State},
    http::{HeaderName, HeaderValue, header},
    middleware::{from_fn_with_state, map_response_with_state},
    response::Response,
    routing::{get, post},
};
use tokio_util::sync::CancellationToken;

use self::{entrance::Entrance, events::Board, login::Failures, sessions::Sessions};
use crate::{
    bounds::Refusals,
    inspect::Rooms,
    metrics::{Exposition, Metrics},
};

/// The page comes in separate files, all of them from here, so that nothing else need be allowed.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'self'; \
                      frame-ancestors 'none'";
const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // Others learn nothing; with no-referrer our own forms could not say where they come from.
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
    // For browsers that do not know frame-ancestors.
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];
/// With TLS: browsers are not to come without it for half a year.
const ONLY_TLS: HeaderValue = HeaderValue::from_static("max-age=15768000");
/// The longest that anybody has to send us.
const MAX_BODY: usize = 16 * 1024;
/// How long they may take.
const BODY_WITHIN: Duration = Duration::from_secs(10);

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
    entrance: Entrance,
    failures: Failures,
    /// Ends the streams of events.
    stopped: CancellationToken,
}

/// Every request has to come with a `ConnectInfo` of its [`Peer`](crate::grpc::Peer).
pub fn router(
    readiness: Readiness,
    rooms: Arc<Rooms>,
    (metrics, exposition): (Metrics, Exposition),
    refusals: Refusals,
    stopped: CancellationToken,
) -> Router {
    let entrance = Entrance {
        auth: rooms.auth.clone(),
        audit: rooms.audit.clone(),
        metrics,
        refusals,
        sessions: Sessions::default(),
    };
    let (board, failures) = (Arc::new(Board::default()), Failures::default());
    let web = Web { readiness, rooms, board, entrance, failures, stopped };
    let guarded = Router::new()
        .route("/", get(page::html))
        .route("/api/me", get(steer::me))
        .route("/api/status", get(api::status))
        .route("/api/drivers", get(api::drivers))
        .route("/api/drivers/{session}", get(api::driver))
        .route("/api/drivers/{session}/drain", post(steer::drain))
        .route("/api/drivers/{session}/evict", post(steer::evict))
        .route("/api/operations", get(api::operations))
        .route("/api/events", get(events::stream))
        .route("/metrics", exposition.route())
        .route_layer(from_fn_with_state(web.clone(), entrance::let_in));
    // Nothing in these tells of anything but this version, and of whether the broker takes work.
    let open = Router::new()
        .route("/page.css", get(page::css))
        .route("/page.js", get(page::js))
        .route("/charts.js", get(page::charts))
        .route("/dom.js", get(page::dom))
        .route("/steer.js", get(page::steer))
        .route("/icon.svg", get(page::icon))
        .route("/login", get(login::form).post(login::log_in))
        .route("/logout", post(login::log_out))
        .route("/livez", get(probes::livez))
        .route("/healthz", get(probes::livez))
        .route("/readyz", get(probes::readyz));
    guarded
        .merge(open)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(map_response_with_state(web.clone(), secured))
        .with_state(web)
}

async fn secured(State(web): State<Web>, mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if web.entrance.has_tls() {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, ONLY_TLS);
    }
    response
}
