//! `SimMachineClass`: classes of the sim driver, in the shape of 2018.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use sim_driver::Spec;

use crate::{
    definition::{Column, Definition, Names, schema_of},
    machine_class::SecretReference,
};

/// The `spec` of a class: what the driver reads, and what the broker does.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SimMachineClass {
    /// What the sim driver does with it.
    #[serde(flatten)]
    pub sim: Spec,
    /// User data, and credentials where there are no others.
    pub secret_ref: Option<SecretReference>,
    /// Credentials; its keys go before those of `secretRef`.
    pub credentials_secret_ref: Option<SecretReference>,
}

pub(crate) fn definition() -> Definition {
    Definition {
        names: Names {
            group: "sim.machinebroker.dev",
            kind: "SimMachineClass",
            plural: "simmachineclasses",
            short: "simmc",
        },
        version: "v1alpha1",
        schema: json!({
            "description": "What machines are to be like, for the sim driver.",
            "type": "object",
            "required": ["spec"],
            "properties": {"spec": schema_of::<SimMachineClass>()},
        }),
        columns: vec![
            Column::text("Capacity", ".spec.capacity"),
            Column::date("Age", ".metadata.creationTimestamp"),
        ],
    }
}
