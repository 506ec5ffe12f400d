//! Streams that stay open for long, and end when their caller may no longer have them.

use std::pin::pin;

use futures::{Stream, StreamExt as _, stream};
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
    caller: Caller,
    need: Need,
) -> Result<stream::BoxStream<'static, Result<T, Status>>, Status> {
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
    let state = Some((stream.boxed(), Box::pin(revoked)));
    let stream = stream::unfold(state, |state| async {
        let (mut stream, mut revoked) = state?;
        // Looked at first, lest a busy stream never gets to it.
        tokio::select! {
            biased;
            status = pin!(&mut revoked) => Some((Err(status), None)),
            item = stream.next() => item.map(|item| (item, Some((stream, revoked)))),
        }
    });
    Ok(stream.boxed())
}
