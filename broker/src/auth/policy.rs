//! Who may do what. Pure: a policy and a question in, yes or no and why out.
//!
//! Nothing is allowed that a rule does not name. Rules only add: what one allows no other takes away.

mod file;

use std::{fmt, sync::Arc};

pub use self::file::Error;
use super::{Identity, Need};
use crate::driver::{DriverKey, Verb};

/// What the policy file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    /// Where it begins in the file.
    line: u64,
    who: Vec<Pattern>,
    driver: Option<Driver>,
    controller: Option<Controller>,
    operator: Option<Operator>,
    autoscaler: Option<Reach>,
}

/// An exact name, or with a star at its end the beginning of one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern(String);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Driver {
    reach: Reach,
    /// `None` for all, and for drivers that name none.
    providers: Option<Vec<String>>,
    /// Where the secrets of its classes may lie, beside the namespace of the class.
    secrets_from: Namespaces,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Controller {
    reach: Reach,
    /// `None` for all.
    verbs: Option<Vec<Verb>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Read,
    Steer,
}

/// Kinds and namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Reach {
    kinds: Vec<Kind>,
    namespaces: Namespaces,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Any,
    /// Whatever its apiVersion.
    Named(String),
    Exactly {
        api_version: String,
        kind: String,
    },
}

/// Namespaces of machine classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Namespaces {
    #[default]
    All,
    Only(Arc<[String]>),
}

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act<'a> {
    /// Serve classes of this kind.
    Register(&'a DriverKey),
    /// Have a driver do this.
    Operate { verb: Verb, class: Subject<'a> },
    /// Look at drivers, operations and classes.
    Read,
    /// Drain and evict drivers.
    Steer,
    /// Scale groups of machines of this kind.
    Autoscale(Subject<'a>),
}

/// A kind, and a namespace of its classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    /// Empty when the caller left it open.
    pub api_version: &'a str,
    pub kind: &'a str,
    pub namespace: &'a str,
}

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("no rule of the policy names {0}")]
    Unnamed(Identity),
    #[error("{who} may not {act}")]
    NotAllowed { who: Identity, act: String },
}

impl Policy {
    /// Reads the text of a policy file.
    pub fn read(text: &str) -> Result<Self, Error> {
        file::read(text)
    }

    /// The line of the rule that allows it, or why none does.
    pub fn allows(&self, who: &Identity, act: Act<'_>) -> Result<u64, Refusal> {
        let found = self.of(who).find(|rule| rule.allows(act));
        found.map(|rule| rule.line).ok_or_else(|| self.refusal(who, &act))
    }

    /// Whether a caller may call a method at all.
    pub fn meets(&self, who: &Identity, need: Need) -> Result<(), Refusal> {
        let allowed = match need {
            Need::Nothing => true,
            Need::AnyRole => self.of(who).next().is_some(),
            Need::Driver => self.of(who).any(|rule| rule.driver.is_some()),
            Need::Controller => self.of(who).any(|rule| rule.controller.is_some()),
            Need::Read => self.of(who).any(|rule| rule.allows(Act::Read)),
            Need::Steer => self.of(who).any(|rule| rule.allows(Act::Steer)),
        };
        if allowed { Ok(()) } else { Err(self.refusal(who, &need)) }
    }

    /// In which namespaces somebody may serve classes of this kind.
    pub fn territory(&self, who: &Identity, key: &DriverKey) -> Result<Namespaces, Refusal> {
        if self.drivers(who, key).next().is_none() {
            return Err(self.refusal(who, &Act::Register(key)));
        }
        Ok(Namespaces::of_all(self.drivers(who, key).map(|driver| &driver.reach.namespaces)))
    }

    /// In which namespaces beside their own the secrets of these classes may lie.
    pub fn secrets_from(&self, who: &Identity, key: &DriverKey) -> Namespaces {
        Namespaces::of_all(self.drivers(who, key).map(|driver| &driver.secrets_from))
    }

    /// The lines of the rules that name somebody.
    pub fn lines_about(&self, who: &Identity) -> Vec<u64> {
        self.of(who).map(|rule| rule.line).collect()
    }

    pub fn len(&self) -> usize {
        self.rules.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    fn of<'a>(&'a self, who: &'a Identity) -> impl Iterator<Item = &'a Rule> {
        self.rules.iter().filter(|rule| rule.who.iter().any(|pattern| pattern.fits(who)))
    }

    fn drivers<'a>(
        &'a self,
        who: &'a Identity,
        key: &'a DriverKey,
    ) -> impl Iterator<Item = &'a Driver> {
        let rules = self.of(who).filter(|rule| rule.allows(Act::Register(key)));
        rules.filter_map(|rule| rule.driver.as_ref())
    }

    fn refusal(&self, who: &Identity, act: &dyn fmt::Display) -> Refusal {
        if self.of(who).next().is_none() {
            return Refusal::Unnamed(who.clone());
        }
        Refusal::NotAllowed { who: who.clone(), act: act.to_string() }
    }
}

impl Rule {
    fn allows(&self, act: Act<'_>) -> bool {
        match act {
            Act::Register(key) => self.driver.as_ref().is_some_and(|driver| driver.serves(key)),
            Act::Operate { verb, class } => {
                self.controller.as_ref().is_some_and(|controller| controller.may(verb, class))
            }
            Act::Read => self.operator.is_some(),
            Act::Steer => self.operator == Some(Operator::Steer),
            Act::Autoscale(group) => {
                self.autoscaler.as_ref().is_some_and(|reach| reach.contains(group))
            }
        }
    }
}

impl Pattern {
    fn fits(&self, who: &Identity) -> bool {
        match self.0.strip_suffix('*') {
            // A star is for all whom we know; nobody has to be named as such.
            Some(_) if who.is_anonymous() => false,
            Some(beginning) => who.as_str().starts_with(beginning),
            None => self.0 == who.as_str(),
        }
    }
}

impl Driver {
    fn serves(&self, key: &DriverKey) -> bool {
        let provider = match (&self.providers, &key.provider) {
            (None, _) => true,
            // One that names no provider would serve all of them.
            (Some(_), None) => false,
            (Some(providers), Some(provider)) => {
                providers.iter().any(|allowed| **allowed == **provider)
            }
        };
        provider && self.reach.kinds.iter().any(|kind| kind.is(&key.api_version, &key.kind))
    }
}

impl Controller {
    fn may(&self, verb: Verb, class: Subject<'_>) -> bool {
        self.verbs.as_ref().is_none_or(|verbs| verbs.contains(&verb)) && self.reach.contains(class)
    }
}

impl Reach {
    fn contains(&self, subject: Subject<'_>) -> bool {
        self.namespaces.contains(subject.namespace)
            && self.kinds.iter().any(|kind| kind.is(subject.api_version, subject.kind))
    }
}

impl Kind {
    fn is(&self, api_version: &str, kind: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Named(named) => named == kind,
            Self::Exactly { api_version: exactly, kind: named } => {
                exactly == api_version && named == kind
            }
        }
    }
}

impl Namespaces {
    fn of_all<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let mut some: Vec<String> = Vec::new();
        for one in all {
            match one {
                Self::All => return Self::All,
                Self::Only(names) => some.extend(names.iter().cloned()),
            }
        }
        some.sort_unstable();
        some.dedup();
        Self::Only(some.into())
    }

    pub fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.iter().any(|name| name == namespace),
        }
    }
}

impl fmt::Display for Act<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register(key) => write!(f, "register as driver of {key}"),
            Self::Operate { verb, class } => write!(f, "{verb} machines of {class}"),
            Self::Read => f.write_str("read as operator"),
            Self::Steer => f.write_str("steer as operator"),
            Self::Autoscale(group) => write!(f, "autoscale {group}"),
        }
    }
}

impl fmt::Display for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind)?;
        if !self.api_version.is_empty() {
            write!(f, " ({})", self.api_version)?;
        }
        write!(f, " in namespace {}", self.namespace)
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing | Self::AnyRole => "call this",
            Self::Driver => "act as driver",
            Self::Controller => "act as controller",
            Self::Read => "read as operator",
            Self::Steer => "steer as operator",
        })
    }
}

#[cfg(test)]
mod tests;
