//! A controller's calls, each written down with what came of it.

use std::time::Duration;

use broker_proto::v1::{ListMachinesRequest, MachineRequest};
use broker_tests::{
    Controller,
    history::{Delivery, End, Recorder, Verb},
};
use tokio::time::{Instant, timeout};
use tonic::{Request, Response, Status};
use tonic_types::StatusExt as _;

use crate::{
    hosts::{self, BROKER},
    network::Network,
};

/// How much later than its call's deadline a caller looks at its own clock.
const OWN_CLOCK: Duration = Duration::from_millis(500);
/// The broker answers a twentieth of a call's time before its deadline. With less than this, even a
/// near one's answer comes later than the caller's own clock.
const LONG_ENOUGH: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct Caller {
    controller: Controller,
    recorder: Recorder,
    network: Network,
    host: String,
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) verb: Verb,
    pub(crate) machine: String,
    pub(crate) time: Duration,
    /// Goes away after this time.
    pub(crate) leaves_after: Option<Duration>,
    pub(crate) request_id: String,
    pub(crate) wait_for_driver: bool,
    pub(crate) calm: bool,
}

impl Ask {
    pub(crate) fn new(verb: Verb, machine: &str, time: Duration) -> Self {
        Self {
            verb,
            machine: machine.to_owned(),
            time,
            leaves_after: None,
            request_id: String::new(),
            wait_for_driver: false,
            calm: false,
        }
    }

    pub(crate) fn calm(self) -> Self {
        Self { calm: true, ..self }
    }
}

impl Caller {
    pub(crate) fn new(network: &Network, host: &str, recorder: Recorder) -> Self {
        let controller = Controller::new(hosts::channel(network, host));
        Self { controller, recorder, network: network.clone(), host: host.to_owned() }
    }

    /// Asks once. Says whether that was a success.
    pub(crate) async fn ask(&self, ask: &Ask) -> bool {
        let id = self.recorder.asked(ask.verb, &ask.machine, ask.time, ask.calm);
        let asked = Instant::now();
        // A channel that finds no connection does not look at the clock.
        let own_clock = ask.time + OWN_CLOCK;
        let leaves_after = ask.leaves_after.filter(|after| *after < own_clock);
        let patience = leaves_after.unwrap_or(own_clock);
        let end = match (timeout(patience, self.end_of(ask, id)).await, leaves_after) {
            (Ok(end), _) => end,
            (Err(_), Some(_)) => End::Left,
            (Err(_), None) => {
                End::Failed { code: "no answer".to_owned(), delivery: Delivery::Untold }
            }
        };
        let reached = self.network.is_well(&self.host, BROKER, asked)
            && self.network.is_near()
            && ask.time >= LONG_ENOUGH;
        self.recorder.reached(id, reached);
        tracing::info!(id, ?ask, ?end, "called");
        let success = matches!(end, End::Machine { .. } | End::Gone | End::Listed(_));
        self.recorder.told(id, end);
        success
    }

    async fn end_of(&self, ask: &Ask, id: u64) -> End {
        let mut machines = self.controller.machines.clone();
        let request = MachineRequest {
            request_id: ask.request_id.clone(),
            wait_for_driver: ask.wait_for_driver,
            ..Controller::request(&ask.machine)
        };
        let machine = |response: Response<_>| {
            let broker_proto::v1::MachineResponse { provider_id, .. } = response.into_inner();
            End::Machine { provider_id }
        };
        let result = match ask.verb {
            Verb::Create => machines.create_machine(call(request, ask, id)).await.map(machine),
            Verb::Status => machines.get_machine_status(call(request, ask, id)).await.map(machine),
            Verb::Delete => {
                machines.delete_machine(call(request, ask, id)).await.map(|_| End::Gone)
            }
            Verb::List => {
                let wait_for_driver = ask.wait_for_driver;
                let class = Some(Controller::class());
                let request = ListMachinesRequest { class, wait_for_driver, ..Default::default() };
                machines.list_machines(call(request, ask, id)).await.map(|list| {
                    let machines = list.into_inner().machines.into_iter();
                    End::Listed(machines.map(|m| (m.machine_name, m.provider_id)).collect())
                })
            }
        };
        result.unwrap_or_else(|status| failed(&status))
    }
}

/// With its time, and its number for the driver to see.
fn call<T>(message: T, ask: &Ask, id: u64) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(ask.time);
    let trace = format!("00-{:032x}-{:016x}-01", u128::from(id) + 1, 1);
    request.metadata_mut().insert("traceparent", trace.parse().expect("a header"));
    request
}

fn failed(status: &Status) -> End {
    let info = status.get_details_error_info();
    let delivery = info.as_ref().and_then(|info| info.metadata.get("delivery"));
    let delivery = Delivery::from_detail(delivery.map(String::as_str));
    let reason = info.map_or_else(|| status.message().to_owned(), |info| info.reason);
    End::Failed { code: format!("{:?} {reason}", status.code()), delivery }
}
