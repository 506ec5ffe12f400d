use std::time::Duration;

use serde_json::json;

use super::*;
use crate::{
    auth::{Ground, Namespaces},
    catalog::{Catalog as _, snapshot::Store},
    driver::DriverKey,
};

fn kind() -> Kind {
    Kind { api_version: "a.b/v1".into(), kind: "XClass".into() }
}

fn class(name: &str, secret: serde_json::Value) -> Class {
    Class::from_object(json!({
        "apiVersion": "a.b/v1", "kind": "XClass",
        "metadata": {"name": name, "namespace": "home"},
        "spec": {"secretRef": secret},
    }))
    .unwrap()
}

fn secret(name: &str, value: &str) -> Secret {
    Secret::from_object(json!({
        "metadata": {"name": name, "namespace": "home"}, "stringData": {"k": value},
    }))
    .unwrap()
}

fn name(name: &str) -> SecretName {
    SecretName::new("home", name)
}

/// Secrets come from the classes' own namespace, and from these.
fn territory(secrets_from: &[&str]) -> Territory {
    let key = DriverKey { api_version: "a.b/v1".into(), kind: "XClass".into(), provider: None };
    let secrets_from = secrets_from.iter().map(ToString::to_string).collect();
    let secrets_from = Namespaces::Only(secrets_from);
    [Ground { key, namespaces: Namespaces::All, secrets_from }].into_iter().collect()
}

fn served() -> Known {
    let mut known = Known::default();
    known.serve(territory(&[]));
    known
}

fn later(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn problems(known: &Known) -> Vec<String> {
    known.problems().iter().map(ToString::to_string).collect()
}

#[test]
fn a_kind_is_current_once_it_was_listed_and_says_why_not_before() {
    let mut known = served();
    let reading = known.reading(&kind());
    assert_eq!(reading, Reading::Never("classes of XClass (a.b/v1) are being read".to_owned()));
    known.troubled(&kind(), "no CRD".to_owned());
    assert_eq!(known.reading(&kind()), Reading::Never("no CRD".to_owned()));
    assert_eq!(problems(&known), ["no CRD"]);
    known.listed(&kind(), Vec::new(), later(1));
    assert_eq!(known.reading(&kind()), Reading::Current);
    assert!(problems(&known).is_empty());
    known.troubled(&kind(), "no rights".to_owned());
    assert_eq!(known.reading(&kind()), Reading::Stale("no rights".to_owned()));
}

#[test]
fn a_class_that_is_gone_is_kept_and_marked_whether_that_was_told_or_found_out() {
    let mut known = served();
    let (told, found) = (class("told", json!(null)), class("found", json!(null)));
    let (told_id, found_id) = (told.id.clone(), found.id.clone());
    known.listed(&kind(), vec![Ok(told), Ok(found)], later(1));
    known.deleted(&told_id, &kind(), later(2));
    known.listed(&kind(), Vec::new(), later(3));
    let store = Store::new(known.snapshot());
    assert_eq!(store.class(&told_id).unwrap().deleted, Some(later(2)));
    assert_eq!(store.class(&found_id).unwrap().deleted, Some(later(3)));

    known.put(&kind(), Ok(class("told", json!(null))));
    let store = Store::new(known.snapshot());
    assert_eq!(store.class(&told_id).unwrap().deleted, None, "it is back");
}

#[test]
fn of_many_deleted_classes_the_newest_are_kept() {
    let mut known = served();
    let all = (0..KEPT + 2).map(|n| class(&format!("c{n}"), json!(null)));
    let all: Vec<_> = all.collect();
    let ids: Vec<_> = all.iter().map(|class| class.id.clone()).collect();
    known.listed(&kind(), all.into_iter().map(Ok).collect(), later(0));
    for (n, id) in ids.iter().enumerate() {
        known.deleted(id, &kind(), later(n as u64));
    }
    let store = Store::new(known.snapshot());
    assert_eq!(store.classes().len(), KEPT);
    assert!(store.class(&ids[1]).is_none());
    assert!(store.class(&ids[2]).is_some());
}

#[test]
fn a_class_that_cannot_be_read_leaves_its_last_state_in_force() {
    let mut known = served();
    let before = class("a", json!(null));
    let id = before.id.clone();
    known.put(&kind(), Ok(before));
    known.put(&kind(), Err((id.clone(), "secretRef.name must be a string".to_owned())));
    assert_eq!(problems(&known), ["XClass home/a: secretRef.name must be a string"]);
    assert!(Store::new(known.snapshot()).class(&id).unwrap().deleted.is_none());
    known.listed(&kind(), vec![Err((id.clone(), "wrong".to_owned()))], later(1));
    let store = Store::new(known.snapshot());
    assert!(store.class(&id).unwrap().deleted.is_none(), "it is there");
    known.deleted(&id, &kind(), later(2));
    assert!(problems(&known).is_empty());
}

#[test]
fn only_secrets_that_a_served_class_names_are_wanted() {
    let mut known = Known::default();
    known.put(&kind(), Ok(class("a", json!({"name": "s"}))));
    assert!(known.wanted().is_empty(), "no driver serves it");
    known.serve(territory(&[]));
    assert_eq!(known.wanted(), [name("s")].into());
    // Its machines are still to be deleted.
    known.deleted(&class("a", json!(null)).id, &kind(), later(1));
    assert_eq!(known.wanted(), [name("s")].into());
}

#[test]
fn a_secret_of_another_namespace_is_wanted_only_if_the_policy_names_that() {
    let mut known = served();
    known.put(&kind(), Ok(class("a", json!({"name": "s", "namespace": "other"}))));
    assert!(known.wanted().is_empty());
    let [problem] = &problems(&known)[..] else { panic!("one problem") };
    assert!(problem.contains("XClass home/a refers to the secret other/s of another"), "{problem}");
    known.serve(territory(&["other"]));
    assert_eq!(known.wanted(), [SecretName::new("other", "s")].into());
    assert!(problems(&known).is_empty());
}

#[test]
fn a_secret_that_is_missing_or_deleted_is_told_with_the_class_that_names_it() {
    let mut known = served();
    known.put(&kind(), Ok(class("a", json!({"name": "s"}))));
    assert!(problems(&known).is_empty(), "nobody has asked so far");
    known.secret(&name("s"), None, later(1));
    let missing = "XClass home/a refers to the secret home/s, which does not exist";
    assert_eq!(problems(&known), [missing]);

    known.secret(&name("s"), Some(Ok(secret("s", "one"))), later(2));
    assert!(problems(&known).is_empty());
    known.secret(&name("s"), None, later(3));
    known.secret(&name("s"), None, later(4));
    let kept = Store::new(known.snapshot()).secret(&name("s")).unwrap();
    assert_eq!(kept.deleted(), Some(later(3)));
    assert_eq!(kept.revision(), secret("s", "one").revision());
    assert!(problems(&known)[0].contains("which was deleted"), "{:?}", problems(&known));

    assert!(known.forget_others(&BTreeSet::new()));
    assert!(Store::new(known.snapshot()).secret(&name("s")).is_none());
}

#[test]
fn trouble_with_a_secret_is_told_and_over_with_the_next_answer() {
    let mut known = served();
    known.put(&kind(), Ok(class("a", json!({"name": "s"}))));
    known.secret_troubled(&name("s"), "may not".to_owned());
    assert_eq!(problems(&known), ["may not"]);
    known.secret(&name("s"), Some(Ok(secret("s", "one"))), later(1));
    assert!(problems(&known).is_empty());
}
