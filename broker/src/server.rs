//! Starts every task and knows in which order they stop.

mod listen;
mod observe;
mod stop;

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::Context as _;
use futures::Stream;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinSet,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{service::InterceptorLayer, transport::Server};
use tower::util::MapRequestLayer;

use self::listen::Listeners;
pub use self::stop::{hangups, signal};
use crate::{
    audit::Audit,
    auth::Auth,
    catalog::{Catalog, Denied, Scope},
    children::{self, DriverCommand, Tokens},
    dispatch::Dispatcher,
    grpc::{self, Admission, Connection, Drivers},
    inspect::Rooms,
    metrics::{Exposition, Metrics},
    operation::Ledger,
    registry::{Registry, Seating},
    web::{self, Readiness},
};

/// Proves a connection alive where the protocol cannot: a historic driver at work answers nothing
/// else, but its transport does.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEPALIVE_WITHIN: Duration = Duration::from_secs(10);
/// More streams than this on one connection wait without a word.
const STREAMS_PER_CONNECTION: u32 = 100_000;
const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 8 * 1024 * 1024;
/// How often what is too old to matter is dropped.
const TIDY_EVERY: Duration = Duration::from_secs(30);

/// All rooms, put together. Cheap to clone: every clone is the same broker.
#[derive(Clone, Debug)]
pub struct Broker {
    registry: Registry,
    dispatcher: Dispatcher,
    catalog: Arc<dyn Catalog>,
    drivers: Drivers,
    tokens: Tokens,
    readiness: Readiness,
    metrics: Exposition,
    /// What operators see.
    rooms: Arc<Rooms>,
    /// Owns every task but those of the sessions.
    tasks: TaskTracker,
    /// Cancelled when nothing is to run any more.
    stopped: CancellationToken,
}

impl Broker {
    pub fn new(admission: Admission, seating: Seating, catalog: Arc<dyn Catalog>) -> Self {
        let registry = Registry::new(seating);
        let metrics = Metrics::default();
        let ledger = Ledger::new(metrics.clone());
        let tokens = Tokens::default();
        let settle = admission.settle;
        let closing = CancellationToken::new();
        let rooms = Arc::new(Rooms {
            registry: registry.clone(),
            ledger: ledger.clone(),
            catalog: Arc::clone(&catalog),
            replica: admission.replica.clone(),
            started_at: SystemTime::now(),
            closing: closing.clone(),
        });
        let drivers = Drivers {
            admission,
            catalog: Arc::clone(&catalog),
            registry: registry.clone(),
            ledger: ledger.clone(),
            metrics: metrics.clone(),
            sessions: TaskTracker::new(),
            closing,
            audit: Audit::default(),
        };
        let dispatcher = Dispatcher::new(
            registry.clone(),
            ledger.clone(),
            Arc::clone(&catalog),
            settle,
            metrics.clone(),
        );
        Self {
            metrics: Exposition::new(metrics, registry.clone(), ledger, Arc::clone(&catalog)),
            dispatcher,
            registry,
            catalog,
            drivers,
            tokens,
            readiness: Readiness::default(),
            rooms,
            tasks: TaskTracker::new(),
            stopped: CancellationToken::new(),
        }
    }

    /// With a line in this audit log for all that is done.
    pub fn audited(mut self, audit: Audit) -> Self {
        self.dispatcher = self.dispatcher.audited(audit.clone());
        self.drivers.audit = audit;
        self
    }

    /// For a controller that lives in the same process.
    pub fn dispatcher(&self) -> &Dispatcher {
        &self.dispatcher
    }

    /// What Prometheus reads.
    pub fn metrics(&self) -> &Exposition {
        &self.metrics
    }

    /// What the admin port serves.
    pub fn admin(&self) -> axum::Router {
        web::router(
            self.readiness.clone(),
            Arc::clone(&self.rooms),
            self.metrics.clone(),
            self.stopped.clone(),
        )
    }

    /// Serves gRPC on these connections until the broker has stopped.
    pub async fn serve<IO>(
        &self,
        incoming: impl Stream<Item = io::Result<Connection<IO>>>,
    ) -> anyhow::Result<()>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let drivers = Arc::new(self.drivers.clone());
        let rooms = Arc::clone(&self.rooms);
        let (routes, health) = grpc::routes(drivers, self.dispatcher.clone(), rooms).await?;
        self.tasks.spawn(self.clone().tidy());
        self.tasks.spawn(self.clone().push_rotations());
        self.own(|stopped| observe::health(self.registry.clone(), stopped));
        let closing = self.drivers.closing.clone();
        self.tasks.spawn(async move {
            closing.cancelled().await;
            grpc::not_serving(&health).await;
        });
        let auth = Auth::new(self.tokens.clone());
        let authenticated = grpc::authenticated(auth, self.drivers.audit.clone());
        self.readiness.set(true);
        Server::builder()
            .http2_keepalive_interval(Some(KEEPALIVE_EVERY))
            .http2_keepalive_timeout(Some(KEEPALIVE_WITHIN))
            .max_concurrent_streams(STREAMS_PER_CONNECTION)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .layer(MapRequestLayer::new(grpc::answer_to_historic_names))
            .layer(InterceptorLayer::new(authenticated))
            .add_routes(routes)
            .serve_with_incoming_shutdown(incoming, self.stopped.cancelled())
            .await
            .context("the gRPC server failed")
    }

    /// Owns a task that ends with the broker.
    pub fn own<T: Future<Output = ()> + Send + 'static>(
        &self,
        task: impl FnOnce(CancellationToken) -> T,
    ) {
        self.tasks.spawn(task(self.stopped.clone()));
    }

    /// Starts a driver program and keeps it running until the broker stops.
    pub fn supervise(&self, command: DriverCommand, address: SocketAddr) {
        let address = listen::reachable(address).to_string();
        // Stopped only after the operations that it runs are over.
        self.own(|stopped| children::supervise(command, address, self.tokens.clone(), stopped));
    }

    /// Drops what is too old to matter.
    async fn tidy(self) {
        let mut ticks = tokio::time::interval(TIDY_EVERY);
        while self.stopped.run_until_cancelled(ticks.tick()).await.is_some() {
            self.dispatcher.ledger().forget_old();
        }
    }

    /// Tells drivers of secrets that changed, each only of those that it may see.
    async fn push_rotations(self) {
        use tokio::sync::broadcast::error::RecvError;
        let mut changes = self.catalog.changes();
        while let Some(change) = self.stopped.run_until_cancelled(changes.recv()).await {
            match change {
                Ok(secret) => {
                    for session in self.registry.sessions() {
                        let scope = Scope::new(&*self.catalog, &session.info().keys);
                        // One that is gone has to be forgotten, too.
                        if !matches!(scope.secret(&secret), Err(Denied::Unreferenced(_))) {
                            session.secret_changed(&secret);
                        }
                    }
                }
                // Revisions in the operations catch up with what was missed.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    }
}

/// What `serve` and `dev` run, once they know their catalog and driver programs.
#[derive(Debug)]
pub struct Plan {
    pub listen: SocketAddr,
    pub admin: SocketAddr,
    pub driver_commands: Vec<DriverCommand>,
    pub grace: Duration,
}

/// Runs a broker until `stop` comes, then stops it in good order, always on time.
///
/// `started` is told the addresses once both ports are open.
pub async fn run(
    broker: Broker,
    plan: Plan,
    stop: impl Future<Output = ()>,
    started: impl FnOnce(SocketAddr, SocketAddr),
) -> anyhow::Result<()> {
    let Listeners { drivers, admin } = Listeners::open(plan.listen, plan.admin).await?;
    let (drivers_at, admin_at) = (drivers.local_addr()?, admin.local_addr()?);

    let mut servers = JoinSet::new();
    let web = axum::serve(admin, broker.admin())
        .with_graceful_shutdown(broker.stopped.clone().cancelled_owned());
    servers.spawn(async move { web.await.context("the admin server failed") });
    let serving = broker.clone();
    servers.spawn(async move { serving.serve(listen::connections(drivers)).await });

    tracing::info!(drivers = %drivers_at, admin = %admin_at, "listening");
    for command in plan.driver_commands {
        broker.supervise(command, drivers_at);
    }
    started(drivers_at, admin_at);

    tokio::select! {
        () = stop => {}
        Some(ended) = servers.join_next() => ended??,
    }
    broker.stop(plan.grace).await;
    stop::end_of(servers).await;
    // Whoever was told at the very end is in it, too.
    broker.drivers.audit.close(stop::LAST_MOMENT).await;
    tracing::info!("stopped");
    Ok(())
}
