//! A driver that does what the name of the machine says.

use std::{
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use tokio::sync::{Notify, Semaphore};

use crate::{
    Driver, Error, ListedMachine, Machine, Operation, Verb, async_trait, secret::Sensitive,
};

/// The script, and what happened.
pub(super) struct Scripted {
    calls: Mutex<Vec<(Verb, String)>>,
    called: Notify,
    /// What `held…` machines wait for.
    pub(super) gate: Semaphore,
    /// What `blocking…` machines wait for.
    free: Mutex<bool>,
    freed: Condvar,
    /// How many machines a list has.
    pub(super) listed: Mutex<usize>,
}

impl Default for Scripted {
    fn default() -> Self {
        Self {
            calls: Mutex::default(),
            called: Notify::new(),
            gate: Semaphore::new(0),
            free: Mutex::default(),
            freed: Condvar::new(),
            listed: Mutex::new(0),
        }
    }
}

impl Scripted {
    /// Every execution so far.
    pub(super) fn calls(&self) -> Vec<(Verb, String)> {
        self.calls.lock().unwrap().clone()
    }

    /// Waits until so many executions have begun.
    pub(super) async fn called(&self, times: usize) {
        loop {
            let called = self.called.notified();
            if self.calls.lock().unwrap().len() >= times {
                return;
            }
            called.await;
        }
    }

    /// Lets the threads go that are blocked.
    pub(super) fn unblock(&self) {
        *self.free.lock().unwrap() = true;
        self.freed.notify_all();
    }

    fn note(&self, op: &Operation) {
        self.calls.lock().unwrap().push((op.verb(), op.machine_name().to_owned()));
        self.called.notify_waiters();
    }

    async fn play(&self, op: &Operation) -> Result<Machine, Error> {
        self.note(op);
        let name = op.machine_name();
        let machine = Machine { provider_id: format!("id-{name}"), ..Machine::default() };
        match name.split('-').next().unwrap_or_default() {
            // Ends when the test lets it, or when it is cancelled.
            "held" => tokio::select! {
                permit = self.gate.acquire() => {
                    permit.expect("never closed").forget();
                    Ok(machine)
                }
                () = op.cancellation().cancelled() => Err(Error::cancelled("as you like")),
            },
            "doomed" => {
                self.gate.acquire().await.expect("never closed").forget();
                Err(Error::unavailable("the cloud is away"))
            }
            // What no driver should do: keeps its thread until the test lets it go.
            "blocking" => {
                let free = self.free.lock().unwrap();
                let patience = Duration::from_secs(30);
                let waited = self.freed.wait_timeout_while(free, patience, |free| !*free);
                assert!(!waited.unwrap().1.timed_out(), "the test forgot us");
                Ok(machine)
            }
            // Hears nothing.
            "stubborn" => std::future::pending().await,
            "panicking" => panic!("oh no"),
            "failing" => Err(Error::unavailable("the cloud is away")),
            "classy" => {
                let spec: serde_json::Value = op.spec().await?;
                let secret = op.secret().await?;
                let user_data = op.user_data().await?.unwrap_or_else(|| Sensitive::new(""));
                Ok(Machine {
                    node_name: spec["size"].as_str().unwrap_or_default().to_owned(),
                    last_known_state: format!(
                        "{} {}",
                        secret.get("key").and_then(Sensitive::as_str).unwrap_or_default(),
                        user_data.as_str().unwrap_or_default()
                    ),
                    ..machine
                })
            }
            _ => Ok(machine),
        }
    }
}

/// The driver around a shared script.
pub(super) struct Shared(pub(super) Arc<Scripted>);

#[async_trait]
impl Driver for Shared {
    fn verbs(&self) -> &[Verb] {
        &[Verb::Create, Verb::Delete, Verb::List, Verb::GetStatus]
    }

    async fn create(&self, op: &Operation) -> Result<Machine, Error> {
        self.0.play(op).await
    }

    async fn delete(&self, op: &Operation) -> Result<(), Error> {
        self.0.play(op).await.map(drop)
    }

    async fn get_status(&self, op: &Operation) -> Result<Machine, Error> {
        self.0.play(op).await
    }

    async fn list(&self, op: &Operation) -> Result<Vec<ListedMachine>, Error> {
        self.0.note(op);
        let count = *self.0.listed.lock().unwrap();
        let machine =
            |n| ListedMachine { provider_id: format!("{n}"), machine_name: format!("m{n}") };
        Ok((0..count).map(machine).collect())
    }
}
