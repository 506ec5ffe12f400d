//! The way out, always on time.

use std::time::Duration;

use anyhow::Context as _;
use tokio::{
    signal::unix::{Signal, SignalKind, signal as on},
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use super::Broker;
use crate::{children::leash, session::End};

/// How long those that have nothing left to do may take to go.
pub(super) const LAST_MOMENT: Duration = Duration::from_secs(2);
/// The longest time between two drivers that move.
const LONGEST_STEP: Duration = Duration::from_millis(100);

impl Broker {
    /// Stops in order:
    ///
    /// 1. Not ready, no new operations, no new drivers.
    /// 2. Drivers are told to move to another replica, not all at once.
    /// 3. Running operations finish, for at most `grace`.
    /// 4. Drivers that understood leave; the sessions of all others end, and whoever still waits is
    ///    told how far its operation got.
    /// 5. Driver programs that we started are told to end, and made to if they don't.
    pub async fn stop(&self, grace: Duration) {
        let by = Instant::now() + grace;
        self.readiness.set(false);
        self.dispatcher.stop();
        self.drivers.closing.cancel();
        let sessions = self.registry.sessions();
        tracing::info!(drivers = sessions.len(), ?grace, "stopping");
        let count = u32::try_from(sessions.len()).unwrap_or(u32::MAX);
        let step = (grace / 2 / count.max(1)).min(LONGEST_STEP);
        for (turn, session) in (0u32..).zip(&sessions) {
            session.drain("the broker is stopping", step * turn);
        }
        if timeout_at(by, self.dispatcher.ledger().idle()).await.is_err() {
            let unfinished = self.dispatcher.ledger().running().len();
            tracing::warn!(unfinished, "the grace time is over before the operations were");
        }
        // A driver that leaves by itself knows that its last answers were read.
        let moved = self.registry.left(|session| session.is_native());
        if timeout_at(by.min(Instant::now() + step * count + LAST_MOMENT), moved).await.is_err() {
            tracing::info!("not all drivers have left");
        }
        for session in self.registry.sessions() {
            session.end(End::ShutDown);
        }
        self.drivers.sessions.close();
        if timeout(LAST_MOMENT, self.drivers.sessions.wait()).await.is_err() {
            tracing::warn!(late = self.drivers.sessions.len(), "sessions did not end in time");
        }
        self.stopped.cancel();
        self.tasks.close();
        if timeout(leash::GRACE + LAST_MOMENT, self.tasks.wait()).await.is_err() {
            tracing::warn!(late = self.tasks.len(), "tasks did not end in time");
        }
    }
}

/// Waits a moment for servers that were told to stop. One that waits for a peer that never finishes is
/// ended, so that the process ends on time.
pub(super) async fn end_of(mut servers: JoinSet<anyhow::Result<()>>) {
    let all = async {
        while let Some(ended) = servers.join_next().await {
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!("{error:#}"),
                Err(panic) => tracing::error!("{panic}"),
            }
        }
    };
    if timeout(LAST_MOMENT, all).await.is_err() {
        tracing::debug!("a peer keeps its connection open");
    }
}

/// A SIGHUP each; from now on it does not end the process.
pub fn hangups() -> anyhow::Result<Signal> {
    on(SignalKind::hangup()).context("cannot listen for SIGHUP")
}

/// Returns on SIGTERM or Ctrl-C.
pub fn signal() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = on(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = on(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
