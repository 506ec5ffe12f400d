//! `machine-broker serve`: the real thing.

use anyhow::{Context as _, bail};

use crate::{
    audit::Audit,
    catalog::Directory,
    config::{CatalogSource, Options},
    server::{self, Broker, Plan},
    telemetry,
};

pub(super) async fn run(options: Options) -> anyhow::Result<()> {
    let config = options.check()?;
    let filter = telemetry::start(&config.log, config.log_format)?;
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
    let broker = Broker::new(config.admission, config.seating, catalog.clone()).audited(audit);
    broker.own(|stopped| filter.follow(hangups, config.file, config.log, stopped));
    broker.own(|stopped| catalog.watch(stopped));
    let plan = Plan {
        listen: config.listen,
        admin: config.admin,
        driver_commands: config.driver_commands,
        grace: config.grace,
    };
    server::run(broker, plan, stop, |_, _| {}).await
}
