//! Who serves which class.

use std::collections::HashMap;

use super::Rooms;
use crate::{
    catalog::Class,
    driver::{DriverKey, Instance},
};

/// The instances that serve each key, gathered once for all classes.
#[derive(Debug)]
pub struct Serving(HashMap<DriverKey, Vec<String>>);

impl Serving {
    pub fn now(rooms: &Rooms) -> Self {
        let sessions = rooms.registry.sessions();
        Self::of(sessions.iter().map(|session| (&*session.info().keys, &session.info().instance)))
    }

    fn of<'a>(drivers: impl Iterator<Item = (&'a [DriverKey], &'a Instance)>) -> Self {
        let mut serving: HashMap<_, Vec<_>> = HashMap::new();
        for (keys, instance) in drivers {
            for key in keys {
                serving.entry(key.clone()).or_default().push(instance.to_string());
            }
        }
        for instances in serving.values_mut() {
            instances.sort_unstable();
        }
        Self(serving)
    }

    /// Those for the provider of the class, or else those for all providers; in order.
    pub fn instances(&self, class: &Class) -> &[String] {
        let of_all = || DriverKey { provider: None, ..DriverKey::clone(&class.key) };
        let instances = self.0.get(&*class.key).or_else(|| self.0.get(&of_all()));
        instances.map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Catalog as _, Static};

    #[test]
    fn a_class_is_served_by_those_for_its_provider_or_else_by_those_for_all() {
        let yaml = "{apiVersion: a.dev/v1, kind: KClass, metadata: {name: plain}}\n---\n\
                    {apiVersion: a.dev/v1, kind: KClass, metadata: {name: ours}, provider: p}\n---\n\
                    {apiVersion: a.dev/v1, kind: KClass, metadata: {name: theirs}, provider: q}\n---\n\
                    {apiVersion: a.dev/v1, kind: OtherClass, metadata: {name: alone}}\n";
        let catalog = Static::from_yaml(yaml).unwrap();
        let key = |provider: Option<&str>| DriverKey {
            api_version: "a.dev/v1".into(),
            kind: "KClass".into(),
            provider: provider.map(Into::into),
        };
        let instance = |id: String| Instance { id: id.into(), boot: None };
        let drivers: Vec<_> = (0..2_000)
            .map(|n| ([key((n % 2 == 0).then_some("p"))], instance(format!("{n:04}"))))
            .collect();
        let serving = Serving::of(drivers.iter().rev().map(|(keys, who)| (&keys[..], who)));
        let served: Vec<_> = catalog
            .classes()
            .iter()
            .map(|class| (class.id.name.to_string(), serving.instances(class)))
            .map(|(name, by)| (name, by.len(), by.first().map(String::as_str)))
            .collect();
        let expected = [
            ("ours".to_owned(), 1_000, Some("0000")),
            ("plain".to_owned(), 1_000, Some("0001")),
            ("theirs".to_owned(), 1_000, Some("0001")),
            ("alone".to_owned(), 0, None),
        ];
        assert_eq!(served, expected);
    }
}
