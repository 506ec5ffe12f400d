//! The drivers' door: handshake, seat, session; and their questions for classes and secrets.

mod incoming;
mod outgoing;
mod stream;

use std::{borrow::Cow, ops::Deref, sync::Arc, time::Duration};

use broker_proto::v1::{self, drivers_server};
use bytes::Bytes;
use futures::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, ready},
};
use hyper::{Request, Response, body::Incoming};
use prost::Message;
use tokio::sync::oneshot;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::Status;

use self::{incoming::FromDriver, outgoing::ToDriver};
use super::{
    MAX_FRAME, MAX_MESSAGE, front::method, messages::Messages, reply::Reply, status, timeout, unary,
};
use crate::{
    audit::{self, Audit, Event, Record},
    auth::{Auth, Caller, Territory},
    bounds::Bounds,
    catalog::{Catalog, Denied, Scope, SecretName},
    driver::ClassId,
    metrics::Metrics,
    operation::Ledger,
    registry::Registry,
    replicas::Replicas,
    session::{SessionHandle, Times, Token},
};

/// What every driver is told and held to.
#[derive(Clone, Debug)]
pub struct Admission {
    /// How long a stream may stay silent before its registration.
    pub hello_within: Duration,
    pub times: Times,
    /// How many operations may wait for a driver beyond its capacity.
    pub queue: usize,
    pub replica: String,
    /// How long, after a start, changes of machines wait for drivers to return.
    pub settle: Duration,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            hello_within: Duration::from_secs(5),
            times: Times::default(),
            queue: 10_000,
            replica: format!("broker-{:08x}", rand::random::<u32>()),
            settle: Duration::from_secs(5),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Drivers {
    pub admission: Admission,
    /// Whom a Welcome names.
    pub replicas: Replicas,
    pub catalog: Arc<dyn Catalog>,
    pub registry: Registry,
    pub ledger: Ledger,
    pub metrics: Metrics,
    /// Owns the tasks of all sessions.
    pub sessions: TaskTracker,
    /// Cancelled when the broker begins to stop: nobody is let in any more.
    pub closing: CancellationToken,
    pub auth: Auth,
    pub audit: Audit,
    pub bounds: Bounds,
}

/// The door itself. Every stream has a clone of it, so it is one pointer.
#[derive(Clone, Debug)]
pub(super) struct DriversDoor(pub(super) Arc<Drivers>);

impl Deref for DriversDoor {
    type Target = Drivers;

    fn deref(&self) -> &Drivers {
        &self.0
    }
}

impl DriversDoor {
    pub(super) fn answer(
        &self,
        request: Request<Incoming>,
        caller: Arc<Caller>,
    ) -> BoxFuture<'static, Response<Reply>> {
        let door = self.clone();
        match method(&request, drivers_server::SERVICE_NAME).unwrap_or_default() {
            "Register" => {
                let answer = self.register(request, caller);
                ready(answer.unwrap_or_else(Status::into_http)).boxed()
            }
            "GetMachineClass" => async move {
                let asked = question(request).await;
                let class = asked.and_then(|meta| door.get_machine_class(meta, caller));
                unary::respond(class.map(|class| unary::message(&class)))
            }
            .boxed(),
            "GetSecret" => async move {
                let asked = question(request).await;
                let secret = asked.and_then(|meta| door.get_secret(meta, caller));
                unary::respond(secret.map(|secret| unary::secret_message(&secret)))
            }
            .boxed(),
            _ => ready(Status::unimplemented("there is no such method").into_http()).boxed(),
        }
    }

    fn register(
        &self,
        request: Request<Incoming>,
        caller: Arc<Caller>,
    ) -> Result<Response<Reply>, Status> {
        let unregistered = self.bounds.unregistered.take(self.auth.counts_as(&caller));
        let unregistered = unregistered.map_err(|taken| {
            if self.bounds.refusals.tell(&caller) {
                tracing::warn!(?caller, why = %taken, "unregistered stream refused");
            }
            status::of_taken("streams without a registration", &taken)
        })?;
        let (farewell, last) = oneshot::channel();
        let (outbound, stream) = ToDriver::new(last);
        let inbound = Messages::new(request.into_body(), MAX_FRAME);
        let (door, mut inbound) = (self.clone(), FromDriver(inbound));
        let serve = async move {
            // Lent, not given: what moves into a future within this one has its place in both.
            let served = door.serve(&mut inbound, outbound, &caller, unregistered).await;
            if let Err(status) = served {
                // The peer may be gone: then nobody has to be told.
                farewell.send(status).ok();
            }
        };
        self.sessions.spawn(serve);
        Ok(unary::answered(Reply::Messages(stream.boxed())))
    }

    fn get_machine_class(
        &self,
        meta: v1::MachineClassMeta,
        caller: Arc<Caller>,
    ) -> Result<v1::MachineClass, Status> {
        let asking = self.asking(meta.session_token, caller, Event::ClassDenied)?;
        let found = asking.scope(&*self.catalog).class(&meta.name);
        self.metrics.class_read(&found);
        match found {
            Ok(class) => Ok(v1::MachineClass {
                data: class.json.clone(),
                error: String::new(),
                revision: class.revision,
            }),
            Err(denied) => {
                let error = asking.refuse(&denied, &self.bounds, |record| {
                    self.audit.write(|| record);
                })?;
                Ok(v1::MachineClass { error, ..Default::default() })
            }
        }
    }

    fn get_secret(&self, meta: v1::SecretMeta, caller: Arc<Caller>) -> Result<v1::Secret, Status> {
        let asking = self.asking(meta.session_token, caller, Event::SecretDenied)?;
        let scope = asking.scope(&*self.catalog);
        let class = meta.class.map(class_id);
        let asked = SecretName::new(meta.namespace, meta.secret_name);
        let found = match &class {
            Some(class) => scope.secret_of(class).and_then(|secret| {
                secret.ok_or_else(|| Denied::Missing("the class names no secret".to_owned()))
            }),
            None => scope.secret(&asked),
        };
        self.metrics.secret_read(&found);
        let class = class.as_ref().map(audit::Class::from);
        match found {
            Ok(secret) => {
                self.audit.write(|| Record {
                    class: class.map(Cow::Owned),
                    secret: Some(secret.name().to_string()),
                    catalog_age: self.catalog.age(),
                    ..asking.record(Event::SecretRead, audit::Outcome::Ok)
                });
                Ok(v1::Secret {
                    data: std::mem::take(&mut *secret.to_json()),
                    error: String::new(),
                    revision: secret.revision(),
                })
            }
            Err(denied) => {
                let error = asking.refuse(&denied, &self.bounds, |record| {
                    let secret = class.is_none().then(|| asked.to_string());
                    self.audit.write(|| Record { class: class.map(Cow::Owned), secret, ..record });
                })?;
                Ok(v1::Secret { data: String::new(), error, revision: 0 })
            }
        }
    }
}

/// What a driver asks.
async fn question<T: Message + Default>(request: Request<Incoming>) -> Result<T, Status> {
    let mut time = timeout::of(request.headers())?;
    let message: Bytes = unary::read(request.into_body(), MAX_MESSAGE, &mut time).await?;
    T::decode(message).map_err(|error| Status::invalid_argument(error.to_string()))
}

/// A driver that asks for a class or a secret.
struct Asking {
    caller: Arc<Caller>,
    session: SessionHandle,
    /// What all its sessions serve.
    territory: Territory,
    has_token: bool,
    /// What it is in the audit log if it cannot have it.
    denial: Event,
}

impl Drivers {
    fn asking(&self, token: String, caller: Arc<Caller>, denial: Event) -> Result<Asking, Status> {
        let token = (!token.is_empty()).then(|| Token::from(token));
        let mut sessions = self.registry.asking(token.as_ref(), caller.connection);
        // Whoever got hold of a session's token still is not who the session belongs to.
        sessions.retain(|session| session.info().identity == caller.identity);
        let territory = Territory::of_all(sessions.iter().map(|session| &session.info().territory));
        let Some(session) = sessions.into_iter().next() else {
            let why =
                "no session: register first, and ask on the same connection or with its token";
            if self.bounds.refusals.tell(&caller) {
                self.audit
                    .write(|| Record::new(denial, audit::Outcome::Denied).by(&caller).saying(why));
            }
            return Err(Status::failed_precondition(why));
        };
        Ok(Asking { caller, session, territory, has_token: token.is_some(), denial })
    }
}

impl Asking {
    fn scope<'a>(&'a self, catalog: &'a dyn Catalog) -> Scope<'a> {
        Scope::new(catalog, &self.territory)
    }

    fn record(&self, event: Event, outcome: audit::Outcome) -> Record<'_> {
        Record::new(event, outcome).by(&self.caller).about(self.session.info())
    }

    /// A native driver gets a status; a historic one reads the text in the reply.
    fn refuse(
        &self,
        denied: &Denied,
        bounds: &Bounds,
        note: impl FnOnce(Record<'_>),
    ) -> Result<String, Status> {
        if bounds.refusals.tell(&self.caller) {
            tracing::warn!(caller = ?self.caller, why = %denied, "class or secret denied");
            note(self.record(self.denial, audit::Outcome::Denied).saying(denied.to_string()));
        }
        if self.has_token { Err(status::of_denied(denied)) } else { Ok(denied.public_message()) }
    }
}

fn class_id(class: v1::ClassRef) -> ClassId {
    ClassId {
        api_version: class.api_version.into(),
        kind: class.kind.into(),
        namespace: class.namespace.into(),
        name: class.name.into(),
    }
}
