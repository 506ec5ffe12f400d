//! One machine class, as read from a Kubernetes object of either shape.

use std::{fmt, sync::Arc, time::SystemTime};

use broker_proto::v1::{ClassRef, MachineClassMeta};
use bytes::Bytes;
use prost::Message as _;
use serde_json::Value;

use super::{SecretName, class_name, metadata, revision, valid_name};
use crate::{
    audit,
    driver::{ClassId, DriverKey, Realm},
};

/// A machine class. Its content is the driver's business; the broker reads who it is, whose it is
/// and which secrets belong to it.
pub struct Class {
    pub id: ClassId,
    /// How drivers ask for it, as a `MachineClassMeta`, encoded: by its historic absolute API path. It is in
    /// every operation.
    pub meta: Bytes,
    /// The id as a `ClassRef`, encoded: it is in every operation.
    pub reference: Bytes,
    /// Where its machines have their names.
    pub realm: Arc<Realm>,
    /// The id in lines of the audit log.
    pub in_audit: audit::Class,
    /// What its drivers serve: its kind, and which of several drivers of a shared one it is meant for.
    pub key: Arc<DriverKey>,
    /// Changes whenever the content does; the same on every replica and after every restart.
    pub revision: i32,
    /// The whole object as JSON.
    pub json: String,
    pub secret_ref: Option<SecretName>,
    /// Its keys win over those of `secret_ref`.
    pub credentials_ref: Option<SecretName>,
    /// What the API calls several of its kind.
    pub plural: Arc<str>,
    /// When it was taken out of the catalog. It is kept so that its machines can be deleted; new ones
    /// are not made from it.
    pub deleted: Option<SystemTime>,
}

impl Class {
    /// Reads an object of the 2018 shape (`spec.secretRef`) or of today's (`provider`, `secretRef`
    /// and `credentialsSecretRef` at top level). The error is a sentence for the object's author.
    pub fn from_object(mut object: Value) -> Result<Self, String> {
        let (namespace, name) = metadata::namespace_and_name(&mut object)?;
        let field = |field| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (field("apiVersion"), field("kind"));
        class_name::valid_api_version(api_version)
            .map_err(|error| format!("apiVersion: {error}"))?;
        class_name::valid_kind(kind).map_err(|error| format!("kind: {error}"))?;
        let id = ClassId { api_version: api_version.into(), kind: kind.into(), namespace, name };

        let provider = match object.get("provider") {
            None | Some(Value::Null) => None,
            Some(Value::String(provider)) if provider.is_empty() => None,
            Some(Value::String(provider)) => Some(provider.as_str().into()),
            Some(_) => return Err("provider must be a string".to_owned()),
        };
        let secret_ref = reference(&object, "secretRef", &id)?;
        let credentials_ref = reference(&object, "credentialsSecretRef", &id)?;
        let revision = revision::of_object(&object);
        let plural = Arc::from(class_name::plural(&id.kind));
        Ok(Self {
            meta: meta(class_name::path(&id, &plural), revision),
            reference: encoded(&id),
            realm: id.realm(),
            in_audit: audit::Class::from(&id),
            key: Arc::new(DriverKey {
                api_version: id.api_version.clone(),
                kind: id.kind.clone(),
                provider,
            }),
            plural,
            id,
            revision,
            json: object.to_string(),
            secret_ref,
            credentials_ref,
            deleted: None,
        })
    }

    /// The same where the API has another word for several of them than one would guess.
    pub fn with_plural(self, plural: &str) -> Self {
        let meta = meta(class_name::path(&self.id, plural), self.revision);
        Self { meta, plural: plural.into(), ..self }
    }

    /// The same as one that was deleted.
    pub fn as_deleted(&self, at: SystemTime) -> Self {
        Self {
            id: self.id.clone(),
            meta: self.meta.clone(),
            reference: self.reference.clone(),
            realm: self.realm.clone(),
            in_audit: self.in_audit.clone(),
            key: self.key.clone(),
            revision: self.revision,
            json: self.json.clone(),
            secret_ref: self.secret_ref.clone(),
            credentials_ref: self.credentials_ref.clone(),
            plural: self.plural.clone(),
            deleted: Some(at),
        }
    }

    /// The secrets that it names.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretName> {
        self.secret_ref.iter().chain(&self.credentials_ref)
    }
}

/// Without the content, in which authors have been seen to put what belongs into a secret.
impl fmt::Debug for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Class")
            .field("id", &self.id)
            .field("provider", &self.key.provider)
            .field("revision", &self.revision)
            .field("secret_ref", &self.secret_ref)
            .field("credentials_ref", &self.credentials_ref)
            .field("deleted", &self.deleted)
            .finish_non_exhaustive()
    }
}

fn meta(name: String, revision: i32) -> Bytes {
    MachineClassMeta { name, revision, ..Default::default() }.encode_to_vec().into()
}

fn encoded(id: &ClassId) -> Bytes {
    let reference = ClassRef {
        api_version: id.api_version.to_string(),
        kind: id.kind.to_string(),
        namespace: id.namespace.to_string(),
        name: id.name.to_string(),
        provider: String::new(),
    };
    reference.encode_to_vec().into()
}

/// The secret that `field` names, at top level or else under `spec`. A reference without a
/// namespace means the class's own.
fn reference(object: &Value, field: &str, class: &ClassId) -> Result<Option<SecretName>, String> {
    let set = |value: &&Value| !value.is_null();
    let Some(reference) = object
        .get(field)
        .filter(set)
        .or_else(|| object.get("spec").and_then(|spec| spec.get(field)).filter(set))
    else {
        return Ok(None);
    };
    let Value::Object(reference) = reference else {
        return Err(format!("{field} must have the fields name and, if need be, namespace"));
    };
    let part = |part: &str| match reference.get(part) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => match valid_name(text) {
            Ok(()) => Ok(Some(Arc::from(text.as_str()))),
            Err(error) => Err(format!("{field}.{part}: {error}")),
        },
        Some(_) => Err(format!("{field}.{part} must be a string: put it in quotes")),
    };
    // `secretRef: {}` is how Go writes a reference that is not there.
    let Some(name) = part("name")? else { return Ok(None) };
    let namespace = part("namespace")?.unwrap_or_else(|| class.namespace.clone());
    Ok(Some(SecretName { namespace, name }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret(namespace: &str, name: &str) -> Option<SecretName> {
        Some(SecretName::new(namespace, name))
    }

    #[test]
    fn the_shape_of_2018_is_read() {
        let class = Class::from_object(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1",
            "kind": "AWSMachineClass",
            "metadata": {"name": "test-aws", "namespace": "shoot"},
            "spec": {"ami": "ami-1", "secretRef": {"name": "s", "namespace": "other"}},
        }))
        .unwrap();
        assert_eq!(class.id.to_string(), "AWSMachineClass shoot/test-aws");
        assert_eq!(class.key.provider, None);
        assert_eq!(class.secret_ref, secret("other", "s"));
        assert_eq!(class.credentials_ref, None);
    }

    #[test]
    fn the_shape_of_today_is_read_and_a_reference_stays_in_the_classes_namespace() {
        let class = Class::from_object(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1",
            "kind": "MachineClass",
            "metadata": {"name": "a", "namespace": "shoot"},
            "provider": "AWS",
            "providerSpec": {},
            "secretRef": {"name": "s"},
            "credentialsSecretRef": {"name": "c", "namespace": ""},
        }))
        .unwrap();
        assert_eq!(class.key.provider.as_deref(), Some("AWS"));
        assert_eq!(class.secret_ref, secret("shoot", "s"));
        assert_eq!(class.credentials_ref, secret("shoot", "c"));
    }

    #[test]
    fn a_class_without_a_namespace_is_in_the_default_one_and_says_so() {
        let object = |metadata| json!({"apiVersion": "a.b/v1", "kind": "XClass", "metadata": metadata, "spec": {}});
        let bare = Class::from_object(object(json!({"name": "a"}))).unwrap();
        let full =
            Class::from_object(object(json!({"name": "a", "namespace": "default"}))).unwrap();
        assert_eq!(bare.id, full.id);
        assert_eq!(bare.revision, full.revision);
        let json: Value = serde_json::from_str(&bare.json).unwrap();
        assert_eq!(json["metadata"]["namespace"], "default");
    }

    #[test]
    fn an_empty_reference_is_none_and_a_wrong_one_is_an_error() {
        let with = |reference| {
            Class::from_object(json!({
                "apiVersion": "a.b/v1", "kind": "XClass", "metadata": {"name": "a"},
                "secretRef": reference,
            }))
        };
        assert_eq!(with(json!({})).unwrap().secret_ref, None);
        assert_eq!(with(json!({"name": "", "namespace": ""})).unwrap().secret_ref, None);
        for (wrong, says) in [
            (json!("s"), "secretRef must have"),
            (json!({"name": 7}), "secretRef.name must be a string"),
            (json!({"name": "../s"}), "secretRef.name: "),
        ] {
            let error = with(wrong).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
