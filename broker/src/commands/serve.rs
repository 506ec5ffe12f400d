//! `machine-broker serve`: the real thing.

use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};

use crate::{
    audit::Audit,
    auth::{self, Authenticator, Files},
    catalog::Directory,
    config::{CatalogSource, Options},
    server::{self, Broker, Plan, Settings},
    telemetry::{self, LogControl},
};

pub(super) async fn run(options: Options) -> anyhow::Result<()> {
    let config = options.check()?;
    let replica = &config.admission.replica;
    let otlp = config.otlp.clone();
    let (filter, spans) = telemetry::start(&config.log, config.log_format, otlp, replica)?;
    let log = LogControl::new(filter, &config.log);
    let catalog = match config.catalog {
        Some(CatalogSource::Directory(path)) => Directory::open(path)?,
        None => bail!(
            "there is no catalog: say where machine classes and secrets come from \
             with --catalog dir:PATH, or try `machine-broker dev`"
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
    let broker = Broker::new(Settings {
        admission: config.admission,
        seating: config.seating,
        catalog: catalog.clone(),
        audit,
        log: Some(log.clone()),
        auth: auth::Settings {
            policy,
            authenticators: tokens.into_iter().collect(),
            tls,
            recheck: config.recheck,
        },
        limits: config.limits,
    });
    broker.follow(files);
    broker.own(|stopped| log.follow(hangups, config.file, config.log, stopped));
    broker.own(|stopped| catalog.watch(stopped));
    let plan = Plan {
        listen: config.listen,
        admin: config.admin,
        driver_commands: telemetry::told(config.driver_commands, config.otlp.as_ref()),
        log_format: config.log_format,
        grace: config.grace,
    };
    let result = server::run(broker, plan, stop, |_, _| {}).await;
    spans.stop().await;
    result
}
