//! A controller's calls, each written down with what came of it.

use std::time::Duration;

use broker_proto::v1::{ListMachinesRequest, MachineRequest, MachineResponse};
use tokio::time::timeout;
use tonic::{Request, Response, Status};
use tonic_types::StatusExt as _;

use crate::{
    Controller,
    history::{Delivery, End, Recorder, Verb},
};

/// How much later than its call's deadline a caller looks at its own clock.
const OWN_CLOCK: Duration = Duration::from_millis(500);

#[derive(Clone)]
pub struct Caller {
    pub controller: Controller,
    pub recorder: Recorder,
}

/// One call.
#[derive(Clone, Debug)]
pub struct Ask {
    pub verb: Verb,
    pub machine: String,
    pub time: Duration,
    /// Goes away after this time.
    pub leaves_after: Option<Duration>,
    pub request_id: String,
    pub wait_for_driver: bool,
    pub calm: bool,
}

impl Ask {
    pub fn new(verb: Verb, machine: &str, time: Duration) -> Self {
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

    pub fn calm(self) -> Self {
        Self { calm: true, ..self }
    }
}

impl Caller {
    /// Asks once. `reached` is asked afterwards whether nothing was wrong on the way to the broker and back.
    pub async fn ask(&self, ask: &Ask, reached: impl FnOnce(&End) -> bool) -> End {
        let id = self.recorder.asked(ask.verb, &ask.machine, ask.time, ask.calm);
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
        self.recorder.reached(id, reached(&end));
        self.recorder.told(id, end.clone());
        end
    }

    async fn end_of(&self, ask: &Ask, id: u64) -> End {
        let mut machines = self.controller.machines.clone();
        let request = MachineRequest {
            request_id: ask.request_id.clone(),
            wait_for_driver: ask.wait_for_driver,
            ..Controller::request(&ask.machine)
        };
        let machine = |response: Response<_>| {
            let MachineResponse { provider_id, .. } = response.into_inner();
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
    request.metadata_mut().insert("traceparent", trace_of(id).parse().expect("a header"));
    request
}

/// The trace that a call carries, so that an execution can be told from another's.
fn trace_of(call: u64) -> String {
    // Numbers of traces begin with one.
    format!("00-{:032x}-{:016x}-01", u128::from(call) + 1, 1)
}

/// The call that a driver was sent an operation for.
pub fn call_of(traceparent: Option<&str>) -> Option<u64> {
    let trace = traceparent?.get(3..35)?;
    u64::from_str_radix(&trace[16..], 16).ok()?.checked_sub(1)
}

fn failed(status: &Status) -> End {
    let info = status.get_details_error_info();
    let delivery = info.as_ref().and_then(|info| info.metadata.get("delivery"));
    let delivery = Delivery::from_detail(delivery.map(String::as_str));
    let reason = info.map_or_else(|| status.message().to_owned(), |info| info.reason);
    End::Failed { code: format!("{:?} {reason}", status.code()), delivery }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_execution_is_known_by_the_trace_of_its_call() {
        assert_eq!(call_of(Some(&trace_of(7))), Some(7));
        assert_eq!(call_of(Some("00-short")), None);
        assert_eq!(call_of(None), None);
    }
}
