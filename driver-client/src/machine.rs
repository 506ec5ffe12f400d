//! What a driver says of machines: the payloads of its answers.

/// One machine, as the provider knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The provider's own name for it, e.g. `aws:///eu-west-1/i-0abc`.
    pub provider_id: String,
    /// The name under which its node will join the cluster.
    pub node_name: String,
    pub addresses: Vec<Address>,
    /// Anything the driver wants to be handed back with later operations of this machine.
    pub last_known_state: String,
}

/// One address of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// As in Kubernetes: `InternalIP`, `ExternalIP`, `Hostname`, `InternalDNS`, `ExternalDNS`.
    pub kind: String,
    pub address: String,
}

/// One line of a list answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedMachine {
    pub provider_id: String,
    pub machine_name: String,
}
