//! Which driver an operator means.

use super::Rooms;
use crate::{registry::NotOne, session::SessionHandle};

/// How many drivers that a name fits are named.
const MOST_NAMED: usize = 20;

/// Why a name stands for no driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    #[error(
        "no driver is or was lately called {0:?}: give a session id, its beginning, or an instance id"
    )]
    Nobody(String),
    #[error("driver {name:?} was not let in at {at}: {why}")]
    Rejected { name: String, at: String, why: String },
    #[error("{name:?} fits several drivers: {names}")]
    Several { name: String, names: String },
    /// It was there, and something is asked of it that only who is connected can do.
    #[error("driver {instance} (session {session}) is gone since {at}: {why}")]
    Gone { instance: String, session: String, at: String, why: String },
}

/// The driver of this name, which may have gone.
pub fn known(rooms: &Rooms, name: &str) -> Result<SessionHandle, Unknown> {
    let registry = &rooms.registry;
    let name = name.to_owned();
    registry.named(&name).map_err(|not_one| match not_one {
        NotOne::None => match registry.history().rejection(&name) {
            Some(event) => {
                let at = humantime::format_rfc3339_seconds(event.at).to_string();
                Unknown::Rejected { name, at, why: event.details }
            }
            None => Unknown::Nobody(name),
        },
        NotOne::Several(sessions) => {
            let in_all = sessions.len();
            let mut names: Vec<String> =
                sessions.iter().take(MOST_NAMED).map(ToString::to_string).collect();
            if in_all > MOST_NAMED {
                names.push(format!("and {} more", in_all - MOST_NAMED));
            }
            Unknown::Several { name, names: names.join(", ") }
        }
    })
}

/// The driver of this name, which is connected.
pub fn connected(rooms: &Rooms, name: &str) -> Result<SessionHandle, Unknown> {
    let session = known(rooms, name)?;
    match session.ended() {
        None => Ok(session),
        Some(ended) => Err(Unknown::Gone {
            instance: session.info().instance.to_string(),
            session: session.info().id.to_string(),
            at: humantime::format_rfc3339_seconds(ended.at).to_string(),
            why: ended.why.to_string(),
        }),
    }
}
