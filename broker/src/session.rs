//! One connected driver: the protocol in [`machine`], and the task around it that moves frames.
//!
//! [`Session::new`] returns the task and its [`SessionHandle`]; everyone else holds the handle. A
//! session knows neither the registry nor the doors: the drivers' door seats it and runs it.

mod handle;
pub mod handshake;
pub mod machine;
mod record;

use std::time::Duration;

use broker_proto::v1::{self, BrokerSide, DriverSide, broker_side::Control};
use futures::{FutureExt as _, Stream, StreamExt as _};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until},
};

use self::{
    handle::{Admitted, Command, Ends},
    machine::{Machine, Notice},
};
pub use self::{
    handle::{Ended, Health, Info, Refused, SessionHandle, Token},
    machine::{Call, Oddities, Ticket},
    record::{LastError, Record},
};
use crate::{auth, driver::MachineId, metrics::Metrics};

/// What this driver can do, agreed in the handshake.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Knows more than the protocol of 2018.
    pub native: bool,
    pub cancel: bool,
    pub drain: bool,
    /// How many operations it runs at once.
    pub capacity: usize,
}

/// When a silent driver is pinged, doubted and given up.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub ping_every: Duration,
    pub suspect_after: Duration,
    pub dead_after: Duration,
    pub accept_within: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            ping_every: Duration::from_secs(4),
            suspect_after: Duration::from_secs(12),
            dead_after: Duration::from_secs(30),
            accept_within: Duration::from_secs(5),
        }
    }
}

/// Why a session is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    #[error("the driver left")]
    Left,
    #[error("the connection broke: {}", .0.why)]
    Broken(Broken),
    #[error("nothing was heard for too long")]
    Silent,
    #[error("a newer session of the same driver took its place")]
    Replaced,
    #[error("an operator evicted it: {0}")]
    Evicted(String),
    #[error("the broker is stopping")]
    ShutDown,
    #[error("it may no longer be here: {0}")]
    Revoked(auth::Denied),
}

/// What the transport said when it could read no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// As in gRPC.
    pub code: i32,
    pub why: String,
}

impl Broken {
    /// Nobody reads what we write.
    fn gone() -> Self {
        const CANCELLED: i32 = 1;
        Self { code: CANCELLED, why: "the other end is gone".to_owned() }
    }
}

/// The way to the driver.
pub type Outbound = mpsc::Sender<BrokerSide>;

/// The task's side of a session.
#[derive(Debug)]
pub struct Session {
    machine: Machine<Admitted>,
    terms: Terms,
    handle: SessionHandle,
    commands: mpsc::Receiver<Command>,
    ends: Ends,
    probes: Vec<(u64, oneshot::Sender<()>)>,
}

impl Session {
    /// `queue` is how many operations may wait beyond the driver's capacity.
    pub fn new(
        info: Info,
        terms: Terms,
        times: Times,
        queue: usize,
        metrics: Metrics,
    ) -> (SessionHandle, Session) {
        let limit = terms.capacity + queue;
        let (handle, commands, ends) = SessionHandle::new(info, times, limit, metrics);
        let session = Session {
            machine: Machine::new(terms, times, Instant::now()),
            terms,
            handle: handle.clone(),
            commands,
            ends,
            probes: Vec::new(),
        };
        (handle, session)
    }

    /// Serves the driver until it leaves, falls silent or is replaced.
    ///
    /// `resumed` hears of operations from earlier streams. Callers that still wait learn that it is over
    /// by the drop of the session and of their tickets with it. Give up its seats before: they will
    /// try again at once.
    pub async fn run(
        &mut self,
        mut inbound: impl Stream<Item = Result<DriverSide, Broken>> + Unpin,
        outbound: Outbound,
        mut resumed: impl FnMut(v1::Resumed),
    ) -> End {
        loop {
            // Whatever the traffic, pings go out on their own clock.
            self.machine.tick(Instant::now());
            self.handle.publish(&mut self.machine);
            let now = Instant::now();
            let wake_at = self.machine.wake_at(now);
            // Every branch is cancel safe: the ones that lose the race lose nothing.
            let frame = tokio::select! {
                end = self.ends.recv() => return end,
                frame = inbound.next() => frame,
                permit = outbound.reserve(), if self.machine.has_frame(now) => {
                    let Ok(permit) = permit else { return End::Broken(Broken::gone()) };
                    if let Some(frame) = self.machine.next_frame(Instant::now()) {
                        permit.send(frame);
                    }
                    self.write_more(&outbound);
                    continue;
                }
                Some(command) = self.commands.recv() => {
                    self.obey(command);
                    continue;
                }
                () = self.handle.swept() => {
                    self.machine.sweep(Instant::now());
                    continue;
                }
                () = sleep_until(wake_at) => {
                    if !self.machine.is_dead(Instant::now()) {
                        continue;
                    }
                    // If it was us who slept, there is something to read.
                    match inbound.next().now_or_never() {
                        Some(frame) => frame,
                        None => return End::Silent,
                    }
                }
            };
            match frame {
                Some(Ok(frame)) => match self.machine.hear(frame, Instant::now()) {
                    None => {}
                    Some(Notice::Left) => return End::Left,
                    Some(Notice::Draining) => {
                        self.handle.note_draining("is leaving by its own wish");
                    }
                    Some(Notice::Resumed(operation)) => resumed(*operation),
                    Some(Notice::Pong { sequence, round_trip }) => {
                        self.handle.note_round_trip(round_trip);
                        self.prove(sequence);
                    }
                },
                Some(Err(broken)) => return End::Broken(broken),
                // A connection that the transport gave up ends just as quietly as a driver that leaves.
                None if self.handle.is_silent() => return End::Silent,
                None => return End::Left,
            }
        }
    }

    /// Fills the room that is left without another turn of the loop.
    fn write_more(&mut self, outbound: &Outbound) {
        while self.machine.has_frame(Instant::now()) {
            let Ok(permit) = outbound.try_reserve() else { return };
            match self.machine.next_frame(Instant::now()) {
                Some(frame) => permit.send(frame),
                None => return,
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Submit(call) if self.machine.is_draining() => drop(call),
            Command::Submit(call) => self.machine.submit(call),
            Command::Probe(proven) => {
                let sequence = self.machine.ping_now(Instant::now());
                self.probes.push((sequence, proven));
            }
            Command::Drain { reason, after } => {
                self.machine.drain();
                if self.terms.drain {
                    let after = prost_types::Duration::try_from(after).ok();
                    self.machine.tell("drain", Control::Drain(v1::Drain { reason, after }));
                }
            }
            Command::SecretChanged { namespace, name } => {
                let changed = v1::SecretChanged { namespace, name };
                self.machine.tell("secret_changed", Control::SecretChanged(changed));
            }
            Command::Forget(machine) => {
                self.machine.tell("forget", forget(&machine));
            }
        }
    }

    fn prove(&mut self, sequence: u64) {
        for (_, proven) in self.probes.extract_if(.., |(wanted, _)| *wanted <= sequence) {
            // Whoever asked may have stopped waiting.
            proven.send(()).ok();
        }
    }
}

/// What a driver is told whose memory of a machine is not true any more.
pub fn forget(machine: &MachineId) -> Control {
    let class = v1::ClassRef {
        api_version: machine.api_version.to_string(),
        kind: machine.kind.to_string(),
        namespace: machine.namespace.to_string(),
        ..Default::default()
    };
    Control::Forget(v1::Forget { class: Some(class), machine_name: machine.name.to_string() })
}
