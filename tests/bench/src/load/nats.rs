//! Requests over NATS.

use super::{Plan, samples::Samples};

#[cfg(feature = "nats")]
pub(super) use self::requests::run;

#[cfg(not(feature = "nats"))]
pub(super) async fn run(_: &Plan, _: std::net::SocketAddr) -> anyhow::Result<Samples> {
    anyhow::bail!(crate::roles::nats::NOT_BUILT_IN)
}

#[cfg(feature = "nats")]
mod requests {
    use std::net::SocketAddr;

    use broker_proto::v1::MachineResponse;
    use prost::Message as _;

    use super::{Plan, Samples};
    use crate::{
        load::{
            callers::{self, Caller},
            unary::DEADLINE,
        },
        roles::nats::SUBJECT,
        workload::{Operation, Workload},
    };

    pub(in crate::load) async fn run(plan: &Plan, server: SocketAddr) -> anyhow::Result<Samples> {
        let options = async_nats::ConnectOptions::new().request_timeout(Some(DEADLINE));
        let client = options.connect(server.to_string()).await?;
        let caller = || Requester { client: client.clone(), workload: plan.workload.clone() };
        callers::all((0..plan.in_flight).map(|_| caller()).collect(), &plan.window).await
    }

    struct Requester {
        client: async_nats::Client,
        workload: Workload,
    }

    impl Caller for Requester {
        async fn call(&mut self, operation: Operation) -> anyhow::Result<()> {
            let request = self.workload.create(operation).encode_to_vec();
            let answer = self.client.request(SUBJECT, request.into()).await?;
            MachineResponse::decode(answer.payload)?;
            Ok(())
        }
    }
}
