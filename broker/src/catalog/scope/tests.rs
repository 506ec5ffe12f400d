use serde_json::Value;

use super::*;
use crate::{
    auth::{Ground, Namespaces},
    catalog::Static,
};

const CATALOG: &str = r#"
apiVersion: a.dev/v1
kind: RedClass
metadata: {name: one}
spec: {secretRef: {name: base}}
---
apiVersion: a.dev/v1
kind: BlueClass
metadata: {name: one}
---
apiVersion: a.dev/v1
kind: BlueClass
metadata: {name: two, namespace: other}
secretRef: {name: blue}
credentialsSecretRef: {name: blue-credentials}
---
apiVersion: a.dev/v1
kind: MachineClass
metadata: {name: aws}
provider: aws
providerSpec: {}
secretRef: {name: base}
credentialsSecretRef: {name: credentials}
---
apiVersion: a.dev/v1
kind: MachineClass
metadata: {name: gcp}
provider: gcp
providerSpec: {}
credentialsSecretRef: {name: credentials}
---
apiVersion: a.dev/v1
kind: MachineClass
metadata: {name: torn}
provider: torn
secretRef: {name: base}
credentialsSecretRef: {name: not-there}
---
apiVersion: v1
kind: Secret
metadata: {name: base}
stringData: {userData: u, key: old}
---
apiVersion: v1
kind: Secret
metadata: {name: credentials}
stringData: {key: new}
---
apiVersion: v1
kind: Secret
metadata: {name: blue, namespace: other}
stringData: {key: blue}
---
apiVersion: v1
kind: Secret
metadata: {name: nobodys}
stringData: {key: nobody}
"#;

fn catalog() -> Arc<Static> {
    Static::from_yaml(CATALOG).unwrap()
}

fn key(kind: &str, provider: Option<&str>) -> DriverKey {
    DriverKey {
        api_version: "a.dev/v1".into(),
        kind: kind.into(),
        provider: provider.map(Into::into),
    }
}

fn id(kind: &str, namespace: &str, name: &str) -> ClassId {
    ClassId {
        api_version: "a.dev/v1".into(),
        kind: kind.into(),
        namespace: namespace.into(),
        name: name.into(),
    }
}

fn secret(name: &str) -> SecretName {
    SecretName::new("default", name)
}

fn value(secret: &Secret, key: &str) -> Value {
    serde_json::from_str::<Value>(&secret.to_json()).unwrap()["data"][key].clone()
}

#[test]
fn every_form_of_a_name_leads_to_the_drivers_own_class() {
    let catalog = catalog();
    let keys = Territory::everywhere(&[key("BlueClass", None)]);
    let scope = Scope::new(&*catalog, &keys);
    for (name, expected) in [
        ("one", id("BlueClass", "default", "one")),
        ("default/one", id("BlueClass", "default", "one")),
        ("/apis/a.dev/v1/namespaces/default/blueclasses/one", id("BlueClass", "default", "one")),
        ("other/two", id("BlueClass", "other", "two")),
    ] {
        assert_eq!(scope.class(name).unwrap().id, expected, "{name}");
    }
}

#[test]
fn a_class_of_another_kind_is_foreign_by_whatever_name() {
    let catalog = catalog();
    let keys = Territory::everywhere(&[key("RedClass", None)]);
    let scope = Scope::new(&*catalog, &keys);
    for name in ["other/two", "/apis/a.dev/v1/namespaces/default/blueclasses/one", "aws"] {
        assert!(matches!(scope.class(name), Err(Denied::Foreign(_))), "{name}");
    }
    for name in ["two", "/apis/b.dev/v1/namespaces/default/redclasses/one"] {
        assert!(matches!(scope.class(name), Err(Denied::Missing(_))), "{name}");
    }
    assert!(matches!(scope.class("../one"), Err(Denied::BadName(_))));
    assert!(matches!(
        scope.class_by_id(&id("BlueClass", "default", "one")),
        Err(Denied::Foreign(_))
    ));
    assert!(matches!(scope.class_by_id(&id("RedClass", "x", "one")), Err(Denied::Missing(_))));
    assert!(scope.class_by_id(&id("RedClass", "default", "one")).is_ok());
}

#[test]
fn a_driver_that_registered_nothing_sees_nothing() {
    let catalog = catalog();
    let nothing = Territory::default();
    let scope = Scope::new(&*catalog, &nothing);
    assert!(matches!(scope.class("one"), Err(Denied::Foreign(_))));
    assert!(matches!(scope.secret(&secret("base")), Err(Denied::Unreferenced(_))));
}

#[test]
fn a_class_in_a_namespace_that_is_not_the_drivers_is_foreign_and_so_is_its_secret() {
    let catalog = catalog();
    let elsewhere = |namespace: &str| {
        let namespaces = Namespaces::Only([namespace.to_owned()].into());
        [(key("BlueClass", None), namespaces.clone()), (key("MachineClass", None), namespaces)]
            .into_iter()
            .collect::<Territory>()
    };
    let (here, there) = (elsewhere("default"), elsewhere("other"));
    let (here, there) = (Scope::new(&*catalog, &here), Scope::new(&*catalog, &there));
    assert!(here.class("one").is_ok() && there.class("other/two").is_ok());
    assert!(matches!(here.class("other/two"), Err(Denied::Foreign(_))));
    assert!(matches!(there.class("one"), Err(Denied::Foreign(_))));
    let one = id("BlueClass", "default", "one");
    assert!(matches!(there.class_by_id(&one), Err(Denied::Foreign(_))));
    assert!(here.secret(&secret("base")).is_ok());
    assert!(matches!(there.secret(&secret("base")), Err(Denied::Unreferenced(_))));
}

#[test]
fn a_shared_kind_is_divided_by_provider() {
    let catalog = catalog();
    let aws = Territory::everywhere(&[key("MachineClass", Some("aws"))]);
    let scope = Scope::new(&*catalog, &aws);
    assert!(scope.class("aws").is_ok());
    assert!(matches!(scope.class("gcp"), Err(Denied::Foreign(_))));
    let all = Territory::everywhere(&[key("MachineClass", None)]);
    assert!(Scope::new(&*catalog, &all).class("gcp").is_ok());
}

#[test]
fn a_name_that_fits_two_kinds_is_not_guessed() {
    let catalog = catalog();
    let keys = Territory::everywhere(&[
        key("RedClass", None),
        key("BlueClass", None),
        key("BlueClass", Some("x")),
    ]);
    let scope = Scope::new(&*catalog, &keys);
    assert!(matches!(scope.class("one"), Err(Denied::Ambiguous(_))));
    assert!(scope.class("/apis/a.dev/v1/namespaces/default/redclasses/one").is_ok());
    assert!(scope.class("other/two").is_ok());
}

#[test]
fn a_secret_is_shown_only_where_a_class_of_the_driver_refers_to_it() {
    let catalog = catalog();
    let keys = Territory::everywhere(&[key("RedClass", None)]);
    let scope = Scope::new(&*catalog, &keys);
    assert!(scope.secret(&secret("base")).is_ok());
    for name in [secret("credentials"), secret("nobodys"), secret("not-there")] {
        assert_eq!(scope.secret(&name).unwrap_err(), Denied::Unreferenced(name));
    }
}

#[test]
fn the_secret_of_a_class_is_merged_and_credentials_win() {
    let catalog = catalog();
    let keys = Territory::everywhere(&[key("MachineClass", Some("aws"))]);
    let scope = Scope::new(&*catalog, &keys);
    let of_class = scope.secret_of(&id("MachineClass", "default", "aws")).unwrap().unwrap();
    let by_name = scope.secret(&secret("base")).unwrap();
    for merged in [&of_class, &by_name] {
        assert_eq!(value(merged, "key"), "bmV3");
        assert_eq!(value(merged, "userData"), "dQ==");
        assert_eq!(merged.name(), &secret("base"));
    }
    // The credentials can be had alone as well: a driver of today asks for both and merges.
    assert_eq!(value(&scope.secret(&secret("credentials")).unwrap(), "userData"), Value::Null);
}

#[test]
fn classes_that_disagree_on_the_credentials_get_the_plain_secret_by_name() {
    let catalog = catalog();
    let keys = Territory::everywhere(&[key("MachineClass", Some("aws")), key("RedClass", None)]);
    let scope = Scope::new(&*catalog, &keys);
    assert_eq!(value(&scope.secret(&secret("base")).unwrap(), "key"), "b2xk");
    // Asked for by class there is no doubt.
    let aws = scope.secret_of(&id("MachineClass", "default", "aws")).unwrap().unwrap();
    assert_eq!(value(&aws, "key"), "bmV3");
}

#[test]
fn a_missing_part_of_a_secret_is_an_error_and_no_secret_is_none() {
    let catalog = catalog();
    let keys = Territory::everywhere(&[key("MachineClass", None), key("BlueClass", None)]);
    let scope = Scope::new(&*catalog, &keys);
    assert!(matches!(
        scope.secret_of(&id("MachineClass", "default", "torn")),
        Err(Denied::Missing(what)) if what == "secret default/not-there"
    ));
    assert!(scope.secret_of(&id("BlueClass", "default", "one")).unwrap().is_none());
    let only_credentials = scope.secret_of(&id("MachineClass", "default", "gcp")).unwrap();
    assert_eq!(only_credentials.unwrap().name(), &secret("credentials"));
}

#[test]
fn the_revision_known_to_dispatch_is_that_of_the_secret_handed_out() {
    let catalog = catalog();
    let keys = Territory::everywhere(&[
        key("MachineClass", None),
        key("BlueClass", None),
        key("RedClass", None),
    ]);
    let scope = Scope::new(&*catalog, &keys);
    for class in catalog.classes() {
        let known = secret_revision(&*catalog, &class);
        match scope.secret_of(&class.id) {
            Ok(Some(secret)) => assert_eq!(known, secret.revision(), "{}", class.id),
            Ok(None) => assert_eq!(known, 0, "{}", class.id),
            Err(_) => assert_ne!(known, 0, "{}", class.id),
        }
    }
}

#[test]
fn rotating_either_part_changes_the_revision() {
    let catalog = catalog();
    let aws = id("MachineClass", "default", "aws");
    let revision = || secret_revision(&*catalog, &catalog.class(&aws).unwrap());
    let first = revision();
    catalog.replace(&CATALOG.replace("key: new", "key: newer")).unwrap();
    let second = revision();
    catalog.replace(&CATALOG.replace("key: old", "key: older")).unwrap();
    let third = revision();
    assert!(first != second && second != third && first != third);
    catalog.replace(CATALOG).unwrap();
    assert_eq!(revision(), first, "the old content has its old revision");
}

#[test]
fn a_driver_cannot_tell_what_is_missing_from_what_is_not_its_own() {
    let said = |denied: Denied| denied.public_message();
    let missing = said(Denied::Missing("class x".to_owned()));
    assert_eq!(missing, said(Denied::Foreign("class x".to_owned())));
    assert_eq!(missing, said(Denied::Unreferenced(secret("x"))));
    assert!(!missing.contains('x'));
}

#[test]
fn a_secret_of_another_namespace_is_handed_out_only_where_the_rule_says_so() {
    let catalog = Static::from_yaml(
        "
apiVersion: a.dev/v1
kind: RedClass
metadata: {name: thief}
secretRef: {name: own}
credentialsSecretRef: {name: theirs, namespace: vault}
---
apiVersion: v1
kind: Secret
metadata: {name: own}
---
apiVersion: v1
kind: Secret
metadata: {name: theirs, namespace: vault}
",
    )
    .unwrap();
    let ground = |secrets_from: &[&str]| Ground {
        key: key("RedClass", None),
        namespaces: Namespaces::All,
        secrets_from: Namespaces::Only(secrets_from.iter().map(ToString::to_string).collect()),
    };
    let thief = id("RedClass", "default", "thief");
    let theirs = SecretName::new("vault", "theirs");

    let none: Territory = [ground(&[])].into_iter().collect();
    let scope = Scope::new(&*catalog, &none);
    for denied in [
        scope.secret_of(&thief).unwrap_err(),
        scope.secret(&theirs).unwrap_err(),
        // Its answer would hold the other one as well.
        scope.secret(&secret("own")).unwrap_err(),
    ] {
        assert!(matches!(denied, Denied::Elsewhere { .. }), "{denied:?}");
    }
    let named: Territory = [ground(&["vault"])].into_iter().collect();
    let scope = Scope::new(&*catalog, &named);
    assert!(scope.secret_of(&thief).unwrap().is_some());
    assert!(scope.secret(&theirs).is_ok());
}
