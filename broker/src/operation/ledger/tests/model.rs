//! What the books have to say of one machine, in plain values.

use std::time::Duration;

use tokio::time::Instant;

use super::{Telling, now};
use crate::{
    driver::{OperationId, Verb},
    operation::{
        Delivery,
        ledger::{DRIVER_GRACE, KEEP_ANSWERS, REMEMBERED_FOR, RESUMED_FOR},
    },
};

#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) work: Work,
    pub(super) last: Option<Last>,
}

/// Who was last at the machine, and since when nobody else was.
#[derive(Clone, Debug)]
pub(super) struct Last {
    pub(super) driver: usize,
    pub(super) since: Instant,
    until: Instant,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Work {
    #[default]
    None,
    Running(OperationId),
    Held(Held),
    Kept {
        verb: Verb,
        request_id: &'static str,
        at: Instant,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Held {
    pub(super) driver: usize,
    /// Of this broker.
    pub(super) operation: Option<OperationId>,
    pub(super) is_over: bool,
    pub(super) delivery: Delivery,
    pub(super) since: Instant,
    pub(super) until: Instant,
}

/// How far an operation got, and what it met.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) id: OperationId,
    pub(super) verb: Verb,
    pub(super) request_id: &'static str,
    pub(super) submitted: Instant,
    pub(super) deadline: Instant,
    pub(super) driver: Option<usize>,
    pub(super) sent: bool,
    pub(super) begun: bool,
    pub(super) met: Option<Held>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    Success { heard: bool },
    Failure,
    Lost,
}

impl Model {
    /// What a request meets that has to be executed.
    pub(super) fn hold(&self) -> Option<Held> {
        match &self.work {
            Work::Held(held) => Some(held.clone()),
            _ => None,
        }
    }

    pub(super) fn remembers(&self, wanted: Verb, id: &str) -> bool {
        matches!(self.work, Work::Kept { verb, request_id, at }
            if verb == wanted && (id.is_empty() || id == request_id) && now() < at + KEEP_ANSWERS)
    }

    /// How old a memory of `driver` may be that answers what met this; `None`: however old.
    pub(super) fn recall(&self, driver: usize, verb: Verb, met: Option<&Held>) -> Option<Duration> {
        let told = met.filter(|held| held.operation.is_none() && held.driver == driver);
        if told.is_some_and(|held| !(held.is_over && verb == Verb::Delete)) {
            return None;
        }
        let alone = self.last.as_ref().filter(|last| last.driver == driver);
        Some(alone.map_or(Duration::ZERO, |last| now() - last.since))
    }

    /// Whether there is anything to be said of the machine.
    pub(super) fn is_known(&self) -> bool {
        self.work != Work::None || self.last.is_some()
    }

    pub(super) fn ends(&mut self, attempt: &Attempt, end: End, has_room: bool) {
        if let Some(driver) = attempt.driver
            && (attempt.sent || end != End::Lost)
        {
            let until = now() + REMEMBERED_FOR;
            match &mut self.last {
                Some(last) if last.driver == driver => last.until = until,
                last if last.is_some() || has_room => {
                    *last = Some(Last { driver, since: attempt.submitted, until });
                }
                _ => {}
            }
        }
        let as_before = attempt.met.clone().map_or(Work::None, Work::Held);
        self.work = match end {
            End::Success { heard: true } => Work::None,
            End::Success { heard: false } => {
                Work::Kept { verb: attempt.verb, request_id: attempt.request_id, at: now() }
            }
            // It was turned away, perhaps because the earlier one still runs.
            End::Failure if !attempt.begun => as_before,
            End::Failure => Work::None,
            End::Lost if !attempt.sent => as_before,
            End::Lost => attempt.driver.map_or(Work::None, |driver| {
                Work::Held(Held {
                    driver,
                    operation: Some(attempt.id),
                    is_over: false,
                    delivery: if attempt.begun { Delivery::Accepted } else { Delivery::Sent },
                    since: now(),
                    until: attempt.deadline + DRIVER_GRACE,
                })
            }),
        };
    }

    /// Says whether what the driver remembers of the machine is out of date. `works`: who is at it now.
    pub(super) fn is_told(&mut self, told: &Telling, works: Option<usize>, has_room: bool) -> bool {
        let at = now() - told.age;
        let (driver, until) = (told.driver, now() + RESUMED_FOR);
        let mut outdated = false;
        if told.end.is_some() {
            let other = self.last.as_ref().filter(|last| last.driver != driver);
            let later = other.is_some_and(|last| last.since >= at);
            let may = self.last.as_ref().map_or(has_room, |last| last.driver != driver);
            if told.stranger && !later && may {
                self.last = Some(Last { driver, since: at, until: now() + REMEMBERED_FOR });
            }
            outdated = later || works.is_some_and(|works| works != driver);
        }
        let is_over = told.end.is_some();
        let hold = || {
            let delivery = if is_over { Delivery::Accepted } else { Delivery::Sent };
            Held { driver, operation: None, is_over, delivery, since: at, until }
        };
        let counts = told.stranger && !outdated;
        let next = match (&self.work, told.end) {
            (Work::Held(held), Some(false)) if held.driver == driver => Some(Work::None),
            (Work::Held(held), _) if held.driver == driver => {
                let Held { operation, delivery, .. } = *held;
                Some(Work::Held(Held { operation, delivery, ..hold() }))
            }
            (Work::Held(held), None) if held.is_over => Some(Work::Held(hold())),
            (Work::Held(held), Some(success)) if held.is_over && counts && held.since < at => {
                Some(if success { Work::Held(hold()) } else { Work::None })
            }
            (Work::None, None) => Some(Work::Held(hold())),
            (Work::None, Some(true)) if counts => Some(Work::Held(hold())),
            _ => None,
        };
        if let Some(next) = next {
            self.work = next;
        }
        outdated
    }

    pub(super) fn tidy(&mut self) {
        self.last.take_if(|last| now() >= last.until);
        let old = match &self.work {
            Work::Held(held) => now() >= held.until,
            Work::Kept { at, .. } => now() >= *at + KEEP_ANSWERS,
            Work::None | Work::Running(_) => false,
        };
        if old {
            self.work = Work::None;
        }
    }
}
