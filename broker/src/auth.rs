//! Who is calling and what they may do: the one place that decides.
//!
//! 1. Every call of every service becomes a [`Caller`]: a bearer token ([`Auth::with_token`]) or a
//!    certificate proves an [`Identity`]. A credential that is wrong is never taken for none.
//! 2. [`Auth::admits`] holds it against what the method needs ([`need`]).
//! 3. Where it depends on what is asked, the doors ask [`Auth::allows`] with the details.
//! 4. Streams stay open for long: [`Auth::revoked`] says when one must end.
//!
//! Without a policy everyone may do everything. That is for loopback, and for who said `--insecure`.

mod bearer;
mod files;
mod identity;
mod policy;
mod review;
mod rules;
mod territory;
mod tokens;

use std::{
    fmt,
    future::pending,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use arc_swap::ArcSwap;
use broker_tls::PeerCertificate;
use tokio::{sync::watch, time::sleep};

pub use self::{
    bearer::{Authenticator, Bearer, CannotTell, Holder, LastShown},
    files::Files,
    identity::{FORMS, Identity},
    policy::{Act, Error as PolicyError, Namespaces, Policy, Refusal, Subject},
    review::{Reviewed, Reviewer},
    rules::{Need, need},
    territory::{Ground, Territory},
    tokens::{TokenFile, make as make_token},
};
use crate::{
    audit,
    driver::{ConnectionId, DriverKey},
};

/// How often credentials are looked at again on open streams, unless told otherwise.
pub const RECHECK: Duration = Duration::from_secs(5 * 60);

/// Cheap to clone: every clone is the same.
#[derive(Clone, Debug)]
pub struct Auth(Arc<Shared>);

/// What an [`Auth`] goes by.
#[derive(Debug)]
pub struct Settings {
    /// `None`: everyone may do everything.
    pub policy: Option<Policy>,
    /// Who know tokens.
    pub authenticators: Vec<Arc<dyn Authenticator>>,
    /// What the ports are served with; knows whether a client's certificate is still good.
    pub tls: Option<broker_tls::Server>,
    /// How often credentials are looked at again on open streams.
    pub recheck: Duration,
}

#[derive(Debug)]
struct Shared {
    policy: Option<ArcSwap<Policy>>,
    authenticators: Vec<Arc<dyn Authenticator>>,
    tls: Option<broker_tls::Server>,
    recheck: Duration,
    /// Changes with everything that may end what was allowed.
    changed: watch::Sender<()>,
    /// What is wrong with the files at the moment.
    problems: Mutex<Vec<String>>,
}

/// Somebody who was recognised.
#[derive(Clone)]
pub struct Caller {
    pub connection: ConnectionId,
    pub address: Arc<str>,
    pub identity: Identity,
    proof: Proof,
    /// As the audit log has it, if many lines of it are expected.
    in_audit: OnceLock<audit::Who>,
}

#[derive(Clone)]
enum Proof {
    None,
    Certificate(Arc<PeerCertificate>),
    Token(Bearer, Option<SystemTime>),
}

/// Why a caller is not let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    #[error("the authorization header is not a bearer token")]
    NotBearer,
    #[error("the bearer token is not known, or no longer")]
    UnknownToken,
    /// The same token may be known a little later.
    #[error("whose bearer token it is cannot be told now: {why}")]
    CannotTell { why: Arc<str>, retry_after: Duration },
    /// Nobody, where somebody was needed.
    #[error("no credentials: show a client certificate or a bearer token")]
    NoCredentials,
    #[error(
        "the client certificate has no name to know its holder by: \
         a URI or DNS name, or a common name without white space"
    )]
    NamelessCertificate,
    #[error("the client certificate is no longer good: {0}")]
    BadCertificate(String),
    #[error("there is no such method")]
    NoSuchMethod,
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It may serve other kinds or namespaces than when it registered.
    #[error("the policy changed what this driver may serve; register again")]
    Moved,
    /// On the admin port.
    #[error("the session in the browser is over; log in again")]
    LoggedOut,
    /// On the admin port: a browser may have been led to ask for this.
    #[error("this may come from another site: {0}")]
    CrossSite(&'static str),
}

impl Auth {
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(Shared {
            policy: settings.policy.map(ArcSwap::from_pointee),
            authenticators: settings.authenticators,
            tls: settings.tls,
            recheck: settings.recheck,
            changed: watch::Sender::new(()),
            problems: Mutex::default(),
        }))
    }

    /// What the ports are served with, if it is TLS.
    pub fn tls(&self) -> Option<&broker_tls::Server> {
        self.0.tls.as_ref()
    }

    /// Whether there is a policy to hold callers against.
    pub fn has_policy(&self) -> bool {
        self.0.policy.is_some()
    }

    /// By whose name what a caller takes is counted. Where everyone may do everything there are no names.
    pub fn counts_as<'a>(&self, caller: &'a Caller) -> Option<&'a Identity> {
        self.has_policy().then_some(&caller.identity)
    }

    /// Who is at the other end of a connection, as far as that proves it. The certificate was verified
    /// in the handshake.
    pub fn without_token(
        connection: ConnectionId,
        address: Arc<str>,
        certificate: Option<Arc<PeerCertificate>>,
    ) -> Result<Caller, Denied> {
        let nobody = Caller::anonymous(connection, address);
        let Some(certificate) = certificate else { return Ok(nobody) };
        let (uris, dns) = (&certificate.uri_sans, &certificate.dns_sans);
        let identity = Identity::of_certificate(uris, dns, certificate.common_name.as_deref())
            .ok_or(Denied::NamelessCertificate)?;
        Ok(nobody.proven(identity, Proof::Certificate(certificate)))
    }

    /// Whether the certificate of a connection that may be old is still good.
    ///
    /// Asked for every call, so it is verified only when the CAs are not those of `verified`, their
    /// number when it was last found good.
    pub fn looks_good(
        &self,
        certificate: &PeerCertificate,
        verified: &AtomicU64,
    ) -> Result<(), Denied> {
        let Some(tls) = &self.0.tls else { return Ok(()) };
        let (now, cas) = (SystemTime::now(), *tls.ca_changes().borrow());
        if verified.load(Ordering::Relaxed) == cas && now <= certificate.not_after {
            return Ok(());
        }
        verify(tls, certificate, now)?;
        verified.store(cas, Ordering::Relaxed);
        Ok(())
    }

    /// Who shows this `authorization` header. It goes before what the connection proves.
    pub async fn with_token(
        &self,
        at: Caller,
        authorization: &[u8],
        last: &LastShown,
    ) -> Result<Caller, Denied> {
        let token = last.or(bearer(authorization)?);
        let holder = self.holder(&token).await?.ok_or(Denied::UnknownToken)?;
        Ok(at.holding(token, holder))
    }

    /// The same where nobody has to be asked for that, as it nearly always is; `None` where somebody may
    /// have to. `at` is who the connection proves, asked for only if the caller is not the one of before.
    pub fn with_known_token(
        &self,
        at: impl FnOnce() -> Result<Caller, Denied>,
        authorization: &[u8],
        last: &LastShown,
    ) -> Option<Result<Arc<Caller>, Denied>> {
        let token = bearer(authorization).ok()?;
        last.caller(token, at, |token| {
            self.0.authenticators.iter().find_map(|one| one.knows(token))
        })
    }

    /// Whether a method with this need may be called.
    pub fn admits(&self, caller: &Caller, need: Need) -> Result<(), Denied> {
        self.ask(caller, |policy| policy.meets(&caller.identity, need))
    }

    /// Whether just this may be done.
    pub fn allows(&self, caller: &Caller, act: Act<'_>) -> Result<(), Denied> {
        self.ask(caller, |policy| policy.allows(&caller.identity, act).map(drop))
    }

    /// Where a driver may serve all these kinds.
    pub fn territory(&self, caller: &Caller, keys: &[DriverKey]) -> Result<Territory, Denied> {
        let Some(policy) = &self.0.policy else { return Ok(Territory::everywhere(keys)) };
        let policy = policy.load();
        let of = |key: &DriverKey| {
            let namespaces = policy.territory(&caller.identity, key)?;
            let secrets_from = policy.secrets_from(&caller.identity, key);
            Ok(Ground { key: key.clone(), namespaces, secrets_from })
        };
        let territory = keys.iter().map(of).collect::<Result<_, Refusal>>();
        territory.map_err(|refusal| nobody_or(caller, refusal))
    }

    /// Returns why, once a caller's credentials hold no longer or `still` says no.
    ///
    /// Looked at again every now and then, when the credentials expire, and at once when the policy or
    /// the tokens change.
    pub async fn revoked(
        &self,
        caller: &Caller,
        still: impl Fn(&Self) -> Result<(), Denied>,
    ) -> Denied {
        let mut changes = self.0.changed.subscribe();
        let mut cas = self.0.tls.as_ref().map(broker_tls::Server::ca_changes);
        let mut other_cas = async || match &mut cas {
            Some(cas) => cas.changed().await,
            None => pending().await,
        };
        loop {
            // First of all, since something may have changed before we listened.
            if let Err(denied) = self.recheck(caller).await.and_then(|()| still(self)) {
                return denied;
            }
            let look = self.0.recheck.min(caller.valid_for().unwrap_or(Duration::MAX));
            tokio::select! {
                // The sender lives as long as we do.
                _ = changes.changed() => {}
                _ = other_cas() => {}
                () = sleep(look) => {}
            }
        }
    }

    /// What is wrong with the files at the moment; what they said last is in force.
    pub fn problems(&self) -> Vec<String> {
        self.0.problems.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a caller's credentials still hold.
    pub async fn recheck(&self, caller: &Caller) -> Result<(), Denied> {
        match &caller.proof {
            Proof::None => Ok(()),
            Proof::Certificate(certificate) => match &self.0.tls {
                Some(tls) => verify(tls, certificate, SystemTime::now()),
                None => Ok(()),
            },
            Proof::Token(token, expires) => match self.holder(token).await {
                Ok(Some(holder)) if holder.identity == caller.identity => Ok(()),
                Ok(_) => Err(Denied::UnknownToken),
                // Who was let in stays while nobody can tell otherwise.
                Err(_) if expires.is_none_or(|at| SystemTime::now() < at) => Ok(()),
                Err(_) => Err(Denied::UnknownToken),
            },
        }
    }

    async fn holder(&self, token: &Bearer) -> Result<Option<Holder>, Denied> {
        let mut found = Ok(None);
        for authenticator in &self.0.authenticators {
            match authenticator.holder(token.clone()).await {
                Ok(None) => {}
                Ok(holder) => return Ok(holder),
                // Another one may know it.
                Err(CannotTell { why, retry_after }) => {
                    found = Err(Denied::CannotTell { why, retry_after });
                }
            }
        }
        found
    }

    fn ask(
        &self,
        caller: &Caller,
        question: impl Fn(&Policy) -> Result<(), Refusal>,
    ) -> Result<(), Denied> {
        let Some(policy) = &self.0.policy else { return Ok(()) };
        question(&policy.load()).map_err(|refusal| nobody_or(caller, refusal))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self { policy: None, authenticators: Vec::new(), tls: None, recheck: RECHECK }
    }
}

impl Caller {
    /// Who proved nothing.
    pub fn anonymous(connection: ConnectionId, address: Arc<str>) -> Self {
        let (identity, proof) = (Identity::anonymous(), Proof::None);
        Self { connection, address, identity, proof, in_audit: OnceLock::new() }
    }

    /// The same, who calls from elsewhere now.
    pub fn moved(self, connection: ConnectionId, address: Arc<str>) -> Self {
        Self { connection, address, in_audit: OnceLock::new(), ..self }
    }

    fn proven(self, identity: Identity, proof: Proof) -> Self {
        Self { identity, proof, in_audit: OnceLock::new(), ..self }
    }

    /// Much will be written of it in the audit log: what all that has in common is made now.
    pub fn expect_much(&self) {
        self.in_audit.get_or_init(|| self.into());
    }

    /// What was made for the audit log.
    #[inline]
    pub fn in_audit(&self) -> Option<&audit::Who> {
        self.in_audit.get()
    }

    fn holding(self, token: Bearer, holder: Holder) -> Self {
        let token = if holder.by_text { token } else { token.without_text() };
        let proof = Proof::Token(token, holder.expires);
        self.proven(holder.identity, proof)
    }

    /// Whether this holder of the same token would make the same caller.
    fn is_of(&self, holder: &Holder) -> bool {
        let Proof::Token(token, expires) = &self.proof else { return false };
        let is_kept = token.text().is_some();
        self.identity == holder.identity && *expires == holder.expires && is_kept == holder.by_text
    }

    /// Whether it proved nothing.
    pub fn is_anonymous(&self) -> bool {
        matches!(self.proof, Proof::None)
    }

    /// How long its credentials are good, if that has an end.
    fn valid_for(&self) -> Option<Duration> {
        let expires = match &self.proof {
            Proof::None => None,
            Proof::Certificate(certificate) => Some(certificate.not_after),
            Proof::Token(_, expires) => *expires,
        };
        // A little later: at that very second it is still good.
        let left = |at: SystemTime| at.duration_since(SystemTime::now()).unwrap_or_default();
        expires.map(|at| left(at) + Duration::from_secs(1))
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.identity, self.address)
    }
}

fn verify(
    tls: &broker_tls::Server,
    certificate: &PeerCertificate,
    now: SystemTime,
) -> Result<(), Denied> {
    tls.verify(certificate, now).map_err(|problem| Denied::BadCertificate(problem.to_string()))
}

/// Who showed nothing is told to show something, and not that the policy does not name it.
fn nobody_or(caller: &Caller, refusal: Refusal) -> Denied {
    match caller.proof {
        Proof::None => Denied::NoCredentials,
        Proof::Certificate(_) | Proof::Token(..) => Denied::Refused(refusal),
    }
}

/// The token in an `authorization` header.
fn bearer(authorization: &[u8]) -> Result<&[u8], Denied> {
    let (scheme, token) = authorization.split_first_chunk().ok_or(Denied::NotBearer)?;
    // Nearly all write it so.
    let is_bearer = scheme == b"Bearer " || scheme.eq_ignore_ascii_case(b"bearer ");
    if is_bearer && !token.is_empty() { Ok(token) } else { Err(Denied::NotBearer) }
}

#[cfg(test)]
mod tests;
