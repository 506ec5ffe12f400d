//! Notes when a driver's health changes: it is computed whenever somebody looks, so somebody has to.

use std::{collections::HashMap, mem::discriminant, time::Duration};

use tokio::time::interval;
use tokio_util::sync::CancellationToken;

use crate::{
    registry::{Registry, What},
    session::Health,
};

const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(super) async fn health(registry: Registry, stopped: CancellationToken) {
    let mut known = HashMap::new();
    let mut looks = interval(LOOK_EVERY);
    while stopped.run_until_cancelled(looks.tick()).await.is_some() {
        let mut now = HashMap::new();
        for session in registry.sessions() {
            let (info, health) = (session.info(), session.health());
            let before = known.remove(&info.id).unwrap_or(Health::Ready);
            if discriminant(&before) != discriminant(&health) {
                let (what, why) = match health {
                    Health::Ready => (What::Ready, ""),
                    Health::Suspect(why) => (What::Suspect, why),
                    Health::Draining(why) => (What::Draining, why),
                };
                let (id, driver) = (info.id, &info.instance);
                tracing::info!(session = %id, %driver, state = what.as_str(), why, "driver changed");
                registry.history().note(what, why, Some(id), driver);
            }
            now.insert(info.id, health);
        }
        known = now;
    }
}
