//! What one driver may see of the catalog: the classes of the kinds it registered, in the namespaces
//! that it may serve, and the secrets that those classes refer to.

use std::{collections::BTreeSet, sync::Arc};

use super::{Catalog, Class, Secret, SecretName, class_name, class_name::ClassName, secret};
use crate::{
    auth::Territory,
    driver::{ClassId, DriverKey},
};

/// The catalog through the eyes of one driver.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    catalog: &'a dyn Catalog,
    territory: &'a Territory,
}

/// Why a driver does not get what it asked for.
///
/// The variants, and the names in them, are for the audit log. A driver is told
/// [`Denied::public_message`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// What was asked for is not a name.
    #[error("not a name")]
    BadName(#[source] class_name::Error),

    /// It does not exist; or a class of this driver refers to a secret that does not.
    #[error("{0} does not exist")]
    Missing(String),

    /// It exists, and belongs to a kind or provider that this driver did not register.
    #[error("{0} belongs to another driver")]
    Foreign(String),

    /// No class of this driver refers to that secret, whether it exists or not.
    #[error("no class of this driver refers to the secret {0}")]
    Unreferenced(SecretName),

    /// A class of this driver refers to a secret of a namespace from which its secrets may not come.
    #[error("{class} refers to the secret {secret} of another namespace, which no rule allows")]
    Elsewhere { class: String, secret: SecretName },

    /// A name without a kind fits classes of several kinds of this driver. To answer with one of
    /// them could make a machine of the wrong one.
    #[error("{0} fits classes of several kinds")]
    Ambiguous(String),
}

impl Denied {
    /// What the driver may be told: the same words whether the thing does not exist or is not the
    /// driver's, so that nobody can find out what exists by asking.
    pub fn public_message(&self) -> String {
        match self {
            Self::BadName(reason) => reason.to_string(),
            Self::Missing(_) | Self::Foreign(_) | Self::Unreferenced(_) => {
                "there is no such class or secret among those of this driver".to_owned()
            }
            Self::Elsewhere { .. } => {
                "the class refers to a secret of another namespace; the policy \
                                       of the broker must allow it (secretsFrom)"
                    .to_owned()
            }
            Self::Ambiguous(_) => {
                "this name fits classes of several kinds; use the absolute path".to_owned()
            }
        }
    }
}

impl<'a> Scope<'a> {
    /// The scope of a driver with this territory.
    pub fn new(catalog: &'a dyn Catalog, territory: &'a Territory) -> Self {
        Self { catalog, territory }
    }

    /// The class that the driver names in any of the forms of [`class_name`].
    pub fn class(&self, wire_name: &str) -> Result<Arc<Class>, Denied> {
        let asked = class_name::parse(wire_name).map_err(Denied::BadName)?;
        let mut found: Option<Arc<Class>> = None;
        for key in self.territory.keys_in(asked.namespace()) {
            let mine = |class: &Arc<Class>| serves(key, class) && is_named(class, &asked);
            let Some(class) = self.catalog.class(&candidate(key, &asked)).filter(mine) else {
                continue;
            };
            if found.as_ref().is_some_and(|other| other.id != class.id) {
                return Err(Denied::Ambiguous(wire_name.to_owned()));
            }
            found = Some(class);
        }
        found.ok_or_else(|| {
            let exists = self.catalog.classes().iter().any(|class| is_named(class, &asked));
            if exists {
                Denied::Foreign(format!("class {wire_name}"))
            } else {
                Denied::Missing(format!("class {wire_name}"))
            }
        })
    }

    pub fn class_by_id(&self, id: &ClassId) -> Result<Arc<Class>, Denied> {
        match self.catalog.class(id) {
            Some(class) if self.contains(&class) => Ok(class),
            Some(_) => Err(Denied::Foreign(id.to_string())),
            None => Err(Denied::Missing(id.to_string())),
        }
    }

    /// A secret by its name, as historic drivers ask for it.
    ///
    /// They know one secret per class, the `secretRef`, so its answer already contains the
    /// credentials, unless the classes that share it do not agree on which.
    pub fn secret(&self, name: &SecretName) -> Result<Arc<Secret>, Denied> {
        let mut referenced = Err(Denied::Unreferenced(name.clone()));
        let mut credentials = BTreeSet::new();
        for class in self.catalog.classes().iter().filter(|class| self.contains(class)) {
            if !class.secrets().any(|own| own == name) {
                continue;
            }
            match self.allows(class) {
                Ok(()) if class.secret_ref.as_ref() == Some(name) => {
                    referenced = Ok(());
                    credentials.insert(class.credentials_ref.clone());
                }
                Err(denied) if referenced.is_err() => referenced = Err(denied),
                allowed => referenced = referenced.or(allowed),
            }
        }
        referenced?;
        let agreed = match credentials.len() {
            1 => credentials.pop_first().flatten(),
            _ => None,
        };
        self.merge(name, agreed.as_ref())
    }

    /// The secret of a class, its two parts merged; `None` when the class names none.
    pub fn secret_of(&self, id: &ClassId) -> Result<Option<Arc<Secret>>, Denied> {
        let class = self.class_by_id(id)?;
        self.allows(&class)?;
        match (&class.secret_ref, &class.credentials_ref) {
            (None, None) => Ok(None),
            (Some(only), None) | (None, Some(only)) => self.plain(only).map(Some),
            (Some(base), credentials) => self.merge(base, credentials.as_ref()).map(Some),
        }
    }

    /// A missing part is an error and not left out: half of the credentials would only fail later,
    /// in the cloud, with a worse message.
    fn merge(
        &self,
        base: &SecretName,
        credentials: Option<&SecretName>,
    ) -> Result<Arc<Secret>, Denied> {
        let plain = self.plain(base)?;
        match credentials {
            Some(credentials) if credentials != base => {
                Ok(Arc::new(Secret::merged(&plain, &*self.plain(credentials)?)))
            }
            _ => Ok(plain),
        }
    }

    fn plain(&self, name: &SecretName) -> Result<Arc<Secret>, Denied> {
        self.catalog.secret(name).ok_or_else(|| Denied::Missing(format!("secret {name}")))
    }

    fn contains(&self, class: &Class) -> bool {
        self.territory.keys_in(&class.id.namespace).any(|key| serves(key, class))
    }

    /// Whether all secrets that a class names may be handed out for it.
    fn allows(&self, class: &Class) -> Result<(), Denied> {
        match class.secrets().find(|secret| !may_use(self.territory, class, secret)) {
            None => Ok(()),
            Some(secret) => {
                Err(Denied::Elsewhere { class: class.id.to_string(), secret: secret.clone() })
            }
        }
    }
}

/// Whether some driver of this territory may be given a secret for a class: one of the class's own
/// namespace, or of one that the policy names.
pub(super) fn may_use(territory: &Territory, class: &Class, secret: &SecretName) -> bool {
    territory.grounds_in(&class.id.namespace).any(|ground| {
        serves(&ground.key, class)
            && (secret.namespace == class.id.namespace
                || ground.secrets_from.contains(&secret.namespace))
    })
}

/// The revision of what [`Scope::secret_of`] answers for `class`, without making it: 0 when the
/// class names no secret. A secret that is named and missing counts too, so that its coming is a
/// change.
pub fn secret_revision(catalog: &dyn Catalog, class: &Class) -> i32 {
    let revision = |name: &SecretName| catalog.secret(name).map_or(0, |secret| secret.revision());
    let alone = |name| match revision(name) {
        0 => secret::merged_revision(0, 0),
        found => found,
    };
    match (&class.secret_ref, &class.credentials_ref) {
        (None, None) => 0,
        (Some(only), None) | (None, Some(only)) => alone(only),
        (Some(base), Some(credentials)) if base == credentials => alone(base),
        (Some(base), Some(credentials)) => {
            secret::merged_revision(revision(base), revision(credentials))
        }
    }
}

fn serves(key: &DriverKey, class: &Class) -> bool {
    key.api_version == class.id.api_version
        && key.kind == class.id.kind
        && (key.provider.is_none() || key.provider == class.key.provider)
}

/// The class that `asked` would be, were it of the kind of `key`.
fn candidate(key: &DriverKey, asked: &ClassName<'_>) -> ClassId {
    let (ClassName::Short { namespace, name } | ClassName::Path { namespace, name, .. }) = *asked;
    ClassId {
        api_version: key.api_version.clone(),
        kind: key.kind.clone(),
        namespace: namespace.into(),
        name: name.into(),
    }
}

fn is_named(class: &Class, asked: &ClassName<'_>) -> bool {
    let id = &class.id;
    match *asked {
        ClassName::Short { namespace, name } => *id.namespace == *namespace && *id.name == *name,
        ClassName::Path { api_version, plural, namespace, name } => {
            *id.api_version == *api_version
                && *id.namespace == *namespace
                && *id.name == *name
                && *class.plural == *plural
        }
    }
}

#[cfg(test)]
mod tests;
