//! The classes that a broker names, each read once: it is the same few from one operation to the next.

use std::sync::Arc;

use broker_proto::v1 as wire;
use prost::Message as _;

use crate::{error::Error, maps::HashMap, operations::ClassRef};

/// Beyond it the names start afresh.
const AT_MOST: usize = 1024;

/// What identifies a class in a lookup.
#[derive(Debug)]
pub(crate) struct ClassQuery {
    /// The name in the form the broker used, handed back as it is.
    pub(crate) wire_name: String,
    pub(crate) class: Arc<ClassRef>,
    pub(crate) revision: i32,
}

/// What was read, by the bytes of the reference.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: HashMap<Arc<[u8]>, Known>,
    /// Which is mostly asked for once more.
    last: Option<(Arc<[u8]>, Known)>,
}

#[derive(Clone, Debug)]
struct Known {
    /// The form of the name, and the revision.
    meta: Arc<[u8]>,
    query: Arc<ClassQuery>,
}

impl Names {
    /// Reads a `ClassRef` and the `MachineClassMeta` that came with it.
    pub(crate) fn read(&mut self, class: &[u8], meta: &[u8]) -> Result<Arc<ClassQuery>, Error> {
        if let Some((last, known)) = &self.last
            && **last == *class
            && *known.meta == *meta
        {
            return Ok(known.query.clone());
        }
        let (class, known) = match self.known.get_key_value(class) {
            Some((class, known)) if *known.meta == *meta => (class.clone(), known.clone()),
            _ => {
                let query = Arc::new(ClassQuery::read(class, meta)?);
                if self.known.len() >= AT_MOST {
                    self.known.clear();
                }
                let (class, known) = (Arc::from(class), Known { meta: meta.into(), query });
                self.known.insert(Arc::clone(&class), known.clone());
                (class, known)
            }
        };
        let query = known.query.clone();
        self.last = Some((class, known));
        Ok(query)
    }
}

impl ClassQuery {
    fn read(class: &[u8], meta: &[u8]) -> Result<Self, Error> {
        if class.is_empty() {
            return Err(Error::invalid_argument("no class reference"));
        }
        let unreadable = |error| Error::invalid_argument(format!("the class reference: {error}"));
        let class = wire::ClassRef::decode(class).map_err(unreadable)?;
        let meta = wire::MachineClassMeta::decode(meta).map_err(unreadable)?;
        Ok(Self::new(class, &meta))
    }

    pub(crate) fn new(mut class: wire::ClassRef, meta: &wire::MachineClassMeta) -> Self {
        if class.namespace.is_empty() {
            "default".clone_into(&mut class.namespace);
        }
        let wire_name = match meta.name.as_str() {
            "" => format!("{}/{}", class.namespace, class.name),
            given => given.to_owned(),
        };
        let class = Arc::new(ClassRef::from_wire(class));
        Self { wire_name, class, revision: meta.revision }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str) -> Vec<u8> {
        wire::ClassRef { name: name.into(), ..Default::default() }.encode_to_vec()
    }

    fn meta(name: &str, revision: i32) -> Vec<u8> {
        let name = name.to_owned();
        wire::MachineClassMeta { name, revision, ..Default::default() }.encode_to_vec()
    }

    #[test]
    fn a_class_is_read_once_for_each_revision() {
        let mut names = Names::default();
        let first = names.read(&class("a"), &meta("", 1)).unwrap();
        assert_eq!((first.wire_name.as_str(), first.revision), ("default/a", 1));
        assert!(Arc::ptr_eq(&first, &names.read(&class("a"), &meta("", 1)).unwrap()));
        assert_eq!(names.read(&class("a"), &meta("plain", 2)).unwrap().revision, 2);
        assert_eq!(names.read(&class("a"), &meta("plain", 2)).unwrap().wire_name, "plain");
        assert_eq!(names.read(&class("b"), &meta("", 1)).unwrap().class.name, "b");
    }

    #[test]
    fn what_is_no_class_is_refused() {
        let mut names = Names::default();
        names.read(b"", b"").unwrap_err();
        names.read(b"\xff", b"").unwrap_err();
    }
}
