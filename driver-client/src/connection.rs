//! One broker address: dial, hello, serve until it breaks, wait, dial again.

mod handshake;
mod outbox;
mod session;

use std::{sync::Arc, time::Duration};

use broker_proto::v1 as wire;
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
    dial::{Bearer, Dial},
    executor::Executor,
    operations::AddressId,
};

/// What all connections of a driver share.
pub(crate) struct Shared {
    pub(crate) executor: Arc<Executor>,
    pub(crate) registration: wire::Registration,
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) bearer: Bearer,
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
}

/// A session the broker told to drain comes back after this, if the broker named no time.
const RETURN_AFTER_DRAIN: Duration = Duration::from_secs(1);

impl Connection {
    pub(crate) fn new(shared: Arc<Shared>, address: AddressId, url: String) -> Self {
        let classes = Arc::new(Classes::new());
        Self { shared, address, url, classes, backoff: Backoff::default() }
    }

    /// Keeps a session to the broker until the driver stops, or the broker rejects it for good.
    pub(crate) async fn run(mut self) -> Result<(), Rejection> {
        let span = info_span!("broker", address = %self.url);
        async {
            while !self.is_over() {
                let pause = tokio::select! {
                    biased;
                    () = self.shared.stop.clone().cancelled_owned() => break,
                    pause = self.attempt() => pause?,
                };
                self.pause(pause).await;
            }
            Ok(())
        }
        .instrument(span)
        .await
    }

    /// Draining, and nothing left to tell this broker. With something left it is worth dialling.
    fn is_over(&self) -> bool {
        self.shared.stop.is_cancelled()
            || (self.shared.drain.is_cancelled() && !self.shared.executor.owes(self.address))
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
        let opened = match handshake::open(&self.shared, &self.url).await {
            Ok(opened) => opened,
            Err(Failure::Rejected(rejection)) if !rejection.retryable => return Err(rejection),
            Err(failure) => {
                let wait = self.backoff.next(Duration::ZERO, draw);
                // Never before the broker's time, and not all at that time either.
                let wait = failure.retry_after().map_or(wait, |after| after + wait);
                warn!(%failure, ?wait, "no session");
                return Ok(wait);
            }
        };
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
