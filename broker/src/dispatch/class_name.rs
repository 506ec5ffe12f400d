//! The classes that callers name, each read and checked once: a controller names the same few in one
//! request after the other.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use broker_proto::v1::ClassRef;
use bytes::Bytes;
use prost::Message as _;

use super::Error;
use crate::{
    catalog::{Catalog, Class, DEFAULT_NAMESPACE, SecretName, secret_revision, valid_name},
    driver::ClassId,
    maps::SharedMap,
};

/// How many names are remembered: ten thousand drivers have as many kinds. With more, all are forgotten and read
/// again.
const MOST: usize = 16_384;
/// What is longer is read each time.
const LONGEST: usize = 1024;
pub(super) const MAX_TEXT: usize = 1024;

/// A class as a caller named it.
#[derive(Debug)]
pub struct ClassName {
    pub api_version: Arc<str>,
    pub kind: Arc<str>,
    /// With the default where none was named.
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub provider: Option<Arc<str>>,
    /// What is wrong with it: a field, and why.
    problem: Option<(&'static str, String)>,
    /// What it last stood for.
    found: ArcSwapOption<Found>,
}

/// What the catalog has under a name.
#[derive(Debug)]
pub(super) struct Found {
    /// The catalog's, when it was looked for.
    version: u64,
    pub(super) class: Arc<Class>,
    pub(super) secret_revision: i32,
    /// What of it was deleted, so that no machines are made from it any more.
    pub(super) deleted: Option<String>,
}

impl Found {
    fn look(catalog: &dyn Catalog, id: &ClassId) -> Option<Self> {
        // First of all: what changes while we look is looked for again.
        let version = catalog.version();
        let class = catalog.class(id)?;
        let gone = |name: &&SecretName| {
            catalog.secret(name).is_some_and(|secret| secret.deleted().is_some())
        };
        let deleted = match class.secrets().find(gone) {
            _ if class.deleted.is_some() => Some(format!("the class {}", class.id)),
            Some(secret) => Some(format!("the secret {secret} of the class {}", class.id)),
            None => None,
        };
        let secret_revision = secret_revision(catalog, &class);
        Some(Self { version, class, secret_revision, deleted })
    }
}

impl ClassName {
    pub(super) fn check(&self) -> Result<(), Error> {
        match &self.problem {
            Some((field, problem)) => Err(Error::invalid(field, problem)),
            None => Ok(()),
        }
    }

    /// What the catalog has under this name, which has an apiVersion. Looked for once, until the catalog
    /// changes.
    pub(super) fn find(&self, catalog: &dyn Catalog) -> Result<Arc<Found>, ClassId> {
        if let Some(found) = &*self.found.load()
            && found.version == catalog.version()
        {
            return Ok(Arc::clone(found));
        }
        let found = self.look(catalog, self.api_version.clone());
        // Also that there is none any more: what is gone is not kept alive here.
        self.found.store(found.as_ref().ok().cloned());
        found
    }

    /// The same with this apiVersion, which a caller may leave out.
    pub(super) fn look(
        &self,
        catalog: &dyn Catalog,
        api_version: Arc<str>,
    ) -> Result<Arc<Found>, ClassId> {
        let id = ClassId {
            api_version,
            kind: self.kind.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        };
        Found::look(catalog, &id).map(Arc::new).ok_or(id)
    }
}

impl From<ClassRef> for ClassName {
    fn from(named: ClassRef) -> Self {
        let problem = problem(&named);
        let namespace = match named.namespace.as_str() {
            "" => DEFAULT_NAMESPACE,
            given => given,
        };
        Self {
            namespace: namespace.into(),
            api_version: named.api_version.into(),
            kind: named.kind.into(),
            name: named.name.into(),
            provider: (!named.provider.is_empty()).then(|| named.provider.into()),
            problem,
            found: ArcSwapOption::empty(),
        }
    }
}

fn problem(named: &ClassRef) -> Option<(&'static str, String)> {
    if named.kind.is_empty() {
        return Some(("class.kind", "must not be empty".to_owned()));
    }
    let bad = |field: &'static str, name: &str| {
        valid_name(name).err().map(|error| (field, error.to_string()))
    };
    let namespace = Some(&named.namespace).filter(|namespace| !namespace.is_empty());
    let too_long = || {
        let texts = [
            ("class.kind", &named.kind),
            ("class.api_version", &named.api_version),
            ("class.provider", &named.provider),
        ];
        let (field, text) = texts.into_iter().find(|(_, text)| text.len() > MAX_TEXT)?;
        Some((field, format!("has {} bytes, at most {MAX_TEXT}", text.len())))
    };
    bad("class.name", &named.name)
        .or_else(|| namespace.and_then(|namespace| bad("class.namespace", namespace)))
        .or_else(too_long)
}

/// Names that were read, by their bytes. Cheap to clone: every clone is the same.
#[derive(Clone, Debug, Default)]
pub struct ClassNames(Arc<Names>);

#[derive(Debug, Default)]
struct Names {
    known: SharedMap<Bytes, Arc<ClassName>>,
    /// The newest of them: where there is but one, this is quicker.
    newest: ArcSwapOption<(Bytes, Arc<ClassName>)>,
}

impl ClassNames {
    /// Reads the name of a class as it came.
    pub(super) fn read(&self, named: &[u8]) -> Result<Arc<ClassName>, Error> {
        if let Some(newest) = &*self.0.newest.load()
            && newest.0 == named
        {
            return Ok(Arc::clone(&newest.1));
        }
        if let Some(known) = self.0.known.get(named) {
            return Ok(Arc::clone(&known));
        }
        let read =
            ClassRef::decode(named).map_err(|error| Error::invalid("class", error.to_string()))?;
        let read = Arc::new(ClassName::from(read));
        if named.len() <= LONGEST {
            if self.0.known.len() >= MOST {
                self.0.known.clear();
            }
            // A copy, lest it keeps alive all that arrived together with it.
            let named = Bytes::copy_from_slice(named);
            self.0.newest.store(Some(Arc::new((named.clone(), Arc::clone(&read)))));
            self.0.known.insert(named, Arc::clone(&read));
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(name: &str) -> Bytes {
        let named = ClassRef { kind: "K".into(), name: name.into(), ..ClassRef::default() };
        named.encode_to_vec().into()
    }

    #[test]
    fn a_name_is_read_once_and_the_default_namespace_is_filled_in() {
        let names = ClassNames::default();
        let first = names.read(&encoded("small")).unwrap();
        assert_eq!((&*first.kind, &*first.namespace, &*first.name), ("K", "default", "small"));
        assert!(Arc::ptr_eq(&first, &names.read(&encoded("small")).unwrap()));
        assert!(!Arc::ptr_eq(&first, &names.read(&encoded("large")).unwrap()));
        assert!(first.check().is_ok());
        assert!(names.read(&encoded("no name")).unwrap().check().is_err());
    }

    #[test]
    fn what_is_no_name_of_a_class_is_told_so() {
        let Err(Error::Invalid { field, .. }) = ClassNames::default().read(b"\x01") else {
            panic!("it was read");
        };
        assert_eq!(field, "class");
    }

    #[test]
    fn however_many_names_there_are_only_so_many_are_kept() {
        let names = ClassNames::default();
        for number in 0..=MOST {
            names.read(&encoded(&format!("class-{number}"))).unwrap();
        }
        assert!(names.0.known.len() <= MOST);
        names.read(&encoded(&"x".repeat(2 * LONGEST))).unwrap();
        assert!(names.0.known.iter().all(|known| known.key().len() <= LONGEST));
    }
}
