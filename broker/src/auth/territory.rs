//! Where a driver may serve which kind, and where the secrets of those classes may lie.

use super::Namespaces;
use crate::driver::DriverKey;

/// The kinds that a driver registered, and for each in which namespaces it may serve its classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Territory(Vec<Ground>);

/// What a driver may do with one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ground {
    pub key: DriverKey,
    /// Of the classes.
    pub namespaces: Namespaces,
    /// Of secrets, beside the class's own: whoever may write a class could otherwise have any secret
    /// of the cluster handed to a driver.
    pub secrets_from: Namespaces,
}

impl Territory {
    pub fn everywhere(keys: &[DriverKey]) -> Self {
        keys.iter().map(|key| (key.clone(), Namespaces::All)).collect()
    }

    /// Whether classes of `key` in this namespace belong to it.
    pub fn contains(&self, key: &DriverKey, namespace: &str) -> bool {
        self.keys_in(namespace).any(|own| own == key)
    }

    /// The kinds that it may serve in a namespace.
    pub fn keys_in(&self, namespace: &str) -> impl Iterator<Item = &DriverKey> {
        self.grounds_in(namespace).map(|ground| &ground.key)
    }

    /// The same with all that is allowed there.
    pub fn grounds_in(&self, namespace: &str) -> impl Iterator<Item = &Ground> {
        self.0.iter().filter(move |ground| ground.namespaces.contains(namespace))
    }

    /// The part of these kinds.
    pub fn only(&self, kinds: impl Fn(&DriverKey) -> bool) -> Self {
        self.0.iter().filter(|ground| kinds(&ground.key)).cloned().collect()
    }

    /// All kinds of it, with their providers.
    pub fn keys(&self) -> impl Iterator<Item = &DriverKey> {
        self.0.iter().map(|ground| &ground.key)
    }

    /// What several sessions serve together, said once: there may be thousands of the same driver.
    pub fn of_all<'a>(parts: impl Iterator<Item = &'a Territory>) -> Self {
        let mut all: Vec<Ground> = Vec::new();
        for ground in parts.flat_map(|part| &part.0) {
            if !all.contains(ground) {
                all.push(ground.clone());
            }
        }
        // The same whatever the order of the sessions.
        all.sort_by(|one, other| one.key.cmp(&other.key));
        Self(all)
    }
}

impl FromIterator<Ground> for Territory {
    fn from_iter<I: IntoIterator<Item = Ground>>(grounds: I) -> Self {
        let mut grounds: Vec<_> = grounds.into_iter().collect();
        // Every session keeps one.
        grounds.shrink_to_fit();
        Self(grounds)
    }
}

/// With secrets from anywhere.
impl FromIterator<(DriverKey, Namespaces)> for Territory {
    fn from_iter<I: IntoIterator<Item = (DriverKey, Namespaces)>>(parts: I) -> Self {
        let ground = |(key, namespaces)| Ground { key, namespaces, secrets_from: Namespaces::All };
        parts.into_iter().map(ground).collect()
    }
}
