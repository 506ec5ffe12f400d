//! A controller, and what it reads from a status.

use std::time::Duration;

use broker_proto::v1::{
    ClassRef, GetVolumeIDsRequest, ListMachinesRequest, Machine, MachineRequest, MachineResponse,
    machines_client::MachinesClient,
};
use tokio::{task::JoinHandle, time::timeout};
use tonic::{IntoRequest, Request, Response, Status, transport::Channel};
use tonic_types::{ErrorInfo, StatusExt as _};

use crate::{API_VERSION, CLASS, KIND, PATIENCE, Submitter};

#[derive(Clone)]
pub struct Controller {
    pub machines: MachinesClient<Channel>,
}

/// A call that was made and whose answer is awaited elsewhere. Dropping it lets it go on.
pub struct Call<T>(JoinHandle<Result<T, Status>>);

impl<T: Send + 'static> Call<T> {
    fn start(call: impl Future<Output = Result<T, Status>> + Send + 'static) -> Self {
        Self(tokio::spawn(call))
    }

    pub async fn answer(self) -> Result<T, Status> {
        let answer = timeout(PATIENCE, self.0).await.expect("an answer comes within an hour");
        answer.expect("nobody cancelled it")
    }

    pub async fn error(self) -> Status
    where
        T: std::fmt::Debug,
    {
        self.answer().await.expect_err("it must not succeed")
    }

    /// Leaves without the answer.
    pub async fn cancel(self) {
        self.0.abort();
        drop(self.0.await);
    }

    pub fn is_answered(&self) -> bool {
        self.0.is_finished()
    }
}

impl Controller {
    pub fn new(channel: Channel) -> Self {
        let machines = MachinesClient::new(channel)
            .max_decoding_message_size(64 * 1024 * 1024)
            .max_encoding_message_size(64 * 1024 * 1024);
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

    /// A request that the caller gives up after `time`.
    pub fn request_within(machine: &str, time: Duration) -> Request<MachineRequest> {
        let mut request = Request::new(Self::request(machine));
        request.set_timeout(time);
        request
    }

    pub async fn create(&self, machine: &str) -> Result<MachineResponse, Status> {
        self.create_with(Self::request(machine)).await
    }

    pub async fn create_with(
        &self,
        request: impl IntoRequest<MachineRequest>,
    ) -> Result<MachineResponse, Status> {
        self.machines.clone().create_machine(request).await.map(Response::into_inner)
    }

    /// A create whose answer is awaited elsewhere.
    pub fn creating(&self, machine: &str) -> Call<MachineResponse> {
        self.creating_with(Self::request(machine))
    }

    pub fn creating_with(
        &self,
        request: impl IntoRequest<MachineRequest>,
    ) -> Call<MachineResponse> {
        let (controller, request) = (self.clone(), request.into_request());
        Call::start(async move { controller.create_with(request).await })
    }

    pub async fn initialize(&self, machine: &str) -> Result<MachineResponse, Status> {
        let request = Self::request(machine);
        self.machines.clone().initialize_machine(request).await.map(Response::into_inner)
    }

    pub async fn delete(&self, machine: &str) -> Result<MachineResponse, Status> {
        self.delete_with(Self::request(machine)).await
    }

    pub async fn delete_with(&self, request: MachineRequest) -> Result<MachineResponse, Status> {
        self.machines.clone().delete_machine(request).await.map(Response::into_inner)
    }

    pub async fn status(&self, machine: &str) -> Result<MachineResponse, Status> {
        let request = Self::request(machine);
        self.machines.clone().get_machine_status(request).await.map(Response::into_inner)
    }

    pub async fn list(&self) -> Result<Vec<Machine>, Status> {
        self.list_of(Self::class()).await
    }

    pub async fn list_of(&self, class: ClassRef) -> Result<Vec<Machine>, Status> {
        let request = ListMachinesRequest { class: Some(class), ..Default::default() };
        self.machines.clone().list_machines(request).await.map(|list| list.into_inner().machines)
    }

    /// A list whose answer is awaited elsewhere.
    pub fn listing(&self) -> Call<Vec<Machine>> {
        let controller = self.clone();
        Call::start(async move { controller.list().await })
    }

    pub async fn volume_ids(&self, specs: &[&str]) -> Result<Vec<String>, Status> {
        let request = GetVolumeIDsRequest {
            class: Some(Self::class()),
            volume_specs: specs.iter().map(|&spec| spec.to_owned()).collect(),
            wait_for_driver: false,
        };
        self.machines.clone().get_volume_i_ds(request).await.map(|ids| ids.into_inner().volume_ids)
    }

    /// Many operations over one stream.
    pub async fn submit(&self) -> Submitter {
        Submitter::open(self.machines.clone()).await
    }
}

fn info(status: &Status) -> ErrorInfo {
    let info = status.get_details_error_info();
    let info = info.unwrap_or_else(|| panic!("every status has an ErrorInfo, but {status:?}"));
    assert_eq!(info.domain, "machinebroker.dev");
    info
}

/// How far the operation got, from the status's details.
pub fn delivery(status: &Status) -> String {
    fact(status, "delivery").expect("every status tells the delivery")
}

/// Why it failed, for programs to read.
pub fn reason(status: &Status) -> String {
    info(status).reason
}

pub fn fact(status: &Status, name: &str) -> Option<String> {
    info(status).metadata.get(name).cloned()
}

pub fn retry_after(status: &Status) -> Option<Duration> {
    status.get_details_retry_info().and_then(|info| info.retry_delay)
}
