//! Machine classes and their secrets: asked of the broker once per revision.
//!
//! There is one [`Classes`] per broker address, emptied with every new session. The revisions of our
//! own broker are hashes of the content and would hold for longer (docs/decisions/0003), but the
//! protocol only says that a revision changes with its class: a broker of another make may count,
//! and begin again when it restarts. One question per class and session is a small price for never
//! making a machine of yesterday's class.
//!
//! While no session is there, another replica of the same broker is asked, if we know one: what runs for
//! one that is gone has to come to an end. Without either, a lookup waits, up to its operation's deadline.

mod cache;
mod names;
mod parse;

use std::{sync::Arc, time::Duration};

use broker_proto::v1 as wire;
use serde::de::DeserializeOwned;
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout, timeout_at},
};
use tonic::{Code, Status};

use self::cache::Cache;
pub(crate) use self::names::{ClassQuery, Names};
use crate::{
    config::Token, dial::Client, error, fleet::Fleet, operations::AddressId, secret::Secret,
};

/// A machine class, as the broker holds it.
#[derive(Debug)]
pub struct Class {
    object: serde_json::Value,
}

impl Class {
    pub(crate) fn from_object(object: serde_json::Value) -> Self {
        Self { object }
    }

    /// The whole object.
    pub fn object(&self) -> &serde_json::Value {
        &self.object
    }

    /// The provider-specific part as `T`: `spec` if there is one, else `providerSpec`.
    pub fn spec<T: DeserializeOwned>(&self) -> Result<T, LookupError> {
        let spec = self.object.get("spec").or_else(|| self.object.get("providerSpec"));
        // A class without either is one that leaves everything to the defaults.
        let empty = serde_json::Value::Object(serde_json::Map::new());
        T::deserialize(spec.unwrap_or(&empty))
            .map_err(|error| LookupError::Malformed(format!("the class's spec: {error}")))
    }
}

/// Why a class or a secret could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// The broker does not know it.
    #[error("{0}")]
    NotFound(String),
    /// The broker does not give it to this driver.
    #[error("{0}")]
    Denied(String),
    /// The class refers to no secret.
    #[error("{0} refers to no secret")]
    NoSecret(String),
    /// It is not what it should be.
    #[error("{0}")]
    Malformed(String),
    /// No broker answered in time: a retry may help.
    #[error("{0}")]
    Unavailable(String),
}

/// Lets drivers use `?` on lookups.
impl From<LookupError> for error::Error {
    fn from(error: LookupError) -> Self {
        let code = match error {
            // Not NOT_FOUND, which would say that the machine is gone.
            LookupError::NotFound(_) | LookupError::NoSecret(_) => error::Code::FailedPrecondition,
            LookupError::Denied(_) => error::Code::PermissionDenied,
            LookupError::Malformed(_) => error::Code::InvalidArgument,
            LookupError::Unavailable(_) => error::Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

/// The way to the broker while a session is open.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) client: Client,
    pub(crate) session_token: Token,
}

pub(crate) struct Classes {
    link: watch::Sender<Option<Link>>,
    /// Instead of asking, in tests of drivers.
    fixed: Option<(Arc<Class>, Arc<Secret>)>,
    /// Who else can be asked.
    beside: Option<(Arc<Fleet>, AddressId)>,
    classes: Cache<Class>,
    secrets: Cache<Secret>,
}

/// Secrets are asked for again after this time, whether or not a rotation was announced.
const SECRET_AGE: Duration = Duration::from_secs(5 * 60);
const CLASS_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// How long one question may take. The whole lookup may take until the operation's deadline.
const ATTEMPT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(200);

impl Classes {
    pub(crate) fn new() -> Self {
        Self {
            link: watch::Sender::new(None),
            fixed: None,
            beside: None,
            classes: Cache::new(CLASS_AGE),
            secrets: Cache::new(SECRET_AGE),
        }
    }

    /// Of the broker at this address.
    pub(crate) fn of(fleet: Arc<Fleet>, address: AddressId) -> Self {
        Self { beside: Some((fleet, address)), ..Self::new() }
    }

    pub(crate) fn fixed(class: Class, secret: Option<Secret>) -> Self {
        let secret = Arc::new(secret.unwrap_or_default());
        Self { fixed: Some((Arc::new(class), secret)), ..Self::new() }
    }

    /// A session begins.
    pub(crate) fn connect(&self, link: Link) {
        self.classes.clear();
        self.secrets.clear();
        self.link.send_replace(Some(link));
    }

    /// The session is over.
    pub(crate) fn disconnect(&self) {
        self.link.send_replace(None);
    }

    /// Forgets all secrets. Not only the named one: which classes share it is not known here, and
    /// asking once too often costs little.
    pub(crate) fn secret_changed(&self) {
        self.secrets.clear();
    }

    pub(crate) async fn class(
        &self,
        query: &ClassQuery,
        deadline: Instant,
    ) -> Result<Arc<Class>, LookupError> {
        if let Some((class, _)) = &self.fixed {
            return Ok(class.clone());
        }
        let deadline = patience(deadline);
        let cell = self.classes.cell(&query.class, query.revision);
        let fetch = cell.get_or_try_init(|| async {
            let reply = self
                .ask("class", deadline, |Link { mut client, session_token }| async move {
                    let (name, revision) = (query.wire_name.clone(), query.revision);
                    let session_token = session_token.expose().to_owned();
                    let meta = wire::MachineClassMeta { name, revision, session_token };
                    client.get_machine_class(meta).await.map(tonic::Response::into_inner)
                })
                .await?;
            parse::class(&reply).map(Arc::new)
        });
        within(deadline, fetch).await
    }

    pub(crate) async fn secret(
        &self,
        query: &ClassQuery,
        revision: i32,
        deadline: Instant,
    ) -> Result<Arc<Secret>, LookupError> {
        if let Some((_, secret)) = &self.fixed {
            return Ok(secret.clone());
        }
        let deadline = patience(deadline);
        let cell = self.secrets.cell(&query.class, revision);
        let fetch = cell.get_or_try_init(|| async {
            let reply = self
                .ask("secret", deadline, |Link { mut client, session_token }| async move {
                    let class = Some(query.class.to_wire());
                    let session_token = session_token.expose().to_owned();
                    let meta =
                        wire::SecretMeta { revision, session_token, class, ..Default::default() };
                    client.get_secret(meta).await.map(tonic::Response::into_inner)
                })
                .await?;
            parse::secret(&reply).map(Arc::new)
        });
        within(deadline, fetch).await
    }

    /// Asks over the current session, or the next, until there is an answer.
    async fn ask<T, F>(
        &self,
        what: &str,
        deadline: Instant,
        question: impl Fn(Link) -> F,
    ) -> Result<T, LookupError>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let mut links = self.link.subscribe();
        let mut last = format!("{what}: there is no session");
        loop {
            let Ok(link) = timeout_at(deadline, self.next_link(&mut links)).await else {
                return Err(LookupError::Unavailable(last));
            };
            let token = link.session_token.clone();
            match timeout(ATTEMPT, question(link)).await {
                Ok(Ok(reply)) => return Ok(reply),
                Ok(Err(status)) => {
                    // A refusal that crossed a reconnect is about the old session's token.
                    let stale = !self.is_open(&token);
                    if let Some(error) = definite(what, &status).filter(|_| !stale) {
                        return Err(error);
                    }
                    last = format!("{what}: {}", status.message());
                }
                Err(_) => last = format!("{what}: no answer within {ATTEMPT:?}"),
            }
            if Instant::now() + PAUSE >= deadline {
                return Err(LookupError::Unavailable(last));
            }
            sleep(PAUSE).await;
        }
    }

    /// The open session, one beside it, or the next of either.
    async fn next_link(&self, links: &mut watch::Receiver<Option<Link>>) -> Link {
        let mut others = self.beside.as_ref().map(|(fleet, _)| fleet.changes());
        loop {
            if let Some(link) = links.borrow_and_update().clone().or_else(|| self.link_beside()) {
                return link;
            }
            let changed = async {
                match &mut others {
                    Some(others) => others.changed().await,
                    None => std::future::pending().await,
                }
            };
            // Neither sender can be dropped before us.
            tokio::select! {
                _ = links.changed() => {}
                _ = changed => {}
            }
        }
    }

    fn link_beside(&self) -> Option<Link> {
        let (fleet, address) = self.beside.as_ref()?;
        fleet.link_beside(*address)
    }

    /// Whether the session with this token is still the one to ask.
    fn is_open(&self, token: &Token) -> bool {
        let link = self.link.borrow().clone().or_else(|| self.link_beside());
        link.is_some_and(|link| link.session_token == *token)
    }
}

/// Cleaning up after a deadline may need the class too, so a lookup always gets some time.
fn patience(deadline: Instant) -> Instant {
    deadline.max(Instant::now() + ATTEMPT)
}

/// Someone with a later deadline may be asking for all of us: do not wait for them.
async fn within<'a, T: Clone + 'a>(
    deadline: Instant,
    fetch: impl Future<Output = Result<&'a T, LookupError>>,
) -> Result<T, LookupError> {
    match timeout_at(deadline, fetch).await {
        Ok(found) => found.cloned(),
        Err(_) => Err(LookupError::Unavailable("the operation's time is over".to_owned())),
    }
}

/// The error, if asking again is pointless.
fn definite(what: &str, status: &Status) -> Option<LookupError> {
    let message = format!("{what}: {}", status.message());
    match status.code() {
        Code::NotFound => Some(LookupError::NotFound(message)),
        Code::PermissionDenied => Some(LookupError::Denied(message)),
        Code::InvalidArgument | Code::FailedPrecondition | Code::Unimplemented => {
            Some(LookupError::Malformed(message))
        }
        _ => None,
    }
}
