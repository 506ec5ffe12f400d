//! What changes, as it changes: a stream that survives the connection it came by, and a journal
//! that knows what is worth a line.

mod journal;

use std::{ops::ControlFlow, time::Duration};

use broker_proto::v1::{DriverEvent, OperationEvent};
use tokio::time;
use tonic::{Code, Response, Status, Streaming};

use crate::{Failure, client::Broker, output::Output};

pub(crate) use journal::{Event, Fate, Journal, Watched};

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A message of a watch.
pub(crate) trait Resumable {
    /// Where to go on after this one.
    fn resume_token(&self) -> &str;
}

impl Resumable for DriverEvent {
    fn resume_token(&self) -> &str {
        &self.resume_token
    }
}

impl Resumable for OperationEvent {
    fn resume_token(&self) -> &str {
        &self.resume_token
    }
}

/// Shows every event until nobody reads any more, the operator's time is over, or the broker
/// refuses.
pub(crate) async fn follow<E: Resumable>(
    broker: &Broker,
    output: &mut Output<'_, '_>,
    open: impl AsyncFn(String) -> Result<Response<Streaming<E>>, Status>,
    see: impl FnMut(E, &mut Output<'_, '_>) -> Result<ControlFlow<()>, Failure>,
) -> Result<(), Failure> {
    let following = go_on(broker, output, open, see);
    match broker.time_left() {
        None => following.await,
        Some(left) => time::timeout(left, following).await.unwrap_or(Ok(())),
    }
}

/// 1. Open the stream: from the beginning, or after the last event that was seen.
/// 2. Show what comes.
/// 3. When it breaks, say so once, wait a little longer each time, and begin again.
async fn go_on<E: Resumable>(
    broker: &Broker,
    output: &mut Output<'_, '_>,
    open: impl AsyncFn(String) -> Result<Response<Streaming<E>>, Status>,
    mut see: impl FnMut(E, &mut Output<'_, '_>) -> Result<ControlFlow<()>, Failure>,
) -> Result<(), Failure> {
    let mut resume = String::new();
    let mut pause = FIRST_PAUSE;
    // Whether there was a stream at all, and whether the operator knows that it broke.
    let (mut opened, mut told) = (false, false);
    loop {
        let end = match open(resume.clone()).await {
            Err(status) if !opened => return Err(broker.look_failed(&status)),
            Err(status) => status,
            Ok(answer) => {
                opened = true;
                let mut events = answer.into_inner();
                loop {
                    match events.message().await {
                        Ok(Some(event)) => {
                            // An answer alone is not enough: a proxy gives one for a dead broker.
                            if std::mem::take(&mut told) {
                                output.remark(format!("connected to {} again", broker.address()));
                            }
                            pause = FIRST_PAUSE;
                            resume = event.resume_token().to_owned();
                            if see(event, output)?.is_break() {
                                return Ok(());
                            }
                        }
                        Ok(None) => break Status::unavailable("the broker ended the stream"),
                        Err(status) => break status,
                    }
                }
            }
        };
        if !passes(end.code()) {
            return Err(broker.look_failed(&end));
        }
        if !std::mem::replace(&mut told, true) {
            let why = broker.look_failed(&end);
            let why = why.message();
            output.remark(format!("connection lost, retrying: {why}"));
        }
        time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Whether it may be different in a moment.
fn passes(code: Code) -> bool {
    use Code::{
        Aborted, Cancelled, DeadlineExceeded, Internal, ResourceExhausted, Unavailable, Unknown,
    };
    matches!(
        code,
        Aborted
            | Cancelled
            | DeadlineExceeded
            | Internal
            | ResourceExhausted
            | Unavailable
            | Unknown
    )
}
