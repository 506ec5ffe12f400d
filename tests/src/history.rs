//! What happened in a run, and whether it may happen.
//!
//! Whoever runs the system, simulated or as real processes, writes down what callers asked and were
//! told, what drivers executed and which VMs there were. [`check`] is pure and knows nothing of how
//! the run was made: it holds the invariants at the top of FAULTS.md, and those of DESIGN.md that can
//! be seen from outside, against it.

mod check;
mod recorder;
mod rules;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt, time::Duration};

pub use self::{
    check::{SLACK, check},
    recorder::Recorder,
};

/// Since the run began.
pub type Time = Duration;

/// Everything that is known of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub calls: Vec<Call>,
    /// What drivers executed, each from its first to its last line of code.
    pub executions: Vec<Execution>,
    /// Every VM that there ever was.
    pub vms: Vec<Vm>,
    /// How many operations each driver process said it runs at once.
    pub capacities: BTreeMap<String, usize>,
    /// What was still there when all had gone: operations, sessions, tasks, descriptors.
    pub leftovers: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Create,
    Delete,
    Status,
    List,
}

/// What one caller asked once. A retry is another call.
#[derive(Clone, Debug)]
pub struct Call {
    pub id: u64,
    pub verb: Verb,
    /// Empty for a list.
    pub machine: String,
    pub invoked: Time,
    pub deadline: Time,
    /// Nothing was wrong when it was made, nor until it ended: it has to succeed.
    pub calm: bool,
    /// Nothing was wrong between the caller and the broker: the answer has to be the broker's.
    pub reached: bool,
    /// Exactly one, if all is well.
    pub endings: Vec<Ending>,
}

#[derive(Clone, Debug)]
pub struct Ending {
    pub at: Time,
    pub what: End,
}

#[derive(Clone, Debug)]
pub enum End {
    /// The caller went away without an answer.
    Left,
    /// A create or a status: the machine is there.
    Machine {
        provider_id: String,
    },
    /// A delete: it is not.
    Gone,
    /// The provider's ids of all machines, by their names.
    Listed(Vec<(String, String)>),
    Failed {
        code: String,
        delivery: Delivery,
    },
}

/// What a failed call was told of how far it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    NotSent,
    Sent,
    Accepted,
    /// The driver itself said no.
    Answered,
    /// Nobody said: the connection broke, or the caller's own clock ran out.
    Untold,
}

/// One run of a driver's code.
#[derive(Clone, Debug)]
pub struct Execution {
    /// The driver process.
    pub boot: String,
    /// The call that it was started for, as its trace tells.
    pub call: Option<u64>,
    pub verb: Verb,
    pub machine: String,
    pub began: Time,
    /// `None` if it never ended.
    pub ended: Option<Time>,
}

#[derive(Clone, Debug)]
pub struct Vm {
    pub provider_id: String,
    pub machine: String,
    /// `None` where only the end was looked at.
    pub born: Option<Time>,
    /// `None` for one that is there at the end.
    pub died: Option<Time>,
}

/// The invariants, each with the words that a person reads when it is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    AnsweredOnce,
    AnsweredInTime,
    ReachedIsTold,
    OneVmPerMachine,
    NoVmUnasked,
    OneMutationPerMachine,
    NotSentIsNotExecuted,
    AcceptedWasExecuted,
    FailureIsFinal,
    SuccessIsTrue,
    LastWordHolds,
    WithinCapacity,
    CalmCallsSucceed,
    NothingLeft,
}

impl Rule {
    fn text(self) -> &'static str {
        match self {
            Rule::AnsweredOnce => "every call gets exactly one answer",
            Rule::AnsweredInTime => "every call is answered by its deadline",
            Rule::ReachedIsTold => "a caller that reaches the broker hears from it",
            Rule::OneVmPerMachine => "a machine has one VM at most",
            Rule::NoVmUnasked => "there is no VM that nobody asked for",
            Rule::OneMutationPerMachine => "one mutation runs per machine at most",
            Rule::NotSentIsNotExecuted => "what is called NOT_SENT is executed by no driver",
            Rule::AcceptedWasExecuted => "what is called ACCEPTED was begun by a driver",
            Rule::FailureIsFinal => "what is called failed does not run any more",
            Rule::SuccessIsTrue => "a success tells the truth about the provider",
            Rule::LastWordHolds => "the last success on a machine is what the provider holds",
            Rule::WithinCapacity => "a driver runs no more than it said it can",
            Rule::CalmCallsSucceed => "a call succeeds when nothing is wrong",
            Rule::NothingLeft => "nothing is left when all have gone",
        }
    }
}

/// A rule, and what broke it.
#[derive(Clone, Debug)]
pub struct Violation {
    pub rule: Rule,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({}): {}", self.rule, self.rule.text(), self.what)
    }
}

impl Verb {
    fn mutates(self) -> bool {
        matches!(self, Verb::Create | Verb::Delete)
    }
}

impl Call {
    /// When it was over for its caller.
    fn over(&self) -> Option<Time> {
        self.endings.first().map(|ending| ending.at)
    }

    fn succeeded(&self) -> bool {
        self.endings.first().is_some_and(|ending| ending.what.is_success())
    }
}

impl End {
    pub fn is_success(&self) -> bool {
        matches!(self, End::Machine { .. } | End::Gone | End::Listed(_))
    }
}

impl Execution {
    fn ended_by(&self, at: Time) -> bool {
        self.ended.is_some_and(|ended| ended <= at)
    }
}

impl Vm {
    /// Whether it was there at some time between `from` and `to`, both included.
    fn lived_within(&self, from: Time, to: Time) -> bool {
        self.born.unwrap_or_default() <= to && self.died.is_none_or(|died| died >= from)
    }
}
