//! The doors: puts the services together into one gRPC server.

mod connection;
mod drivers;
mod entrance;
mod front;
mod guard;
mod historic;
mod machines;
mod messages;
mod registry;
mod reply;
mod status;
mod timeout;
mod unary;

use std::sync::Arc;

use broker_proto::v1::{
    drivers_server, machines_server,
    registry_server::{self, RegistryServer},
};
use tonic::service::Routes;
use tonic_health::{ServingStatus, server::HealthReporter};

use self::drivers::DriversDoor;
pub use self::{
    connection::{Connection, Peer},
    drivers::{Admission, Drivers},
    entrance::Entrance,
    front::{Front, Usher},
};
use crate::{dispatch::Dispatcher, inspect::Rooms};

/// The largest frame of a driver that is read: those of 2018 send a list in one piece.
pub const MAX_FRAME: usize = 16 * 1024 * 1024;
/// The largest request of anyone else that is read. User data is bounded besides.
pub const MAX_MESSAGE: usize = 4 * 1024 * 1024;

/// Our own services, as health knows them.
const SERVICES: [&str; 3] =
    [drivers_server::SERVICE_NAME, machines_server::SERVICE_NAME, registry_server::SERVICE_NAME];

/// All services, with health and reflection.
pub async fn front(
    entrance: Entrance,
    drivers: Arc<Drivers>,
    dispatcher: Dispatcher,
    rooms: Arc<Rooms>,
) -> anyhow::Result<(Front, HealthReporter)> {
    let (reporter, health) = tonic_health::server::health_reporter();
    let (auth, bounds) = (drivers.auth.clone(), drivers.bounds.clone());
    let machines = Arc::new(machines::Machines::new(dispatcher, auth, bounds));
    let registry = registry::RegistryDoor::new(
        rooms,
        drivers.auth.clone(),
        drivers.audit.clone(),
        drivers.bounds.clone(),
    );
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(broker_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    for service in SERVICES {
        reporter.set_service_status(service, ServingStatus::Serving).await;
    }
    let drivers = DriversDoor(drivers);
    let registry = RegistryServer::new(registry).max_decoding_message_size(MAX_MESSAGE);
    let others = Routes::new(registry).add_service(health).add_service(reflection).prepare();
    Ok((Front { entrance, machines, drivers, others }, reporter))
}

/// Says on the health service that this broker takes no more work.
pub async fn not_serving(health: &HealthReporter) {
    // The empty one is the name of the whole, which most probes ask for.
    for service in ["", drivers_server::SERVICE_NAME, machines_server::SERVICE_NAME] {
        health.set_service_status(service, ServingStatus::NotServing).await;
    }
}
