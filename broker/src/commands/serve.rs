//! `machine-broker serve`: the real thing.

use anyhow::bail;

use crate::{
    catalog::Directory,
    config::{CatalogSource, Options},
    server::{self, Broker, Plan},
    telemetry,
};

pub(super) async fn run(options: Options) -> anyhow::Result<()> {
    let config = options.check()?;
    telemetry::start(&config.log, config.log_format)?;
    let catalog = match config.catalog {
        Some(CatalogSource::Directory(path)) => Directory::open(path)?,
        None => bail!(
            "there is no catalog: say where machine classes and secrets come from \
             with --catalog dir:PATH, or try `machine-broker dev`"
        ),
    };
    let stop = server::signal()?;
    let broker = Broker::new(config.admission, config.seating, catalog.clone());
    broker.own(|stopped| catalog.watch(stopped));
    let plan = Plan {
        listen: config.listen,
        admin: config.admin,
        driver_commands: config.driver_commands,
        grace: config.grace,
    };
    server::run(broker, plan, stop, |_, _| {}).await
}
