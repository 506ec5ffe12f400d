//! One secret, in a type that cannot be printed.

use std::{collections::BTreeMap, fmt, io, sync::Arc, time::SystemTime};

use base64::{Engine as _, display::Base64Display, prelude::BASE64_STANDARD};
use broker_secret::Sensitive;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use zeroize::{Zeroize as _, Zeroizing};

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
/// [`Secret::to_json`] is the only way out. Its memory is wiped when it is dropped.
pub struct Secret {
    name: SecretName,
    revision: i32,
    envelope: Envelope,
    data: BTreeMap<String, Sensitive>,
    deleted: Option<SystemTime>,
}

/// The object without its data, to be given back as it came. Wiped all the same: `kubectl apply` writes
/// the whole object into an annotation.
#[derive(Clone, Serialize)]
#[serde(transparent)]
struct Envelope(Map<String, Value>);

/// The object as it goes to a driver.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    envelope: &'a Envelope,
    data: BTreeMap<&'a str, Base64<'a>>,
}

/// Encoded while it is written, so that there is no text of it to wipe.
struct Base64<'a>(&'a Sensitive);

impl Secret {
    /// Reads a `v1/Secret`, `stringData` folded over `data`, as the API server does it. The error
    /// is a sentence for the object's author and quotes no value.
    pub fn from_object(mut object: Value) -> Result<Self, String> {
        let (namespace, name) = metadata::namespace_and_name(&mut object)?;
        let Value::Object(envelope) = object else {
            return Err("a secret must be an object".to_owned());
        };
        let mut envelope = Envelope(envelope);
        let mut data = BTreeMap::new();
        for (key, value) in entries(&mut envelope.0, "data")? {
            let value = decode(&value).ok_or_else(|| {
                let place = place("data", &key);
                format!("{place} is not valid base64; plain text belongs into stringData")
            })?;
            data.insert(key, value);
        }
        for (key, mut value) in entries(&mut envelope.0, "stringData")? {
            data.insert(key, Sensitive::new(std::mem::take(&mut *value)));
        }
        let kind = envelope.0.get("type").and_then(Value::as_str).unwrap_or_default();
        let revision = content_revision(kind, &data);
        let name = SecretName { namespace, name };
        Ok(Self { name, revision, envelope, data, deleted: None })
    }

    /// The same as one that was deleted.
    pub fn as_deleted(&self, at: SystemTime) -> Self {
        Self {
            name: self.name.clone(),
            revision: self.revision,
            envelope: self.envelope.clone(),
            data: self.data.clone(),
            deleted: Some(at),
        }
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
            deleted: base.deleted.or(credentials.deleted),
        }
    }

    /// When it was taken out of the catalog. It is kept so that machines can be deleted.
    pub fn deleted(&self) -> Option<SystemTime> {
        self.deleted
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
    pub fn to_json(&self) -> Zeroizing<String> {
        let data = self.data.iter().map(|(key, value)| (key.as_str(), Base64(value))).collect();
        let whole = Whole { envelope: &self.envelope, data };
        let mut json = Zeroizing::new(Vec::with_capacity(self.size_as_json()));
        serde_json::to_writer(&mut *json, &whole).expect("a map of texts can be written");
        Zeroizing::new(String::from_utf8(std::mem::take(&mut *json)).expect("JSON is text"))
    }

    /// Enough for [`Secret::to_json`]: a text that grows would leave pieces of itself behind.
    fn size_as_json(&self) -> usize {
        let mut envelope = Counted(0);
        serde_json::to_writer(&mut envelope, &self.envelope).expect("counting cannot fail");
        let entry = |(key, value): (&String, &Sensitive)| 6 * key.len() + 2 * value.len() + 16;
        envelope.0 + self.data.iter().map(entry).sum::<usize>() + 64
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({}, {} keys)", self.name, self.data.len())
    }
}

impl Drop for Envelope {
    fn drop(&mut self) {
        self.0.values_mut().for_each(wipe);
    }
}

impl Serialize for Base64<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(self.0.reveal(), &BASE64_STANDARD))
    }
}

/// Counts what is written to it.
struct Counted(usize);

impl io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Overwrites every text in an object that is of no more use.
pub(super) fn wipe(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(values) => values.iter_mut().for_each(wipe),
        Value::Object(fields) => fields.values_mut().for_each(wipe),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The revision of a merged secret, from those of its parts, so that it is known without merging.
pub(super) fn merged_revision(base: i32, credentials: i32) -> i32 {
    revision::of_both(base, credentials)
}

/// Only what a driver uses: a new label is no rotation.
fn content_revision(kind: &str, data: &BTreeMap<String, Sensitive>) -> i32 {
    let data = data.iter().flat_map(|(key, value)| [key.as_bytes(), value.reveal()]);
    revision::of_parts(std::iter::once(kind.as_bytes()).chain(data))
}

/// Takes a map of strings out of the object. A key without a value is an empty string.
fn entries(
    object: &mut Map<String, Value>,
    field: &'static str,
) -> Result<Vec<(String, Zeroizing<String>)>, String> {
    let entries = match object.remove(field) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(entries)) => entries,
        Some(mut other) => {
            wipe(&mut other);
            return Err(format!("{field} must map keys to strings"));
        }
    };
    entries
        .into_iter()
        .map(|(key, value)| match value {
            Value::String(value) => Ok((key, Zeroizing::new(value))),
            Value::Null => Ok((key, Zeroizing::default())),
            _ => Err(format!("{} must be a string: put it in quotes", place(field, &key))),
        })
        .collect()
}

/// Where a value stands. What cannot be a key is not quoted: it may be a value in the wrong place.
fn place(field: &str, key: &str) -> String {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if key.len() <= 253 && key.bytes().all(allowed) {
        format!("{field}.{key}")
    } else {
        format!("a value of {field}")
    }
}

/// Line breaks are allowed, as in Go: people wrap long values.
fn decode(text: &str) -> Option<Sensitive> {
    let mut digits = Zeroizing::new(Vec::with_capacity(text.len()));
    digits.extend(text.bytes().filter(|byte| !byte.is_ascii_whitespace()));
    BASE64_STANDARD.decode(&*digits).ok().map(Sensitive::new)
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
