//! The operators' door: reads, never writes.

use broker_proto::v1::{
    self, DriverState, ListDriversRequest, ListDriversResponse, ListOperationsRequest,
    ListOperationsResponse, registry_server,
};
use tonic::{Request, Response, Status};

use crate::{
    driver::{ClassId, DriverKey},
    operation::{Delivery, Finished, Ledger, Operation},
    registry::Registry,
    session::{Health, SessionHandle},
};

/// How many finished operations are listed unless asked otherwise.
const FINISHED: usize = 100;

#[derive(Debug)]
pub(super) struct RegistryDoor {
    registry: Registry,
    ledger: Ledger,
}

impl RegistryDoor {
    pub(super) fn new(registry: Registry, ledger: Ledger) -> Self {
        Self { registry, ledger }
    }
}

#[tonic::async_trait]
impl registry_server::Registry for RegistryDoor {
    async fn list_drivers(
        &self,
        request: Request<ListDriversRequest>,
    ) -> Result<Response<ListDriversResponse>, Status> {
        let kind = request.into_inner().kind;
        let serves = |session: &SessionHandle| {
            kind.is_empty() || session.info().keys.iter().any(|key| *key.kind == kind)
        };
        let mut sessions: Vec<_> = self.registry.sessions().into_iter().filter(serves).collect();
        sessions.sort_by_key(|session| (session.info().connected_at, session.info().id));
        let drivers = sessions.iter().map(driver).collect();
        Ok(Response::new(ListDriversResponse { drivers }))
    }

    async fn list_operations(
        &self,
        request: Request<ListOperationsRequest>,
    ) -> Result<Response<ListOperationsResponse>, Status> {
        let most = match request.into_inner().finished {
            0 => FINISHED,
            most => most as usize,
        };
        let mut running = self.ledger.running();
        running.sort_by_key(|operation| operation.id);
        let running = running.iter().map(|operation| running_operation(operation));
        let recent = self.ledger.recent(most);
        let operations = running.chain(recent.into_iter().map(finished_operation)).collect();
        Ok(Response::new(ListOperationsResponse { operations }))
    }
}

fn driver(session: &SessionHandle) -> v1::Driver {
    let info = session.info();
    let (state, reason) = match session.health() {
        Health::Ready => (DriverState::Ready, ""),
        Health::Suspect(why) => (DriverState::Suspect, why),
        Health::Draining(why) => (DriverState::Draining, why),
    };
    v1::Driver {
        session_id: info.id.to_string(),
        name: info.name.clone(),
        kinds: info.keys.iter().map(kind).collect(),
        instance_id: info.instance.id.to_string(),
        boot_id: info.instance.boot.as_deref().unwrap_or_default().to_owned(),
        driver_version: info.version.clone(),
        protocol: info.protocol,
        address: info.address.clone(),
        state: state.into(),
        connected_at: Some(info.connected_at.into()),
        last_heard: session.last_heard().try_into().ok(),
        capacity: count(info.capacity),
        in_flight: count(session.in_flight()),
        queued: count(session.queued()),
        verbs: info.verbs.iter().map(ToString::to_string).collect(),
        state_reason: reason.to_owned(),
    }
}

fn kind(key: &DriverKey) -> v1::Kind {
    v1::Kind {
        api_version: key.api_version.to_string(),
        kind: key.kind.to_string(),
        provider: key.provider.as_deref().unwrap_or_default().to_owned(),
    }
}

fn running_operation(operation: &Operation) -> v1::Operation {
    let request = &operation.request;
    let session = operation.session();
    v1::Operation {
        operation_id: operation.id.to_string(),
        verb: request.verb.to_string(),
        class: Some(class(&request.class.id)),
        machine_name: request.machine.to_string(),
        driver_instance: session.map(|s| s.info().instance.to_string()).unwrap_or_default(),
        session_id: session.map(|s| s.info().id.to_string()).unwrap_or_default(),
        delivery: delivery(operation.delivery()).into(),
        submitted_at: Some(operation.submitted_at.into()),
        age: operation.submitted.elapsed().try_into().ok(),
        finished: false,
        outcome: String::new(),
        message: String::new(),
    }
}

fn finished_operation(finished: Finished) -> v1::Operation {
    v1::Operation {
        operation_id: finished.id.to_string(),
        verb: finished.verb.to_string(),
        class: Some(class(&finished.class)),
        machine_name: finished.machine.to_string(),
        driver_instance: finished.instance.map(|i| i.to_string()).unwrap_or_default(),
        session_id: finished.session.map(|id| id.to_string()).unwrap_or_default(),
        delivery: delivery(finished.delivery).into(),
        submitted_at: Some(finished.submitted_at.into()),
        age: finished.took.try_into().ok(),
        finished: true,
        outcome: finished.outcome.to_owned(),
        message: finished.message,
    }
}

fn class(id: &ClassId) -> v1::ClassRef {
    v1::ClassRef {
        api_version: id.api_version.to_string(),
        kind: id.kind.to_string(),
        namespace: id.namespace.to_string(),
        name: id.name.to_string(),
        provider: String::new(),
    }
}

fn delivery(delivery: Delivery) -> v1::Delivery {
    match delivery {
        Delivery::NotSent => v1::Delivery::NotSent,
        Delivery::Sent => v1::Delivery::Sent,
        Delivery::Accepted => v1::Delivery::Accepted,
        Delivery::Answered => v1::Delivery::Answered,
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
