//! The watch of one kind.

use std::{
    pin::pin,
    time::{Duration, SystemTime},
};

use futures::StreamExt as _;
use kube::{
    Api,
    core::{ApiResource, DynamicObject, GroupVersionKind},
    discovery,
    runtime::watcher::{self, Event, watcher},
};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use super::{Kind, Kubernetes, object, trouble::Trouble};
use crate::backoff::{Backoff, Pace};

/// A page of the list may be large and the API server busy.
const LIST_WITHIN: Duration = Duration::from_secs(60);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// A CRD that was installed, and rights that were granted, are noticed soon.
pub(super) const PACE: Pace = Pace {
    first: Duration::from_millis(500),
    longest: Duration::from_secs(10),
    well_after: Duration::from_secs(30),
};

impl Kubernetes {
    /// Keeps the classes of a kind up to date, for ever.
    pub(super) async fn watch_kind(&self, kind: &Kind) {
        let mut backoff = Backoff::new(PACE);
        loop {
            let started = Instant::now();
            let trouble = match self.discover(kind).await {
                Ok(resource) => self.watch_resource(kind, resource, &mut backoff).await,
                Err(trouble) => trouble,
            };
            self.note(kind, &trouble);
            sleep(backoff.next(started.elapsed())).await;
        }
    }

    /// What the API server calls the kind: its plural is not to be guessed.
    async fn discover(&self, kind: &Kind) -> Result<ApiResource, Trouble> {
        let (group, version) = kind.api_version.split_once('/').unwrap_or(("", &kind.api_version));
        let gvk = GroupVersionKind::gvk(group, version, &kind.kind);
        // It is never closed.
        let _place = self.requests.acquire().await;
        match timeout(ANSWER_WITHIN, discovery::pinned_kind(&self.client, &gvk)).await {
            Ok(Ok((resource, _))) => Ok(resource),
            Ok(Err(error)) => Err((&error).into()),
            Err(_) => Err(Trouble::slow(ANSWER_WITHIN)),
        }
    }

    /// Follows the objects until the API server says that there are none for us.
    async fn watch_resource(
        &self,
        kind: &Kind,
        resource: ApiResource,
        backoff: &mut Backoff,
    ) -> Trouble {
        let api = Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        let mut events = pin!(watcher(api, watcher::Config::default()));
        let read = |object| object::class(kind, &resource.plural, object);
        let mut listing = Vec::new();
        let mut listed = false;
        let mut well_since = Instant::now();
        loop {
            let event = match timeout(LIST_WITHIN, events.next()).await {
                Ok(Some(event)) => event,
                // The watcher itself minds a watch that falls silent.
                Err(_) if listed => continue,
                Ok(None) | Err(_) => return Trouble::slow(LIST_WITHIN),
            };
            match event {
                Ok(Event::Init) => {
                    listing.clear();
                    listed = false;
                }
                Ok(Event::InitApply(object)) => listing.push(read(object)),
                Ok(Event::InitDone) => {
                    listed = true;
                    let classes = std::mem::take(&mut listing);
                    info!(%kind, classes = classes.len(), "machine classes read");
                    self.change(|known| known.listed(kind, classes, SystemTime::now()));
                }
                Ok(Event::Apply(object)) => {
                    self.change(|known| known.put(kind, read(object)));
                }
                Ok(Event::Delete(object)) => {
                    let id = object::id(kind, &object);
                    info!(class = %id, "machine class deleted; kept so that its machines can be");
                    self.change(|known| known.deleted(&id, kind, SystemTime::now()));
                }
                Err(error) => {
                    let trouble = Trouble::from(&error);
                    debug!(%kind, %error, "watch broken");
                    if matches!(trouble, Trouble::Unknown | Trouble::Forbidden(_)) {
                        return trouble;
                    }
                    // A watch that is resumed has missed nothing, and that the API server is away is
                    // told once for all.
                    if !listed {
                        self.note(kind, &trouble);
                    }
                    sleep(backoff.next(well_since.elapsed())).await;
                    well_since = Instant::now();
                }
            }
        }
    }

    fn note(&self, kind: &Kind, trouble: &Trouble) {
        let trouble = trouble.of_kind(kind);
        let is_news = self.change(|known| {
            let is_news = known.reading(kind).trouble() != Some(&trouble);
            known.troubled(kind, trouble.clone());
            is_news
        });
        if is_news {
            warn!(%kind, trouble, "machine classes cannot be read");
        }
    }
}
