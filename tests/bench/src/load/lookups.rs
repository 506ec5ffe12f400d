//! What drivers ask the broker for: classes and secrets.

use anyhow::Context as _;
use broker_proto::v1::{
    BrokerSide, DriverSide, Hello, Kind, MachineClassMeta, Registration, SecretMeta,
    broker_side::Control, driver_side::Response, drivers_client::DriversClient,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Streaming, transport::Channel};

use super::{
    Plan,
    callers::{self, Caller},
    samples::Samples,
};
use crate::{
    dial::Bearer,
    workload::{Operation, Workload, class},
};

#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Class,
    Secret,
}

/// Registers as a driver, and asks.
pub(super) async fn run(plan: &Plan, what: What) -> anyhow::Result<Samples> {
    let channel = plan.channels.first().context("a driver has a connection")?;
    let session = Session::open(channel.clone(), &plan.bearer, plan.workload.first_kind).await?;
    let caller = || Asker {
        drivers: DriversClient::new(channel.clone()),
        bearer: plan.bearer.clone(),
        session_token: session.token.clone(),
        workload: plan.workload.clone(),
        what,
    };
    callers::all((0..plan.in_flight).map(|_| caller()).collect(), &plan.window).await
}

/// A registered driver, for as long as it is held.
struct Session {
    token: String,
    _from_broker: Streaming<BrokerSide>,
    _to_broker: mpsc::Sender<DriverSide>,
}

impl Session {
    async fn open(channel: Channel, bearer: &Bearer, kind: u64) -> anyhow::Result<Self> {
        let class = class(kind);
        let kind = Kind { api_version: class.api_version, kind: class.kind, ..Kind::default() };
        let hello = Hello {
            protocol_min: 1,
            protocol_max: 1,
            instance_id: "bench-asker".to_owned(),
            boot_id: std::process::id().to_string(),
            kinds: vec![kind],
            // Asks, and is asked nothing of what the benchmark asks for.
            verbs: vec!["get_volume_ids".to_owned()],
            ..Hello::default()
        };
        let (to_broker, frames) = mpsc::channel(1);
        let registration = Registration { hello: Some(hello), ..Registration::default() };
        to_broker.try_send(DriverSide {
            operation_id: 1,
            operation_type: "register".to_owned(),
            response: Some(Response::Registration(registration)),
        })?;
        let frames = bearer.request(ReceiverStream::new(frames));
        let mut from_broker = DriversClient::new(channel).register(frames).await?.into_inner();
        loop {
            let frame = from_broker.message().await?.context("the broker ended the stream")?;
            match frame.control {
                Some(Control::Welcome(welcome)) => {
                    let token = welcome.session_token;
                    return Ok(Self { token, _from_broker: from_broker, _to_broker: to_broker });
                }
                Some(Control::Reject(reject)) => anyhow::bail!("rejected: {}", reject.message),
                _ => {}
            }
        }
    }
}

struct Asker {
    drivers: DriversClient<Channel>,
    bearer: Bearer,
    session_token: String,
    workload: Workload,
    what: What,
}

impl Caller for Asker {
    async fn call(&mut self, operation: Operation) -> anyhow::Result<()> {
        let class = self.workload.class(operation);
        let session_token = self.session_token.clone();
        match self.what {
            What::Class => {
                let meta = MachineClassMeta { name: class.name, revision: 0, session_token };
                self.drivers.get_machine_class(self.bearer.request(meta)).await?;
            }
            What::Secret => {
                let meta =
                    SecretMeta { class: Some(class), session_token, ..SecretMeta::default() };
                self.drivers.get_secret(self.bearer.request(meta)).await?;
            }
        }
        Ok(())
    }
}
