//! One secret, in a type that cannot be printed.

use std::{collections::BTreeMap, fmt, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Map, Value};

use super::{metadata, revision};

/// The full name of one secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretName {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl SecretName {
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A `v1/Secret`. It has no `Display` and no `Serialize`, and its `Debug` shows no value:
/// [`Secret::to_json`] is the only way out.
pub struct Secret {
    name: SecretName,
    revision: i32,
    /// The object without its data, to be given back as it came.
    envelope: Map<String, Value>,
    data: BTreeMap<String, Vec<u8>>,
}

impl Secret {
    /// Reads a `v1/Secret`, `stringData` folded over `data`, as the API server does it. The error
    /// is a sentence for the object's author and quotes no value.
    pub fn from_object(mut object: Value) -> Result<Self, String> {
        let (namespace, name) = metadata::namespace_and_name(&mut object)?;
        let Value::Object(mut envelope) = object else {
            return Err("a secret must be an object".to_owned());
        };
        let mut data = BTreeMap::new();
        for (key, value) in entries(&mut envelope, "data")? {
            let value = decode(&value).ok_or_else(|| {
                format!("data.{key} is not valid base64; plain text belongs into stringData")
            })?;
            data.insert(key, value);
        }
        for (key, value) in entries(&mut envelope, "stringData")? {
            data.insert(key, value.into_bytes());
        }
        let kind = envelope.get("type").and_then(Value::as_str).unwrap_or_default();
        let revision = content_revision(kind, &data);
        Ok(Self { name: SecretName { namespace, name }, revision, envelope, data })
    }

    /// The keys of both, those of `credentials` winning, under the identity of `base`.
    pub fn merged(base: &Self, credentials: &Self) -> Self {
        let mut data = base.data.clone();
        data.extend(credentials.data.iter().map(|(key, value)| (key.clone(), value.clone())));
        Self {
            name: base.name.clone(),
            revision: merged_revision(base.revision, credentials.revision),
            envelope: base.envelope.clone(),
            data,
        }
    }

    pub fn name(&self) -> &SecretName {
        &self.name
    }

    /// Changes whenever the data does; the same on every replica and after every restart.
    pub fn revision(&self) -> i32 {
        self.revision
    }

    /// The whole `v1/Secret` as JSON, the values of `data` in base64. Whoever calls this hands a
    /// secret out.
    pub fn to_json(&self) -> String {
        let mut object = self.envelope.clone();
        let data = self
            .data
            .iter()
            .map(|(key, value)| (key.clone(), BASE64_STANDARD.encode(value).into()))
            .collect();
        object.insert("data".to_owned(), Value::Object(data));
        Value::Object(object).to_string()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({}, {} keys)", self.name, self.data.len())
    }
}

/// The revision of a merged secret, from those of its parts, so that it is known without merging.
pub(super) fn merged_revision(base: i32, credentials: i32) -> i32 {
    revision::of_both(base, credentials)
}

/// Only what a driver uses: a new label is no rotation.
fn content_revision(kind: &str, data: &BTreeMap<String, Vec<u8>>) -> i32 {
    let data = data.iter().flat_map(|(key, value)| [key.as_bytes(), value.as_slice()]);
    revision::of_parts(std::iter::once(kind.as_bytes()).chain(data))
}

/// Takes a map of strings out of the object. A key without a value is an empty string.
fn entries(
    object: &mut Map<String, Value>,
    field: &'static str,
) -> Result<Vec<(String, String)>, String> {
    let entries = match object.remove(field) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(entries)) => entries,
        Some(_) => return Err(format!("{field} must map keys to strings")),
    };
    entries
        .into_iter()
        .map(|(key, value)| match value {
            Value::String(value) => Ok((key, value)),
            Value::Null => Ok((key, String::new())),
            _ => Err(format!("{field}.{key} must be a string: put it in quotes")),
        })
        .collect()
}

/// Line breaks are allowed, as in Go: people wrap long values.
fn decode(text: &str) -> Option<Vec<u8>> {
    let text: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    BASE64_STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret(name: &str, fields: Value) -> Secret {
        let mut object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
        let fields = fields.as_object().unwrap().clone();
        object.as_object_mut().unwrap().extend(fields);
        Secret::from_object(object).unwrap()
    }

    fn data(secret: &Secret) -> Value {
        serde_json::from_str::<Value>(&secret.to_json()).unwrap()["data"].clone()
    }

    #[test]
    fn string_data_wins_over_data_and_leaves_as_base64() {
        let secret = secret(
            "s",
            json!({
                "type": "Opaque",
                "data": {"a": "b25l\n", "b": "dHdv", "empty": null},
                "stringData": {"b": "three"},
            }),
        );
        assert_eq!(data(&secret), json!({"a": "b25l", "b": "dGhyZWU=", "empty": ""}));
        let object: Value = serde_json::from_str(&secret.to_json()).unwrap();
        assert_eq!(object["kind"], "Secret");
        assert_eq!(object["type"], "Opaque");
        assert_eq!(object["metadata"], json!({"name": "s", "namespace": "default"}));
        assert_eq!(object.get("stringData"), None);
    }

    #[test]
    fn the_credentials_win_in_a_merged_secret_and_the_base_keeps_its_name() {
        let base = secret("base", json!({"stringData": {"userData": "u", "key": "old"}}));
        let credentials = secret("credentials", json!({"stringData": {"key": "new"}}));
        let merged = Secret::merged(&base, &credentials);
        assert_eq!(merged.name(), base.name());
        assert_eq!(data(&merged), json!({"userData": "dQ==", "key": "bmV3"}));
        assert_ne!(merged.revision(), base.revision());
        assert_ne!(merged.revision(), Secret::merged(&credentials, &base).revision());
    }

    #[test]
    fn a_secret_does_not_print_its_values() {
        let secret = secret("s", json!({"stringData": {"password": "hunter2"}}));
        assert_eq!(format!("{secret:?}"), "Secret(default/s, 1 keys)");
        assert_eq!(format!("{secret:#?}"), "Secret(default/s, 1 keys)");
    }

    #[test]
    fn only_the_data_makes_a_new_revision() {
        let one = secret("s", json!({"stringData": {"a": "1"}}));
        let same = secret(
            "s",
            json!({"data": {"a": "MQ=="}, "metadata": {"name": "s", "labels": {"x": "y"}}}),
        );
        assert_eq!(one.revision(), same.revision());
        let moved = secret("s", json!({"stringData": {"a1": ""}}));
        assert_ne!(one.revision(), moved.revision());
    }

    #[test]
    fn a_wrong_value_is_named_and_not_quoted() {
        for (fields, says) in [
            (json!({"data": {"password": "hunter2!"}}), "data.password is not valid base64"),
            (json!({"stringData": {"pin": 1234}}), "stringData.pin must be a string"),
            (json!({"data": "hunter2"}), "data must map keys to strings"),
        ] {
            let mut object = fields;
            object["metadata"] = json!({"name": "s"});
            let error = Secret::from_object(object).unwrap_err();
            assert!(error.contains(says), "{error}");
            assert!(!error.contains("hunter2") && !error.contains("1234"), "{error}");
        }
    }
}
