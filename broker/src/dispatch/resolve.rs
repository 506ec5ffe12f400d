//! What a caller asks, checked, and resolved to a class and the key of its drivers.

use std::{fmt, sync::Arc};

use broker_proto::{
    passing::{GetVolumeIDsRequest, ListMachinesRequest, MachineAsked},
    v1,
};
use broker_secret::Sensitive;
use prost::Message as _;

use super::{ClassName, ClassNames, Error, class_name::MAX_TEXT};
use crate::{
    auth::Caller,
    catalog::{Catalog, valid_name},
    driver::{ClassId, DriverKey, MachineId, Verb},
    operation::{Request, Trace, Words},
    registry::Registry,
};

const MAX_BLOB: usize = 1024 * 1024;

/// A caller's words, not yet checked. `Debug` leaves the user data out. It is made in a box, since it is
/// large and each step on its way would move it.
pub struct Ask {
    /// Whose words; `None` for a caller in the same process.
    pub caller: Option<Arc<Caller>>,
    pub trace: Option<Arc<Trace>>,
    pub verb: Verb,
    pub class: Arc<ClassName>,
    pub machine: Arc<str>,
    pub words: Arc<Words>,
    pub wait_for_driver: bool,
}

/// Where an ask comes from.
#[derive(Clone, Debug)]
pub struct Origin {
    pub caller: Arc<Caller>,
    pub trace: Option<Arc<Trace>>,
}

impl Ask {
    /// Of a caller in the same process.
    pub fn machine(verb: Verb, request: v1::MachineRequest) -> Box<Self> {
        let class = ClassName::from(request.class.unwrap_or_default());
        let words = Words {
            provider_id: request.provider_id,
            last_known_state: request.last_known_state,
            user_data: request.user_data.map(Sensitive::from),
            request_id: request.request_id,
            volume_specs: Vec::new(),
        };
        let (class, machine) = (Arc::new(class), request.machine_name.into());
        Self::of(verb, class, machine, words, request.wait_for_driver)
    }

    /// As it came: the request of this verb, encoded.
    pub fn read(verb: Verb, message: &[u8], names: &ClassNames) -> Result<Box<Self>, Error> {
        match verb {
            Verb::Create | Verb::Initialize | Verb::Delete | Verb::GetStatus => {
                Self::about(verb, &MachineAsked::read(message).map_err(unreadable)?, names)
            }
            Verb::List => {
                let request = ListMachinesRequest::decode(message).map_err(unreadable)?;
                let words = Words { provider_id: request.provider_id, ..Words::default() };
                let class = names.read(&request.class)?;
                Ok(Self::of(verb, class, "".into(), words, request.wait_for_driver))
            }
            Verb::GetVolumeIds => {
                let request = GetVolumeIDsRequest::decode(message).map_err(unreadable)?;
                let words = Words { volume_specs: request.volume_specs, ..Words::default() };
                let class = names.read(&request.class)?;
                Ok(Self::of(verb, class, "".into(), words, request.wait_for_driver))
            }
        }
    }

    fn about(verb: Verb, asked: &MachineAsked<'_>, names: &ClassNames) -> Result<Box<Self>, Error> {
        let machine = std::str::from_utf8(asked.machine_name)
            .map_err(|_| Error::invalid("machine_name", "is not a text"))?;
        let class = names.read(asked.class)?;
        let words = Words {
            provider_id: asked.provider_id.to_owned(),
            last_known_state: asked.last_known_state.to_owned(),
            user_data: asked.user_data.map(Sensitive::from),
            request_id: asked.request_id.to_owned(),
            volume_specs: Vec::new(),
        };
        Ok(Self::of(verb, class, machine.into(), words, asked.wait_for_driver))
    }

    fn of(
        verb: Verb,
        class: Arc<ClassName>,
        machine: Arc<str>,
        words: Words,
        wait_for_driver: bool,
    ) -> Box<Self> {
        let words = Arc::new(words);
        let (caller, trace) = (None, None);
        Box::new(Self { caller, trace, verb, class, machine, words, wait_for_driver })
    }

    pub fn by(mut self: Box<Self>, origin: Origin) -> Box<Self> {
        self.caller = Some(origin.caller);
        self.trace = origin.trace;
        self
    }

    pub(super) fn resolve(
        &self,
        catalog: &dyn Catalog,
        registry: &Registry,
    ) -> Result<Request, Error> {
        self.check()?;
        let found = match &*self.class.api_version {
            "" => self.class.look(catalog, self.only_api_version(catalog, registry)?),
            _ => self.class.find(catalog),
        };
        let found = found.map_err(|missing| unknown_class(missing, catalog, registry))?;
        if let Some(what) = &found.deleted
            // Machines are not made from what was deleted; all else goes on.
            && matches!(self.verb, Verb::Create | Verb::Initialize)
        {
            return Err(Error::Deleted { what: what.clone(), verb: self.verb });
        }
        let class = Arc::clone(&found.class);
        let given = self.class.provider.clone();
        let own = &class.key.provider;
        if let (Some(given), Some(own)) = (&given, own)
            && given != own
        {
            let problem = format!("the class is for provider {own:?}, not {given:?}");
            return Err(Error::invalid("class.provider", problem));
        }
        // A driver for all providers will do where it is the class that names one; who asks for one by
        // name is not given another.
        let general = given.is_none() || own.is_some();
        let key = match given {
            Some(_) => Arc::new(DriverKey { provider: given, ..DriverKey::clone(&class.key) }),
            None => Arc::clone(&class.key),
        };
        let key = if general { registry.key_for(key, &class.id.namespace) } else { key };
        Ok(Request {
            verb: self.verb,
            secret_revision: found.secret_revision,
            machine: MachineId::new(Arc::clone(&class.realm), self.machine.clone()),
            class,
            key,
            words: Arc::clone(&self.words),
            attempt: 1,
            trace: self.trace.clone(),
            catalog_age: catalog.age(),
        })
    }

    fn check(&self) -> Result<(), Error> {
        self.class.check()?;
        if !matches!(self.verb, Verb::List | Verb::GetVolumeIds) {
            valid_name(&self.machine).map_err(|error| Error::invalid("machine_name", error))?;
        }
        let words = &self.words;
        let specs: usize = words.volume_specs.iter().map(String::len).sum();
        let user_data = words.user_data.as_ref().map_or(0, Sensitive::len);
        for (field, length, most) in [
            ("provider_id", words.provider_id.len(), MAX_TEXT),
            ("request_id", words.request_id.len(), MAX_TEXT),
            ("last_known_state", words.last_known_state.len(), MAX_BLOB),
            ("user_data", user_data, MAX_BLOB),
            ("volume_specs", specs, MAX_BLOB),
        ] {
            if length > most {
                return Err(Error::invalid(field, format!("has {length} bytes, at most {most}")));
            }
        }
        Ok(())
    }

    /// The apiVersion of a kind that was given without one: what is connected decides, or else what
    /// is in the catalog.
    fn only_api_version(
        &self,
        catalog: &dyn Catalog,
        registry: &Registry,
    ) -> Result<Arc<str>, Error> {
        let kind = &*self.class.kind;
        let connected = registry.keys();
        let served = connected.iter().filter(|key| &*key.kind == kind);
        let mut versions: Vec<Arc<str>> = served.map(|key| key.api_version.clone()).collect();
        if versions.is_empty() {
            let classes = catalog.classes();
            let known = classes.iter().filter(|class| &*class.id.kind == kind);
            versions.extend(known.map(|class| class.id.api_version.clone()));
        }
        versions.sort_unstable();
        versions.dedup();
        match versions.as_slice() {
            [only] => Ok(only.clone()),
            [] => Err(Error::NoDriver {
                wanted: DriverKey::of_any_version(kind),
                connected,
                is_known: false,
                elsewhere: Vec::new(),
            }),
            several => Err(Error::invalid(
                "class.api_version",
                format!("{kind} has several, choose one of {}", several.join(", ")),
            )),
        }
    }
}

/// Whoever sent this does not speak our language.
fn unreadable(error: impl fmt::Display) -> Error {
    Error::invalid("request", error.to_string())
}

/// A kind that nobody serves is worth saying before a class that nobody knows.
fn unknown_class(id: ClassId, catalog: &dyn Catalog, registry: &Registry) -> Error {
    let connected = registry.keys();
    if connected.iter().any(|key| key.api_version == id.api_version && key.kind == id.kind) {
        return match catalog.reading(&id.api_version, &id.kind).trouble() {
            // It may be there all the same.
            Some(why) => Error::Unread { class: id, why: why.to_owned() },
            None => Error::NoClass(id),
        };
    }
    let wanted = DriverKey { api_version: id.api_version, kind: id.kind, provider: None };
    Error::NoDriver { wanted, connected, is_known: false, elsewhere: Vec::new() }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask")
            .field("verb", &self.verb)
            .field("class", &self.class)
            .field("machine", &self.machine)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_request_is_refused_whatever_the_verb() {
        for verb in Verb::ALL {
            let Err(error) = Ask::read(verb, b"\xff", &ClassNames::default()) else {
                panic!("{verb:?} was read");
            };
            assert!(matches!(error, Error::Invalid { field: "request", .. }), "{verb:?}: {error}");
        }
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let class = v1::ClassRef { kind: "K".into(), name: "small".into(), ..Default::default() };
        let request = v1::MachineRequest {
            class: Some(class),
            machine_name: "worker-0".to_owned(),
            request_id: "again".to_owned(),
            user_data: Some("data".into()),
            wait_for_driver: true,
            ..Default::default()
        };
        let names = ClassNames::default();
        let ask = Ask::read(Verb::Delete, &request.encode_to_vec(), &names).unwrap();
        assert_eq!(
            (ask.verb, &*ask.machine, &*ask.class.name),
            (Verb::Delete, "worker-0", "small")
        );
        assert_eq!(ask.words.request_id, "again");
        assert_eq!(ask.words.user_data.as_ref().map(Sensitive::reveal), Some(&b"data"[..]));
        assert!(ask.wait_for_driver);
    }
}
