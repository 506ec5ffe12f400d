//! What a caller asked for, checked and resolved.

use std::{fmt, sync::Arc, time::Duration};

use broker_proto::v1;
use broker_secret::Sensitive;

use super::Trace;
use crate::{
    catalog::Class,
    driver::{DriverKey, MachineId, Verb},
};

/// A request for a driver. `Debug` leaves the user data out: it often holds credentials.
#[derive(Clone)]
pub struct Request {
    pub verb: Verb,
    pub class: Arc<Class>,
    /// What the class's merged secret is at now; 0 when the class names none.
    pub secret_revision: i32,
    pub key: DriverKey,
    /// Empty for `list` and `get_volume_ids`.
    pub machine: Arc<str>,
    pub provider_id: String,
    pub last_known_state: String,
    pub user_data: Option<Sensitive>,
    pub request_id: String,
    pub volume_specs: Vec<String>,
    /// How often it was tried, this time included.
    pub attempt: u32,
    /// What the caller's request is a part of. Those who join an operation join its trace.
    pub trace: Option<Arc<Trace>>,
    /// How old the class may be, if where it comes from was away.
    pub catalog_age: Option<Duration>,
}

impl Request {
    pub fn machine_id(&self) -> MachineId {
        MachineId {
            api_version: self.class.id.api_version.clone(),
            kind: self.class.id.kind.clone(),
            namespace: self.class.id.namespace.clone(),
            name: self.machine.clone(),
        }
    }

    /// Whether this repeats `earlier`, so that one execution answers both. The driver library decides by
    /// the same rules.
    ///
    /// What was last known of the machine may differ, and its provider id may be known by now: both
    /// grow from retry to retry.
    pub fn repeats(&self, earlier: &Request) -> bool {
        let same_provider_id = self.provider_id == earlier.provider_id
            || self.provider_id.is_empty()
            || earlier.provider_id.is_empty();
        self.verb == earlier.verb
            && self.class.id == earlier.class.id
            && self.machine == earlier.machine
            && same_provider_id
            && self.user_data == earlier.user_data
            && (self.request_id.is_empty() || self.request_id == earlier.request_id)
    }

    /// As a driver reads it, but for the time left, which is known when it is sent.
    pub fn to_params(&self, native: bool) -> v1::OperationParams {
        let id = &self.class.id;
        let historic = v1::OperationParams {
            machine_class: Some(v1::MachineClassMeta {
                name: self.class.path.clone(),
                revision: self.class.revision,
                ..Default::default()
            }),
            machine_id: self.provider_id.clone(),
            machine_name: self.machine.to_string(),
            ..Default::default()
        };
        if !native {
            return historic;
        }
        v1::OperationParams {
            class: Some(v1::ClassRef {
                api_version: id.api_version.to_string(),
                kind: id.kind.to_string(),
                namespace: id.namespace.to_string(),
                name: id.name.to_string(),
                provider: self.key.provider.as_deref().unwrap_or_default().to_owned(),
            }),
            request_id: self.request_id.clone(),
            last_known_state: self.last_known_state.clone(),
            user_data: self.user_data.as_ref().map(Sensitive::to_wire),
            volume_specs: self.volume_specs.clone(),
            secret_revision: self.secret_revision,
            traceparent: self
                .trace
                .as_ref()
                .map(|trace| trace.parent().to_owned())
                .unwrap_or_default(),
            tracestate: self
                .trace
                .as_ref()
                .map(|trace| trace.state().to_owned())
                .unwrap_or_default(),
            ..historic
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("verb", &self.verb)
            .field("class", &self.class.id)
            .field("machine", &self.machine)
            .field("request_id", &self.request_id)
            .finish_non_exhaustive()
    }
}
