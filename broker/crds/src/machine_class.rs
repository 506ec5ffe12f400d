//! `MachineClass` as machine-controller-manager has it today: its fields at top level, no `spec`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::definition::{Column, Definition, Names, schema_of};

/// What machines are to be like, for the driver of one provider.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineClass {
    /// Which driver it is for, such as `AWS`.
    #[serde(default)]
    pub provider: String,
    /// What the driver of that provider reads.
    #[schemars(schema_with = "anything")]
    pub provider_spec: Map<String, Value>,
    /// User data, and credentials where there are no others.
    pub secret_ref: Option<SecretReference>,
    /// Credentials; its keys go before those of `secretRef`.
    pub credentials_secret_ref: Option<SecretReference>,
    /// What nodes of this class have, for a cluster autoscaler that has none to look at.
    pub node_template: Option<NodeTemplate>,
}

/// A secret by its name; without a namespace that of the class.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct SecretReference {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub namespace: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeTemplate {
    #[serde(default)]
    #[schemars(schema_with = "quantities")]
    pub capacity: BTreeMap<String, Value>,
    #[serde(default)]
    #[schemars(schema_with = "quantities")]
    pub virtual_capacity: BTreeMap<String, Value>,
    #[serde(default)]
    pub instance_type: String,
    #[serde(default)]
    pub region: String,
    #[serde(default)]
    pub zone: String,
    pub architecture: Option<String>,
}

pub(crate) fn definition() -> Definition {
    Definition {
        names: Names {
            group: "machine.sapcloud.io",
            kind: "MachineClass",
            plural: "machineclasses",
            short: "mcc",
        },
        version: "v1alpha1",
        schema: schema_of::<MachineClass>(),
        columns: vec![
            Column::text("Provider", ".provider"),
            Column::date("Age", ".metadata.creationTimestamp"),
        ],
    }
}

fn anything(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// `cpu: 2` and `cpu: "2"` alike.
fn quantities(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "additionalProperties": {"x-kubernetes-int-or-string": true},
    })
}
