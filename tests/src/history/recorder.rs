//! Writes a history down while it happens.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::time::Instant;

use super::{Call, Delivery, End, Ending, Execution, History, Time, Verb, Vm};

/// Cheap to clone: all clones write the same history.
#[derive(Clone, Debug)]
pub struct Recorder {
    began: Instant,
    history: Arc<Mutex<History>>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { began: Instant::now(), history: Arc::default() }
    }
}

impl Recorder {
    pub fn now(&self) -> Time {
        self.began.elapsed()
    }

    pub fn history(&self) -> History {
        self.lock().clone()
    }

    /// A caller asks. Returns the call's number, which its trace has to carry.
    pub fn asked(&self, verb: Verb, machine: &str, time: Time, calm: bool) -> u64 {
        let invoked = self.now();
        let mut history = self.lock();
        let id = history.calls.len() as u64;
        history.calls.push(Call {
            id,
            verb,
            machine: machine.to_owned(),
            invoked,
            deadline: invoked + time,
            calm,
            reached: false,
            endings: Vec::new(),
        });
        id
    }

    pub fn told(&self, call: u64, what: End) {
        let at = self.now();
        self.change(call, |call| call.endings.push(Ending { at, what }));
    }

    /// Whether nothing was wrong between the caller and the broker, from question to answer.
    pub fn reached(&self, call: u64, reached: bool) {
        self.change(call, |call| call.reached = reached);
    }

    fn change(&self, call: u64, change: impl FnOnce(&mut Call)) {
        let calls = &mut self.lock().calls;
        let call = usize::try_from(call).ok().and_then(|call| calls.get_mut(call));
        change(call.expect("numbers come from `asked`"));
    }

    pub fn capacity(&self, boot: &str, capacity: usize) {
        self.lock().capacities.insert(boot.to_owned(), capacity);
    }

    /// A driver's code begins. It ends when the guard is dropped, however that comes about.
    pub fn executing(&self, boot: &str, call: Option<u64>, verb: Verb, machine: &str) -> Executing {
        let began = self.now();
        let mut history = self.lock();
        history.executions.push(Execution {
            boot: boot.to_owned(),
            call,
            verb,
            machine: machine.to_owned(),
            began,
            ended: None,
        });
        Executing { recorder: self.clone(), index: history.executions.len() - 1 }
    }

    /// A driver process was killed: what it executed does not run any more.
    pub fn killed(&self, boot: &str) {
        let now = self.now();
        let executions = &mut self.lock().executions;
        for run in executions.iter_mut().filter(|run| run.boot == boot) {
            run.ended.get_or_insert(now);
        }
    }

    pub fn born(&self, provider_id: &str, machine: &str) {
        let born = Some(self.now());
        let (provider_id, machine) = (provider_id.to_owned(), machine.to_owned());
        self.lock().vms.push(Vm { provider_id, machine, born, died: None });
    }

    pub fn died(&self, provider_id: &str) {
        let now = self.now();
        let vms = &mut self.lock().vms;
        if let Some(vm) = vms.iter_mut().find(|vm| vm.provider_id == provider_id) {
            vm.died.get_or_insert(now);
        }
    }

    pub fn left_over(&self, what: String) {
        self.lock().leftovers.push(what);
    }

    fn lock(&self) -> MutexGuard<'_, History> {
        self.history.lock().expect("no panic while locked")
    }
}

/// A driver's code that runs.
#[derive(Debug)]
pub struct Executing {
    recorder: Recorder,
    index: usize,
}

impl Drop for Executing {
    fn drop(&mut self) {
        let now = self.recorder.now();
        self.recorder.lock().executions[self.index].ended.get_or_insert(now);
    }
}

impl Delivery {
    /// From the details of a status; `None` if it has none.
    pub fn from_detail(delivery: Option<&str>) -> Self {
        match delivery {
            Some("NOT_SENT") => Delivery::NotSent,
            Some("SENT") => Delivery::Sent,
            Some("ACCEPTED") => Delivery::Accepted,
            Some("ANSWERED") => Delivery::Answered,
            _ => Delivery::Untold,
        }
    }
}
