//! The stream from a driver.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use broker_proto::passing::DriverSide;
use futures::Stream;
use tonic::Status;

use crate::grpc::messages::Messages;

#[derive(Debug)]
pub(super) struct FromDriver(pub(super) Messages);

impl Stream for FromDriver {
    type Item = Result<DriverSide, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let message = ready!(self.0.poll_next_of_stream(context));
        // As tonic says it: whoever sent this does not speak our language.
        let unreadable = |error: prost::DecodeError| Status::internal(error.to_string());
        let read = |message| DriverSide::read(message).map_err(unreadable);
        Poll::Ready(message.map(|message| message.and_then(read)))
    }
}
