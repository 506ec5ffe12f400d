//! `brokerctl machines delete`, also where the driver knows machines by the provider's id alone.
//!
//! 1. Delete by name. Native drivers do that, and so does a broker that knows the id.
//! 2. A driver of 2018 needs the id, and the broker says so without having sent anything.
//! 3. Then list the class and look for the name. None: there is nothing to delete. One: delete
//!    it by its id. Several: only the operator can tell which one is meant.

use broker_proto::v1::{ListMachinesRequest, MachineRequest};

use super::{Known, Machine, Retry, Session, change, view::Deleted};
use crate::{
    Exit, Failure,
    client::Broker,
    failure::{Change, wants_provider_id},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    machine: Machine,
    #[command(flatten)]
    known: Known,
    #[command(flatten)]
    retry: Retry,
}

impl Delete {
    pub(super) async fn run(
        self,
        Session { broker, output }: &mut Session<'_, '_>,
    ) -> Result<(), Failure> {
        let Self { machine, known, retry } = self;
        let request = MachineRequest {
            provider_id: known.provider_id,
            request_id: retry.request_id,
            ..machine.request()
        };
        let doing = format!("deleting machine {}", machine.name);
        let deleted = change(output.live(), doing, Change::Delete, delete(broker, request)).await?;
        output.print(&deleted)
    }
}

async fn delete(broker: &Broker, request: MachineRequest) -> Result<Deleted, Failure> {
    let waited = request.wait_for_driver;
    let by_name = broker.machines().delete_machine(broker.operation(request.clone())).await;
    match by_name {
        Ok(_) => Ok(Deleted::gone(request)),
        Err(status) if wants_provider_id(&status) && request.provider_id.is_empty() => {
            let Some(provider_id) = find(broker, &request).await? else {
                return Ok(Deleted::absent(request));
            };
            let request = MachineRequest { provider_id, ..request };
            let by_id = broker.operation(request.clone());
            let answer = broker.machines().delete_machine(by_id).await;
            answer.map_err(|status| broker.change_failed(&status, Change::Delete, waited))?;
            Ok(Deleted::gone(request))
        }
        Err(status) => Err(broker.change_failed(&status, Change::Delete, waited)),
    }
}

/// The id of the one machine that has the name.
async fn find(broker: &Broker, request: &MachineRequest) -> Result<Option<String>, Failure> {
    let list = broker.operation(ListMachinesRequest {
        class: request.class.clone(),
        wait_for_driver: request.wait_for_driver,
        ..ListMachinesRequest::default()
    });
    let answer = broker.machines().list_machines(list).await;
    let answer =
        answer.map_err(|status| broker.question_failed(&status, request.wait_for_driver))?;
    let name = &request.machine_name;
    let mut ids: Vec<String> = answer
        .into_inner()
        .machines
        .into_iter()
        .filter_map(|machine| (machine.machine_name == *name).then_some(machine.provider_id))
        .collect();
    if ids.len() > 1 {
        ids.sort_unstable();
        let message = format!("{} machines are named {name}", ids.len());
        let failure = Failure::new(Exit::Failed, message)
            .advise("nothing was deleted: choose one with --provider-id");
        return Err(ids.into_iter().fold(failure, Failure::advise));
    }
    Ok(ids.pop())
}
