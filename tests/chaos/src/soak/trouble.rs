//! Makes things go wrong, one after the other and several at once, and right again.

use std::{ops::Range, time::Duration};

use broker_tests::{
    chance::Chance,
    proxy::{Flow, Proxy, Way},
};
use tokio::time::{Instant, sleep_until};

use super::scene::{Scene, State};

/// Between two faults.
const PAUSE_MILLIS: Range<usize> = 100..1_500;
/// How long a fault lasts.
const LASTS_MILLIS: Range<usize> = 100..8_000;
/// How long some freezes last: until the session is dead, and beyond.
const LONG_MILLIS: Range<usize> = 31_000..36_000;
const LONG_PERCENT: usize = 5;
/// How long a process is away.
const AWAY_MILLIS: Range<usize> = 0..2_000;

/// What goes wrong in a round. The broker and drivers or their lines are left alone by turns: an instance
/// that is cut off while the broker is restarted cannot say what it runs, and no broker without a store
/// can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Drivers,
    Broker,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    KillDriver,
    StopDriver,
    FreezeDriver,
    DriversLine(Harm),
    CallersLine(Harm),
    KillBroker,
    StopBroker,
}

#[derive(Clone, Copy, Debug)]
enum Harm {
    Lose,
    Hold,
    Slow,
    Late,
    Reset,
    Cut,
    Refuse,
}

const HARMS: [Harm; 7] =
    [Harm::Lose, Harm::Hold, Harm::Slow, Harm::Late, Harm::Reset, Harm::Cut, Harm::Refuse];

/// What ends, and when.
struct Relief {
    at: Instant,
    what: Cure,
}

#[derive(Clone, Copy, Debug)]
enum Cure {
    StartDriver(usize),
    Thaw(usize),
    /// A driver's line, or the callers'. One that lost bytes cannot go on.
    Heal {
        line: Option<usize>,
        lost: bool,
    },
}

impl Scene {
    /// Until the given time; then everything is right again. Says how many faults there were.
    pub(super) async fn trouble(&mut self, family: Family, until: Instant) -> usize {
        let mut reliefs: Vec<Relief> = Vec::new();
        let (mut next, mut faults) = (Instant::now(), 0);
        loop {
            next += self.chance.millis(PAUSE_MILLIS);
            if next >= until {
                break;
            }
            reliefs.sort_by_key(|relief| relief.at);
            let due = reliefs.iter().take_while(|relief| relief.at <= next).count();
            for relief in reliefs.drain(..due) {
                sleep_until(relief.at).await;
                self.relieve(relief.what);
            }
            sleep_until(next).await;
            let fault = self.draw(family);
            faults += usize::from(self.cause(fault, &mut reliefs).await);
        }
        reliefs.sort_by_key(|relief| relief.at);
        for relief in reliefs {
            sleep_until(relief.at).await;
            self.relieve(relief.what);
        }
        faults
    }

    fn draw(&self, family: Family) -> Fault {
        let harm = *self.chance.pick(&HARMS);
        let faults: &[Fault] = match family {
            Family::Drivers => &[
                Fault::KillDriver,
                Fault::StopDriver,
                Fault::FreezeDriver,
                Fault::DriversLine(harm),
                Fault::DriversLine(harm),
                Fault::DriversLine(harm),
                Fault::CallersLine(harm),
            ],
            Family::Broker => &[Fault::KillBroker, Fault::StopBroker, Fault::CallersLine(harm)],
        };
        *self.chance.pick(faults)
    }

    /// Says whether there was anybody to harm.
    async fn cause(&mut self, fault: Fault, reliefs: &mut Vec<Relief>) -> bool {
        let number = self.chance.among(0..self.drivers.len());
        let away = self.chance.millis(AWAY_MILLIS);
        let lasts = match fault {
            Fault::FreezeDriver if self.chance.percent(LONG_PERCENT) => LONG_MILLIS,
            _ => LASTS_MILLIS,
        };
        let lasts = self.chance.millis(lasts);
        let line = match fault {
            Fault::CallersLine(_) => None,
            _ => Some(number),
        };
        let is_free = match fault {
            Fault::KillDriver | Fault::StopDriver | Fault::FreezeDriver => {
                self.drivers[number].state == State::Runs
            }
            // One harm at a time: a line that loses must not be healed by the cure of another.
            Fault::DriversLine(_) | Fault::CallersLine(_) => {
                let harmed = |cure| matches!(cure, Cure::Heal { line: of, .. } if of == line);
                !reliefs.iter().any(|relief| harmed(relief.what))
            }
            Fault::KillBroker | Fault::StopBroker => true,
        };
        if !is_free {
            return false;
        }
        eprintln!("soak: {fault:?}, driver {number}, lasts {lasts:?}, away {away:?}");
        let mut cure = |after: Duration, what| {
            reliefs.push(Relief { at: Instant::now() + after, what });
        };
        let driver = &mut self.drivers[number];
        match fault {
            Fault::KillDriver => {
                driver.process.kill();
                self.witness.killed(driver.process.id());
                driver.state = State::Leaves;
                cure(away, Cure::StartDriver(number));
            }
            Fault::StopDriver => {
                driver.process.signal("-TERM");
                driver.state = State::Leaves;
                cure(away, Cure::StartDriver(number));
            }
            Fault::FreezeDriver => {
                driver.process.signal("-STOP");
                driver.state = State::Frozen;
                cure(lasts, Cure::Thaw(number));
            }
            Fault::DriversLine(what) | Fault::CallersLine(what) => {
                harm(self.line_of(line), what, &self.chance);
                let lost = matches!(what, Harm::Lose);
                cure(lasts, Cure::Heal { line, lost });
            }
            Fault::KillBroker => self.stage.kill_broker(away).await,
            Fault::StopBroker => {
                if !self.stage.stop_broker(away).await {
                    self.recorder.left_over("the broker does not stop".to_owned());
                }
            }
        }
        true
    }

    fn relieve(&mut self, cure: Cure) {
        match cure {
            Cure::StartDriver(number) => {
                // An instance has one process at a time: an older one that lingers is killed.
                let driver = &mut self.drivers[number];
                driver.process.kill();
                self.witness.killed(driver.process.id());
                let process = self.start_driver(number, &self.drivers[number].line);
                let driver = &mut self.drivers[number];
                (driver.process, driver.state) = (process, State::Runs);
            }
            Cure::Thaw(number) => {
                let driver = &mut self.drivers[number];
                driver.process.signal("-CONT");
                driver.state = State::Runs;
            }
            Cure::Heal { line, lost } => {
                let line = self.line_of(line);
                if lost {
                    line.reset();
                }
                line.heal();
            }
        }
    }

    fn line_of(&self, driver: Option<usize>) -> &Proxy {
        driver.map_or(&self.callers_line, |number| &self.drivers[number].line)
    }
}

fn harm(line: &Proxy, harm: Harm, chance: &Chance) {
    let way = *chance.pick(&[Way::There, Way::Back, Way::Both]);
    match harm {
        Harm::Lose => line.flow(way, Flow::Lost),
        Harm::Hold => line.flow(way, Flow::Frozen),
        Harm::Slow => line.flow(way, Flow::Slow { bytes_per_second: 2_000 }),
        Harm::Late => line.flow(way, Flow::Late(chance.millis(50..1_000))),
        Harm::Reset => line.reset(),
        Harm::Cut => line.cut_after(way, chance.among(0..20_000) as u64),
        Harm::Refuse => line.refuse(true),
    }
}
