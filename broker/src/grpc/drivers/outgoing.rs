//! The stream to a driver, from the first word to the last.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use broker_proto::passing::BrokerSide;
use bytes::{Bytes, BytesMut};
use futures::{FutureExt as _, Stream};
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

use crate::{
    grpc::messages::{SEND_AT, put, put_message},
    session::{Frame, Frames},
};

/// The way to a driver during the handshake.
pub(super) type Outbound = mpsc::Sender<Outgoing>;

/// Frames of a handshake on their way to the transport.
const HANDSHAKE: usize = 4;

/// What is said to a driver.
pub(super) enum Outgoing {
    Frame(Box<BrokerSide>),
    /// The handshake is over: all else comes from the session.
    Session(Frames),
}

impl Outgoing {
    pub(super) fn frame(frame: BrokerSide) -> Self {
        Self::Frame(Box::new(frame))
    }
}

/// The stream itself: the handshake, then the session's frames, then why it ended.
#[derive(Debug)]
pub(crate) struct ToDriver {
    stage: Stage,
    /// Room for the frames that go next: about as long will they be as those that went lately.
    room: usize,
    farewell: oneshot::Receiver<Status>,
}

#[derive(Debug)]
enum Stage {
    Handshake(mpsc::Receiver<Outgoing>),
    Session(Frames),
    Farewell,
    Over,
}

impl ToDriver {
    /// With the end that the handshake writes to. A status that is sent as the farewell is the last word.
    pub(super) fn new(farewell: oneshot::Receiver<Status>) -> (Outbound, Self) {
        let (outbound, frames) = mpsc::channel(HANDSHAKE);
        (outbound, Self { stage: Stage::Handshake(frames), room: 0, farewell })
    }
}

/// Each item is as many frames as there are.
impl Stream for ToDriver {
    type Item = Result<Bytes, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            this.stage = match &mut this.stage {
                Stage::Handshake(frames) => match ready!(frames.poll_recv(context)) {
                    Some(Outgoing::Frame(frame)) => {
                        let mut bytes = BytesMut::new();
                        put_message(&*frame, &mut bytes);
                        return Poll::Ready(Some(Ok(bytes.freeze())));
                    }
                    Some(Outgoing::Session(frames)) => Stage::Session(frames),
                    None => Stage::Farewell,
                },
                Stage::Session(frames) => {
                    let mut bytes = BytesMut::new();
                    let take = |frame: &Frame<'_>| {
                        if bytes.is_empty() {
                            bytes.reserve(this.room);
                        }
                        put(frame.encoded_len(), &mut bytes, |to| frame.encode(to));
                        bytes.len() < SEND_AT
                    };
                    match ready!(frames.poll_next(context, take)) {
                        Some(()) => {
                            this.room = bytes.len().max(this.room / 2).min(SEND_AT);
                            return Poll::Ready(Some(Ok(bytes.freeze())));
                        }
                        None => Stage::Farewell,
                    }
                }
                Stage::Farewell => {
                    let last = ready!(this.farewell.poll_unpin(context));
                    this.stage = Stage::Over;
                    // Without a farewell the driver itself has left.
                    return Poll::Ready(last.ok().map(Err));
                }
                Stage::Over => return Poll::Ready(None),
            };
        }
    }
}

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Frame(_) => "Frame",
            Self::Session(_) => "Session",
        })
    }
}
