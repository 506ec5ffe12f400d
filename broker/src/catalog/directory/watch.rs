//! The task that notices changes in the folder.

use std::{path::Path, sync::Arc, time::Duration};

use notify::{
    EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};
use tokio::{
    sync::Notify,
    task::spawn_blocking,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use super::Directory;

/// Writers are given this long to finish a burst of changes…
const QUIET: Duration = Duration::from_millis(100);
/// …but a folder that never rests is read nevertheless.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often to look without being notified.
const RESCAN: Duration = Duration::from_secs(30);
/// The same while there are no notifications at all.
const RESCAN_BLIND: Duration = Duration::from_secs(5);

impl Directory {
    /// Keeps the catalog up to date with the folder until `shutdown`. Whoever opened the directory
    /// spawns this and waits for it at the end.
    pub async fn watch(self: Arc<Self>, shutdown: CancellationToken) {
        let nudge = Arc::new(Notify::new());
        let mut watcher = None;
        let mut notified = true;
        let mut complained = false;
        loop {
            // Watched first and read then, so that no change falls between the two.
            if watcher.is_none() {
                match self.clone().start(nudge.clone()).await {
                    Ok(started) => watcher = Some(started),
                    Err(error) if !complained => {
                        warn!(%error, every = ?RESCAN_BLIND, "no file notification; looking regularly");
                        complained = true;
                    }
                    Err(_) => {}
                }
            }
            if self.clone().reload_aside().await && !notified && watcher.is_some() {
                // Perhaps the folder itself was exchanged, and the old one is still watched.
                debug!("the catalog changed without notification; watching anew");
                watcher = None;
                notified = true;
                continue;
            }
            let pause = if watcher.is_some() { RESCAN } else { RESCAN_BLIND };
            notified = tokio::select! {
                () = shutdown.cancelled() => return,
                () = rest(&nudge) => true,
                () = sleep(pause) => false,
            };
        }
    }

    async fn start(self: Arc<Self>, nudge: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
        // Walks through the folder, so it is not for this thread.
        let started = spawn_blocking(move || start(&self.root, nudge)).await;
        started.unwrap_or_else(|panic| Err(notify::Error::generic(&panic.to_string())))
    }

    async fn reload_aside(self: Arc<Self>) -> bool {
        spawn_blocking(move || self.reload()).await.unwrap_or_else(|error| {
            error!(%error, "reading the catalog failed; what was read before stays in force");
            false
        })
    }
}

/// Waits until something has happened, and then nothing for a moment.
async fn rest(nudge: &Notify) {
    nudge.notified().await;
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end && timeout(QUIET, nudge.notified()).await.is_ok() {}
}

pub(super) fn start(root: &Path, nudge: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // An error may stand for lost events.
        if event.is_ok_and(|event| !matters(event.kind)) {
            return;
        }
        nudge.notify_one();
    })?;
    watcher.watch(root, RecursiveMode::Recursive)?;
    Ok(watcher)
}

/// Reading is not a change: if it were, each reload would be the reason for the next.
fn matters(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        _ => true,
    }
}
