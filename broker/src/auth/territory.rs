//! Where a driver may serve which kind.

use super::Namespaces;
use crate::driver::DriverKey;

/// The kinds that a driver registered, and for each in which namespaces it may serve its classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Territory(Vec<(DriverKey, Namespaces)>);

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
        let within =
            move |(_, namespaces): &&(DriverKey, Namespaces)| namespaces.contains(namespace);
        self.0.iter().filter(within).map(|(key, _)| key)
    }

    /// What several sessions of one driver serve together.
    pub fn of_all<'a>(parts: impl Iterator<Item = &'a Territory>) -> Self {
        parts.flat_map(|part| part.0.iter().cloned()).collect()
    }
}

impl FromIterator<(DriverKey, Namespaces)> for Territory {
    fn from_iter<I: IntoIterator<Item = (DriverKey, Namespaces)>>(parts: I) -> Self {
        Self(parts.into_iter().collect())
    }
}
