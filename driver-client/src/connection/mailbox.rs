//! The [`Outbox`] of a session, between all who put something in and the transport that takes it out.
//!
//! The transport makes each frame when it has room for it. So what is urgent overtakes what waits, and
//! many answers go out together, without a task or a channel between an operation's end and its answer.

use std::{
    mem,
    ops::Deref,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use broker_proto::driving::DriverSide;
use futures::{Stream, stream};
use tokio::sync::Notify;

use super::outbox::Outbox;
use crate::{
    executor::{Ears, Heard},
    operations::{Orphan, Report, Resume},
};

pub(super) struct Mailbox {
    state: Mutex<State>,
    /// Wakes the session, for what only it does.
    nudge: Notify,
}

struct State {
    outbox: Outbox,
    stage: Stage,
    /// The transport, when it found nothing.
    writer: Option<Waker>,
    /// There is no transport any more.
    is_deaf: bool,
    /// The session wants to know what becomes of its frames.
    is_watched: bool,
}

enum Stage {
    /// The frame that goes first, if it has not gone yet.
    Open(Option<DriverSide>),
    /// The last frame, if it has not gone yet. What is in the outbox stays there.
    Leaving(Option<DriverSide>),
    Over,
}

/// How a mailbox stands.
pub(super) enum Look {
    HasRoom,
    /// Whoever takes frames is too slow.
    Full,
    /// There is something to say, and nobody to take it.
    Stuck,
}

/// The session's own handle: without it, there is nothing more to say.
pub(super) struct Owned(Arc<Mailbox>);

/// What goes to the broker, as the transport takes it.
pub(super) struct Frames(Arc<Mailbox>);

impl Mailbox {
    /// With the frame that opens the stream. Both are handed out once.
    pub(super) fn open(hello: DriverSide) -> (Owned, Frames) {
        let state = State {
            outbox: Outbox::default(),
            stage: Stage::Open(Some(hello)),
            writer: None,
            is_deaf: false,
            is_watched: false,
        };
        let mailbox = Arc::new(Self { state: Mutex::new(state), nudge: Notify::new() });
        (Owned(mailbox.clone()), Frames(mailbox))
    }

    /// Looks at the outbox or puts something in.
    pub(super) fn with<T>(&self, change: impl FnOnce(&mut Outbox) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state.outbox);
        self.offer(state);
        result
    }

    /// Looks at the outbox, or changes what brings no frame, so that nobody need be woken.
    pub(super) fn quietly<T>(&self, change: impl FnOnce(&mut Outbox) -> T) -> T {
        change(&mut self.lock().outbox)
    }

    /// What gathered here goes out: what comes next may take its time.
    pub(super) fn flush(&self) {
        self.offer(self.lock());
    }

    /// Wakes whoever takes frames, if there are some. Says whether somebody was woken.
    fn offer(&self, mut state: MutexGuard<'_, State>) -> bool {
        let has_frame = state.outbox.has_frame();
        let nudge = state.is_watched || state.is_deaf && has_frame;
        let writer = if has_frame { state.writer.take() } else { None };
        // Whoever is woken wants the lock.
        drop(state);
        if nudge {
            self.nudge.notify_one();
        }
        match writer {
            Some(writer) => writer.wake(),
            None => return nudge,
        }
        true
    }

    /// How it stands. While it is `full` or more, or if `watch`, the session is nudged whenever
    /// something goes in or out.
    pub(super) fn look(&self, full: usize, watch: bool) -> Look {
        let mut state = self.lock();
        let is_full = state.outbox.len() >= full;
        state.is_watched = watch || is_full;
        match () {
            () if state.is_deaf && state.outbox.has_frame() => Look::Stuck,
            () if is_full => Look::Full,
            () => Look::HasRoom,
        }
    }

    /// Whether all was said, and every operation of the stream has its answer.
    pub(super) fn is_done(&self) -> bool {
        self.lock().outbox.is_done()
    }

    /// Says this and no more.
    pub(super) fn leave(&self, farewell: DriverSide) {
        self.end(Stage::Leaving(Some(farewell)));
    }

    /// The session is over. Returns what the broker may not, and what it cannot have read.
    pub(super) fn close(&self) -> (Vec<Report>, Vec<Report>) {
        self.end(Stage::Over);
        mem::take(&mut self.lock().outbox).into_reports()
    }

    fn end(&self, stage: Stage) {
        let mut state = self.lock();
        state.stage = stage;
        let writer = state.writer.take();
        drop(state);
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under this lock can leave it half-changed and panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owned {
    pub(super) fn ears(&self) -> Arc<dyn Ears> {
        self.0.clone()
    }

    /// An item whenever the session should look again.
    pub(super) fn nudges(&self) -> impl Stream<Item = ()> + Send + use<> {
        stream::unfold(self.0.clone(), async |mailbox| {
            mailbox.nudge.notified().await;
            Some(((), mailbox))
        })
    }
}

impl Deref for Owned {
    type Target = Mailbox;

    fn deref(&self) -> &Mailbox {
        &self.0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.end(Stage::Over);
    }
}

impl Ears for Mailbox {
    fn takes_over(&self, resume: Resume) {
        self.with(|outbox| {
            for report in resume.ended {
                outbox.report(None, report);
            }
            for request in &resume.running {
                outbox.still_runs(request);
            }
        });
    }

    fn started(&self, operation: i32) {
        self.quietly(|outbox| outbox.started(operation));
    }

    fn goes_on(&self, operation: i32) {
        self.with(|outbox| outbox.goes_on(operation));
    }

    fn ended(&self, operation: Option<i32>, report: Report) -> Heard {
        let mut state = self.lock();
        if let Stage::Over = state.stage {
            return Heard::No;
        }
        state.outbox.report(operation, report);
        // The last of those that began together wakes the transport, for all of them.
        let is_awaited = state.is_watched || state.is_deaf;
        let has_woken = (is_awaited || !state.outbox.is_gathering()) && self.offer(state);
        if has_woken { Heard::Woken } else { Heard::Quietly }
    }

    fn orphan(&self, orphan: Orphan) {
        self.with(|outbox| outbox.orphan(orphan));
    }
}

impl Stream for Frames {
    type Item = DriverSide;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<DriverSide>> {
        let mut state = self.0.lock();
        let state = &mut *state;
        let frame = match &mut state.stage {
            Stage::Open(hello) => hello.take().or_else(|| state.outbox.next()),
            Stage::Leaving(farewell) => return Poll::Ready(farewell.take()),
            Stage::Over => return Poll::Ready(None),
        };
        if frame.is_none() {
            state.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        if state.is_watched {
            self.0.nudge.notify_one();
        }
        Poll::Ready(frame)
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.0.lock().is_deaf = true;
        self.0.nudge.notify_one();
    }
}
