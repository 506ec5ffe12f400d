//! The page that Prometheus reads.

use std::{sync::Arc, time::SystemTime};

use axum::{
    http::header::CONTENT_TYPE,
    response::IntoResponse,
    routing::{MethodRouter, get},
};
use prometheus_client::{
    encoding::text,
    metrics::{gauge::ConstGauge, info::Info},
    registry::{self, Unit},
};

use super::{Metrics, scrape::Scrape};
use crate::inspect::Rooms;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Cheap to clone: every clone is the same page.
#[derive(Clone, Debug)]
pub struct Exposition(Arc<registry::Registry>);

impl Exposition {
    /// Of what was told to `metrics`, and of what the rooms show whenever it is read.
    pub fn new(metrics: Metrics, rooms: Arc<Rooms>) -> Self {
        let mut page = registry::Registry::default();
        page.register_with_unit(
            "process_start_time",
            "When this broker started, since the epoch",
            Unit::Seconds,
            ConstGauge::new(since_epoch()),
        );
        let ours = page.sub_registry_with_prefix("machine_broker");
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        ours.register("build", "The version of this broker", Info::new(version));
        metrics.register(ours);
        ours.register_collector(Box::new(Scrape { metrics, rooms }));
        Self(Arc::new(page))
    }

    /// All metrics as OpenMetrics text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        text::encode(&mut text, &self.0).expect("a string takes any text");
        text
    }

    /// Answers GET with the page.
    pub fn route<S: Clone + Send + Sync + 'static>(self) -> MethodRouter<S> {
        get(async move || ([(CONTENT_TYPE, OPENMETRICS)], self.text()).into_response())
    }
}

impl Metrics {
    fn register(&self, registry: &mut registry::Registry) {
        let totals = &self.0;
        totals.latencies.register(registry);
        let families = [
            ("handshakes", "Drivers let in, by protocol", &totals.handshakes),
            ("rejects", "Drivers not let in", &totals.rejects),
            ("odd_frames", "Frames of drivers that made no sense", &totals.odd_frames),
            ("class_reads", "Classes that drivers asked for", &totals.class_reads),
            ("secret_reads", "Secrets that drivers asked for", &totals.secret_reads),
            ("denials", "Callers not let in, or not to what they wanted", &totals.denials),
            ("token_reviews", "Tokens that others have to be asked about", &totals.token_reviews),
            (
                "connection_refusals",
                "Connections that were not taken, or had to go",
                &totals.connection_refusals,
            ),
            ("tls_refusals", "Connections that ended in the TLS handshake", &totals.tls_refusals),
        ];
        for (name, help, family) in families {
            registry.register(name, help, family.clone());
        }
        let help = "Connections that are open";
        registry.register("connections", help, totals.connections.clone());
        let help = "Connections on which nobody was let in so far";
        registry.register("newcomers", help, totals.newcomers.clone());
        let help = "Asked for beyond a bound, and refused";
        registry.register("beyond_bounds", help, totals.beyond_bounds.clone());
        let help = "Changes of the TLS files that could not be used";
        registry.register("tls_reload_failures", help, totals.tls_reload_failures.clone());
        let help = "Sessions that a newer one took the place of";
        registry.register("takeovers", help, totals.takeovers.clone());
    }
}

fn since_epoch() -> f64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use axum::{Router, body, body::Body, extract::Request};
    use tower::ServiceExt as _;

    use super::*;
    use crate::{
        audit::Audit,
        catalog::Static,
        operation::Ledger,
        registry::{Registry, Seating},
    };

    #[tokio::test]
    async fn the_page_is_openmetrics_from_its_type_to_its_last_line() {
        let metrics = Metrics::default();
        let registry = Registry::new(Seating::default());
        let ledger = Ledger::new(metrics.clone(), Audit::default());
        let rooms = Arc::new(Rooms::new(registry, ledger, Static::sample()));
        let page = Exposition::new(metrics, rooms);
        let router: Router = Router::new().route("/metrics", page.route());
        let request = Request::get("/metrics").body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        assert_eq!(response.headers()[CONTENT_TYPE], OPENMETRICS);
        let text = body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let text = std::str::from_utf8(&text).unwrap();
        assert!(text.ends_with("# EOF\n"), "{text}");
        let build =
            format!("machine_broker_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
        assert!(text.lines().any(|line| line == build), "{text}");
    }
}
