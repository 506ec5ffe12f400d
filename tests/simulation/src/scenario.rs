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
        // A broker keeps nothing. When it is gone, only the drivers know what they run and did; one that
        // cannot reach the next broker, or is gone as well, cannot tell it, and no broker can wait for
        // what it does not know of. So what keeps drivers away does not go together with the end of the
        // broker, unless there is only one of them.
        let families: [&[Trouble]; 5] = [
            &[Loss, Stall, Reset, Storm, Slow],
            &[Loss, Stall, Reset, DriverKill, DriverRestart, DriverReplace],
            &[DriverKill, DriverRestart, DriverReplace, Reset],
            &[BrokerKill, BrokerRestart, Reset],
            &[BrokerKill, BrokerRestart, Reset, DriverKill],
        ];
        let troubles = chance.pick(&families).to_vec();
        let policies = [Policy::Share, Policy::Share, Policy::Standby, Policy::Exclusive];
        let policy = *chance.pick(&policies);
        // Of an exclusive kind, one that waits outside may come first, and keep out the one that knows.
        let kept_away = troubles.contains(&DriverKill) || policy == Policy::Exclusive;
        let most_drivers = if troubles.contains(&BrokerKill) && kept_away { 1 } else { 3 };
        let far = chance.percent(25);
        Self {
            policy,
            drivers: chance.among(1..most_drivers + 1),
            controllers: chance.among(1..5),
            machines: chance.among(1..6),
            trouble_for: Duration::from_secs(chance.among(30..240) as u64),
            latency: if far { 20..150 } else { 0..10 },
            troubles,
        }
    }
}
