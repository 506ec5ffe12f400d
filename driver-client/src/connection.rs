//! One broker address: dial, hello, serve until it breaks, wait, dial again.

mod handshake;
mod outbox;
mod session;

use std::{sync::Arc, time::Duration};

use broker_proto::v1 as wire;
use broker_tls::Tls;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, info, info_span, warn};

pub(crate) use self::handshake::Rejection;
use self::{
    handshake::Failure,
    session::{End, Session, Why},
};
use crate::{
    backoff::Backoff,
    classes::{Classes, Link},
    dial::{Credentials, Dial},
    executor::Executor,
    operations::{AddressId, Owed},
};

/// What all connections of a driver share.
pub(crate) struct Shared {
    pub(crate) executor: Arc<Executor>,
    pub(crate) registration: wire::Registration,
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) tls: Tls,
    pub(crate) credentials: Credentials,
    /// Finish what runs, then leave.
    pub(crate) drain: CancellationToken,
    /// Leave now.
    pub(crate) stop: CancellationToken,
}

pub(crate) struct Connection {
    shared: Arc<Shared>,
    address: AddressId,
    url: String,
    classes: Arc<Classes>,
    backoff: Backoff,
    /// This broker welcomed us before.
    returning: bool,
    draining_since: Option<Instant>,
}

/// How long a stopping driver looks for a broker to take its last reports.
const LAST_REPORTS: Duration = Duration::from_secs(10);
/// When we come back to a broker that asked us to leave; up to twice as long, at random.
const RETURN_AFTER_DRAIN: Duration = Duration::from_secs(1);

impl Connection {
    pub(crate) fn new(shared: Arc<Shared>, address: AddressId, url: String) -> Self {
        let classes = Arc::new(Classes::new());
        Self {
            shared,
            address,
            url,
            classes,
            backoff: Backoff::default(),
            returning: false,
            draining_since: None,
        }
    }

    /// Keeps a session to the broker until the driver stops, or the broker rejects it for good.
    pub(crate) async fn run(mut self) -> Result<(), Rejection> {
        let span = info_span!("broker", address = %self.url);
        async {
            while !self.is_over() {
                let pause = self.attempt().await?;
                self.pause(pause).await;
            }
            Ok(())
        }
        .instrument(span)
        .await
    }

    /// Whether the driver stops and has nothing more to tell this broker. While operations run it
    /// is worth dialling, for their answers; for those that ended it is for a short time.
    fn is_over(&mut self) -> bool {
        if !self.shared.drain.is_cancelled() {
            return false;
        }
        let since = *self.draining_since.get_or_insert_with(Instant::now);
        let owed = match self.shared.executor.owes(self.address) {
            Owed::Nothing => false,
            Owed::Reports => since.elapsed() < LAST_REPORTS,
            Owed::Running => true,
        };
        !owed || self.shared.stop.is_cancelled()
    }

    /// Sleeps, but not over the moment at which the driver stops.
    async fn pause(&self, pause: Duration) {
        let draining = self.shared.drain.is_cancelled();
        tokio::select! {
            () = sleep(pause) => {}
            () = self.shared.drain.cancelled(), if !draining => {}
            () = self.shared.stop.cancelled() => {}
        }
    }

    /// One session from dial to end. Returns how long to wait before the next.
    async fn attempt(&mut self) -> Result<Duration, Rejection> {
        let draw = rand::random::<f64>();
        let draining = self.shared.drain.is_cancelled();
        let opened = tokio::select! {
            opened = handshake::open(&self.shared, self.address, &self.url, self.returning) => opened,
            // Whether it is still worth dialling is for the caller to see.
            () = self.shared.drain.cancelled(), if !draining => return Ok(Duration::ZERO),
            () = self.shared.stop.cancelled() => return Ok(Duration::ZERO),
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(Failure::Rejected(rejection)) if !rejection.retryable => return Err(rejection),
            Err(failure) => {
                let wait = self.backoff.next(Duration::ZERO, draw);
                // Never before the broker's time, and not all at that time either; but not much later, lest
                // one that waits outside misses the start of the next broker process.
                let after = failure.retry_after().unwrap_or_default();
                let wait = wait.max(after + wait.min(after));
                warn!(%failure, ?wait, "no session");
                return Ok(wait);
            }
        };
        self.returning = true;
        let began = Instant::now();
        let session_token = opened.session_token.clone();
        self.classes.connect(Link { client: opened.client.clone(), session_token });
        info!(session = opened.session_id, replica = opened.replica_id, "session open");
        let session =
            Session::new(&self.shared, self.address, self.classes.clone(), opened.dead_after);
        let end = session.run(opened.inbound, opened.outbound).await;
        self.classes.disconnect();
        let wait = match &end {
            End::Left { why: Why::Drained, .. } => RETURN_AFTER_DRAIN.mul_f64(1.0 + draw),
            _ => self.backoff.next(began.elapsed(), draw),
        };
        info!(%end, ?wait, "session over");
        Ok(wait)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.classes.disconnect();
    }
}
