//! The first frames of a session: our registration, the broker's Welcome or Reject.

use std::{error::Error, fmt, sync::atomic::Ordering, time::Duration};

use broker_proto::{
    driving::{self, broker_side::Control, driver_side::Response},
    v1 as wire,
};
use prost::Message as _;
use tokio::time::timeout;
use tonic::{Status, Streaming};
use tonic_types::StatusExt as _;

use super::{
    Shared,
    mailbox::{self, Mailbox},
    outbox,
};
use crate::{
    classes::Link,
    config::Token,
    dial::Client,
    fleet::Target,
    operations::{AddressId, MachineKey, Recollection},
};

/// A session that the broker welcomed.
pub(super) struct Opened {
    pub(super) link: Link,
    pub(super) mailbox: mailbox::Owned,
    pub(super) inbound: Streaming<driving::BrokerSide>,
    /// Without the token, which is in the link.
    pub(super) welcome: wire::Welcome,
    pub(super) dead_after: Duration,
}

/// Why there is no session.
#[derive(Debug)]
pub(super) enum Failure {
    /// There is none to show.
    Token(String),
    Dial(tonic::transport::Error),
    Status(Status),
    Rejected(Rejection),
    /// The stream ended, or said something else, before the Welcome.
    NoWelcome(&'static str),
}

/// The broker's refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) retryable: bool,
    pub(crate) retry_after: Option<Duration>,
    /// Whose it is, where that was said.
    pub(crate) replica: String,
}

const CONNECTED: &str = "CONNECTED";
/// From the first packet to the Welcome.
const WELCOME_WITHIN: Duration = Duration::from_secs(10);
/// A broker that names a longer or no time to give it up, or a hectic one, gets these bounds.
const DEAD_AFTER: Duration = Duration::from_secs(30);
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(10 * 60);
/// A broker that asks for more time than this is asked again all the same.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(5 * 60);
/// How many bytes of a Hello may tell of operations: several thousand.
const MOST_RESUMED: usize = 1024 * 1024;

/// Dials and says hello.
pub(super) async fn open(
    shared: &Shared,
    address: AddressId,
    target: &Target,
) -> Result<Opened, Failure> {
    let open = async {
        let bearer = shared.credentials.bearer().map_err(Failure::Token)?;
        let channel = shared.dial.dial(&target.address, &target.tls(&shared.tls)).await;
        let channel = channel.map_err(Failure::Dial)?;
        let mut registration = shared.registration.clone();
        if let Some(hello) = &mut registration.hello {
            hello.returning = shared.met.load(Ordering::Acquire);
            hello.connected = shared.fleet.held_besides(address);
            hello.resumed = resumed(&shared.executor.recollect(address));
        }
        welcome(shared, registration, bearer.client(channel)).await
    };
    let late = || Err(Failure::NoWelcome("no welcome in time"));
    timeout(WELCOME_WITHIN, open).await.unwrap_or_else(|_| late())
}

async fn welcome(
    shared: &Shared,
    registration: wire::Registration,
    mut client: Client,
) -> Result<Opened, Failure> {
    // Sent at once, without waiting for the broker's "register".
    let hello = outbox::named(1, "register", Response::Registration(registration.into()));
    let (mailbox, frames) = Mailbox::open(hello);
    let response = client.register(frames).await.map_err(Failure::Status)?;
    let mut inbound = response.into_inner();
    loop {
        let Some(frame) = inbound.message().await.map_err(Failure::Status)? else {
            return Err(Failure::NoWelcome("the stream ended before the welcome"));
        };
        match frame.control {
            Some(Control::Welcome(mut welcome)) => {
                let session_token = Token::new(std::mem::take(&mut welcome.session_token));
                let dead_after = welcome.dead_after.and_then(|time| time.try_into().ok());
                return Ok(Opened {
                    link: Link { client, session_token },
                    mailbox,
                    inbound,
                    welcome: *welcome,
                    dead_after: dead_after.unwrap_or(DEAD_AFTER).clamp(SHORTEST, LONGEST),
                });
            }
            Some(Control::Reject(reject)) => return Err(Failure::Rejected((*reject).into())),
            // Also before a rejection: one that waits outside has a memory as well.
            Some(Control::Forget(forget)) => shared.executor.forget(&MachineKey::from_wire(forget)),
            // "register", which we did not wait for, or a frame of a later protocol.
            _ if frame.params.is_empty() => {}
            _ => return Err(Failure::NoWelcome("an operation came before the welcome")),
        }
    }
}

/// What a Hello has room for: what runs first, then the newest.
fn resumed(recollection: &Recollection) -> Vec<wire::Resumed> {
    let running = recollection.running.iter().map(|(request, elsewhere)| wire::Resumed {
        elsewhere: *elsewhere,
        ..outbox::resumed(request)
    });
    let ended = recollection.ended.iter().map(|(report, elsewhere)| wire::Resumed {
        elsewhere: *elsewhere,
        ..outbox::ended(report)
    });
    let mut room = MOST_RESUMED;
    let fits = |resumed: &wire::Resumed| {
        let left = room.checked_sub(resumed.encoded_len());
        room = left.unwrap_or(0);
        left.is_some()
    };
    running.chain(ended).take_while(fits).collect()
}

impl Failure {
    pub(super) fn retry_after(&self) -> Option<Duration> {
        match self {
            Failure::Rejected(rejection) => rejection.retry_after,
            // Too many streams are open, for instance: then there is none to be rejected on.
            Failure::Status(status) => status
                .get_details_retry_info()
                .and_then(|info| info.retry_delay)
                .map(|after| after.min(LONGEST_RETRY_AFTER)),
            Failure::Token(_) | Failure::Dial(_) | Failure::NoWelcome(_) => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Token(why) => f.write_str(why),
            // tonic's own message is "transport error"; the reason is further down.
            Failure::Dial(error) => write!(f, "cannot connect: {}", innermost(error)),
            Failure::Status(status) => match status.source() {
                // Not the broker's words, but what became of the connection.
                Some(error) => write!(f, "cannot connect: {}", innermost(error)),
                None => write!(f, "{:?}: {}", status.code(), status.message()),
            },
            Failure::Rejected(rejection) => rejection.fmt(f),
            Failure::NoWelcome(what) => f.write_str(what),
        }
    }
}

fn innermost(error: &dyn Error) -> &dyn Error {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause
}

impl Rejection {
    /// The replica has a session of ours, by another address.
    pub(super) fn is_connected(&self) -> bool {
        self.reason == CONNECTED
    }
}

impl From<wire::Reject> for Rejection {
    fn from(reject: wire::Reject) -> Self {
        let after: Option<Duration> = reject.retry_after.and_then(|time| time.try_into().ok());
        let reason = reject.reason().as_str_name();
        Self {
            reason: reason.strip_prefix("REASON_").unwrap_or(reason).to_owned(),
            message: reject.message,
            retryable: reject.retryable,
            retry_after: after.map(|after| after.min(LONGEST_RETRY_AFTER)),
            replica: reject.replica_id,
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rejected ({}): {}", self.reason, self.message)
    }
}
