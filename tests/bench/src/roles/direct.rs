//! A driver that is a server: what a user has who calls drivers directly.

use std::pin::Pin;

use broker_proto::v1::{
    GetVolumeIDsRequest, GetVolumeIDsResponse, ListMachinesRequest, ListMachinesResponse, Machine,
    MachineRequest, MachineResponse, SubmitRequest, SubmitResponse,
    machines_server::{Machines, MachinesServer},
};
use futures::Stream;
use tokio::net::TcpListener;
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Server, server::TcpIncoming},
};

use super::ready_at;
use crate::{site::any_port, workload::answer};

/// A tonic server with the calls of the benchmark
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many machines a list shows
    #[arg(long, default_value_t = 10)]
    machines: usize,
}

/// As many as the broker lets a connection have: hyper's default of 200 would queue the rest.
const STREAMS: u32 = 20_000;

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let listener = TcpListener::bind(any_port()).await?;
    ready_at(listener.local_addr()?);
    Server::builder()
        .max_concurrent_streams(STREAMS)
        .add_service(MachinesServer::new(Direct { machines: args.machines }))
        .serve_with_incoming(TcpIncoming::from(listener).with_nodelay(Some(true)))
        .await?;
    Ok(())
}

struct Direct {
    machines: usize,
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Machines for Direct {
    async fn create_machine(&self, request: Request<MachineRequest>) -> Answer<MachineResponse> {
        Ok(Response::new(answer(&request.get_ref().machine_name)))
    }

    async fn list_machines(&self, _: Request<ListMachinesRequest>) -> Answer<ListMachinesResponse> {
        let machines = (0..self.machines).map(|number| {
            let answer = answer(&format!("shoot--bench--worker-{number:06}-00"));
            Machine { provider_id: answer.provider_id, machine_name: answer.node_name }
        });
        Ok(Response::new(ListMachinesResponse { machines: machines.collect() }))
    }

    async fn initialize_machine(&self, _: Request<MachineRequest>) -> Answer<MachineResponse> {
        Err(not_measured())
    }

    async fn delete_machine(&self, _: Request<MachineRequest>) -> Answer<MachineResponse> {
        Err(not_measured())
    }

    async fn get_machine_status(&self, _: Request<MachineRequest>) -> Answer<MachineResponse> {
        Err(not_measured())
    }

    async fn get_volume_i_ds(
        &self,
        _: Request<GetVolumeIDsRequest>,
    ) -> Answer<GetVolumeIDsResponse> {
        Err(not_measured())
    }

    type SubmitStream = Pin<Box<dyn Stream<Item = Result<SubmitResponse, Status>> + Send>>;

    async fn submit(&self, _: Request<Streaming<SubmitRequest>>) -> Answer<Self::SubmitStream> {
        Err(not_measured())
    }
}

fn not_measured() -> Status {
    Status::unimplemented("the benchmark does not call this")
}
