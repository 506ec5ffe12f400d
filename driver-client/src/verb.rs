//! The six things a driver can be asked to do.

use std::{fmt, str::FromStr, time::Duration};

/// One kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    Create,
    Initialize,
    Delete,
    GetStatus,
    List,
    GetVolumeIds,
}

impl Verb {
    /// What every driver implements.
    pub const REQUIRED: &[Verb] = &[Verb::Create, Verb::Delete, Verb::List];

    /// What a complete driver implements.
    pub const ALL: &[Verb] = &[
        Verb::Create,
        Verb::Initialize,
        Verb::Delete,
        Verb::GetStatus,
        Verb::List,
        Verb::GetVolumeIds,
    ];

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Initialize => "initialize",
            Verb::Delete => "delete",
            Verb::GetStatus => "get_status",
            Verb::List => "list",
            Verb::GetVolumeIds => "get_volume_ids",
        }
    }

    /// The one with this name on the wire.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.iter().copied().find(|verb| verb.as_str().as_bytes() == name)
    }

    /// Whether it changes the machine: such operations run one at a time per machine.
    pub(crate) fn mutates(self) -> bool {
        matches!(self, Verb::Create | Verb::Initialize | Verb::Delete)
    }

    /// Whether it is about one machine, and so needs that machine's name.
    pub(crate) fn names_a_machine(self) -> bool {
        self.mutates() || self == Verb::GetStatus
    }

    /// How long it may take when the broker does not say.
    pub(crate) fn default_time(self) -> Duration {
        Duration::from_secs(if self.mutates() { 20 * 60 } else { 2 * 60 })
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Verb {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::named(name.as_bytes()).ok_or_else(|| format!("there is no operation {name:?}"))
    }
}
