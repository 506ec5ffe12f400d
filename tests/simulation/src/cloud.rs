//! The provider, and a driver of it.
//!
//! It behaves like a real one: nothing keeps two VMs from having the same name, everything takes its
//! time, and now and then it fails, sometimes after the deed is done. The driver does its duty, which is
//! to look before it makes; so only two executions at once, or a broken promise, make a second VM.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use broker_tests::{
    caller::call_of,
    history::{self, Recorder},
};
use driver_client::{Code, Driver, Error, ListedMachine, Machine, Operation, Verb, async_trait};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::chance::Chance;

#[derive(Clone)]
pub(crate) struct Cloud {
    vms: Arc<Mutex<Vec<(String, String)>>>,
    next: Arc<AtomicUsize>,
    calm: Arc<AtomicBool>,
    chance: Chance,
    recorder: Recorder,
}

impl Cloud {
    pub(crate) fn new(chance: Chance, recorder: Recorder) -> Self {
        let (vms, next, calm) = Default::default();
        Self { vms, next, calm, chance, recorder }
    }

    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Fails no more from now on.
    pub(crate) fn calm_down(&self) {
        self.calm.store(true, Ordering::Relaxed);
    }

    fn named(&self, machine: &str) -> Option<String> {
        let vms = self.vms.lock().expect("no panic while locked");
        vms.iter().find(|(name, _)| name == machine).map(|(_, id)| id.clone())
    }

    fn put(&self, machine: &str) -> String {
        let id = format!("vm-{}", self.next.fetch_add(1, Ordering::Relaxed));
        self.recorder.born(&id, machine);
        self.vms.lock().expect("no panic while locked").push((machine.to_owned(), id.clone()));
        id
    }

    fn remove(&self, machine: &str) {
        let mut vms = self.vms.lock().expect("no panic while locked");
        for (_, id) in vms.extract_if(.., |(name, _)| name == machine) {
            self.recorder.died(&id);
        }
    }

    fn all(&self) -> Vec<(String, String)> {
        self.vms.lock().expect("no panic while locked").clone()
    }

    async fn takes(&self, millis: std::ops::Range<usize>) {
        sleep(self.chance.millis(millis)).await;
    }

    fn fails(&self, percent: usize) -> Result<(), Error> {
        if self.calm.load(Ordering::Relaxed) || !self.chance.percent(percent) {
            return Ok(());
        }
        let code = *self.chance.pick(&[Code::Internal, Code::ResourceExhausted, Code::Unavailable]);
        Err(Error::new(code, "the provider has a bad day").with_retry_after(Duration::from_secs(1)))
    }
}

/// One driver process's code.
pub(crate) struct CloudDriver {
    pub(crate) boot: String,
    pub(crate) cloud: Cloud,
    /// Cancelled when the process is killed: whatever it was at, it does no more.
    pub(crate) killed: CancellationToken,
    /// Stops when it is told to.
    pub(crate) obeys: bool,
}

impl CloudDriver {
    fn executing(&self, op: &Operation, verb: history::Verb) -> impl Drop + use<> {
        let call = call_of(op.traceparent());
        self.cloud.recorder.executing(&self.boot, call, verb, op.machine_name())
    }

    /// Does something that takes time, unless the process ends meanwhile.
    async fn at(&self, millis: std::ops::Range<usize>) {
        self.cloud.takes(millis).await;
        if self.killed.is_cancelled() {
            std::future::pending::<()>().await;
        }
    }

    fn check(&self, op: &Operation) -> Result<(), Error> {
        if self.obeys && op.cancellation().is_cancelled() {
            return Err(Error::cancelled("told to stop"));
        }
        Ok(())
    }
}

#[async_trait]
impl Driver for CloudDriver {
    fn verbs(&self) -> &[Verb] {
        &[Verb::Create, Verb::Delete, Verb::List, Verb::GetStatus]
    }

    async fn create(&self, op: &Operation) -> Result<Machine, Error> {
        let _executing = self.executing(op, history::Verb::Create);
        if self.cloud.chance.percent(30) {
            op.class().await?;
        }
        self.at(1..500).await;
        self.check(op)?;
        if let Some(provider_id) = self.cloud.named(op.machine_name()) {
            return Ok(Machine { provider_id, ..Machine::default() });
        }
        self.cloud.fails(5)?;
        let slow = self.cloud.chance.percent(30);
        self.at(if slow { 5_000..20_000 } else { 10..3_000 }).await;
        self.check(op)?;
        let provider_id = self.cloud.put(op.machine_name());
        self.at(0..500).await;
        self.cloud.fails(5)?;
        Ok(Machine { provider_id, ..Machine::default() })
    }

    async fn delete(&self, op: &Operation) -> Result<(), Error> {
        let _executing = self.executing(op, history::Verb::Delete);
        self.at(1..1_500).await;
        self.check(op)?;
        self.cloud.fails(5)?;
        self.cloud.remove(op.machine_name());
        self.at(0..1_500).await;
        self.cloud.fails(5)
    }

    async fn list(&self, op: &Operation) -> Result<Vec<ListedMachine>, Error> {
        let _executing = self.executing(op, history::Verb::List);
        self.at(1..500).await;
        self.cloud.fails(3)?;
        let listed = |(machine_name, provider_id)| ListedMachine { provider_id, machine_name };
        let machines = self.cloud.all().into_iter().map(listed).collect();
        self.at(1..500).await;
        Ok(machines)
    }

    async fn get_status(&self, op: &Operation) -> Result<Machine, Error> {
        let _executing = self.executing(op, history::Verb::Status);
        self.at(1..500).await;
        self.cloud.fails(3)?;
        let found = self.cloud.named(op.machine_name());
        self.at(1..500).await;
        let provider_id = found.ok_or_else(|| Error::not_found("there is no such VM"))?;
        Ok(Machine { provider_id, ..Machine::default() })
    }
}
