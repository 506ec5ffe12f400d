//! One broker address: dial, hello, serve until it breaks, wait, dial again.
//!
//! If another address leads to the same replica, there is nothing to do here until that one's session is
//! over.

mod handshake;
mod mailbox;
mod outbox;
mod session;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use broker_proto::v1 as wire;
use broker_tls::Tls;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, debug, info, info_span, warn};

pub(crate) use self::handshake::Rejection;
use self::{
    handshake::Failure,
    session::{End, Session, Why},
};
use crate::{
    backoff::Backoff,
    classes::Classes,
    dial::{Credentials, Dial},
    executor::Executor,
    fleet::{Fleet, Target},
    operations::{AddressId, Owed},
};

/// What all connections of a driver share.
pub(crate) struct Shared {
    pub(crate) executor: Arc<Executor>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) registration: wire::Registration,
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) tls: Tls,
    pub(crate) credentials: Credentials,
    /// Some broker welcomed us before.
    pub(crate) met: AtomicBool,
    /// Finish what runs, then leave.
    pub(crate) drain: CancellationToken,
    /// Leave now.
    pub(crate) stop: CancellationToken,
}

pub(crate) struct Connection {
    shared: Arc<Shared>,
    address: AddressId,
    target: Target,
    classes: Arc<Classes>,
    backoff: Backoff,
    /// The replica that was here last.
    replica: String,
    draining_since: Option<Instant>,
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// The driver stops.
    Stopped,
    /// Nobody names the address any more.
    Unwanted,
}

/// How long a stopping driver looks for a broker to take its last reports.
const LAST_REPORTS: Duration = Duration::from_secs(10);
/// When we come back to a broker that asked us to leave; up to twice as long, at random.
const RETURN_AFTER_DRAIN: Duration = Duration::from_secs(1);

impl Connection {
    pub(crate) fn new(shared: Arc<Shared>, address: AddressId, target: Target) -> Self {
        let classes = Arc::new(Classes::of(shared.fleet.clone(), address));
        Self {
            shared,
            address,
            target,
            classes,
            backoff: Backoff::default(),
            replica: String::new(),
            draining_since: None,
        }
    }

    /// Keeps a session to the broker until the driver stops, nobody wants it any more, or the broker
    /// rejects it for good.
    pub(crate) async fn run(mut self) -> Result<Over, Rejection> {
        let span = info_span!("broker", address = %self.target.address);
        async {
            while !self.is_over() {
                if !self.is_wanted() {
                    return Ok(Over::Unwanted);
                }
                let pause = self.attempt().await?;
                self.pause(pause).await;
                self.step_back().await;
            }
            Ok(Over::Stopped)
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

    /// A driver that stops has its last reports to give, wanted or not.
    fn is_wanted(&self) -> bool {
        self.shared.drain.is_cancelled() || self.shared.fleet.wants(self.address)
    }

    /// Sleeps, but not over the moment at which the driver stops.
    async fn pause(&self, pause: Duration) {
        tokio::select! {
            () = sleep(pause) => {}
            () = self.interrupted() => {}
        }
    }

    /// Waits while another address leads to the replica that is here.
    async fn step_back(&self) {
        if self.shared.fleet.held_besides(self.address).contains(&self.replica) {
            debug!(replica = self.replica, "another address leads to this replica, too");
            tokio::select! {
                () = self.shared.fleet.released(&self.replica, self.address) => {}
                () = self.interrupted() => {}
            }
        }
    }

    /// Returns when there is something else to do than to wait.
    async fn interrupted(&self) {
        let draining = self.shared.drain.is_cancelled();
        tokio::select! {
            () = self.shared.drain.cancelled(), if !draining => {}
            () = self.shared.fleet.unwanted(self.address), if !draining => {}
            () = self.shared.stop.cancelled() => {}
        }
    }

    /// One session from dial to end. Returns how long to wait before the next.
    async fn attempt(&mut self) -> Result<Duration, Rejection> {
        let draw = rand::random::<f64>();
        let opened = tokio::select! {
            opened = handshake::open(&self.shared, self.address, &self.target) => opened,
            // Whether it is still worth dialling is for the caller to see.
            () = self.interrupted() => return Ok(Duration::ZERO),
        };
        let opened = match opened {
            Ok(opened) => opened,
            Err(Failure::Rejected(rejection)) if !rejection.retryable => return Err(rejection),
            Err(Failure::Rejected(rejection)) if rejection.is_connected() => {
                self.replica = rejection.replica;
                return Ok(self.backoff.next(Duration::ZERO, draw));
            }
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
        self.shared.met.store(true, Ordering::Release);
        let began = Instant::now();
        let wire::Welcome { session_id, replica_id, .. } = opened.welcome.clone();
        self.classes.connect(opened.link.clone());
        if !self.replica.is_empty() && self.replica != replica_id {
            info!(before = self.replica, "another replica is at this address");
        }
        info!(session = session_id, replica = replica_id, "session open");
        self.replica = replica_id;
        let (address, target) = (self.address, &self.target);
        self.shared.fleet.opened(address, target, &opened.welcome, opened.link);
        let (classes, mailbox) = (self.classes.clone(), opened.mailbox);
        let dead_after = opened.dead_after;
        let session = Session::new(&self.shared, address, target, classes, mailbox, dead_after);
        let end = session.run(opened.inbound).await;
        self.shared.fleet.closed(self.address);
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
        self.shared.fleet.closed(self.address);
        self.classes.disconnect();
    }
}
