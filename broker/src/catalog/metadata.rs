//! What every Kubernetes object says of itself: its name and its namespace.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{DEFAULT_NAMESPACE, valid_name};

/// Reads namespace and name out of `metadata`. An object that names no namespace is in the default
/// one, and is given it here, so that whoever reads the object later sees where it lives.
pub(super) fn namespace_and_name(object: &mut Value) -> Result<(Arc<str>, Arc<str>), String> {
    let metadata = match object.get_mut("metadata") {
        Some(Value::Object(metadata)) => metadata,
        _ => return Err("metadata.name is missing".to_owned()),
    };
    let name: Arc<str> = string(metadata, "name")?.ok_or("metadata.name is missing")?.into();
    valid_name(&name).map_err(|error| format!("metadata.name: {error}"))?;
    let namespace: Arc<str> = match string(metadata, "namespace")? {
        Some(namespace) => namespace.into(),
        None => {
            metadata.insert("namespace".to_owned(), DEFAULT_NAMESPACE.into());
            DEFAULT_NAMESPACE.into()
        }
    };
    valid_name(&namespace).map_err(|error| format!("metadata.namespace: {error}"))?;
    Ok((namespace, name))
}

/// An empty string counts as absent, as everywhere in Kubernetes.
fn string<'a>(metadata: &'a Map<String, Value>, field: &str) -> Result<Option<&'a str>, String> {
    match metadata.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("metadata.{field} must be a string: put it in quotes")),
    }
}
