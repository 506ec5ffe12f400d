//! One connected driver: the protocol in [`machine`], and what moves its frames.
//!
//! [`Session::new`] returns the task and its [`SessionHandle`]; everyone else holds the handle. The task
//! reads and keeps time. Whoever has something for the driver puts it into the machine through the
//! handle, and the transport takes it out again as [`Frames`] whenever it has room: an operation meets
//! no channel and no task in between. A session knows neither the registry nor the doors: the drivers'
//! door seats it and runs it.

mod admitted;
mod frames;
mod handle;
pub mod handshake;
mod info;
pub mod machine;
mod record;

use std::{pin::pin, time::Duration};

use broker_proto::{
    passing::{DriverSide, broker_side::Control},
    v1,
};
use futures::{FutureExt as _, Stream, StreamExt as _};
use tokio::{
    task::yield_now,
    time::{Instant, sleep_until},
};

use self::machine::Notice;
pub use self::{
    frames::Frames,
    handle::{Ended, Health, Refused, SessionHandle},
    info::{Info, Token},
    machine::{Call, Frame, Oddities, Ticket},
    record::{LastError, Record},
};
use crate::{auth, driver::MachineId, metrics::Metrics, turns::turn};

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

    /// A mistake of ours.
    fn panicked() -> Self {
        const INTERNAL: i32 = 13;
        Self { code: INTERNAL, why: "the broker made a mistake with this session".to_owned() }
    }
}

/// The task's side of a session. Dropped, the session is over: its operations are settled as lost, and
/// whoever holds the handle finds nobody there.
#[derive(Debug)]
pub struct Session {
    handle: SessionHandle,
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
        let handle = SessionHandle::new(info, terms, times, limit, metrics);
        (handle.clone(), Session { handle })
    }

    /// Serves the driver until it leaves, falls silent or is replaced.
    ///
    /// `resumed` hears of operations from earlier streams. Callers that still wait learn that it is over
    /// by the drop of the session and of their tickets with it. Give up its seats before: they will
    /// try again at once.
    ///
    /// Runs outside the session's span, which would be entered for every frame: who logs here names the
    /// session, as [`SessionHandle`] does.
    pub async fn run(
        &mut self,
        mut inbound: impl Stream<Item = Result<DriverSide, Broken>> + Unpin,
        mut resumed: impl FnMut(v1::Resumed),
    ) -> End {
        let mut alarm = pin!(sleep_until(Instant::now()));
        let handle = self.handle.clone();
        // Kept between turns: a new one would take a lock to come, and again to leave.
        let mut nudged = pin!(handle.nudged());
        loop {
            if let Some(end) = self.handle.told_to_end() {
                return end.clone();
            }
            // Whatever the traffic, pings go out on their own clock.
            let wake_at = self.handle.tick();
            // Traffic only puts off what the alarm is set for: rather than set anew by every frame, it
            // goes off early and finds nothing to do.
            if alarm.is_elapsed() || wake_at < alarm.deadline() {
                alarm.as_mut().reset(wake_at);
            }
            // Every branch is cancel safe: the ones that lose the race lose nothing.
            let mut next = tokio::select! {
                frame = inbound.next() => Some(frame),
                () = &mut nudged => {
                    nudged.set(handle.nudged());
                    continue;
                }
                () = &mut alarm => {
                    if !self.handle.is_dead() {
                        continue;
                    }
                    // If it was us who slept, there is something to read.
                    match inbound.next().now_or_never() {
                        None => return End::Silent,
                        frame => frame,
                    }
                }
            };
            // What came with it goes with it: a turn of the loop costs more than a frame.
            let now = Instant::now();
            let mut room = turn(self.handle.in_flight());
            while let Some(frame) = next {
                if let Some(end) = self.hear(frame, now, &mut resumed) {
                    return end;
                }
                room -= 1;
                next = if room > 0 { inbound.next().now_or_never() } else { None };
            }
            if room == 0 {
                yield_now().await;
            }
        }
    }

    /// What the transport brought: a frame, or that there will be none any more. Says if that is the end.
    fn hear(
        &mut self,
        frame: Option<Result<DriverSide, Broken>>,
        now: Instant,
        resumed: &mut impl FnMut(v1::Resumed),
    ) -> Option<End> {
        match frame {
            Some(Ok(frame)) => match self.handle.hear(frame, now) {
                None | Some(Notice::Draining) => {}
                Some(Notice::Left) => return Some(End::Left),
                Some(Notice::Resumed(operation)) => resumed(*operation),
                Some(Notice::Pong { sequence, round_trip }) => {
                    self.handle.note_pong(sequence, round_trip);
                }
            },
            Some(Err(broken)) => return Some(End::Broken(broken)),
            // A connection that the transport gave up ends just as quietly as a driver that leaves.
            None if self.handle.is_silent() => return Some(End::Silent),
            None => return Some(End::Left),
        }
        None
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.handle.close();
    }
}

/// What a driver is told whose memory of a machine is not true any more.
pub fn forget(machine: &MachineId) -> Control {
    let class = v1::ClassRef {
        api_version: machine.realm.api_version.to_string(),
        kind: machine.realm.kind.to_string(),
        namespace: machine.realm.namespace.to_string(),
        ..Default::default()
    };
    Control::Forget(v1::Forget { class: Some(class), machine_name: machine.name.to_string() })
}
