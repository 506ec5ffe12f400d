//! A controller, and what it reads from a status.

use std::time::Duration;

use broker_proto::v1::{
    ClassRef, ListMachinesRequest, Machine, MachineRequest, MachineResponse,
    machines_client::MachinesClient,
};
use tonic::{Status, transport::Channel};
use tonic_types::StatusExt as _;

use crate::{API_VERSION, CLASS, KIND};

#[derive(Clone)]
pub struct Controller {
    pub machines: MachinesClient<Channel>,
}

impl Controller {
    pub fn new(channel: Channel) -> Self {
        let machines = MachinesClient::new(channel).max_decoding_message_size(64 * 1024 * 1024);
        Self { machines }
    }

    /// The class of the sample catalog that tests use.
    pub fn class() -> ClassRef {
        ClassRef {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            namespace: "default".to_owned(),
            name: CLASS.to_owned(),
            provider: String::new(),
        }
    }

    pub fn request(machine: &str) -> MachineRequest {
        MachineRequest {
            class: Some(Self::class()),
            machine_name: machine.to_owned(),
            ..Default::default()
        }
    }

    pub async fn create(&self, machine: &str) -> Result<MachineResponse, Status> {
        self.create_with(Self::request(machine)).await
    }

    pub async fn create_with(&self, request: MachineRequest) -> Result<MachineResponse, Status> {
        self.machines.clone().create_machine(request).await.map(tonic::Response::into_inner)
    }

    pub async fn create_within(
        &self,
        machine: &str,
        time: Duration,
    ) -> Result<MachineResponse, Status> {
        let mut request = tonic::Request::new(Self::request(machine));
        request.set_timeout(time);
        self.machines.clone().create_machine(request).await.map(tonic::Response::into_inner)
    }

    pub async fn delete(&self, machine: &str) -> Result<MachineResponse, Status> {
        let request = Self::request(machine);
        self.machines.clone().delete_machine(request).await.map(tonic::Response::into_inner)
    }

    pub async fn status(&self, machine: &str) -> Result<MachineResponse, Status> {
        let request = Self::request(machine);
        self.machines.clone().get_machine_status(request).await.map(tonic::Response::into_inner)
    }

    pub async fn list(&self) -> Result<Vec<Machine>, Status> {
        let request = ListMachinesRequest { class: Some(Self::class()), ..Default::default() };
        self.machines.clone().list_machines(request).await.map(|list| list.into_inner().machines)
    }
}

/// How far the operation got, from the status's details.
pub fn delivery(status: &Status) -> String {
    let info = status.get_details_error_info().expect("every status has an ErrorInfo");
    info.metadata["delivery"].clone()
}

pub fn reason(status: &Status) -> String {
    status.get_details_error_info().expect("every status has an ErrorInfo").reason
}

pub fn retry_after(status: &Status) -> Option<Duration> {
    status.get_details_retry_info().and_then(|info| info.retry_delay)
}
