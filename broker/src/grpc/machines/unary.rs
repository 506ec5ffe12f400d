//! One call, one answer, straight on HTTP/2: what tonic has for streams of any length is a fifth of what the
//! broker does for a unary call.

use std::{future::poll_fn, pin::pin};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use hyper::{
    Request, Response,
    body::{Body as _, Incoming},
    header::{CONTENT_TYPE, HeaderValue},
};
use prost::Message;
use tonic::Status;

use crate::grpc::{MAX_MESSAGE, reply::Reply};

/// Before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// The one message of a request, which is read to its end: who answers before that has to reset it.
pub(super) async fn read<T: Message + Default>(request: Request<Incoming>) -> Result<T, Status> {
    let mut body = pin!(request.into_body());
    // Mostly there is one piece, which need not be copied.
    let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        let broken = |error: hyper::Error| Status::cancelled(error.to_string());
        // Nothing comes behind what is no data.
        let Ok(data) = frame.map_err(broken)?.into_data() else { break };
        if first.len() + rest.len() + data.len() > MAX_MESSAGE + PREFIX {
            let most = format!("a request has at most {MAX_MESSAGE} bytes");
            return Err(Status::out_of_range(most));
        }
        if first.is_empty() && rest.is_empty() {
            first = data;
        } else {
            rest.extend_from_slice(&std::mem::take(&mut first));
            rest.extend_from_slice(&data);
        }
    }
    let message = message(if rest.is_empty() { first } else { rest.freeze() })?;
    T::decode(message).map_err(|error| Status::internal(error.to_string()))
}

/// What is behind the prefix.
fn message(mut read: Bytes) -> Result<Bytes, Status> {
    if read.len() < PREFIX {
        return Err(Status::internal("the request has no message"));
    }
    if read.get_u8() != 0 {
        return Err(Status::unimplemented("compressed requests are not read"));
    }
    if usize::try_from(read.get_u32()) != Ok(read.len()) {
        return Err(Status::internal("the request is not one whole message"));
    }
    Ok(read)
}

/// The answer with this message, or with why there is none.
pub(super) fn respond(answer: Result<impl Message, Status>) -> Response<Reply> {
    let message = match answer {
        Ok(message) => message,
        Err(status) => return status.into_http(),
    };
    let length = message.encoded_len();
    let mut data = BytesMut::with_capacity(PREFIX + length);
    data.put_u8(0);
    // A machine is bounded by the frame that it came in.
    data.put_u32(length as u32);
    message.encode_raw(&mut data);
    let mut response = Response::new(Reply::Message(data.freeze()));
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(CONTENT_TYPE, grpc);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_whole_message_is_read_and_nothing_else() {
        let read = |bytes: &'static [u8]| message(Bytes::from_static(bytes)).map_err(|s| s.code());
        assert_eq!(read(b"\0\0\0\0\x02hi").unwrap(), "hi");
        assert_eq!(read(b"\0\0\0\0\0").unwrap(), "");
        assert_eq!(read(b"\x01\0\0\0\x02hi"), Err(tonic::Code::Unimplemented));
        for wrong in [&b""[..], b"\0\0\0", b"\0\0\0\0\x03hi", b"\0\0\0\0\x01hi"] {
            assert_eq!(read(wrong), Err(tonic::Code::Internal), "{wrong:?}");
        }
    }
}
