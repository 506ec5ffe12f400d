//! The names that drivers ask for.

use std::sync::{Arc, LazyLock};

use broker::{
    auth::{Namespaces, Territory},
    catalog::{
        Scope, Static,
        class_name::{self, ClassName},
        valid_name,
    },
    driver::DriverKey,
};

pub(crate) const WORDS: &[&str] = &[
    "/apis/",
    "/api/",
    "/namespaces/",
    "default",
    "team-b",
    "sim.machinebroker.dev/v1",
    "simclasses",
    "otherclasses",
    "mine",
    "foreign",
    "..",
    "%2f",
    "?watch=1",
    "#",
    "\0",
    "\u{202e}",
    "/",
];

const CATALOG: &str = "
{apiVersion: sim.machinebroker.dev/v1, kind: SimClass, metadata: {name: mine}, spec: {}}
---
{apiVersion: sim.machinebroker.dev/v1, kind: SimClass, metadata: {name: mine, namespace: team-b}, spec: {}}
---
{apiVersion: sim.machinebroker.dev/v1, kind: OtherClass, metadata: {name: mine}, spec: {}}
---
{apiVersion: sim.machinebroker.dev/v1, kind: OtherClass, metadata: {name: foreign}, spec: {}}
---
{apiVersion: sim.machinebroker.dev/v1, kind: SimClass, metadata: {name: foreign}, provider: x, spec: {}}
";

static STATIC: LazyLock<Arc<Static>> = LazyLock::new(|| Static::from_yaml(CATALOG).expect("right"));

pub(crate) fn class_name(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(read) = class_name::parse(text) {
        let (namespace, name) = match read {
            ClassName::Short { namespace, name } => (namespace, name),
            ClassName::Path { api_version, plural, namespace, name } => {
                class_name::valid_api_version(api_version).expect("what was read is right");
                assert!(!plural.contains(['/', '.', '%']), "{plural:?}");
                (namespace, name)
            }
        };
        for part in [namespace, name] {
            valid_name(part).expect("what was read is right");
        }
    }
    let key = DriverKey {
        api_version: "sim.machinebroker.dev/v1".into(),
        kind: "SimClass".into(),
        provider: Some("y".into()),
    };
    let general = DriverKey { provider: None, ..key.clone() };
    let at_home = || Namespaces::Only(["default".into()].into_iter().collect());
    for (key, sees_all_providers) in [(key, false), (general, true)] {
        let territory: Territory = [(key, at_home())].into_iter().collect();
        match Scope::new(&**STATIC, &territory).class(text) {
            Ok(class) => {
                assert_eq!((&*class.id.kind, &*class.id.namespace), ("SimClass", "default"));
                assert!(sees_all_providers, "{:?} is another provider's", class.id);
            }
            Err(denied) => {
                let told = denied.public_message();
                assert!(!told.contains("another") && told.len() < 512, "{told}");
            }
        }
    }
}
