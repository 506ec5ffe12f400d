//! The doors: puts the services together into one gRPC server.

mod connection;
mod drivers;
mod entrance;
mod guard;
mod historic;
mod machines;
mod registry;
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
    historic::answer_to_historic_names,
};
use crate::{dispatch::Dispatcher, inspect::Rooms};

/// The largest frame of a driver that is read: those of 2018 send a list in one piece.
pub const MAX_FRAME: usize = 16 * 1024 * 1024;
/// The largest request of anyone else that is read. User data is bounded besides.
pub const MAX_MESSAGE: usize = 4 * 1024 * 1024;

/// All services, with health and reflection.
pub async fn routes(
    drivers: Arc<Drivers>,
    dispatcher: Dispatcher,
    rooms: Arc<Rooms>,
) -> anyhow::Result<(Routes, HealthReporter)> {
    let (reporter, health) = tonic_health::server::health_reporter();
    let machines =
        machines::Machines::new(dispatcher, drivers.auth.clone(), drivers.bounds.clone());
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
    let routes = Routes::new(
        DriversServer::new(DriversDoor(drivers))
            .max_decoding_message_size(MAX_FRAME)
            .max_encoding_message_size(MAX_MESSAGE),
    )
    .add_service(
        MachinesServer::new(machines)
            .max_decoding_message_size(MAX_MESSAGE)
            // A list is one answer, however long.
            .max_encoding_message_size(usize::MAX),
    )
    .add_service(RegistryServer::new(registry).max_decoding_message_size(MAX_MESSAGE))
    .add_service(health)
    .add_service(reflection);
    Ok((routes, reporter))
}

/// Says on the health service that this broker takes no more work.
pub async fn not_serving(health: &HealthReporter) {
    // The name of the whole, which most probes ask for.
    health.set_service_status("", ServingStatus::NotServing).await;
    health.set_not_serving::<DriversServer<DriversDoor>>().await;
    health.set_not_serving::<MachinesServer<machines::Machines>>().await;
}
