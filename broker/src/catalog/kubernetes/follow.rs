//! Which watches run: one for each kind that drivers serve, and one for each secret that its classes
//! name.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::info;

use super::{Kind, Kubernetes, SecretName, kinds};
use crate::auth::Territory;

/// A kind without a driver is watched for so long: most come back at once.
const LINGER: Duration = Duration::from_secs(60);
/// Drivers often come in crowds.
const CROWD: Duration = Duration::from_millis(50);

/// What drivers serve, and when that changes.
pub struct Demand {
    pub changes: watch::Receiver<()>,
    pub territory: Box<dyn Fn() -> Territory + Send>,
}

/// The watches that run.
#[derive(Default)]
struct Watches {
    kinds: HashMap<Kind, Running>,
    secrets: HashMap<SecretName, CancellationToken>,
}

struct Running {
    stop: CancellationToken,
    /// Since when no driver serves it.
    alone: Option<Instant>,
}

impl Kubernetes {
    /// Watches what is in demand until `shutdown`. Whoever made the catalog spawns this and waits for
    /// it at the end.
    pub async fn follow(self: Arc<Self>, mut demand: Demand, shutdown: CancellationToken) {
        let tasks = TaskTracker::new();
        // Ends with us, whatever the reason.
        let all = shutdown.child_token();
        let end = all.clone().drop_guard();
        let this = Arc::clone(&self);
        let stop = all.clone();
        tasks.spawn(async move { stop.run_until_cancelled(this.keep_in_touch()).await });
        let mut watches = Watches::default();
        let mut territory = Territory::default();
        loop {
            let now = (demand.territory)();
            let served: BTreeSet<Kind> = kinds(&now).collect();
            for kind in &served {
                if watches.kinds.contains_key(kind) {
                    continue;
                }
                info!(%kind, "watching machine classes");
                let (this, of, stop) = (Arc::clone(&self), kind.clone(), all.child_token());
                let running = Running { stop: stop.clone(), alone: None };
                watches.kinds.insert(kind.clone(), running);
                tasks.spawn(async move { stop.run_until_cancelled(this.watch_kind(&of)).await });
            }
            watches.leave_kinds(&served);
            // Who comes back at once finds all that was there, secrets that were deleted as well.
            let away = |kind: &Kind| !served.contains(kind) && watches.kinds.contains_key(kind);
            let lingering = territory.only(|key| away(&Kind::from(key)));
            let next = Territory::of_all([&now, &lingering].into_iter());
            if next != territory {
                self.change(|known| known.serve(next.clone()));
                territory = next;
            }
            self.follow_secrets(&mut watches, &tasks, &all);
            tokio::select! {
                () = shutdown.cancelled() => break,
                changed = demand.changes.changed() => {
                    // Who told us of drivers is gone, and they with it.
                    if changed.is_err() {
                        break;
                    }
                    sleep(CROWD).await;
                }
                () = self.references.notified() => {}
                () = sleep_until(watches.next_leave()) => {}
            }
        }
        drop(end);
        tasks.close();
        tasks.wait().await;
    }

    /// Watches the secrets that are wanted, and forgets the others.
    fn follow_secrets(
        self: &Arc<Self>,
        watches: &mut Watches,
        tasks: &TaskTracker,
        all: &CancellationToken,
    ) {
        let wanted = self.known().wanted();
        watches.secrets.retain(|name, stop| {
            let stays = wanted.contains(name);
            if !stays {
                stop.cancel();
            }
            stays
        });
        for name in &wanted {
            if watches.secrets.contains_key(name) {
                continue;
            }
            let (this, of, stop) = (Arc::clone(self), name.clone(), all.child_token());
            watches.secrets.insert(name.clone(), stop.clone());
            tasks.spawn(async move { stop.run_until_cancelled(this.watch_secret(&of)).await });
        }
        let mut known = self.known();
        if known.forget_others(&wanted) {
            self.store.publish(known.snapshot());
        }
    }
}

impl Watches {
    /// Ends the watches of kinds that have had no driver for long.
    fn leave_kinds(&mut self, served: &BTreeSet<Kind>) {
        self.kinds.retain(|kind, running| {
            if served.contains(kind) {
                running.alone = None;
                return true;
            }
            let since = *running.alone.get_or_insert_with(Instant::now);
            let stays = since.elapsed() < LINGER;
            if !stays {
                info!(%kind, "no driver serves it any more: no longer watching machine classes");
                running.stop.cancel();
            }
            stays
        });
    }

    fn next_leave(&self) -> Instant {
        let alone = self.kinds.values().filter_map(|running| running.alone);
        alone.min().unwrap_or_else(Instant::now) + LINGER
    }
}

impl fmt::Debug for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Demand").finish_non_exhaustive()
    }
}
