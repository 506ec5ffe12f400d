//! Unary lists, to the broker or to a driver that is a server.

use broker_proto::v1::machines_client::MachinesClient;
use tonic::transport::Channel;

use super::{
    Plan,
    callers::{self, Caller},
    samples::Samples,
    unary::with_deadline,
};
use crate::{
    dial::Bearer,
    workload::{Operation, Workload},
};

/// A list of ten thousand machines is a large message.
const LARGEST_ANSWER: usize = 64 << 20;

pub(super) async fn run(plan: &Plan) -> anyhow::Result<Samples> {
    let callers = (0..plan.in_flight).map(|asker| {
        let channel = plan.channels[asker % plan.channels.len()].clone();
        let machines = MachinesClient::new(channel).max_decoding_message_size(LARGEST_ANSWER);
        Lister { machines, bearer: plan.bearer.clone(), workload: plan.workload.clone() }
    });
    callers::all(callers.collect(), &plan.window).await
}

struct Lister {
    machines: MachinesClient<Channel>,
    bearer: Bearer,
    workload: Workload,
}

impl Caller for Lister {
    async fn call(&mut self, operation: Operation) -> anyhow::Result<()> {
        let request = with_deadline(&self.bearer, self.workload.list(operation));
        self.machines.list_machines(request).await?;
        Ok(())
    }
}
