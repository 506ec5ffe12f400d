//! `Driver` objects and Events in a namespace of the cluster.

use std::{fmt, sync::Arc, time::Duration};

use broker_crds::driver::{Driver, GROUP, KIND, PLURAL, VERSION};
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::BoxStream};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    core::{ApiResource, DynamicObject, Status},
    runtime::{
        events::{Event, EventType, Recorder, Reporter},
        watcher::{self, watcher},
    },
};
use serde_json::json;
use tokio::time::timeout;

use super::{Cluster, trouble};
use crate::mirror::{Failed, News, Object, Resources, Seen};

/// Whose fields they are. All replicas write as one, each for the version that it saw; so each may remove
/// what another has left, and no field keeps the name of a replica that died.
const MANAGER: &str = "machine-broker";
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The drivers as objects of a namespace.
pub struct DriverObjects {
    api: Api<DynamicObject>,
    namespace: String,
    recorder: Recorder,
}

impl DriverObjects {
    /// In this namespace, or that of the pod. Events say that they are of this `replica`.
    pub fn new(cluster: &Cluster, namespace: Option<String>, replica: &str) -> Arc<Self> {
        let client = cluster.client();
        let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        let reporter =
            Reporter { controller: MANAGER.to_owned(), instance: Some(replica.to_owned()) };
        Arc::new(Self {
            api: Api::namespaced_with(client.clone(), &namespace, &resource()),
            recorder: Recorder::new(client, reporter),
            namespace,
        })
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }
}

impl Resources for DriverObjects {
    fn watch(&self) -> BoxStream<'static, Result<Seen, Failed>> {
        let mut listing = Vec::new();
        let seen = move |event| match event {
            Ok(watcher::Event::Init) => {
                listing.clear();
                None
            }
            Ok(watcher::Event::InitApply(object)) => {
                listing.push(read(object));
                None
            }
            Ok(watcher::Event::InitDone) => Some(Ok(Seen::All(std::mem::take(&mut listing)))),
            Ok(watcher::Event::Apply(object)) => Some(Ok(Seen::Changed(Box::new(read(object))))),
            Ok(watcher::Event::Delete(object)) => Some(Ok(Seen::Gone(object.name_any()))),
            Err(error) => Some(Err(of_watch(&error))),
        };
        let events = watcher(self.api.clone(), watcher::Config::default()).map(seen);
        events.filter_map(|seen| async move { seen }).boxed()
    }

    fn apply(
        &self,
        name: &str,
        version: Option<&str>,
        driver: &Driver,
    ) -> BoxFuture<'static, Result<(), Failed>> {
        let mut metadata = json!({"name": name, "namespace": self.namespace});
        if let Some(version) = version {
            metadata["resourceVersion"] = version.into();
        }
        let body = json!({
            "apiVersion": resource().api_version,
            "kind": KIND,
            "metadata": metadata,
            "spec": driver.spec,
            "status": driver.status,
        });
        let (api, name, is_update) = (self.api.clone(), name.to_owned(), version.is_some());
        let applied = async move {
            let params = PatchParams::apply(MANAGER).force();
            let applied = api.patch(&name, &params, &Patch::Apply(&body)).await;
            applied.map(drop).map_err(|error| match of(&error) {
                // It is the object that is gone, or the watch will tell.
                Failed::Missing(_) if is_update => Failed::Conflict,
                failed => failed,
            })
        };
        within(applied).boxed()
    }

    fn remove(&self, seen: &Object) -> BoxFuture<'static, Result<(), Failed>> {
        let (api, name) = (self.api.clone(), seen.name.clone());
        let preconditions = Preconditions {
            resource_version: Some(seen.version.clone()),
            uid: Some(seen.uid.clone()),
        };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let removed = async move {
            match api.delete(&name, &params).await {
                Ok(_) => Ok(()),
                Err(error) => match of(&error) {
                    Failed::Missing(_) => Ok(()),
                    failed => Err(failed),
                },
            }
        };
        within(removed).boxed()
    }

    fn tell(&self, news: &News, uid: Option<&str>) -> BoxFuture<'static, Result<(), Failed>> {
        let event = Event {
            type_: if news.warning { EventType::Warning } else { EventType::Normal },
            reason: news.reason.to_owned(),
            note: Some(news.note.clone()),
            action: news.reason.to_owned(),
            secondary: None,
        };
        let about = ObjectReference {
            api_version: Some(resource().api_version),
            kind: Some(KIND.to_owned()),
            name: Some(news.about.clone()),
            namespace: Some(self.namespace.clone()),
            uid: uid.map(ToOwned::to_owned),
            ..ObjectReference::default()
        };
        let recorder = self.recorder.clone();
        let told =
            async move { recorder.publish(&event, &about).await.map_err(|error| of(&error)) };
        within(told).boxed()
    }
}

/// It is ours, so that nobody has to be asked what it is called.
fn resource() -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        api_version: format!("{GROUP}/{VERSION}"),
        kind: KIND.to_owned(),
        plural: PLURAL.to_owned(),
    }
}

/// What cannot be read is as good as empty: the next write says it anew.
fn read(object: DynamicObject) -> Object {
    Object {
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        version: object.resource_version().unwrap_or_default(),
        driver: serde_json::from_value(object.data).unwrap_or_default(),
    }
}

async fn within<T>(answer: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    let late = |_| Err(Failed::Other(format!("no answer within {ANSWER_WITHIN:?}")));
    timeout(ANSWER_WITHIN, answer).await.unwrap_or_else(late)
}

fn of(error: &kube::Error) -> Failed {
    match error {
        kube::Error::Api(status) => of_status(status),
        other => Failed::Other(trouble::words(other)),
    }
}

fn of_status(status: &Status) -> Failed {
    let says = status.message.clone();
    match status.code {
        404 => Failed::Missing(format!(
            "install manifests/crds, and make the namespace if there is none ({says})"
        )),
        401 => Failed::Forbidden("the API server does not know who we are".to_owned()),
        403 => Failed::Forbidden(format!("let the broker's service account do so ({says})")),
        409 => Failed::Conflict,
        400 | 422 => Failed::Refused(says),
        _ => Failed::Other(says),
    }
}

fn of_watch(error: &watcher::Error) -> Failed {
    use watcher::Error::{
        InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed,
    };
    match error {
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => of(error),
        WatchError(status) => of_status(status),
        NoResourceVersion => Failed::Other(error.to_string()),
    }
}

impl fmt::Debug for DriverObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverObjects").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}
