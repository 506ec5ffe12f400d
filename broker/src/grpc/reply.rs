//! What a call is answered with.

use std::{
    fmt, mem,
    pin::Pin,
    sync::LazyLock,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures::{StreamExt as _, stream::BoxStream};
use hyper::{
    HeaderMap,
    body::{Body as HttpBody, Frame, SizeHint},
    header::{HeaderName, HeaderValue},
};
use tonic::{Status, body::Body};

/// The body of an answer.
#[derive(Default)]
pub enum Reply {
    /// One message with its prefix, and then that all went well.
    Message(Bytes),
    /// Messages with their prefixes, any number at once, and then how it went.
    Messages(BoxStream<'static, Result<Bytes, Status>>),
    /// That all went well.
    Well,
    #[default]
    Over,
    /// Whatever tonic makes of a service.
    Tonic(Body),
}

impl HttpBody for Reply {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let (frame, next) = match &mut *self {
            Reply::Message(message) => (Frame::data(mem::take(message)), Reply::Well),
            Reply::Messages(messages) => match ready!(messages.poll_next_unpin(context)) {
                Some(Ok(messages)) => return Poll::Ready(Some(Ok(Frame::data(messages)))),
                Some(Err(status)) => (Frame::trailers(trailers(&status)?), Reply::Over),
                None => (Frame::trailers(well()), Reply::Over),
            },
            Reply::Well => (Frame::trailers(well()), Reply::Over),
            Reply::Over => return Poll::Ready(None),
            Reply::Tonic(body) => return Pin::new(body).poll_frame(context),
        };
        *self = next;
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Reply::Message(_) | Reply::Messages(_) | Reply::Well => false,
            Reply::Over => true,
            Reply::Tonic(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Reply::Tonic(body) => body.size_hint(),
            // Nobody asks for more: messages have their length in front of them.
            Reply::Message(_) | Reply::Messages(_) | Reply::Well | Reply::Over => {
                SizeHint::default()
            }
        }
    }
}

/// That all went well.
fn well() -> HeaderMap {
    static WELL: LazyLock<HeaderMap> =
        LazyLock::new(|| header(Status::GRPC_STATUS, HeaderValue::from_static("0")));
    WELL.clone()
}

/// One header, to be copied: that takes half of what making it does. With some room, in which it is found sooner
/// that other headers are not there.
pub(super) fn header(name: HeaderName, value: HeaderValue) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8);
    headers.insert(name, value);
    headers
}

/// What went wrong.
fn trailers(status: &Status) -> Result<HeaderMap, Status> {
    let mut trailers = HeaderMap::with_capacity(3);
    status.add_header(&mut trailers)?;
    Ok(trailers)
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

impl From<Body> for Reply {
    fn from(body: Body) -> Self {
        Reply::Tonic(body)
    }
}
