//! The drivers' door: handshake, seat, session; and their questions for classes and secrets.

mod stream;

use std::{pin::Pin, sync::Arc, time::Duration};

use broker_proto::v1::{self, BrokerSide, DriverSide, drivers_server};
use futures::{FutureExt as _, Stream, StreamExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Request, Response, Status, Streaming};
use tracing::{Instrument as _, field::Empty};

use super::{Peer, status};
use crate::{
    catalog::{Catalog, Denied, Scope, SecretName},
    driver::{ClassId, DriverKey},
    metrics::Metrics,
    operation::Ledger,
    registry::Registry,
    session::{Times, Token},
};

/// Frames on their way to the transport. What waits behind them is still NOT_SENT.
const OUTBOUND: usize = 16;

/// What every driver is told and held to.
#[derive(Clone, Debug)]
pub struct Admission {
    /// How long a stream may stay silent before its registration.
    pub hello_within: Duration,
    pub times: Times,
    /// How many operations may wait for a driver beyond its capacity.
    pub queue: usize,
    pub replica: String,
    /// How long, after a restart, changes of machines wait for drivers to return.
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
    pub catalog: Arc<dyn Catalog>,
    pub registry: Registry,
    pub ledger: Ledger,
    pub metrics: Metrics,
    /// Owns the tasks of all sessions.
    pub sessions: TaskTracker,
    /// Cancelled when the broker begins to stop: nobody is let in any more.
    pub closing: CancellationToken,
}

#[tonic::async_trait]
impl drivers_server::Drivers for Drivers {
    type RegisterStream = Pin<Box<dyn Stream<Item = Result<BrokerSide, Status>> + Send>>;

    async fn register(
        &self,
        request: Request<Streaming<DriverSide>>,
    ) -> Result<Response<Self::RegisterStream>, Status> {
        let peer = peer(&request)?;
        let (outbound, frames) = mpsc::channel(OUTBOUND);
        let (farewell, last) = oneshot::channel();
        let serve = self.clone().serve(request.into_inner(), outbound, peer);
        let span = tracing::info_span!("session", driver = Empty, id = Empty);
        let serve = async move {
            if let Err(status) = serve.await {
                // The peer may be gone: then nobody has to be told.
                farewell.send(status).ok();
            }
        };
        self.sessions.spawn(serve.instrument(span));
        let last = last.into_stream().filter_map(async |status| status.ok().map(Err));
        Ok(Response::new(Box::pin(ReceiverStream::new(frames).map(Ok).chain(last))))
    }

    async fn get_machine_class(
        &self,
        request: Request<v1::MachineClassMeta>,
    ) -> Result<Response<v1::MachineClass>, Status> {
        let peer = peer(&request)?;
        let meta = request.into_inner();
        let (token, keys) = self.asking(meta.session_token, &peer)?;
        let found = Scope::new(&*self.catalog, &keys).class(&meta.name);
        self.metrics.class_read(&found);
        match found {
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
        self.metrics.secret_read(&found);
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
