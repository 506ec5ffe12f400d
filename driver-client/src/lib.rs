//! All that the author of a driver imports: implement [`Driver`], call [`run`].
//!
//! A driver dials into its brokers, says which machine classes it serves, and is then asked to
//! create, delete and list machines. This crate does everything but the machines: connections and
//! their loss, heartbeats, deadlines, cancellation, concurrency, and the memory that keeps a
//! repeated request from being executed twice. `examples/minimal.rs` is a whole driver.
//!
//! What remains the driver's duty, because only the provider knows: **create is idempotent by
//! machine name** (look for the machine before making it), and **deleting an absent machine
//! succeeds**. After a crash of the driver's own process nothing else stands between a retry and a
//! second machine.
//!
//! Reading order: the `fleet` sees to one connection per broker replica; `connection` keeps a session to one broker; the session hands operations to the
//! `executor`, which asks the table in `operations` what becomes of them and runs the driver's code;
//! `classes` answers the driver's questions about classes and secrets.

mod answer;
mod backoff;
mod classes;
mod config;
mod connection;
mod dial;
mod drain;
mod error;
mod executor;
mod fleet;
mod instance;
mod machine;
mod maps;
mod operation;
mod operations;
#[cfg(feature = "otlp")]
pub mod otlp;
mod pool;
mod run;
mod secret;
pub mod testing;
#[cfg(test)]
mod tests;
mod together;
mod verb;

pub use async_trait::async_trait;
pub use broker_tls::Tls;
pub use tokio_util::sync::CancellationToken;

pub use crate::{
    classes::{Class, LookupError},
    config::{Config, Kind, Token},
    dial::{Dial, Tcp, endpoint},
    error::{Code, Error},
    machine::{Address, ListedMachine, Machine},
    operation::Operation,
    operations::ClassRef,
    pool::Pool,
    run::{RunError, run},
    secret::{Secret, Sensitive},
    verb::Verb,
};

/// What a provider can do. One value serves all operations, many at once.
///
/// Methods are called on tasks of their own: a panic ends that operation with `INTERNAL` and
/// nothing else. Blocking calls belong into `tokio::task::spawn_blocking`. When
/// [`Operation::cancellation`] fires, stop where that leaves nothing half-made, and answer.
#[async_trait]
pub trait Driver: Send + Sync + 'static {
    /// What this driver implements; brokers never send anything else. Override it together with
    /// the optional methods: [`Verb::ALL`] if all of them are there.
    fn verbs(&self) -> &[Verb] {
        Verb::REQUIRED
    }

    /// Makes the machine exist. If it does already, says so with the same answer as the first time.
    async fn create(&self, op: &Operation) -> Result<Machine, Error>;

    /// Makes the machine not exist. If it does not already, succeeds.
    async fn delete(&self, op: &Operation) -> Result<(), Error>;

    /// All machines of the class, or only the one that [`Operation::provider_id`] names.
    async fn list(&self, op: &Operation) -> Result<Vec<ListedMachine>, Error>;

    /// Completes a machine that `create` or `get_status` reported as [`Code::Uninitialized`].
    async fn initialize(&self, op: &Operation) -> Result<Machine, Error> {
        Err(unimplemented(op))
    }

    /// The machine as it is now; [`Code::NotFound`] if it is not there.
    async fn get_status(&self, op: &Operation) -> Result<Machine, Error> {
        Err(unimplemented(op))
    }

    /// The provider's ids of [`Operation::volume_specs`].
    async fn get_volume_ids(&self, op: &Operation) -> Result<Vec<String>, Error> {
        Err(unimplemented(op))
    }
}

fn unimplemented(op: &Operation) -> Error {
    Error::new(Code::Unimplemented, format!("this driver has no {}", op.verb()))
}
