//! `machine-broker serve`: the real thing.

use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};

use crate::{
    audit::Audit,
    auth::{self, Authenticator, Files, Reviewed},
    catalog::{
        Catalog, Directory, Kubernetes,
        kubernetes::{Cluster, DriverObjects, TokenReviews},
    },
    config::{CatalogSource, DriverResources, Options},
    metrics::Metrics,
    replicas::Replicas,
    server::{self, Broker, Plan, Settings},
    telemetry::{self, LogControl},
};

/// A catalog that has to be kept up to date.
enum Source {
    Directory(Arc<Directory>),
    Kubernetes(Arc<Kubernetes>),
}

impl Source {
    fn shared(&self) -> Arc<dyn Catalog> {
        match self {
            Self::Directory(folder) => Arc::clone(folder) as _,
            Self::Kubernetes(cluster) => Arc::clone(cluster) as _,
        }
    }
}

pub(super) async fn run(options: Options) -> anyhow::Result<()> {
    let config = options.check()?;
    let replica = &config.admission.replica;
    let otlp = config.otlp.clone();
    let (filter, spans) = telemetry::start(&config.log, config.log_format, otlp, replica)?;
    let log = LogControl::new(filter, &config.log);
    let cluster = match &config.catalog {
        Some(CatalogSource::Kubernetes(kubeconfig)) => {
            Some(Cluster::open(kubeconfig.as_deref()).await?)
        }
        _ if config.token_review.is_some() || config.neighbours.leases => {
            Some(Cluster::open(None).await?)
        }
        _ => None,
    };
    let catalog = match (config.catalog, &cluster) {
        (Some(CatalogSource::Directory(path)), _) => Source::Directory(Directory::open(path)?),
        (Some(CatalogSource::Kubernetes(_)), Some(cluster)) => {
            Source::Kubernetes(Kubernetes::new(cluster))
        }
        _ => bail!(
            "there is no catalog: say where machine classes and secrets come from \
             with --catalog dir:PATH or --catalog kubernetes, or try `machine-broker dev`"
        ),
    };
    let (stop, hangups) = (server::signal()?, server::hangups()?);
    let audit = match &config.audit {
        Some(target) => Audit::open(target).context("cannot write to the audit log")?,
        None => Audit::default(),
    };
    let tls = config.tls.map(broker_tls::Server::open).transpose().context("cannot serve TLS")?;
    let (files, policy, tokens) = Files::open(config.policy.as_deref(), config.tokens.as_deref())
        .map_err(|problem| anyhow!("{problem}"))?;
    match &policy {
        Some(policy) => tracing::info!(rules = policy.len(), "policy in force"),
        None => tracing::warn!(
            "there is no policy: whoever can reach {} may do everything; see --policy",
            config.listen
        ),
    }
    let tokens = tokens.map(|tokens| Arc::new(tokens) as Arc<dyn Authenticator>);
    let metrics = Metrics::default();
    let reviews = config.token_review.zip(cluster.clone()).map(|(review, cluster)| {
        let reviewer = TokenReviews::new(cluster, review.audience.clone());
        // Looked at twice as often as streams are, so that each look of a stream is a new one.
        let fresh = config.recheck / 2;
        let reviewed = Reviewed::new(Arc::new(reviewer), review.audience, fresh, review.rate);
        Arc::new(reviewed.counted(metrics.clone())) as Arc<dyn Authenticator>
    });
    let neighbours = config.neighbours;
    let replicas = Replicas::new(&config.admission.replica, neighbours.advertise.as_deref());
    replicas.list(&neighbours.peers);
    if neighbours.leases {
        replicas.expect();
    }
    let replica = config.admission.replica.clone();
    let shown = replicas.clone();
    let broker = Broker::new(Settings {
        replicas: Some(replicas),
        admission: config.admission,
        seating: config.seating,
        catalog: catalog.shared(),
        audit,
        log: Some(log.clone()),
        auth: auth::Settings {
            policy,
            authenticators: tokens.into_iter().chain(reviews).collect(),
            tls,
            recheck: config.recheck,
        },
        limits: config.limits,
        metrics,
    });
    broker.follow(files);
    broker.own(|stopped| log.follow(hangups, config.file, config.log, stopped));
    match catalog {
        Source::Directory(folder) => broker.own(|stopped| folder.watch(stopped)),
        Source::Kubernetes(catalog) => {
            broker.own(|stopped| catalog.follow(broker.demand(), stopped));
            let namespace = match config.driver_resources {
                DriverResources::Here => Some(None),
                DriverResources::In(namespace) => Some(Some(namespace)),
                DriverResources::Off => None,
            };
            if let Some((namespace, cluster)) = namespace.zip(cluster.as_ref()) {
                let objects = DriverObjects::new(cluster, namespace, &replica);
                tracing::info!(namespace = objects.namespace(), "showing drivers in the cluster");
                // Where it is not known who else is there, what others wrote goes when it is old.
                broker.mirror(objects, Box::new(move || shown.known_live()));
            }
        }
    }
    let plan = Plan {
        listen: config.listen,
        admin: config.admin,
        driver_commands: telemetry::told(config.driver_commands, config.otlp.as_ref()),
        log_format: config.log_format,
        grace: config.grace,
    };
    let present = cluster.zip(neighbours.advertise).filter(|_| neighbours.leases);
    let started = {
        let broker = broker.clone();
        // Nobody is sent here before there is somebody to answer.
        move |_, _| {
            if let Some((cluster, address)) = present {
                broker.attend(&cluster, neighbours.lease_namespace, address);
            }
        }
    };
    let result = server::run(broker, plan, stop, started).await;
    spans.stop().await;
    result
}
