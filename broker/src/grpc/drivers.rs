//! The drivers' door: handshake, seat, session; and their questions for classes and secrets.

use std::{pin::Pin, sync::Arc, time::Duration, time::SystemTime};

use broker_proto::v1::{
    self, BrokerSide, DriverSide, broker_side::Control, drivers_server, reject::Reason,
};
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::{StreamExt as _, wrappers::ReceiverStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Request, Response, Status, Streaming};
use tracing::Instrument as _;

use super::{Peer, status};
use crate::{
    auth::Auth,
    catalog::{Catalog, Denied, Scope, SecretName},
    driver::{ClassId, DriverKey, SessionId},
    operation::Ledger,
    registry::Registry,
    session::{
        End, Info, Outbound, Session, Times, Token,
        handshake::{self, Hello, PROTOCOL, Rejection},
    },
};

/// Frames on their way to the transport. What waits behind them is still NOT_SENT.
const OUTBOUND: usize = 16;
/// When a rejected driver should try again while this broker stops.
const AFTER_STOP: Duration = Duration::from_secs(2);

/// What every driver is told and held to.
#[derive(Clone, Debug)]
pub struct Admission {
    /// How long a stream may stay silent before its registration.
    pub hello_within: Duration,
    pub times: Times,
    /// How many operations may wait for a driver beyond its capacity.
    pub queue: usize,
    pub replica: String,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            hello_within: Duration::from_secs(5),
            times: Times::default(),
            queue: 10_000,
            replica: format!("broker-{:08x}", rand::random::<u32>()),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Drivers {
    pub admission: Admission,
    pub auth: Auth,
    pub catalog: Arc<dyn Catalog>,
    pub registry: Registry,
    pub ledger: Ledger,
    /// Owns the tasks of all sessions.
    pub sessions: TaskTracker,
    /// Cancelled when the broker begins to stop: nobody is let in any more.
    pub closing: CancellationToken,
}

#[tonic::async_trait]
impl drivers_server::Drivers for Drivers {
    type RegisterStream = Pin<Box<ReceiverStream<Result<BrokerSide, Status>>>>;

    async fn register(
        &self,
        request: Request<Streaming<DriverSide>>,
    ) -> Result<Response<Self::RegisterStream>, Status> {
        self.authenticate(&request)?;
        let peer = peer(&request)?;
        let (outbound, frames) = mpsc::channel(OUTBOUND);
        let span = tracing::info_span!(
            "session",
            driver = tracing::field::Empty,
            id = tracing::field::Empty
        );
        self.sessions
            .spawn(self.clone().serve(request.into_inner(), outbound, peer).instrument(span));
        Ok(Response::new(Box::pin(ReceiverStream::new(frames))))
    }

    async fn get_machine_class(
        &self,
        request: Request<v1::MachineClassMeta>,
    ) -> Result<Response<v1::MachineClass>, Status> {
        self.authenticate(&request)?;
        let peer = peer(&request)?;
        let meta = request.into_inner();
        let (token, keys) = self.asking(meta.session_token, &peer)?;
        match Scope::new(&*self.catalog, &keys).class(&meta.name) {
            Ok(class) => Ok(Response::new(v1::MachineClass {
                data: class.json.clone(),
                error: String::new(),
                revision: class.revision,
            })),
            Err(denied) => {
                let error = refuse(&denied, token, &peer)?;
                Ok(Response::new(v1::MachineClass { error, ..Default::default() }))
            }
        }
    }

    async fn get_secret(
        &self,
        request: Request<v1::SecretMeta>,
    ) -> Result<Response<v1::Secret>, Status> {
        self.authenticate(&request)?;
        let peer = peer(&request)?;
        let meta = request.into_inner();
        let (token, keys) = self.asking(meta.session_token, &peer)?;
        let scope = Scope::new(&*self.catalog, &keys);
        let found = match meta.class {
            Some(class) => scope.secret_of(&class_id(class)).and_then(|secret| {
                secret.ok_or_else(|| Denied::Missing("the class names no secret".to_owned()))
            }),
            None => scope.secret(&SecretName {
                namespace: meta.namespace.as_str().into(),
                name: meta.secret_name.as_str().into(),
            }),
        };
        match found {
            Ok(secret) => Ok(Response::new(v1::Secret {
                data: secret.to_json(),
                error: String::new(),
                revision: secret.revision(),
            })),
            Err(denied) => {
                let error = refuse(&denied, token, &peer)?;
                Ok(Response::new(v1::Secret { error, ..Default::default() }))
            }
        }
    }
}

impl Drivers {
    /// One driver, from its first frame to its last:
    ///
    /// 1. The broker speaks first, as it did in 2018.
    /// 2. The driver registers within a few seconds, or the stream ends.
    /// 3. It takes its seats, or is told why not.
    /// 4. A native driver is welcomed.
    /// 5. Its session runs until it ends.
    async fn serve(self, mut inbound: Streaming<DriverSide>, outbound: Outbound, peer: Peer) {
        let greeting = BrokerSide {
            operation_id: 1,
            operation_type: "register".to_owned(),
            ..Default::default()
        };
        if outbound.send(Ok(greeting)).await.is_err() {
            return;
        }
        let first = match timeout(self.admission.hello_within, inbound.next()).await {
            Ok(Some(Ok(first))) => first,
            Ok(Some(Err(status))) => {
                tracing::debug!(peer = %peer.address, why = status.message(), "never registered");
                // The peer may be gone: then nobody has to be told.
                drop(outbound.try_send(Err(Status::new(status.code(), status.message()))));
                return;
            }
            Ok(None) => {
                tracing::debug!(peer = %peer.address, "left before it registered");
                return;
            }
            Err(_) => {
                let why = "no registration came in time";
                tracing::info!(peer = %peer.address, why, "driver rejected");
                // The peer may be gone: then nobody has to be told.
                drop(outbound.try_send(Err(Status::deadline_exceeded(why))));
                return;
            }
        };
        let native = is_native(&first);
        let admitted = match self.admit(first, &peer) {
            Ok((hello, info)) => {
                let (handle, session) =
                    Session::new(info, hello.terms, self.admission.times, self.admission.queue);
                self.registry.register(&handle).await.map(|seats| (handle, session, seats))
            }
            Err(rejection) => Err(rejection),
        };
        let (handle, mut session, seats) = match admitted {
            Ok(admitted) => admitted,
            Err(rejection) => return reject(&rejection, native, &outbound, &peer).await,
        };
        let info = handle.info();
        let span = tracing::Span::current();
        span.record("driver", &*info.instance.id).record("id", info.id.to_string());
        tracing::info!(
            kinds = %kinds(&info.keys), version = info.version, protocol = info.protocol,
            peer = %peer.address, "driver registered"
        );
        if native && outbound.send(Ok(self.welcome(info))).await.is_err() {
            return;
        }
        let resumed = |operation| self.ledger.resumed(operation, info);
        let end = session.run(inbound, outbound.clone(), resumed).await;
        // In this order: callers whose operations come back unsent look for another driver at once.
        drop(seats);
        drop(session);
        tracing::info!(?end, "session over");
        if let Some(status) = farewell(&end) {
            // The peer may be gone: then nobody has to be told.
            drop(outbound.try_send(Err(status)));
        }
    }

    fn admit(&self, first: DriverSide, peer: &Peer) -> Result<(Hello, Info), Rejection> {
        let hello = handshake::read(first, &peer.address)?;
        if self.closing.is_cancelled() {
            let rejection = Rejection::new(Reason::Draining, "this broker is stopping");
            return Err(rejection.retry_after(AFTER_STOP));
        }
        let info = Info {
            id: SessionId::random(),
            token: Token::random(),
            name: hello.name.clone(),
            keys: hello.keys.clone(),
            instance: hello.instance.clone(),
            version: hello.version.clone(),
            protocol: hello.protocol,
            verbs: hello.verbs.clone(),
            capacity: hello.terms.capacity,
            resumes: hello.resumes,
            connection: peer.connection,
            address: peer.address.clone(),
            connected_at: SystemTime::now(),
        };
        Ok((hello, info))
    }

    fn welcome(&self, info: &Info) -> BrokerSide {
        let times = &self.admission.times;
        control(
            "welcome",
            Control::Welcome(v1::Welcome {
                session_id: info.id.to_string(),
                session_token: info.token.reveal().to_owned(),
                replica_id: self.admission.replica.clone(),
                protocol: PROTOCOL,
                ping_interval: times.ping_every.try_into().ok(),
                dead_after: times.dead_after.try_into().ok(),
                peers: Vec::new(),
            }),
        )
    }

    fn authenticate<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let bearer = request.metadata().get("authorization").map(|value| value.as_bytes());
        self.auth.check(bearer).map_err(|denied| Status::unauthenticated(denied.to_string()))
    }

    /// What the asking driver registered. The token is there for a native driver.
    fn asking(
        &self,
        token: String,
        peer: &Peer,
    ) -> Result<(Option<Token>, Vec<DriverKey>), Status> {
        let token = (!token.is_empty()).then(|| Token::from(token));
        let sessions = self.registry.asking(token.as_ref(), peer.connection);
        if sessions.is_empty() {
            return Err(Status::failed_precondition(
                "no session: register first, and ask on the same connection or with its token",
            ));
        }
        let keys = sessions.iter().flat_map(|session| session.info().keys.clone()).collect();
        Ok((token, keys))
    }
}

/// A native driver gets a status; a historic one reads the text in the reply.
fn refuse(denied: &Denied, token: Option<Token>, peer: &Peer) -> Result<String, Status> {
    tracing::warn!(peer = %peer.address, why = %denied, "class or secret denied");
    match token {
        Some(_) => Err(status::of_denied(denied)),
        None => Ok(denied.public_message()),
    }
}

async fn reject(rejection: &Rejection, native: bool, outbound: &Outbound, peer: &Peer) {
    tracing::info!(peer = %peer.address, reason = ?rejection.reason, why = %rejection, "driver rejected");
    let frame = v1::Reject {
        reason: rejection.reason.into(),
        message: rejection.message.clone(),
        retryable: rejection.is_retryable(),
        retry_after: rejection.retry_after.and_then(|after| after.try_into().ok()),
    };
    if native && outbound.send(Ok(control("reject", Control::Reject(frame)))).await.is_err() {
        return;
    }
    let status = match rejection.reason {
        Reason::Duplicate => Status::already_exists(&rejection.message),
        Reason::Denied => Status::permission_denied(&rejection.message),
        Reason::Draining | Reason::Busy => Status::unavailable(&rejection.message),
        Reason::Invalid | Reason::Protocol | Reason::Unspecified => {
            Status::invalid_argument(&rejection.message)
        }
    };
    // The peer may be gone: then nobody has to be told.
    drop(outbound.send(Err(status)).await);
}

/// What the driver is told at the end, where it did not end it itself.
fn farewell(end: &End) -> Option<Status> {
    match end {
        End::Left => None,
        // One that still listens learns what it did wrong, such as a frame that is too large.
        End::Broken(code, why) => Some(Status::new(*code, why)),
        End::Silent => Some(Status::deadline_exceeded("nothing was heard for too long")),
        End::Replaced => Some(Status::aborted("a newer session took this one's place")),
        End::ShutDown => Some(Status::unavailable("the broker is stopping")),
    }
}

fn control(operation_type: &str, control: Control) -> BrokerSide {
    BrokerSide {
        operation_type: operation_type.to_owned(),
        control: Some(control),
        ..Default::default()
    }
}

fn is_native(first: &DriverSide) -> bool {
    matches!(
        &first.response,
        Some(v1::driver_side::Response::Registration(registration)) if registration.hello.is_some()
    )
}

fn kinds(keys: &[DriverKey]) -> String {
    keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn class_id(class: v1::ClassRef) -> ClassId {
    ClassId {
        api_version: class.api_version.into(),
        kind: class.kind.into(),
        namespace: class.namespace.into(),
        name: class.name.into(),
    }
}

fn peer<T>(request: &Request<T>) -> Result<Peer, Status> {
    let peer = request.extensions().get::<Peer>().cloned();
    peer.ok_or_else(|| Status::internal("the connection has no number"))
}
