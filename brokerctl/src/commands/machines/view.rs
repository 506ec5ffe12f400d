//! What the machine commands show.

use broker_proto::v1::{Address, ClassRef, Machine, MachineRequest, MachineResponse};
use serde::Serialize;

use crate::{
    commands::ClassView,
    output::{Look, View},
    table::{Table, printable},
};

/// One machine, as its driver describes it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MachineView {
    name: String,
    class: ClassView,
    provider_id: String,
    node_name: String,
    addresses: Vec<AddressView>,
    last_known_state: String,
}

#[derive(Debug, Serialize)]
struct AddressView {
    r#type: String,
    address: String,
}

impl MachineView {
    pub(super) fn new(name: String, class: ClassRef, answer: MachineResponse) -> Self {
        let address = |Address { r#type, address }| AddressView { r#type, address };
        Self {
            name,
            class: class.into(),
            provider_id: answer.provider_id,
            node_name: answer.node_name,
            addresses: answer.addresses.into_iter().map(address).collect(),
            last_known_state: answer.last_known_state,
        }
    }
}

impl View for MachineView {
    fn text(&self, look: Look) -> String {
        let addresses: Vec<_> = self.addresses.iter().map(|a| a.address.as_str()).collect();
        let mut table = Table::new(["NAME", "PROVIDER ID", "NODE", "ADDRESSES"]);
        table.row([
            (&self.name).into(),
            (&self.provider_id).into(),
            (&self.node_name).into(),
            addresses.join(",").into(),
        ]);
        table.render(look.headers, look.colour)
    }
}

#[derive(Debug, Serialize)]
pub(super) struct MachineList {
    class: ClassView,
    machines: Vec<Listed>,
}

#[derive(Debug, PartialEq, PartialOrd, Eq, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    name: String,
    provider_id: String,
}

impl MachineList {
    pub(super) fn new(class: ClassRef, machines: Vec<Machine>) -> Self {
        let listed = |Machine { machine_name: name, provider_id }| Listed { name, provider_id };
        let mut machines: Vec<_> = machines.into_iter().map(listed).collect();
        machines.sort_unstable();
        Self { class: class.into(), machines }
    }
}

impl View for MachineList {
    fn text(&self, look: Look) -> String {
        let mut table = Table::new(["NAME", "PROVIDER ID"]);
        for Listed { name, provider_id } in &self.machines {
            table.row([name.into(), provider_id.into()]);
        }
        table.render(look.headers, look.colour)
    }
}

/// The machine is not there any more, or never was.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Deleted {
    name: String,
    class: ClassView,
    /// As far as it is known.
    provider_id: String,
    outcome: Outcome,
}

#[derive(Debug, Serialize)]
enum Outcome {
    Deleted,
    Absent,
}

impl Deleted {
    pub(super) fn gone(request: MachineRequest) -> Self {
        Self::new(request, Outcome::Deleted)
    }

    pub(super) fn absent(request: MachineRequest) -> Self {
        Self::new(request, Outcome::Absent)
    }

    fn new(request: MachineRequest, outcome: Outcome) -> Self {
        let MachineRequest { machine_name: name, class, provider_id, .. } = request;
        Self { name, class: class.unwrap_or_default().into(), provider_id, outcome }
    }
}

impl View for Deleted {
    fn text(&self, _: Look) -> String {
        let name = printable(&self.name);
        match self.outcome {
            Outcome::Deleted => format!("machine {name} deleted\n"),
            Outcome::Absent => format!("machine {name} is not there\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fitting;

    fn class() -> ClassRef {
        ClassRef {
            api_version: "sim.machinebroker.dev/v1alpha1".into(),
            kind: "SimMachineClass".into(),
            name: "small".into(),
            ..ClassRef::default()
        }
    }

    fn worker() -> MachineView {
        let address = |kind: &str, address: &str| Address {
            r#type: kind.to_owned(),
            address: address.to_owned(),
        };
        let answer = MachineResponse {
            provider_id: "sim:///default/1".into(),
            node_name: "worker-0".into(),
            addresses: vec![
                address("InternalIP", "10.0.0.1"),
                address("Hostname", "worker-0.example"),
            ],
            last_known_state: String::new(),
        };
        MachineView::new("worker-0".into(), class(), answer)
    }

    #[test]
    fn a_machine_is_a_table() {
        let expected = "\
NAME       PROVIDER ID        NODE       ADDRESSES
worker-0   sim:///default/1   worker-0   10.0.0.1,worker-0.example
";
        assert_eq!(worker().text(fitting::look()), expected);
    }

    #[test]
    fn a_machine_is_data() {
        let expected = r#"{
  "name": "worker-0",
  "class": {
    "apiVersion": "sim.machinebroker.dev/v1alpha1",
    "kind": "SimMachineClass",
    "namespace": "default",
    "name": "small"
  },
  "providerId": "sim:///default/1",
  "nodeName": "worker-0",
  "addresses": [
    {
      "type": "InternalIP",
      "address": "10.0.0.1"
    },
    {
      "type": "Hostname",
      "address": "worker-0.example"
    }
  ],
  "lastKnownState": ""
}
"#;
        assert_eq!(fitting::json(&worker()), expected);
    }

    #[test]
    fn machines_are_listed_by_name() {
        let machine = |id: &str, name: &str| Machine {
            provider_id: id.to_owned(),
            machine_name: name.to_owned(),
        };
        let list =
            MachineList::new(class(), vec![machine("i-2", "worker-1"), machine("i-1", "worker-0")]);
        let expected = "\
NAME       PROVIDER ID
worker-0   i-1
worker-1   i-2
";
        assert_eq!(list.text(fitting::look()), expected);
    }

    #[test]
    fn a_deleted_machine_is_data() {
        let request = MachineRequest {
            machine_name: "worker-0".into(),
            class: Some(class()),
            ..MachineRequest::default()
        };
        let expected = "\
name: worker-0
class:
  apiVersion: sim.machinebroker.dev/v1alpha1
  kind: SimMachineClass
  namespace: default
  name: small
providerId: \"\"
outcome: Absent
";
        assert_eq!(fitting::yaml(&Deleted::absent(request)), expected);
    }
}
