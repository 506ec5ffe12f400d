//! The watch of one secret.
//!
//! It is read by its name and then watched by its name, so that rights to get and watch are enough, and
//! no other secret of the namespace ever comes to us.

use std::{
    pin::pin,
    time::{Duration, SystemTime},
};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1 as core;
use kube::{
    Api,
    api::WatchParams,
    core::{ApiResource, DynamicObject, WatchEvent},
};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use super::{Kubernetes, SecretName, classes::PACE, object, trouble::Trouble};
use crate::backoff::Backoff;

const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// After so long the API server ends the watch, and the secret is read anew.
const WATCH_FOR: Duration = Duration::from_secs(290);
/// The version that we have is too old to watch from.
const EXPIRED: u16 = 410;

/// Where a watch begins.
#[derive(Clone, Copy, Debug)]
enum Start {
    /// At the version that was read, so that nothing is missed.
    Version,
    /// At what there is. A secret that has not changed for long has a version that the API server may not
    /// remember, however often it is read.
    Now,
}

/// How a watch ended.
#[derive(Clone, Copy, Debug)]
enum End {
    /// As each does after a while.
    InTime,
    /// The version is too old.
    Expired,
}

impl Kubernetes {
    /// Keeps a secret up to date, for ever.
    pub(super) async fn watch_secret(&self, name: &SecretName) {
        let resource = ApiResource::erase::<core::Secret>(&());
        let api = Api::namespaced_with(self.client.clone(), &name.namespace, &resource);
        let mut backoff = Backoff::new(PACE);
        let mut from = Start::Version;
        loop {
            let started = Instant::now();
            match self.follow_secret(&api, name, from).await {
                Ok(End::InTime) => from = Start::Version,
                Ok(End::Expired) => from = Start::Now,
                Err(trouble) => self.secret_troubled(name, &trouble),
            }
            // However it ended: one that ends at once must not begin at once.
            sleep(backoff.next(started.elapsed())).await;
        }
    }

    fn secret_troubled(&self, name: &SecretName, trouble: &Trouble) {
        debug!(secret = %name, ?trouble, "watch broken");
        // What is known already goes on; that the API server is away is told once for all.
        let is_known = self.store_has(name);
        if !is_known || matches!(trouble, Trouble::Forbidden(_)) {
            let trouble = trouble.of_secret(name);
            warn!(secret = %name, trouble, "secret cannot be read");
            self.change(|known| known.secret_troubled(name, trouble));
        }
    }

    /// Reads it once and follows it until the watch ends in good order.
    async fn follow_secret(
        &self,
        api: &Api<DynamicObject>,
        name: &SecretName,
        from: Start,
    ) -> Result<End, Trouble> {
        let found = self.get_secret(api, name).await?;
        // From no version, a watch begins with what there is by then.
        let version = match from {
            Start::Version => found.as_ref().and_then(|o| o.metadata.resource_version.clone()),
            Start::Now => None,
        };
        let version = version.unwrap_or_default();
        self.learn(name, found);

        let only = format!("metadata.name={}", name.name);
        let params = WatchParams::default().fields(&only).timeout(WATCH_FOR.as_secs() as u32);
        let events = {
            let _place = self.requests.acquire().await;
            within(api.watch(&params, &version)).await?
        };
        if let Start::Now = from {
            // It may have been deleted before the watch began.
            self.learn(name, self.get_secret(api, name).await?);
        }
        let mut events = pin!(events);
        let silent = WATCH_FOR + ANSWER_WITHIN;
        while let Some(event) =
            timeout(silent, events.next()).await.map_err(|_| Trouble::slow(silent))?
        {
            match event.map_err(|error| Trouble::from(&error))? {
                WatchEvent::Added(secret) | WatchEvent::Modified(secret) => {
                    self.learn(name, Some(secret));
                }
                WatchEvent::Deleted(_) => self.learn(name, None),
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) if status.code == EXPIRED => return Ok(End::Expired),
                WatchEvent::Error(status) => return Err((&*status).into()),
            }
        }
        Ok(End::InTime)
    }

    async fn get_secret(
        &self,
        api: &Api<DynamicObject>,
        name: &SecretName,
    ) -> Result<Option<DynamicObject>, Trouble> {
        // It is never closed.
        let _place = self.requests.acquire().await;
        within(api.get_opt(&name.name)).await
    }

    fn learn(&self, name: &SecretName, found: Option<DynamicObject>) {
        let exists = found.is_some();
        self.change(|known| known.secret(name, found.map(object::secret), SystemTime::now()));
        debug!(secret = %name, exists, "secret read");
        if !exists && self.store_has(name) {
            info!(secret = %name, "secret deleted; kept so that machines can be deleted");
        }
    }

    fn store_has(&self, name: &SecretName) -> bool {
        use super::Catalog as _;
        self.store.secret(name).is_some()
    }
}

async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, Trouble> {
    match timeout(ANSWER_WITHIN, call).await {
        Ok(result) => result.map_err(|error| Trouble::from(&error)),
        Err(_) => Err(Trouble::slow(ANSWER_WITHIN)),
    }
}
