//! The doors: puts the services together into one gRPC server.

mod connection;
mod drivers;
mod entrance;
mod front;
mod guard;
mod historic;
mod machines;
mod registry;
mod reply;
mod status;
mod timeout;

use std::sync::Arc;

use broker_proto::{
    passing::{drivers_server::DriversServer, machines_server::MachinesServer},
    v1::registry_server::RegistryServer,
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
    reporter.set_serving::<DriversServer<DriversDoor>>().await;
    reporter.set_serving::<MachinesServer<machines::Machines>>().await;
    reporter.set_serving::<RegistryServer<registry::RegistryDoor>>().await;
    let drivers = DriversServer::new(DriversDoor(drivers))
        .max_decoding_message_size(MAX_FRAME)
        .max_encoding_message_size(MAX_MESSAGE);
    let machines_service = MachinesServer::from_arc(Arc::clone(&machines))
        .max_decoding_message_size(MAX_MESSAGE)
        // A list is one answer, however long.
        .max_encoding_message_size(usize::MAX);
    let registry = RegistryServer::new(registry).max_decoding_message_size(MAX_MESSAGE);
    let others = Routes::new(registry).add_service(health).add_service(reflection).prepare();
    Ok((Front { entrance, machines, machines_service, drivers, others }, reporter))
}

/// Says on the health service that this broker takes no more work.
pub async fn not_serving(health: &HealthReporter) {
    // The name of the whole, which most probes ask for.
    health.set_service_status("", ServingStatus::NotServing).await;
    health.set_not_serving::<DriversServer<DriversDoor>>().await;
    health.set_not_serving::<MachinesServer<machines::Machines>>().await;
}
