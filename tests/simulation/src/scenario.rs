//! What a seed stands for: who takes part, and what may go wrong.

use std::{ops::Range, time::Duration};

use broker::registry::Policy;

use crate::chance::Chance;

#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) policy: Policy,
    pub(crate) drivers: usize,
    pub(crate) controllers: usize,
    pub(crate) machines: usize,
    /// How long things go wrong.
    pub(crate) trouble_for: Duration,
    /// The usual one, in milliseconds one way.
    pub(crate) latency: Range<usize>,
    pub(crate) troubles: Vec<Trouble>,
}

/// One kind of thing that goes wrong. A kind that is named twice happens twice as often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A link loses everything, one way or both, without either end hearing of it.
    Loss,
    /// A link delivers nothing, one way or both, until it is well again.
    Stall,
    /// Connections break.
    Reset,
    /// Connections break again and again.
    Storm,
    Slow,
    DriverKill,
    /// A driver is told to stop and started again.
    DriverRestart,
    /// A driver is replaced by another instance: the new one comes before the old one goes.
    DriverReplace,
    BrokerKill,
    BrokerRestart,
}

impl Scenario {
    pub(crate) fn draw(chance: &Chance) -> Self {
        use Trouble::{
            BrokerKill, BrokerRestart, DriverKill, DriverReplace, DriverRestart, Loss, Reset, Slow,
            Stall, Storm,
        };
        // A broker keeps nothing. When it is gone, only the drivers know what they run and did, and one
        // that cannot reach the next broker within `--settle` cannot tell it (docs/reliability.md). So
        // what cuts drivers off for longer does not go together with the end of the broker, unless there
        // is only one of them.
        let families: [(&[Trouble], usize); 6] = [
            (&[Loss, Stall, Reset, Storm, Slow], 3),
            (&[Loss, Stall, Reset, DriverKill, DriverRestart, DriverReplace], 3),
            (&[DriverKill, DriverRestart, DriverReplace, Reset], 3),
            (&[BrokerKill, BrokerRestart, Reset], 3),
            (&[BrokerKill, BrokerRestart, Reset, DriverKill, DriverRestart, DriverReplace], 3),
            (&[BrokerKill, BrokerRestart, Loss, Stall, Storm, Slow, DriverKill], 1),
        ];
        let (troubles, most_drivers) = *chance.pick(&families);
        let policies = [Policy::Share, Policy::Share, Policy::Standby, Policy::Exclusive];
        let policy = *chance.pick(&policies);
        let far = chance.percent(25);
        Self {
            policy,
            drivers: chance.among(1..most_drivers + 1),
            controllers: chance.among(1..5),
            machines: chance.among(1..6),
            trouble_for: Duration::from_secs(chance.among(30..240) as u64),
            latency: if far { 20..150 } else { 0..10 },
            troubles: troubles.to_vec(),
        }
    }
}
