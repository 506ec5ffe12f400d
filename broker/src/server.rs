//! Starts every task and knows in which order they stop.

mod files;
mod http;
mod listen;
mod observe;
mod stop;
mod tls;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use broker_tls::server::Protocol;
use futures::Stream;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::JoinSet,
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::listen::{Admin, Listeners, Port};
pub use self::stop::{hangups, signal};
use crate::{
    audit::Audit,
    auth::{self, Auth, Territory},
    bounds::{self, Bounds, Crowd, Limits},
    catalog::{
        Catalog, Denied, Scope,
        kubernetes::{Cluster, Demand},
    },
    children::{self, DriverCommand, Tokens},
    dispatch::Dispatcher,
    grpc::{self, Admission, Connection, Drivers, Entrance, Peer},
    inspect::Rooms,
    metrics::{Exposition, Metrics},
    mirror::{Live, Mirror, Resources},
    operation::Ledger,
    registry::{Registry, Seating},
    replicas::{Leases, Replicas, Report},
    session::SessionHandle,
    telemetry::{LogControl, LogFormat},
    web::{self, Readiness},
};

/// Connections to the admin port.
const ADMIN_CONNECTIONS: usize = 1_000;
/// How often what is too old to matter is dropped.
const TIDY_EVERY: Duration = Duration::from_secs(30);
/// When a driver that was too busy to be told something is told again.
const TELL_AGAIN: Duration = Duration::from_secs(1);

/// All rooms, put together. Cheap to clone: every clone is the same broker.
#[derive(Clone, Debug)]
pub struct Broker {
    registry: Registry,
    dispatcher: Dispatcher,
    catalog: Arc<dyn Catalog>,
    drivers: Drivers,
    tokens: Tokens,
    limits: Limits,
    readiness: Readiness,
    metrics: Exposition,
    /// What operators see.
    rooms: Arc<Rooms>,
    /// Owns every task but those of the sessions.
    tasks: TaskTracker,
    /// Cancelled when nothing is to run any more.
    stopped: CancellationToken,
}

/// What a broker goes by.
#[derive(Debug)]
pub struct Settings {
    pub admission: Admission,
    /// Who else there is; `None` for nobody.
    pub replicas: Option<Replicas>,
    pub seating: Seating,
    pub catalog: Arc<dyn Catalog>,
    /// Where there is a line for all that is done.
    pub audit: Audit,
    /// What operators can steer of the log.
    pub log: Option<LogControl>,
    /// Driver programs that the broker starts are known besides.
    pub auth: auth::Settings,
    pub limits: Limits,
    /// Where all is counted.
    pub metrics: Metrics,
}

impl Settings {
    /// The defaults: everybody may do everything, and nobody writes it down.
    pub fn new(catalog: Arc<dyn Catalog>) -> Self {
        Self {
            admission: Admission::default(),
            replicas: None,
            seating: Seating::default(),
            catalog,
            audit: Audit::default(),
            log: None,
            auth: auth::Settings::default(),
            limits: Limits::default(),
            metrics: Metrics::default(),
        }
    }
}

impl Broker {
    pub fn new(settings: Settings) -> Self {
        let Settings {
            admission,
            replicas,
            seating,
            catalog,
            audit,
            log,
            auth: mut by,
            limits,
            metrics,
        } = settings;
        let replicas = replicas.unwrap_or_else(|| Replicas::new(&admission.replica, None));
        let registry = Registry::new(seating);
        let ledger = Ledger::new(metrics.clone(), audit.clone());
        let tokens = Tokens::default();
        by.authenticators.push(Arc::new(tokens.clone()));
        let auth = Auth::new(by);
        let settle = admission.settle;
        let closing = CancellationToken::new();
        let rooms = Arc::new(Rooms {
            replica: admission.replica.clone(),
            replicas: replicas.clone(),
            closing: closing.clone(),
            audit: audit.clone(),
            auth: auth.clone(),
            log,
            ..Rooms::new(registry.clone(), ledger.clone(), Arc::clone(&catalog))
        });
        let drivers = Drivers {
            admission,
            replicas: replicas.clone(),
            catalog: Arc::clone(&catalog),
            registry: registry.clone(),
            ledger: ledger.clone(),
            metrics: metrics.clone(),
            sessions: TaskTracker::new(),
            closing,
            auth,
            audit: audit.clone(),
            bounds: Bounds::new(&limits, &metrics),
        };
        let dispatcher = Dispatcher::new(
            registry.clone(),
            ledger.clone(),
            Arc::clone(&catalog),
            settle,
            metrics.clone(),
            audit,
        )
        .among(replicas);
        Self {
            metrics: Exposition::new(metrics, Arc::clone(&rooms)),
            dispatcher,
            registry,
            catalog,
            drivers,
            tokens,
            limits,
            readiness: Readiness::default(),
            rooms,
            tasks: TaskTracker::new(),
            stopped: CancellationToken::new(),
        }
    }

    /// Reads the policy and the tokens again whenever they change.
    pub fn follow(&self, files: auth::Files) {
        self.own(|stopped| files.follow(self.drivers.auth.clone(), stopped));
    }

    /// Who else there is, as far as this replica knows.
    pub fn replicas(&self) -> &Replicas {
        &self.drivers.replicas
    }

    /// Tells others in a cluster that this replica is here, and hears of them, until the broker begins to
    /// stop. `address` is where drivers reach it.
    pub fn attend(&self, cluster: &Cluster, namespace: Option<String>, address: String) {
        let registry = self.registry.clone();
        let report = move || Report::of(&registry);
        let (replicas, changes) = (self.replicas().clone(), self.registry.changes());
        let leases = Leases::new(cluster, namespace, replicas, address, report, changes);
        self.tasks.spawn(leases.run(self.drivers.closing.clone()));
    }

    /// What drivers serve, for a catalog that reads only that.
    pub fn demand(&self) -> Demand {
        let registry = self.registry.clone();
        let territory = move || {
            let sessions = registry.sessions();
            Territory::of_all(sessions.iter().map(|session| &session.info().territory))
        };
        Demand { changes: self.registry.changes(), territory: Box::new(territory) }
    }

    /// Shows drivers in a cluster, until the broker begins to stop: that they leave then is no news of
    /// theirs. `live` says which replicas there are.
    pub fn mirror(&self, resources: Arc<dyn Resources>, live: Live) {
        let mirror = Mirror {
            registry: self.registry.clone(),
            catalog: Arc::clone(&self.catalog),
            resources,
            replica: self.rooms.replica.clone(),
            live,
            trouble: self.rooms.mirror.clone(),
        };
        self.tasks.spawn(mirror.run(self.drivers.closing.clone()));
    }

    /// What the ports are served with, if it is TLS.
    fn tls(&self) -> Option<&broker_tls::Server> {
        self.drivers.auth.tls()
    }

    /// For a controller that lives in the same process: what the controllers' door calls, with no socket
    /// and no policy in between.
    ///
    /// ```
    /// # use broker::{dispatch::{Ask, Error}, driver::Verb, server::Broker};
    /// # use broker_proto::v1::{ClassRef, MachineRequest};
    /// async fn create(broker: &Broker, class: ClassRef, name: &str) -> Result<bool, Error> {
    ///     let (class, machine_name) = (Some(class), name.to_owned());
    ///     let request = MachineRequest { class, machine_name, ..MachineRequest::default() };
    ///     let answered = broker.dispatcher().execute(Ask::machine(Verb::Create, request), None).await?;
    ///     Ok(answered.answer.code.is_ok())
    /// }
    /// ```
    pub fn dispatcher(&self) -> &Dispatcher {
        &self.dispatcher
    }

    /// What Prometheus reads.
    pub fn metrics(&self) -> &Exposition {
        &self.metrics
    }

    /// What the admin port serves. Who logged in there is known to this router and its clones alone.
    pub fn admin(&self) -> axum::Router {
        web::router(
            self.readiness.clone(),
            Arc::clone(&self.rooms),
            (self.drivers.metrics.clone(), self.metrics.clone()),
            self.drivers.bounds.refusals.clone(),
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
        let entrance = Entrance {
            auth: self.drivers.auth.clone(),
            audit: self.drivers.audit.clone(),
            metrics: self.drivers.metrics.clone(),
            bounds: self.drivers.bounds.clone(),
        };
        let (front, health) =
            grpc::front(entrance, drivers, self.dispatcher.clone(), rooms).await?;
        self.tasks.spawn(self.clone().tidy());
        self.tasks.spawn(self.clone().push_rotations());
        self.tasks.spawn(self.clone().push_peers());
        if let Some(log) = self.rooms.log.clone() {
            self.own(|stopped| log.go_back(stopped));
        }
        self.own(|stopped| observe::health(self.registry.clone(), stopped));
        let refusals = self.drivers.bounds.refusals.clone();
        self.own(|stopped| refusals.sum_up(self.drivers.audit.clone(), stopped));
        let closing = self.drivers.closing.clone();
        self.tasks.spawn(async move {
            closing.cancelled().await;
            grpc::not_serving(&health).await;
        });
        self.readiness.set(true);
        let http = http::protocol(&self.limits);
        http::serve(http, Arc::new(front), incoming, self.stopped.clone()).await;
        Ok(())
    }

    /// Owns a task that ends with the broker.
    pub fn own<T: Future<Output = ()> + Send + 'static>(
        &self,
        task: impl FnOnce(CancellationToken) -> T,
    ) {
        self.tasks.spawn(task(self.stopped.clone()));
    }

    /// Starts a driver program and keeps it running until the broker stops.
    pub fn supervise(&self, command: DriverCommand, address: SocketAddr, format: LogFormat) {
        let broker = children::Home {
            address: listen::reachable(address).to_string(),
            tls: self.tls().cloned(),
        };
        // Stopped only after the operations that it runs are over.
        let tokens = self.tokens.clone();
        self.own(|stopped| children::supervise(command, broker, tokens, format, stopped));
    }

    /// Drops what is too old to matter.
    async fn tidy(self) {
        let mut ticks = tokio::time::interval(TIDY_EVERY);
        while self.stopped.run_until_cancelled(ticks.tick()).await.is_some() {
            self.dispatcher.ledger().forget_old();
            self.drivers.bounds.registrations.forget_old();
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
                        let scope = Scope::new(&*self.catalog, &session.info().territory);
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

impl Broker {
    /// Tells drivers of replicas that come and go. Whoever is too busy to hear it is told again.
    async fn push_peers(self) {
        let mut changes = self.replicas().changes();
        let mut told = changes.borrow_and_update().revision;
        let mut missed: Vec<SessionHandle> = Vec::new();
        loop {
            let change = async {
                tokio::select! {
                    changed = changes.changed() => changed.is_ok(),
                    () = sleep(TELL_AGAIN), if !missed.is_empty() => true,
                }
            };
            if self.stopped.run_until_cancelled(change).await != Some(true) {
                return;
            }
            let peers = changes.borrow_and_update().clone();
            let sessions = if peers.revision == told {
                std::mem::take(&mut missed)
            } else {
                self.registry.sessions()
            };
            told = peers.revision;
            let peers = peers.to_wire();
            missed =
                sessions.into_iter().filter(|session| !session.peers_changed(&peers)).collect();
        }
    }
}

/// What `serve` and `dev` run, once they know their catalog and driver programs.
#[derive(Debug)]
pub struct Plan {
    pub listen: SocketAddr,
    pub admin: SocketAddr,
    pub driver_commands: Vec<DriverCommand>,
    /// How what these print is passed on.
    pub log_format: LogFormat,
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
    let Listeners { drivers, admin } = Listeners::open(plan.listen, plan.admin)?;
    let (drivers_at, admin_at) = (drivers.local_addr()?, admin.local_addr()?);

    if let Some(tls) = broker.tls().cloned() {
        broker.own(|stopped| tls::follow(tls, broker.drivers.metrics.clone(), stopped));
    }
    let rooms = files::room_for(broker.limits.connections, ADMIN_CONNECTIONS);
    let open = |listener, protocol, port, most| {
        let (tls, metrics) = (broker.tls().cloned(), broker.drivers.metrics.clone());
        let crowd = Crowd::new(port, most, &broker.limits, metrics.clone());
        let refusals = broker.drivers.bounds.refusals.clone();
        let port = Port { listener, tls, protocol, crowd, refusals, metrics };
        let (accepting, connections) = port.open(broker.stopped.clone());
        broker.tasks.spawn(accepting);
        connections
    };
    let drivers = open(drivers, Protocol::Http2, bounds::Port::Grpc, rooms.grpc);
    let admin = open(admin, Protocol::Http1, bounds::Port::Admin, rooms.admin);
    let admin = Admin { ready: admin, address: admin_at };

    let mut servers = JoinSet::new();
    let service = broker.admin().layer(axum::middleware::from_fn(listen::settle));
    let service = service.into_make_service_with_connect_info::<Peer>();
    let web = axum::serve(admin, service)
        .with_graceful_shutdown(broker.stopped.clone().cancelled_owned());
    servers.spawn(async move { web.await.context("the admin server failed") });
    let serving = broker.clone();
    servers.spawn(async move { serving.serve(listen::connections(drivers)).await });

    let tls = broker.tls().is_some();
    // How many drivers and controllers there is room for; many drivers may share a connection.
    let connections = rooms.grpc;
    tracing::info!(drivers = %drivers_at, admin = %admin_at, tls, connections, "listening");
    for command in plan.driver_commands {
        broker.supervise(command, drivers_at, plan.log_format);
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
