//! What operators do to drivers, through whichever door: bounded, logged, in the driver's history and
//! in the audit log in the same words. Whether they may is for the doors to ask.

use std::time::Duration;

use broker_proto::v1;

use crate::{
    audit::{Event, Outcome, Record},
    auth::Caller,
    inspect::{self, Rooms},
    registry::What,
    session::{End, SessionHandle},
};

/// How much of an operator's reason is passed on.
const MAX_REASON: usize = 1024;

/// Why nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("reason: at most {MAX_REASON} bytes")]
    LongReason,
    #[error(transparent)]
    Driver(#[from] inspect::Unknown),
}

/// Lets a driver finish what it has and leave.
pub fn drain(rooms: &Rooms, by: &Caller, name: &str, reason: &str) -> Result<v1::Driver, Error> {
    let (session, reason) = asked(rooms, Event::DriverDrained, by, name, reason)?;
    let info = session.info();
    tracing::info!(session = %info.id, driver = %info.instance, reason, "drained by an operator");
    rooms.registry.history().note(What::Asked, reason, Some(info.id), &info.instance);
    session.drain(reason, Duration::ZERO);
    Ok(inspect::driver(rooms, &session))
}

/// Ends a driver's session at once. Returns it as it was before.
pub fn evict(rooms: &Rooms, by: &Caller, name: &str, reason: &str) -> Result<v1::Driver, Error> {
    let (session, reason) = asked(rooms, Event::DriverEvicted, by, name, reason)?;
    let info = session.info();
    tracing::info!(session = %info.id, driver = %info.instance, reason, "evicted by an operator");
    let driver = inspect::driver(rooms, &session);
    session.end(End::Evicted(reason.to_owned()));
    Ok(driver)
}

/// The driver that is meant, and the words for it. There is an audit line either way.
fn asked<'a>(
    rooms: &Rooms,
    event: Event,
    by: &Caller,
    name: &str,
    reason: &'a str,
) -> Result<(SessionHandle, &'a str), Error> {
    let session = if reason.len() > MAX_REASON {
        Err(Error::LongReason)
    } else {
        inspect::connected(rooms, name).map_err(Error::from)
    };
    let reason = if reason.is_empty() { "no reason was given" } else { reason };
    rooms.audit.write(|| match &session {
        Ok(session) => Record::new(event, Outcome::Ok).by(by).about(session.info()).saying(reason),
        Err(error) => Record::new(event, Outcome::Refused).by(by).saying(error.to_string()),
    });
    Ok((session?, reason))
}
