//! What goes to a driver, as the transport takes it.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use broker_proto::passing::BrokerSide;
use futures::Stream;

use super::SessionHandle;

/// The frames of a session, each made when the transport has room for it: what it has no room for is not
/// sent. Ends with the session; dropped before, it ends it when there is something to send.
#[derive(Debug)]
pub struct Frames(pub(super) SessionHandle);

impl Stream for Frames {
    type Item = BrokerSide;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<BrokerSide>> {
        self.0.poll_frame(context)
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.0.writer_gone();
    }
}
