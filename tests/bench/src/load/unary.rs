//! Unary calls, to the broker or to a driver that is a server: both speak the same.

use std::time::Duration;

use broker_proto::v1::machines_client::MachinesClient;
use tonic::{Request, transport::Channel};

use super::{
    Plan,
    callers::{self, Caller},
    samples::Samples,
};
use crate::{
    dial::Bearer,
    workload::{Operation, Workload},
};

/// What every caller waits at most, and the broker is told.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);
/// A list of ten thousand machines is a large message.
const LARGEST_ANSWER: usize = 64 << 20;

#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    Create,
    List,
}

pub(super) async fn run(plan: &Plan, call: Call) -> anyhow::Result<Samples> {
    let callers = (0..plan.in_flight).map(|asker| {
        let channel = plan.channels[asker % plan.channels.len()].clone();
        let machines = MachinesClient::new(channel).max_decoding_message_size(LARGEST_ANSWER);
        Unary { machines, bearer: plan.bearer.clone(), workload: plan.workload.clone(), call }
    });
    callers::all(callers.collect(), &plan.window).await
}

struct Unary {
    machines: MachinesClient<Channel>,
    bearer: Bearer,
    workload: Workload,
    call: Call,
}

impl Unary {
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = self.bearer.request(message);
        request.set_timeout(DEADLINE);
        request
    }
}

impl Caller for Unary {
    async fn call(&mut self, operation: Operation) -> anyhow::Result<()> {
        match self.call {
            Call::Create => {
                let request = self.request(self.workload.create(operation));
                self.machines.create_machine(request).await?;
            }
            Call::List => {
                let request = self.request(self.workload.list(operation));
                self.machines.list_machines(request).await?;
            }
        }
        Ok(())
    }
}
