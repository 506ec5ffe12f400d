//! Keeps the certificates in force up to date with their files.

use std::time::Duration;

use broker_tls::{Server, server::Look};
use tokio::{task::spawn_blocking, time::interval};
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// A new certificate is in force when it was seen twice.
const LOOK_EVERY: Duration = Duration::from_secs(5);

pub(super) async fn follow(tls: Server, metrics: Metrics, stopped: CancellationToken) {
    metrics.tls_certificate(tls.certificate().not_after);
    let mut looks = interval(LOOK_EVERY);
    while stopped.run_until_cancelled(looks.tick()).await.is_some() {
        let files = tls.clone();
        // The file system may be slow, or hang.
        let Ok(look) = spawn_blocking(move || files.look()).await else { continue };
        match look {
            Look::Same => {}
            Look::Changed => {
                let certificate = tls.certificate();
                metrics.tls_certificate(certificate.not_after);
                let until = humantime::format_rfc3339_seconds(certificate.not_after);
                tracing::info!(%until, "TLS files read again; new connections get the new ones");
            }
            Look::Failed(problem) => {
                metrics.tls_reload_failed();
                tracing::error!(%problem, "the TLS files are not good; those before stay in force");
            }
        }
    }
}
