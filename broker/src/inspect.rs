//! What operators see, through whichever door: drivers, operations, and whether all is well.
//!
//! Reads every room and changes none.

mod certificates;
mod describe;
mod find;
mod serving;
mod status;

use std::{sync::Arc, time::SystemTime};

use tokio_util::sync::CancellationToken;

pub use self::{
    describe::{class, details, driver, drivers, gone, operations},
    find::{Unknown, connected, known},
    serving::Serving,
    status::status,
};
use crate::{
    audit::Audit,
    auth::{self, Auth},
    catalog::Catalog,
    mirror,
    operation::Ledger,
    registry::Registry,
    replicas::Replicas,
    telemetry::LogControl,
};

/// What operators can look into.
#[derive(Debug)]
pub struct Rooms {
    pub registry: Registry,
    pub ledger: Ledger,
    pub catalog: Arc<dyn Catalog>,
    pub replica: String,
    pub replicas: Replicas,
    pub started_at: SystemTime,
    /// Cancelled when the broker begins to stop.
    pub closing: CancellationToken,
    pub audit: Audit,
    pub auth: Auth,
    /// `None` where the log is not ours to steer.
    pub log: Option<LogControl>,
    /// What is the matter with showing drivers in a cluster.
    pub mirror: mirror::Trouble,
}

impl Rooms {
    pub fn new(registry: Registry, ledger: Ledger, catalog: Arc<dyn Catalog>) -> Self {
        Self {
            registry,
            ledger,
            catalog,
            replica: String::new(),
            replicas: Replicas::new("", None),
            started_at: SystemTime::now(),
            closing: CancellationToken::new(),
            audit: Audit::default(),
            auth: Auth::new(auth::Settings::default()),
            log: None,
            mirror: mirror::Trouble::default(),
        }
    }
}
