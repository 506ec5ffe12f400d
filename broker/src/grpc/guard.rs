//! Streams that stay open for long, and end when their caller may no longer have them.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::{FutureExt as _, Stream, StreamExt as _, future::BoxFuture, stream::BoxStream};
use tonic::Status;

use super::status;
use crate::{
    auth::{Auth, Caller, Need},
    bounds::Bounds,
};

/// The stream, until it ends or its caller's credentials or role do: then with the reason. There may be
/// only so many.
pub(super) fn while_allowed<T: Send + 'static>(
    stream: impl Stream<Item = Result<T, Status>> + Send + 'static,
    (auth, bounds): (&Auth, &Bounds),
    caller: Arc<Caller>,
    need: Need,
) -> Result<BoxStream<'static, Result<T, Status>>, Status> {
    let place = bounds.streams.take(auth.counts_as(&caller)).map_err(|taken| {
        if bounds.refusals.tell(&caller) {
            tracing::warn!(?caller, why = %taken, "stream refused");
        }
        status::of_taken("streams", &taken)
    })?;
    let stream = stream.map(move |item| {
        // Held for as long as the stream.
        let _held = &place;
        item
    });
    if !auth.has_policy() {
        return Ok(stream.boxed());
    }
    let auth = auth.clone();
    let revoked = async move {
        let denied = auth.revoked(&caller, |auth| auth.admits(&caller, need)).await;
        tracing::info!(?caller, why = %denied, "stream ended: its caller may no longer have it");
        status::of_denied_caller(&denied)
    };
    Ok(Guarded { stream: stream.boxed(), revoked: revoked.boxed(), passed: 0, is_over: false }
        .boxed())
}

/// How many items pass before the guard looks again, at the latest. One may be many answers.
const AT_ONCE: u32 = 4;

struct Guarded<T> {
    stream: BoxStream<'static, Result<T, Status>>,
    revoked: BoxFuture<'static, Status>,
    passed: u32,
    is_over: bool,
}

impl<T> Stream for Guarded<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let is_busy = self.passed < AT_ONCE;
        if is_busy && let item @ Poll::Ready(_) = self.stream.poll_next_unpin(context) {
            self.passed += 1;
            return item;
        }
        // When it waits, and now and then also when it never does.
        self.passed = 0;
        if let Poll::Ready(status) = self.revoked.poll_unpin(context) {
            self.is_over = true;
            return Poll::Ready(Some(Err(status)));
        }
        if is_busy { Poll::Pending } else { self.stream.poll_next_unpin(context) }
    }
}
