//! Things of which there are so many. One identity may have a part of them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{auth::Identity, metrics::Metrics};

/// Cheap to clone: every clone is the same places.
#[derive(Clone, Debug)]
pub struct Places(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    what: &'static str,
    all: usize,
    each: usize,
    metrics: Metrics,
    count: Mutex<Count>,
}

#[derive(Debug, Default)]
struct Count {
    all: usize,
    /// Only those that have any.
    by: HashMap<Identity, usize>,
}

/// One of them, for as long as it lives.
#[derive(Debug)]
#[must_use = "dropped, it is free again"]
pub struct Place {
    of: Places,
    identity: Option<Identity>,
}

/// There is none to be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Taken {
    #[error("there are {0} already, as many as this broker takes")]
    All(usize),
    #[error("{0} has {1} already, as many as one identity may have")]
    ByIdentity(Identity, usize),
}

impl Places {
    /// `what` they are, as metrics call it.
    pub fn new(what: &'static str, all: usize, each: usize, metrics: Metrics) -> Self {
        Self(Arc::new(Shared { what, all, each, metrics, count: Mutex::default() }))
    }

    /// Takes one. Who has no identity is bounded by what there is alone.
    pub fn take(&self, identity: Option<&Identity>) -> Result<Place, Taken> {
        let place = self.try_take(identity);
        if let Err(taken) = &place {
            let whose = match taken {
                Taken::All(_) => "broker",
                Taken::ByIdentity(..) => "identity",
            };
            self.0.metrics.beyond_bound(self.0.what, whose);
        }
        place
    }

    fn try_take(&self, identity: Option<&Identity>) -> Result<Place, Taken> {
        let mut count = self.0.count.lock().unwrap_or_else(PoisonError::into_inner);
        if count.all >= self.0.all {
            return Err(Taken::All(count.all));
        }
        if let Some(identity) = identity {
            let its = count.by.get(identity).copied().unwrap_or(0);
            if its >= self.0.each {
                return Err(Taken::ByIdentity(identity.clone(), its));
            }
            count.by.insert(identity.clone(), its + 1);
        }
        count.all += 1;
        Ok(Place { of: self.clone(), identity: identity.cloned() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut count = self.of.0.count.lock().unwrap_or_else(PoisonError::into_inner);
        count.all -= 1;
        if let Some(identity) = &self.identity
            && let Some(its) = count.by.get_mut(identity)
        {
            *its -= 1;
            if *its == 0 {
                count.by.remove(identity);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(name: &str) -> Identity {
        Identity::token(name)
    }

    #[test]
    fn one_identity_gets_its_part_and_leaves_the_rest_to_others() {
        let places = Places::new("drivers", 3, 2, Metrics::default());
        let (greedy, other) = (identity("greedy"), identity("other"));
        let _held = [places.take(Some(&greedy)).unwrap(), places.take(Some(&greedy)).unwrap()];
        let refused = places.take(Some(&greedy)).unwrap_err();
        assert_eq!(refused, Taken::ByIdentity(greedy.clone(), 2));
        let last = places.take(Some(&other)).unwrap();
        assert_eq!(places.take(Some(&identity("third"))).unwrap_err(), Taken::All(3));
        drop(last);
        assert!(places.take(Some(&other)).is_ok(), "what was dropped is free");
    }

    #[test]
    fn who_has_no_identity_may_take_them_all() {
        let places = Places::new("drivers", 3, 1, Metrics::default());
        let all: Vec<_> = (0..3).map(|_| places.take(None).unwrap()).collect();
        assert_eq!(places.take(None).unwrap_err(), Taken::All(3));
        drop(all);
        assert!(places.0.count.lock().unwrap().by.is_empty());
    }

    #[test]
    fn identities_that_have_nothing_are_forgotten() {
        let places = Places::new("drivers", 3, 1, Metrics::default());
        for n in 0..100 {
            drop(places.take(Some(&identity(&format!("id-{n}")))));
        }
        assert!(places.0.count.lock().unwrap().by.is_empty());
    }
}
