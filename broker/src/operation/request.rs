//! What a caller asked for, checked and resolved.

use std::{fmt, sync::Arc, time::Duration};

use broker_proto::passing::{Native, Parts};
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
    pub key: Arc<DriverKey>,
    /// Its name is empty for `list` and `get_volume_ids`.
    pub machine: MachineId,
    pub words: Arc<Words>,
    /// How often it was tried, this time included.
    pub attempt: u32,
    /// What the caller's request is a part of. Those who join an operation join its trace.
    pub trace: Option<Arc<Trace>>,
    /// How old the class may be, if where it comes from was away.
    pub catalog_age: Option<Duration>,
}

/// What the caller says for the driver to hear.
#[derive(Clone, Default)]
pub struct Words {
    pub provider_id: String,
    pub last_known_state: String,
    pub user_data: Option<Sensitive>,
    pub request_id: String,
    pub volume_specs: Vec<String>,
}

impl Request {
    /// Whether this repeats `earlier`, so that one execution answers both. The driver library decides by
    /// the same rules.
    ///
    /// What was last known of the machine may differ, and its provider id may be known by now: both
    /// grow from retry to retry.
    pub fn repeats(&self, earlier: &Request) -> bool {
        let (words, before) = (&*self.words, &*earlier.words);
        let same_provider_id = words.provider_id == before.provider_id
            || words.provider_id.is_empty()
            || before.provider_id.is_empty();
        self.verb == earlier.verb
            && self.class.id == earlier.class.id
            && self.machine == earlier.machine
            && same_provider_id
            && words.user_data == before.user_data
            && (words.request_id.is_empty() || words.request_id == before.request_id)
    }

    /// As a driver reads it. The times are told to a native one: how long callers still wait, and how old
    /// a success may be that it answers from memory.
    pub fn params(
        &self,
        native: bool,
        time_left: Duration,
        recall_within: Option<Duration>,
    ) -> Parts<'_> {
        let words = &*self.words;
        let (parent, state) =
            self.trace.as_ref().map_or(("", ""), |trace| (trace.parent(), trace.state()));
        let native = native.then(|| Native {
            class: &self.class.reference,
            provider: self.key.provider.as_deref().unwrap_or_default(),
            request_id: &words.request_id,
            time_left: Some(time_left),
            last_known_state: &words.last_known_state,
            user_data: words.user_data.as_ref().map(Sensitive::reveal),
            volume_specs: &words.volume_specs,
            secret_revision: self.secret_revision,
            traceparent: parent,
            tracestate: state,
            recall_within,
        });
        Parts {
            machine_class: &self.class.meta,
            machine_id: &words.provider_id,
            machine_name: &self.machine.name,
            native,
        }
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("verb", &self.verb)
            .field("class", &self.class.id)
            .field("machine", &self.machine.name)
            .field("request_id", &self.words.request_id)
            .finish_non_exhaustive()
    }
}
