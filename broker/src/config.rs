//! Flags, environment and file, checked once; plain values afterwards.
//!
//! Every setting of `serve` can come from a flag, a `BROKER_…` variable or the YAML file that
//! `--config` names, in that order.

mod values;

use std::{
    fs,
    net::SocketAddr,
    num::NonZeroU32,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use broker_otlp::Endpoint;
use serde::Deserialize;

pub use self::values::{CatalogSource, DriverResources};
use self::values::{KindPolicy, Place, Span, is_label};
use crate::{
    audit::{self, Rotation},
    auth,
    bounds::Limits,
    children::DriverCommand,
    grpc::Admission,
    registry::{Policy, Seating},
    session::Times,
    telemetry::{LogFormat, Otlp},
};

/// More often would be noise, not news.
const SHORTEST_PING: Duration = Duration::from_millis(10);
const SHORTEST_RECHECK: Duration = Duration::from_secs(1);
/// A handshake takes its time on a slow line.
const SHORTEST_NEWCOMER: Duration = Duration::from_secs(1);
/// A bearer token and the trace of a caller have to fit in.
const SMALLEST_HEADERS: u32 = 4 * 1024;
/// In a second. An API server has other things to do.
const REVIEWS: NonZeroU32 = NonZeroU32::new(50).expect("not zero");
const LONGEST_QUEUE: usize = 1_000_000;
const SMALLEST_AUDIT: u64 = 1 << 20;
const MOST_AUDITS: u32 = 1_000;

/// The settings of `serve`, as they were given.
#[derive(Debug, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Options {
    /// YAML file with any of these settings, in camelCase (driverCommand, deadAfter, …)
    #[arg(long, env = "BROKER_CONFIG", value_name = "FILE")]
    #[serde(skip)]
    config: Option<PathBuf>,

    /// Where drivers and controllers connect [default: 127.0.0.1:5000]; port 0 takes any free one
    #[arg(long, env = "BROKER_LISTEN", value_name = "ADDRESS")]
    listen: Option<SocketAddr>,

    /// Where operators find the page, and probes an answer [default: 127.0.0.1:8080]
    #[arg(long, env = "BROKER_ADMIN", value_name = "ADDRESS")]
    admin: Option<SocketAddr>,

    /// Where machine classes and secrets come from: dir:PATH, a folder of Kubernetes YAML; kubernetes,
    /// the cluster that this runs in or that KUBECONFIG names; kubernetes:FILE, that of a kubeconfig
    #[arg(long, env = "BROKER_CATALOG", value_name = "SOURCE")]
    catalog: Option<CatalogSource>,

    /// Start this driver program, and again whenever it ends; may be given several times
    #[arg(long, env = "BROKER_DRIVER_COMMAND", value_name = "PROGRAM ARGS")]
    #[serde(default)]
    driver_command: Vec<DriverCommand>,

    /// How several drivers share a kind [default: share]
    #[arg(long, env = "BROKER_SEATING", value_name = "POLICY")]
    seating: Option<Policy>,

    /// The same for one kind; may be given several times, or separated by commas
    #[arg(long, env = "BROKER_SEATING_OF", value_name = "KIND=POLICY", value_delimiter = ',')]
    #[serde(default)]
    seating_of: Vec<KindPolicy>,

    /// How many operations may wait for a driver beyond its capacity [default: 10000]
    #[arg(long, env = "BROKER_QUEUE", value_name = "NUMBER")]
    queue: Option<usize>,

    /// How often a driver is pinged [default: 4s]
    #[arg(long, env = "BROKER_PING_EVERY", value_name = "TIME")]
    ping_every: Option<Span>,

    /// A driver that is silent for so long gets no new work [default: 12s]
    #[arg(long, env = "BROKER_SUSPECT_AFTER", value_name = "TIME")]
    suspect_after: Option<Span>,

    /// A driver that is silent for so long is given up [default: 30s]
    #[arg(long, env = "BROKER_DEAD_AFTER", value_name = "TIME")]
    dead_after: Option<Span>,

    /// How long running operations may take to finish when the broker stops [default: 30s]
    #[arg(long, env = "BROKER_GRACE", value_name = "TIME")]
    grace: Option<Span>,

    /// After a start, how long changes of machines wait for drivers that an earlier broker process knew
    /// to return, so that a retry meets the one that may still be at it [default: 5s]
    #[arg(long, env = "BROKER_SETTLE", value_name = "TIME")]
    settle: Option<Span>,

    /// What this broker calls itself among several [default: a random name]
    #[arg(long, env = "BROKER_REPLICA", value_name = "NAME")]
    replica: Option<String>,

    /// Where drivers reach the other replicas, separated by commas; this one may be among them. For
    /// brokers outside of a cluster: in one, Leases tell
    #[arg(long, env = "BROKER_PEERS", value_name = "HOST:PORT", value_delimiter = ',')]
    #[serde(default)]
    peers: Vec<Place>,

    /// Where drivers reach this replica. In a cluster it is written into a Lease, from which the
    /// other replicas know it [default: it is not told]
    #[arg(long, env = "BROKER_ADVERTISE", value_name = "HOST:PORT")]
    advertise: Option<Place>,

    /// The namespace of these Leases [default: that of the pod, or of the kubeconfig]
    #[arg(long, env = "BROKER_LEASE_NAMESPACE", value_name = "NAMESPACE")]
    lease_namespace: Option<String>,

    /// The broker's certificate as PEM, with those that lead to its CA; read again when it changes
    #[arg(long, env = "BROKER_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// The key of that certificate
    #[arg(long, env = "BROKER_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,

    /// The CAs of drivers, controllers and operators that show a certificate
    #[arg(long, env = "BROKER_CLIENT_CA", value_name = "FILE")]
    client_ca: Option<PathBuf>,

    /// Serve addresses other than loopback without TLS: anyone who can reach them gets in
    #[arg(long, env = "BROKER_INSECURE", num_args = 0..=1, default_missing_value = "true")]
    insecure: Option<bool>,

    /// Who may do what: a policy file (see docs/security.md). Nothing is allowed that it does not
    /// name; without one, whoever can reach the broker may do everything
    #[arg(long, env = "BROKER_POLICY", value_name = "FILE")]
    policy: Option<PathBuf>,

    /// Whose bearer tokens are known: a file of digests, made with `machine-broker tokens new`
    #[arg(long, env = "BROKER_TOKENS", value_name = "FILE")]
    tokens: Option<PathBuf>,

    /// Have the API server of the cluster review tokens of service accounts that are meant for this
    /// audience: their names are system:serviceaccount:NAMESPACE:NAME [default: none are reviewed]
    #[arg(long, env = "BROKER_TOKEN_REVIEW_AUDIENCE", value_name = "AUDIENCE")]
    token_review_audience: Option<String>,

    /// So many of these reviews in a second; whoever has to wait is told for how long [default: 50]
    #[arg(long, env = "BROKER_TOKEN_REVIEW_RATE", value_name = "NUMBER")]
    token_review_rate: Option<NonZeroU32>,

    /// With --catalog kubernetes, the namespace where drivers are shown as resources and events, or off
    /// [default: that of the pod, or of the kubeconfig]
    #[arg(long, env = "BROKER_DRIVER_RESOURCES", value_name = "NAMESPACE")]
    driver_resources: Option<DriverResources>,

    /// How often credentials are looked at again on open streams [default: 5m]
    #[arg(long, env = "BROKER_RECHECK", value_name = "TIME")]
    recheck: Option<Span>,

    /// Connections of drivers, controllers and operators [default: 20000, and no more than the limit
    /// of open files has room for]
    #[arg(long, env = "BROKER_MAX_CONNECTIONS", value_name = "NUMBER")]
    max_connections: Option<usize>,

    /// Connections of a port on which nobody was let in so far; beyond it the oldest goes
    /// [default: 1024]
    #[arg(long, env = "BROKER_MAX_NEWCOMERS", value_name = "NUMBER")]
    max_newcomers: Option<usize>,

    /// How long a connection may be one of these [default: 10s]
    #[arg(long, env = "BROKER_NEWCOMER_TIME", value_name = "TIME")]
    newcomer_time: Option<Span>,

    /// Drivers that are connected at once [default: 20000]
    #[arg(long, env = "BROKER_MAX_DRIVERS", value_name = "NUMBER")]
    max_drivers: Option<usize>,

    /// Streams of drivers that have not registered so far [default: 10000]
    #[arg(long, env = "BROKER_MAX_UNREGISTERED", value_name = "NUMBER")]
    max_unregistered: Option<usize>,

    /// Registrations in a second; five times as many at once after a quiet time [default: 2000]
    #[arg(long, env = "BROKER_REGISTRATION_RATE", value_name = "NUMBER")]
    registration_rate: Option<u32>,

    /// Streams of controllers and operators (Submit, watches) [default: 2000]
    #[arg(long, env = "BROKER_MAX_STREAMS", value_name = "NUMBER")]
    max_streams: Option<usize>,

    /// Of all of these, the part that one identity may have, up to 1 [default: 0.5]
    #[arg(long, env = "BROKER_IDENTITY_SHARE", value_name = "RATIO")]
    identity_share: Option<f64>,

    /// Calls and streams at once on one connection [default: 20000]
    #[arg(long, env = "BROKER_MAX_CONNECTION_STREAMS", value_name = "NUMBER")]
    max_connection_streams: Option<u32>,

    /// Calls that a client takes back before they are looked at, on one connection; beyond it the
    /// connection is closed [default: 200]
    #[arg(long, env = "BROKER_MAX_RESETS", value_name = "NUMBER")]
    max_resets: Option<usize>,

    /// The headers of one call [default: 16KiB]
    #[arg(long, env = "BROKER_MAX_HEADERS", value_name = "SIZE")]
    max_headers: Option<audit::Size>,

    /// Lines in a second about those who are refused, in the log and in the audit log; the rest is
    /// summed up [default: 50]
    #[arg(long, env = "BROKER_REFUSAL_LINES", value_name = "NUMBER")]
    refusal_lines: Option<u32>,

    /// What is logged, as in RUST_LOG [default: info]
    #[arg(long, env = "BROKER_LOG", value_name = "FILTER")]
    log: Option<String>,

    /// How it is logged [default: text]
    #[arg(long, env = "BROKER_LOG_FORMAT", value_name = "FORMAT")]
    log_format: Option<LogFormat>,

    /// Write who did what, a JSON line each, to this file, or - for stdout [default: nowhere]
    #[arg(long, env = "BROKER_AUDIT", value_name = "FILE")]
    audit: Option<PathBuf>,

    /// Put the file aside before it gets larger [default: 100MiB]
    #[arg(long, env = "BROKER_AUDIT_MAX_SIZE", value_name = "SIZE")]
    audit_max_size: Option<audit::Size>,

    /// How many files that were put aside are kept [default: 5]
    #[arg(long, env = "BROKER_AUDIT_KEEP", value_name = "NUMBER")]
    audit_keep: Option<u32>,

    /// Export spans to this OpenTelemetry collector, by OTLP over gRPC [default: nowhere]
    #[arg(long, env = "BROKER_OTLP_ENDPOINT", value_name = "http://HOST:PORT")]
    otlp_endpoint: Option<String>,

    /// Of traces that begin here, how many are exported, from 0 to 1 [default: 1]; those of callers
    /// are if theirs are
    #[arg(long, env = "BROKER_OTLP_SAMPLE", value_name = "RATIO")]
    otlp_sample: Option<f64>,
}

/// The settings of `serve`, checked.
#[derive(Debug)]
pub struct Config {
    pub listen: SocketAddr,
    pub admin: SocketAddr,
    pub catalog: Option<CatalogSource>,
    pub driver_commands: Vec<DriverCommand>,
    /// Served on both ports.
    pub tls: Option<broker_tls::server::Files>,
    pub seating: Seating,
    pub admission: Admission,
    pub neighbours: Neighbours,
    pub grace: Duration,
    pub policy: Option<PathBuf>,
    pub tokens: Option<PathBuf>,
    pub token_review: Option<TokenReview>,
    /// With a catalog of a cluster.
    pub driver_resources: DriverResources,
    pub recheck: Duration,
    pub limits: Limits,
    pub log: String,
    pub log_format: LogFormat,
    pub audit: Option<audit::Target>,
    pub otlp: Option<Otlp>,
    /// Where it came from, to be read again.
    pub file: Option<PathBuf>,
}

/// How replicas know each other.
#[derive(Clone, Debug, Default)]
pub struct Neighbours {
    /// Where drivers reach the others.
    pub peers: Vec<String>,
    /// Where they reach this one.
    pub advertise: Option<String>,
    /// Whether the others are told so by a Lease.
    pub leases: bool,
    /// Where that is; `None` for where this process is.
    pub lease_namespace: Option<String>,
}

/// How tokens of service accounts are known.
#[derive(Clone, Debug)]
pub struct TokenReview {
    pub audience: String,
    pub rate: NonZeroU32,
}

impl Options {
    /// Reads the file, fills in the defaults and checks what goes together.
    pub fn check(self) -> anyhow::Result<Config> {
        let options = match &self.config {
            Some(path) => {
                let file = read_file(path)?;
                self.or(file)
            }
            None => self,
        };
        let defaults = Times::default();
        let span = |given: Option<Span>, default: Duration| given.map_or(default, |span| span.0);
        let times = Times {
            ping_every: span(options.ping_every, defaults.ping_every),
            suspect_after: span(options.suspect_after, defaults.suspect_after),
            dead_after: span(options.dead_after, defaults.dead_after),
            accept_within: defaults.accept_within,
        };
        if times.ping_every < SHORTEST_PING {
            bail!("--ping-every must be at least {}", humantime::format_duration(SHORTEST_PING));
        }
        if options.queue.is_some_and(|queue| queue > LONGEST_QUEUE) {
            bail!("--queue must be at most {LONGEST_QUEUE}");
        }
        if !(times.ping_every < times.suspect_after && times.suspect_after < times.dead_after) {
            bail!("--ping-every must be shorter than --suspect-after, and that than --dead-after");
        }
        let admission = Admission::default();
        let limits = Limits::default();
        let headers = options.max_headers.map_or(Ok(limits.headers), |size| size.0.try_into());
        let limits = Limits {
            connections: options.max_connections.unwrap_or(limits.connections),
            newcomers: options.max_newcomers.unwrap_or(limits.newcomers),
            newcomer_time: span(options.newcomer_time, limits.newcomer_time),
            identity_share: options.identity_share.unwrap_or(limits.identity_share),
            drivers: options.max_drivers.unwrap_or(limits.drivers),
            unregistered: options.max_unregistered.unwrap_or(limits.unregistered),
            registration_rate: options.registration_rate.unwrap_or(limits.registration_rate),
            streams: options.max_streams.unwrap_or(limits.streams),
            streams_per_connection: options
                .max_connection_streams
                .unwrap_or(limits.streams_per_connection),
            headers: headers.context("--max-headers")?,
            resets: options.max_resets.unwrap_or(limits.resets),
            refusal_lines: options.refusal_lines.unwrap_or(limits.refusal_lines),
        };
        check_limits(&limits)?;
        let replica = options.replica.unwrap_or(admission.replica);
        let in_cluster = matches!(options.catalog, Some(CatalogSource::Kubernetes(_)));
        let neighbours =
            neighbours(options.peers, options.advertise, options.lease_namespace, in_cluster)?;
        if neighbours.leases && !is_label(&replica) {
            bail!(
                "--replica {replica:?} cannot name a Lease: use lower case letters, digits and '-', \
                 at most 63 of them"
            );
        }
        let config = Config {
            listen: options.listen.unwrap_or_else(|| ([127, 0, 0, 1], 5000).into()),
            admin: options.admin.unwrap_or_else(|| ([127, 0, 0, 1], 8080).into()),
            catalog: options.catalog,
            driver_commands: options.driver_command,
            tls: tls_files(options.tls_cert, options.tls_key, options.client_ca)?,
            seating: Seating {
                default: options.seating.unwrap_or_default(),
                kinds: options.seating_of.into_iter().map(|of| (of.kind, of.policy)).collect(),
            },
            admission: Admission {
                times,
                queue: options.queue.unwrap_or(admission.queue),
                replica,
                settle: span(options.settle, admission.settle),
                ..admission
            },
            neighbours,
            grace: span(options.grace, Duration::from_secs(30)),
            policy: options.policy,
            tokens: options.tokens,
            token_review: options.token_review_audience.map(|audience| TokenReview {
                audience,
                rate: options.token_review_rate.unwrap_or(REVIEWS),
            }),
            driver_resources: options.driver_resources.unwrap_or_default(),
            recheck: span(options.recheck, auth::RECHECK),
            limits,
            log: options.log.unwrap_or_else(|| "info".to_owned()),
            log_format: options.log_format.unwrap_or_default(),
            audit: audit_target(options.audit, options.audit_max_size, options.audit_keep)?,
            otlp: otlp(options.otlp_endpoint, options.otlp_sample)?,
            file: options.config,
        };
        let in_cluster = matches!(config.catalog, Some(CatalogSource::Kubernetes(_)));
        if matches!(config.driver_resources, DriverResources::In(_)) && !in_cluster {
            bail!("--driver-resources needs a cluster to show them in: --catalog kubernetes");
        }
        if config.recheck < SHORTEST_RECHECK {
            let shortest = humantime::format_duration(SHORTEST_RECHECK);
            bail!("--recheck must be at least {shortest}");
        }
        if config.tls.is_some() && config.policy.is_none() {
            bail!(
                "with TLS there must be a policy, or else everyone who can connect may do everything: \
                 give --policy FILE (`machine-broker certs init` makes one to begin with)"
            );
        }
        for (flag, address) in [("--listen", config.listen), ("--admin", config.admin)] {
            let safe = address.ip().is_loopback() || config.tls.is_some();
            if !safe && !options.insecure.unwrap_or(false) {
                bail!(
                    "{flag} {address} is not a loopback address and there is no TLS: \
                     anyone who can reach it could create machines and read secrets. \
                     Give --tls-cert, --tls-key and --client-ca, serve 127.0.0.1, or say --insecure \
                     if that is what you want"
                );
            }
        }
        Ok(config)
    }

    /// What is set here, or else there.
    fn or(self, other: Options) -> Options {
        Options {
            config: self.config,
            listen: self.listen.or(other.listen),
            admin: self.admin.or(other.admin),
            catalog: self.catalog.or(other.catalog),
            driver_command: first(self.driver_command, other.driver_command),
            seating: self.seating.or(other.seating),
            seating_of: first(self.seating_of, other.seating_of),
            queue: self.queue.or(other.queue),
            ping_every: self.ping_every.or(other.ping_every),
            suspect_after: self.suspect_after.or(other.suspect_after),
            dead_after: self.dead_after.or(other.dead_after),
            grace: self.grace.or(other.grace),
            settle: self.settle.or(other.settle),
            replica: self.replica.or(other.replica),
            peers: first(self.peers, other.peers),
            advertise: self.advertise.or(other.advertise),
            lease_namespace: self.lease_namespace.or(other.lease_namespace),
            tls_cert: self.tls_cert.or(other.tls_cert),
            tls_key: self.tls_key.or(other.tls_key),
            client_ca: self.client_ca.or(other.client_ca),
            insecure: self.insecure.or(other.insecure),
            policy: self.policy.or(other.policy),
            tokens: self.tokens.or(other.tokens),
            token_review_audience: self.token_review_audience.or(other.token_review_audience),
            token_review_rate: self.token_review_rate.or(other.token_review_rate),
            driver_resources: self.driver_resources.or(other.driver_resources),
            recheck: self.recheck.or(other.recheck),
            max_connections: self.max_connections.or(other.max_connections),
            max_newcomers: self.max_newcomers.or(other.max_newcomers),
            newcomer_time: self.newcomer_time.or(other.newcomer_time),
            max_drivers: self.max_drivers.or(other.max_drivers),
            max_unregistered: self.max_unregistered.or(other.max_unregistered),
            registration_rate: self.registration_rate.or(other.registration_rate),
            max_streams: self.max_streams.or(other.max_streams),
            identity_share: self.identity_share.or(other.identity_share),
            max_connection_streams: self.max_connection_streams.or(other.max_connection_streams),
            max_resets: self.max_resets.or(other.max_resets),
            max_headers: self.max_headers.or(other.max_headers),
            refusal_lines: self.refusal_lines.or(other.refusal_lines),
            log: self.log.or(other.log),
            log_format: self.log_format.or(other.log_format),
            audit: self.audit.or(other.audit),
            audit_max_size: self.audit_max_size.or(other.audit_max_size),
            audit_keep: self.audit_keep.or(other.audit_keep),
            otlp_endpoint: self.otlp_endpoint.or(other.otlp_endpoint),
            otlp_sample: self.otlp_sample.or(other.otlp_sample),
        }
    }
}

fn check_limits(limits: &Limits) -> anyhow::Result<()> {
    for (flag, number) in [
        ("--max-connections", limits.connections),
        ("--max-newcomers", limits.newcomers),
        ("--max-drivers", limits.drivers),
        ("--max-unregistered", limits.unregistered),
        ("--max-streams", limits.streams),
        ("--max-connection-streams", limits.streams_per_connection as usize),
        ("--max-resets", limits.resets),
        ("--registration-rate", limits.registration_rate as usize),
        ("--refusal-lines", limits.refusal_lines as usize),
    ] {
        if number == 0 {
            bail!("{flag} must be at least 1: with 0 nobody could do anything");
        }
    }
    if limits.newcomer_time < SHORTEST_NEWCOMER {
        let shortest = humantime::format_duration(SHORTEST_NEWCOMER);
        bail!("--newcomer-time must be at least {shortest}");
    }
    if limits.headers < SMALLEST_HEADERS {
        bail!("--max-headers must be at least {}KiB", SMALLEST_HEADERS >> 10);
    }
    if !(limits.identity_share > 0.0 && limits.identity_share <= 1.0) {
        bail!("--identity-share must be more than 0, and at most 1");
    }
    Ok(())
}

fn tls_files(
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    client_ca: Option<PathBuf>,
) -> anyhow::Result<Option<broker_tls::server::Files>> {
    match (cert, key, client_ca) {
        (Some(cert), Some(key), client_ca) => {
            Ok(Some(broker_tls::server::Files { cert, key, client_ca }))
        }
        (None, None, None) => Ok(None),
        _ => bail!("TLS needs both --tls-cert and --tls-key; --client-ca goes with them"),
    }
}

fn neighbours(
    peers: Vec<Place>,
    advertise: Option<Place>,
    lease_namespace: Option<String>,
    in_cluster: bool,
) -> anyhow::Result<Neighbours> {
    if lease_namespace.is_some() && advertise.is_none() {
        bail!("--lease-namespace needs --advertise: a Lease tells where this replica is reached");
    }
    if lease_namespace.as_deref().is_some_and(|namespace| !is_label(namespace)) {
        bail!("--lease-namespace is not the name of a namespace");
    }
    Ok(Neighbours {
        leases: advertise.is_some() && (in_cluster || lease_namespace.is_some()),
        peers: peers.into_iter().map(|place| place.0).collect(),
        advertise: advertise.map(|place| place.0),
        lease_namespace,
    })
}

fn audit_target(
    file: Option<PathBuf>,
    max_size: Option<audit::Size>,
    keep: Option<u32>,
) -> anyhow::Result<Option<audit::Target>> {
    let default = Rotation::default();
    let max_size = max_size.map_or(default.max_size, |size| size.0);
    if max_size < SMALLEST_AUDIT {
        bail!("--audit-max-size must be at least {}MiB", SMALLEST_AUDIT >> 20);
    }
    let keep = keep.unwrap_or(default.keep);
    if keep > MOST_AUDITS {
        bail!("--audit-keep must be at most {MOST_AUDITS}");
    }
    Ok(file.map(|file| match file.as_os_str() {
        name if name == "-" => audit::Target::Stdout,
        _ => audit::Target::File(file, Rotation { max_size, keep }),
    }))
}

fn otlp(endpoint: Option<String>, sample: Option<f64>) -> anyhow::Result<Option<Otlp>> {
    let sample = sample.unwrap_or(1.0);
    if !(0.0..=1.0).contains(&sample) {
        bail!("--otlp-sample must be from 0 to 1");
    }
    let endpoint = endpoint.map(|endpoint| endpoint.parse::<Endpoint>()).transpose();
    let endpoint = endpoint.context("--otlp-endpoint")?;
    Ok(endpoint.map(|endpoint| Otlp { endpoint, sample }))
}

fn first<T>(ours: Vec<T>, theirs: Vec<T>) -> Vec<T> {
    if ours.is_empty() { theirs } else { ours }
}

/// The log filter that the file has now, if it has one.
pub fn log_filter(path: &Path) -> anyhow::Result<Option<String>> {
    read_file(path).map(|options| options.log)
}

fn read_file(path: &Path) -> anyhow::Result<Options> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_str_with_options(&text, options)
        .map_err(|error| anyhow!("in the configuration {}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
