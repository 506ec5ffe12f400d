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

    use async_nats::{Client, ConnectOptions, Subject};
    use bytes::Bytes;
    use prost::Message as _;

    use super::{Plan, Samples};
    use crate::{
        load::{
            answers,
            callers::{self, Caller},
            unary::DEADLINE,
        },
        roles::nats::SUBJECT,
        workload::{Operation, Requests},
    };

    pub(in crate::load) async fn run(plan: &Plan, server: SocketAddr) -> anyhow::Result<Samples> {
        let options = ConnectOptions::new().request_timeout(Some(DEADLINE));
        let client = options.connect(server.to_string()).await?;
        let requests = Requests::new(&plan.workload, |create| create.encode_to_vec());
        let caller = || Requester { client: client.clone(), requests: requests.clone() };
        callers::all((0..plan.in_flight).map(|_| caller()).collect(), &plan.window).await
    }

    struct Requester {
        client: Client,
        requests: Requests,
    }

    impl Caller for Requester {
        async fn call(&mut self, operation: Operation) -> anyhow::Result<()> {
            let request = Bytes::copy_from_slice(self.requests.create(operation));
            let answer = self.client.request(Subject::from_static(SUBJECT), request).await?;
            answers::machine(&answer.payload)
        }
    }
}
