//! What goes to a driver, as the transport takes it.

use std::task::{Context, Poll};

use super::{SessionHandle, machine::Frame};

/// The frames of a session, each made when the transport has room for it: what it has no room for is not
/// sent. Ends with the session; dropped before, it ends it when there is something to send.
#[derive(Debug)]
pub struct Frames(pub(super) SessionHandle);

impl Frames {
    /// Hands over all frames that there are, for as long as `take` says that it has room; pending if there
    /// are none, `None` at the end.
    pub fn poll_next(
        &mut self,
        context: &mut Context<'_>,
        take: impl FnMut(&Frame<'_>) -> bool,
    ) -> Poll<Option<()>> {
        self.0.poll_frames(context, take)
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.0.writer_gone();
    }
}
