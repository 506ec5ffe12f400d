//! A catalog from one text: the sample of `machine-broker dev`, and tests.

use std::{sync::Arc, time::SystemTime};

use tokio::sync::broadcast;

use super::{
    Catalog, Class, Error, Problem, Secret, SecretName,
    objects::{self, Format},
    snapshot::{Snapshot, Store},
};
use crate::driver::ClassId;

/// A catalog that stays as it is, until someone gives it another text.
#[derive(Debug)]
pub struct Static {
    store: Store,
}

impl Static {
    /// A catalog of the objects in `yaml`. A text with anything wrong in it is refused whole.
    pub fn from_yaml(yaml: &str) -> Result<Arc<Self>, Error> {
        Ok(Arc::new(Self { store: Store::new(read(yaml)?) }))
    }

    /// The built-in sample: two classes of the kind `SimMachineClass` and their secret.
    pub fn sample() -> Arc<Self> {
        Self::from_yaml(include_str!("sample.yaml")).expect("the sample is right, as a test proves")
    }

    /// Exchanges the content. A text with anything wrong in it changes nothing.
    pub fn replace(&self, yaml: &str) -> Result<(), Error> {
        self.store.publish(read(yaml)?);
        Ok(())
    }
}

impl Catalog for Static {
    fn class(&self, id: &ClassId) -> Option<Arc<Class>> {
        self.store.class(id)
    }

    fn classes(&self) -> Vec<Arc<Class>> {
        self.store.classes()
    }

    fn secret(&self, name: &SecretName) -> Option<Arc<Secret>> {
        self.store.secret(name)
    }

    fn secrets(&self) -> usize {
        self.store.secrets()
    }

    fn version(&self) -> u64 {
        self.store.version()
    }

    fn last_good(&self) -> Option<SystemTime> {
        // What is read from nowhere is never old.
        Some(SystemTime::now())
    }

    fn changes(&self) -> broadcast::Receiver<SecretName> {
        self.store.changes()
    }

    fn problems(&self) -> Vec<Problem> {
        self.store.problems()
    }
}

fn read(yaml: &str) -> Result<Snapshot, Error> {
    let objects = objects::read(yaml, Format::Yaml).map_err(|faults| {
        let problem = |fault: objects::Fault| Problem {
            file: None,
            line: fault.line,
            message: fault.message,
        };
        Error::Broken(faults.into_iter().map(problem).collect())
    })?;
    let snapshot = Snapshot::of([(None, &objects)].into_iter());
    if snapshot.problems.is_empty() { Ok(snapshot) } else { Err(Error::Broken(snapshot.problems)) }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::catalog::secret_revision;

    #[test]
    fn the_sample_has_two_classes_that_share_a_secret() {
        let catalog = Static::sample();
        let classes = catalog.classes();
        let names: Vec<_> = classes.iter().map(|class| class.id.to_string()).collect();
        assert_eq!(names, ["SimMachineClass default/large", "SimMachineClass default/small"]);
        for class in &classes {
            assert_eq!(&*class.id.api_version, "sim.machinebroker.dev/v1alpha1");
            assert_eq!(class.secret_ref, Some(SecretName::new("default", "sim-credentials")));
            assert_ne!(secret_revision(&*catalog, class), 0);
            let json: Value = serde_json::from_str(&class.json).unwrap();
            assert!(json["spec"]["createDelay"].is_string() && json["spec"]["capacity"].is_u64());
        }
        assert!(catalog.problems().is_empty());
    }

    #[test]
    fn a_changed_secret_is_announced_after_it_is_in_force() {
        let secret = |token| {
            format!(
                "apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{t: {token}}}"
            )
        };
        let catalog = Static::from_yaml(&secret("one")).unwrap();
        let name = SecretName::new("default", "s");
        let mut changes = catalog.changes();
        let first = catalog.secret(&name).unwrap().revision();

        catalog.replace(&secret("one")).unwrap();
        assert!(changes.try_recv().is_err(), "nothing changed");
        catalog.replace(&secret("two")).unwrap();
        assert_eq!(changes.try_recv().unwrap(), name);
        assert_ne!(catalog.secret(&name).unwrap().revision(), first);
        catalog.replace("").unwrap();
        assert_eq!(changes.try_recv().unwrap(), name);
        assert!(catalog.secret(&name).is_none());
    }

    #[test]
    fn a_wrong_text_says_where_and_changes_nothing() {
        let catalog = Static::sample();
        let error = catalog.replace("kind: A\napiVersion: [").unwrap_err();
        assert!(error.to_string().contains("line "), "{error}");
        let twice = "apiVersion: a.b/v1\nkind: XClass\nmetadata: {name: x}\n";
        let error = catalog.replace(&format!("{twice}---\n{twice}")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the catalog is not right: line 5: XClass default/x is already defined in line 1; \
             that one is in force"
        );
        assert_eq!(catalog.classes().len(), 2);
    }
}
