//! What was read from the API server so far, and what is kept of what is gone. Pure: events and the
//! time in, a snapshot out.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::SystemTime,
};

use super::{
    super::{
        Class, ClassId, Problem, Reading, Secret, SecretName, scope::may_use, snapshot::Snapshot,
    },
    Kind, kinds,
    object::Read,
};
use crate::auth::Territory;

/// Deleted classes that are kept; beyond it the one goes that was deleted first.
const KEPT: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct Known {
    kinds: BTreeMap<Kind, OfKind>,
    secrets: BTreeMap<SecretName, OfSecret>,
    /// What the connected drivers serve together.
    territory: Territory,
}

#[derive(Debug, Default)]
struct OfKind {
    /// Whether all classes were listed once.
    listed: bool,
    trouble: Option<String>,
    classes: BTreeMap<ClassId, Arc<Class>>,
    /// Why the newest state of a class is not in force.
    unreadable: BTreeMap<ClassId, String>,
}

#[derive(Debug, Default)]
struct OfSecret {
    /// Whether the API server said whether it exists.
    asked: bool,
    trouble: Option<String>,
    secret: Option<Arc<Secret>>,
}

impl Known {
    /// What is served from now on. Classes of a kind that lost its last driver stay, to be compared with
    /// what there is when one comes back; secrets that nobody may have any more do not.
    pub(super) fn serve(&mut self, territory: Territory) {
        self.territory = territory;
    }

    /// All classes of a kind: those that are not among them were deleted.
    pub(super) fn listed(&mut self, kind: &Kind, objects: Vec<Read>, now: SystemTime) {
        let of_kind = self.kinds.entry(kind.clone()).or_default();
        of_kind.listed = true;
        of_kind.trouble = None;
        of_kind.unreadable.clear();
        let there: BTreeSet<ClassId> = objects
            .iter()
            .map(|read| match read {
                Ok(class) => class.id.clone(),
                Err((id, _)) => id.clone(),
            })
            .collect();
        for read in objects {
            of_kind.put(read);
        }
        for (id, class) in &mut of_kind.classes {
            if class.deleted.is_none() && !there.contains(id) {
                *class = Arc::new(class.as_deleted(now));
            }
        }
        self.keep_few();
    }

    pub(super) fn put(&mut self, kind: &Kind, read: Read) {
        self.kinds.entry(kind.clone()).or_default().put(read);
    }

    pub(super) fn deleted(&mut self, id: &ClassId, kind: &Kind, now: SystemTime) {
        let of_kind = self.kinds.entry(kind.clone()).or_default();
        of_kind.unreadable.remove(id);
        if let Some(class) = of_kind.classes.get_mut(id) {
            *class = Arc::new(class.as_deleted(now));
        }
        self.keep_few();
    }

    /// What is the matter with a kind as a whole, until it is listed again.
    pub(super) fn troubled(&mut self, kind: &Kind, trouble: String) {
        self.kinds.entry(kind.clone()).or_default().trouble = Some(trouble);
    }

    pub(super) fn reading(&self, kind: &Kind) -> Reading {
        let of_kind = self.kinds.get(kind);
        let trouble = of_kind.and_then(|of_kind| of_kind.trouble.clone());
        match (of_kind.is_some_and(|of_kind| of_kind.listed), trouble) {
            (true, None) => Reading::Current,
            (true, Some(why)) => Reading::Stale(why),
            (false, Some(why)) => Reading::Never(why),
            (false, None) => Reading::Never(format!("classes of {kind} are being read")),
        }
    }

    /// What the API server said of a secret: it does not exist, or what it holds.
    pub(super) fn secret(
        &mut self,
        name: &SecretName,
        found: Option<Result<Secret, String>>,
        now: SystemTime,
    ) {
        let of_secret = self.secrets.entry(name.clone()).or_default();
        of_secret.asked = true;
        of_secret.trouble = None;
        match found {
            Some(Ok(secret)) => of_secret.secret = Some(Arc::new(secret)),
            Some(Err(why)) => of_secret.trouble = Some(format!("the secret {name}: {why}")),
            None => {
                if let Some(secret) = of_secret.secret.as_mut().filter(|s| s.deleted().is_none()) {
                    *secret = Arc::new(secret.as_deleted(now));
                }
            }
        }
    }

    pub(super) fn secret_troubled(&mut self, name: &SecretName, trouble: String) {
        self.secrets.entry(name.clone()).or_default().trouble = Some(trouble);
    }

    /// The secrets that classes name and some driver may be given; those of deleted classes as well.
    pub(super) fn wanted(&self) -> BTreeSet<SecretName> {
        let mut wanted = BTreeSet::new();
        for class in self.served() {
            let may = |secret: &&SecretName| may_use(&self.territory, class, secret);
            wanted.extend(class.secrets().filter(may).cloned());
        }
        wanted
    }

    /// Forgets secrets that are not among the wanted ones. Says whether there were any.
    pub(super) fn forget_others(&mut self, wanted: &BTreeSet<SecretName>) -> bool {
        let before = self.secrets.len();
        self.secrets.retain(|name, _| wanted.contains(name));
        self.secrets.len() != before
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let classes = self.kinds.values().flat_map(|of_kind| of_kind.classes.values().cloned());
        let secrets = self.secrets.values().filter_map(|of_secret| of_secret.secret.clone());
        Snapshot::new(classes, secrets, self.problems())
    }

    fn problems(&self) -> Vec<Problem> {
        let served: BTreeSet<Kind> = kinds(&self.territory).collect();
        let of_kinds = self.kinds.iter().filter(|(kind, _)| served.contains(kind));
        let unread = of_kinds.flat_map(|(_, of_kind)| {
            let unreadable = of_kind.unreadable.iter();
            let unreadable = unreadable.map(|(id, why)| format!("{id}: {why}"));
            of_kind.trouble.clone().into_iter().chain(unreadable)
        });
        let secrets = self.secrets.values().filter_map(|of_secret| of_secret.trouble.clone());
        let references = self.served().filter(|class| class.deleted.is_none()).flat_map(|class| {
            class.secrets().filter_map(|secret| {
                self.reference(class, secret).map(|what| format!("{} {what}", class.id))
            })
        });
        unread.chain(secrets).chain(references).map(Problem::of_cluster).collect()
    }

    /// What is wrong with a reference to a secret.
    fn reference(&self, class: &Class, secret: &SecretName) -> Option<String> {
        if !may_use(&self.territory, class, secret) {
            return Some(format!(
                "refers to the secret {secret} of another namespace, which no rule of the policy \
                 allows (secretsFrom)"
            ));
        }
        let of_secret = self.secrets.get(secret)?;
        match &of_secret.secret {
            None if of_secret.asked && of_secret.trouble.is_none() => {
                Some(format!("refers to the secret {secret}, which does not exist"))
            }
            Some(gone) if gone.deleted().is_some() => Some(format!(
                "refers to the secret {secret}, which was deleted: it is kept to delete machines, \
                 and none are created"
            )),
            _ => None,
        }
    }

    /// The classes that some driver serves.
    fn served(&self) -> impl Iterator<Item = &Arc<Class>> {
        let served: BTreeSet<Kind> = kinds(&self.territory).collect();
        let of_kinds = self.kinds.iter().filter(move |(kind, _)| served.contains(kind));
        let classes = of_kinds.flat_map(|(_, of_kind)| of_kind.classes.values());
        classes.filter(|class| {
            let mut grounds = self.territory.grounds_in(&class.id.namespace);
            grounds.any(|ground| {
                ground.key.provider.is_none() || ground.key.provider == class.key.provider
            })
        })
    }

    fn keep_few(&mut self) {
        let deleted = |class: &Arc<Class>| class.deleted.map(|at| (at, class.id.clone()));
        let all = self.kinds.values().flat_map(|of_kind| of_kind.classes.values());
        let mut kept: Vec<_> = all.filter_map(deleted).collect();
        kept.sort_unstable();
        for (_, id) in kept.iter().take(kept.len().saturating_sub(KEPT)) {
            for of_kind in self.kinds.values_mut() {
                of_kind.classes.remove(id);
            }
        }
    }
}

impl OfKind {
    /// What cannot be read leaves what it said before in force.
    fn put(&mut self, read: Read) {
        match read {
            Ok(class) => {
                self.unreadable.remove(&class.id);
                self.classes.insert(class.id.clone(), Arc::new(class));
            }
            Err((id, why)) => {
                self.unreadable.insert(id, why);
            }
        }
    }
}

#[cfg(test)]
mod tests;
