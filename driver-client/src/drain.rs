//! The signals that stop a driver.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::warn;

/// SIGTERM and SIGINT, if they are to be listened to.
pub(crate) struct Signals {
    terminate: Option<Signal>,
    interrupt: Option<Signal>,
}

impl Signals {
    pub(crate) fn new(listen: bool) -> Self {
        let open = |kind| match signal(kind) {
            Ok(signal) => Some(signal),
            Err(error) => {
                warn!(%error, "cannot listen to a signal");
                None
            }
        };
        let open = |kind| if listen { open(kind) } else { None };
        Self { terminate: open(SignalKind::terminate()), interrupt: open(SignalKind::interrupt()) }
    }

    /// Waits for the next signal; for ever if there is none to wait for.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            () = receive(&mut self.terminate) => "SIGTERM",
            () = receive(&mut self.interrupt) => "SIGINT",
        }
    }
}

async fn receive(signal: &mut Option<Signal>) {
    if let Some(signal) = signal
        && signal.recv().await.is_some()
    {
        return;
    }
    std::future::pending().await
}
