//! How much of the broker anyone may take, so that there is always some left for the others.
//!
//! Nothing here waits: who is beyond a bound is told so at once, and when to come back. What is taken is
//! a value that gives itself back when it is dropped.
//!
//! - [`Crowd`]: the connections of one port, and which of them have shown nothing yet.
//! - [`Places`]: things of which there are so many, and of these one identity may have a part.
//! - [`Pace`]: things that may happen so often.
//! - [`Refusals`]: how many of those who were refused get a line in the log and in the audit log.

mod crowd;
mod pace;
mod places;
mod refusals;

use std::time::Duration;

pub(crate) use self::pace::spread;
pub use self::{
    crowd::{Crowd, Full, Port, Standing, WhyOut},
    pace::Pace,
    places::{Place, Places, Taken},
    refusals::Refusals,
};
use crate::metrics::Metrics;

/// The bounds that an operator may set. What they are for is in `docs/security.md`.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections to the gRPC port. The limit of open files may leave room for fewer.
    pub connections: usize,
    /// Connections of a port on which nobody was let in so far. Beyond it the oldest one goes.
    pub newcomers: usize,
    /// How long a connection may be one.
    pub newcomer_time: Duration,
    /// Of connections, drivers, streams and registrations, the part that one identity may have.
    pub identity_share: f64,
    pub drivers: usize,
    /// Streams of drivers that have not registered so far.
    pub unregistered: usize,
    /// Registrations in a second, over any [`Pace::BURST`].
    pub registration_rate: u32,
    /// Streams of controllers and operators that stay open.
    pub streams: usize,
    /// Calls and streams at once on one connection. More wait in the client without a word.
    pub streams_per_connection: u32,
    /// Bytes of the headers of one call.
    pub headers: u32,
    /// Calls that a client took back before we looked at them, on one connection.
    pub resets: usize,
    /// Lines in a second about those who were refused.
    pub refusal_lines: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 20_000,
            newcomers: 1_024,
            newcomer_time: Duration::from_secs(10),
            identity_share: 0.5,
            drivers: 20_000,
            unregistered: 10_000,
            registration_rate: 2_000,
            streams: 2_000,
            streams_per_connection: 20_000,
            headers: 16 * 1024,
            resets: 200,
            refusal_lines: 50,
        }
    }
}

/// What is taken at the moment. Cheap to clone: every clone is the same.
#[derive(Clone, Debug)]
pub struct Bounds {
    pub drivers: Places,
    pub unregistered: Places,
    pub streams: Places,
    pub registrations: Pace,
    pub refusals: Refusals,
}

impl Bounds {
    pub fn new(limits: &Limits, metrics: &Metrics) -> Self {
        let share = limits.identity_share;
        let places = |what, all| Places::new(what, all, part(all, share), metrics.clone());
        Self {
            drivers: places("drivers", limits.drivers),
            unregistered: places("unregistered", limits.unregistered),
            streams: places("streams", limits.streams),
            registrations: Pace::new(
                "registrations",
                limits.registration_rate,
                share,
                metrics.clone(),
            ),
            refusals: Refusals::new(limits.refusal_lines),
        }
    }
}

/// At least one: or else nobody could have any.
fn part(all: usize, share: f64) -> usize {
    ((all as f64 * share) as usize).max(1)
}
