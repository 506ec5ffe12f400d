//! What operators see, through whichever door: drivers, operations, and whether all is well.
//!
//! Reads every room and changes none.

mod describe;
mod status;

use std::{sync::Arc, time::SystemTime};

use tokio_util::sync::CancellationToken;

pub use self::{
    describe::{class, details, driver, drivers, operations, past, served_by},
    status::status,
};
use crate::{catalog::Catalog, operation::Ledger, registry::Registry};

/// What operators can look into.
#[derive(Debug)]
pub struct Rooms {
    pub registry: Registry,
    pub ledger: Ledger,
    pub catalog: Arc<dyn Catalog>,
    pub replica: String,
    pub started_at: SystemTime,
    /// Cancelled when the broker begins to stop.
    pub closing: CancellationToken,
}
