//! From configuration to the last goodbye.

use std::{
    env,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use broker_proto::v1 as wire;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    Config, Driver, connection::Shared, dial::Credentials, drain, executor::Executor, fleet::Fleet,
    instance::Instance,
};

/// Why a driver cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The configuration cannot work.
    #[error("wrong configuration: {0}")]
    Config(String),
    /// Every broker rejected the driver in a way that no retry will change. This is the last
    /// one's reason.
    #[error("broker {address} rejected the driver ({reason}): {message}")]
    Rejected { address: String, reason: String, message: String },
}

/// What operations get to clean up once the time to finish is over.
const LAST_GRACE: Duration = Duration::from_secs(5);
const PROTOCOL: u32 = 1;

/// Serves all brokers of `config` with `driver` until the process is told to stop.
///
/// Connections come and go without this function returning. It returns `Ok` after SIGTERM, SIGINT
/// or [`Config::shutdown`], when running operations have ended and their answers are out (within
/// [`Config::drain_grace`]; a second signal cuts it short), and an error when no broker will have
/// this driver.
pub async fn run(config: Config, driver: impl Driver) -> Result<(), RunError> {
    config.check().map_err(RunError::Config)?;
    let credentials = match (&config.token, &config.token_file) {
        (Some(token), _) => Credentials::Token(token.clone()),
        (None, Some(file)) => Credentials::File(file.clone()),
        (None, None) => Credentials::None,
    };
    // One from a file may come later; one that is here already can be known to be wrong.
    if let Credentials::Token(_) = credentials {
        credentials.bearer().map_err(RunError::Config)?;
    }
    let kind = &config.kinds[0].kind;
    // Held until the end: the id belongs to us for as long.
    let instance = Instance::new(config.instance_id.clone(), kind, &env::temp_dir());
    // Whatever ends this function, even its being dropped, leaves nothing running behind.
    let stop = CancellationToken::new();
    let _stop_guard = stop.clone().drop_guard();
    let (capacity, grace) = (config.capacity, config.cancel_grace);
    let (driver, fleet) = (Arc::new(driver), Arc::new(Fleet::new(&config)));
    let executor = Executor::new(driver, capacity, grace, stop.clone(), fleet.clone());
    let executor = Arc::new(executor);
    let shared = Arc::new(Shared {
        registration: registration(&config, &instance.id, executor.driver()),
        fleet,
        met: AtomicBool::new(false),
        executor,
        dial: config.dial.clone(),
        tls: config.tls.clone(),
        credentials,
        drain: CancellationToken::new(),
        stop,
    });
    info!(instance = instance.id, brokers = ?config.addresses, "driver starts");

    tokio::select! {
        result = serve(&shared) => result,
        never = steer(&config, &shared) => match never {},
    }
}

/// Waits for the connections, and then for what still runs without any.
async fn serve(shared: &Arc<Shared>) -> Result<(), RunError> {
    let result = shared.fleet.serve(shared).await;
    if result.is_err() {
        // Nobody will ever hear the answers.
        shared.executor.close();
        shared.executor.cancel_all();
    }
    let patience = async {
        if result.is_ok() {
            shared.stop.cancelled().await;
        }
        sleep(LAST_GRACE).await;
    };
    tokio::select! {
        () = shared.executor.ended() => {}
        // Blocking code cannot be ended, only left.
        () = patience => warn!("the driver's code does not return"),
    }
    result
}

/// Sees to the driver's end: on the first signal drain, then, when time is over or at the second
/// signal, stop. Never returns: the connections end by themselves.
async fn steer(config: &Config, shared: &Shared) -> std::convert::Infallible {
    let mut signals = drain::Signals::new(config.handle_signals);
    tokio::select! {
        name = signals.next() => info!(signal = name, "draining"),
        () = config.shutdown.cancelled() => info!("told to stop, draining"),
    }
    // In this order: once a session has announced the drain, nothing may start.
    shared.executor.close();
    shared.drain.cancel();
    tokio::select! {
        () = sleep(config.drain_grace) => warn!("operations still run: cancelling them"),
        name = signals.next() => warn!(signal = name, "again: cancelling what runs"),
    }
    shared.executor.cancel_all();
    tokio::select! {
        () = sleep(LAST_GRACE) => {}
        _ = signals.next() => {}
    }
    warn!("leaving operations unfinished");
    shared.stop.cancel();
    std::future::pending().await
}

fn registration(config: &Config, instance_id: &str, driver: &dyn Driver) -> wire::Registration {
    let kinds = config.kinds.iter().map(|kind| wire::Kind {
        api_version: kind.api_version.clone(),
        kind: kind.kind.clone(),
        provider: kind.provider.clone().unwrap_or_default(),
    });
    wire::Registration {
        name: config.name.clone(),
        hello: Some(wire::Hello {
            protocol_min: PROTOCOL,
            protocol_max: PROTOCOL,
            instance_id: instance_id.to_owned(),
            boot_id: format!("{:032x}", rand::random::<u128>()),
            driver_version: config.version.clone(),
            kinds: kinds.collect(),
            verbs: driver.verbs().iter().map(|verb| verb.as_str().to_owned()).collect(),
            cancel: true,
            resume: true,
            drain: true,
            paging: true,
            capacity: config.capacity.try_into().unwrap_or(u32::MAX),
            // Each connection's own to say.
            returning: false,
            resumed: Vec::new(),
            connected: Vec::new(),
        }),
        ..wire::Registration::default()
    }
}
