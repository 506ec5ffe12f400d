//! One call, one answer, straight on HTTP/2: what tonic has for streams of any length is a fifth of what the
//! broker does for a unary call.

use std::{future::poll_fn, pin::pin, sync::LazyLock, time::Duration};

use bytes::{Bytes, BytesMut};
use futures::FutureExt as _;
use hyper::{
    HeaderMap, Response,
    body::Incoming,
    header::{CONTENT_TYPE, HeaderValue},
};
use prost::Message;
use tokio::time::{self, Instant};
use tonic::Status;
use zeroize::Zeroizing;

use super::{
    messages::{Messages, PREFIX, put, put_message},
    reply::{Reply, header},
};

/// How long a request may take to come, where its caller says nothing of time.
const READ_WITHIN: Duration = Duration::from_secs(60);

/// The one message of a request of at most so many bytes, read to its end: who answers before that has
/// to reset it. `given` is the caller's time, of which it takes what it takes.
pub(super) async fn read(
    body: Incoming,
    most: usize,
    given: &mut Option<Duration>,
) -> Result<Bytes, Status> {
    let mut messages = Messages::new(body, most);
    let mut reading = pin!(only(&mut messages));
    // Mostly it has come with its head, and nobody waits.
    if let Some(read) = reading.as_mut().now_or_never() {
        return read;
    }
    let began = Instant::now();
    let read = time::timeout(given.unwrap_or(READ_WITHIN), reading).await;
    let late = |_| Status::deadline_exceeded("the request did not come in time");
    *given = given.map(|time| time.saturating_sub(began.elapsed()));
    read.map_err(late)?
}

async fn only(messages: &mut Messages) -> Result<Bytes, Status> {
    let Some(first) = poll_fn(|context| messages.poll_next(context)).await else {
        return Err(Status::internal("the request has no message"));
    };
    let first = first?;
    match poll_fn(|context| messages.poll_next(context)).await {
        None => Ok(first),
        Some(Ok(_)) => Err(Status::internal("the request has more than one message")),
        Some(Err(status)) => Err(status),
    }
}

/// A message with its prefix.
pub(super) fn message(message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::new();
    put_message(message, &mut bytes);
    bytes.freeze()
}

/// The same of one that nobody may see: it is wiped once it is sent.
pub(super) fn secret_message(message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::new();
    put_message(message, &mut bytes);
    Bytes::from_owner(Zeroizing::new(Vec::from(bytes)))
}

/// The same of one that is encoded.
pub(super) fn encoded(message: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(PREFIX + message.len());
    put(message.len(), &mut bytes, |bytes| bytes.extend_from_slice(message));
    bytes.freeze()
}

/// The answer with this message, which has its prefix, or with why there is none.
pub(super) fn respond(answer: Result<Bytes, Status>) -> Response<Reply> {
    match answer {
        Ok(message) => answered(Reply::Message(message)),
        Err(status) => status.into_http(),
    }
}

/// The head of an answer, before any message.
pub(super) fn answered(reply: Reply) -> Response<Reply> {
    static HEAD: LazyLock<HeaderMap> =
        LazyLock::new(|| header(CONTENT_TYPE, HeaderValue::from_static("application/grpc")));
    let mut response = Response::new(reply);
    response.headers_mut().clone_from(&HEAD);
    response
}
