//! Classes and secrets out of the broker's JSON.

use std::{collections::BTreeMap, mem::take};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use broker_proto::v1 as wire;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::{Class, LookupError};
use crate::secret::{Secret, Sensitive};

pub(super) fn class(reply: &wire::MachineClass) -> Result<Class, LookupError> {
    refused(&reply.error)?;
    match serde_json::from_str(&reply.data) {
        Ok(object @ serde_json::Value::Object(_)) => Ok(Class { object }),
        Ok(_) => Err(LookupError::Malformed("the class is not an object".to_owned())),
        Err(error) => Err(LookupError::Malformed(format!("the class: {error}"))),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    #[serde(default)]
    data: BTreeMap<String, Zeroizing<String>>,
    #[serde(default)]
    string_data: BTreeMap<String, Zeroizing<String>>,
}

pub(super) fn secret(reply: &wire::Secret) -> Result<Secret, LookupError> {
    refused(&reply.error)?;
    // Neither error below may quote its input: serde's messages can, so only the place is told.
    let object: Object = serde_json::from_str(&reply.data).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        LookupError::Malformed(format!("the secret is not valid at {line}:{column}"))
    })?;
    let decoded = object.data.into_iter().map(|(key, value)| match BASE64.decode(value.trim()) {
        Ok(bytes) => Ok((key, Sensitive::new(bytes))),
        Err(_) => Err(LookupError::Malformed(format!("the secret's {key} is not base64"))),
    });
    let plain = object
        .string_data
        .into_iter()
        .map(|(key, mut text)| Ok((key, Sensitive::new(take(&mut *text)))));
    decoded.chain(plain).collect()
}

/// Historic brokers say it in the reply instead of the status.
fn refused(error: &str) -> Result<(), LookupError> {
    if error.is_empty() { Ok(()) } else { Err(LookupError::NotFound(error.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_secret(data: &str) -> Result<Secret, LookupError> {
        secret(&wire::Secret { data: data.to_owned(), error: String::new(), revision: 0 })
    }

    #[test]
    fn values_are_decoded_and_plain_ones_win() {
        let secret =
            read_secret(r#"{"data": {"a": "MQ==", "b": "Mg=="}, "stringData": {"b": "x"}}"#)
                .unwrap();
        assert_eq!(secret.get("a").and_then(Sensitive::as_str), Some("1"));
        assert_eq!(secret.get("b").and_then(Sensitive::as_str), Some("x"));
    }

    #[test]
    fn errors_never_quote_the_secret() {
        for broken in [r#"{"data": {"a": "hunter2!"}}"#, r#"{"data": "hunter2"}"#, "hunter2"] {
            let error = read_secret(broken).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_spec_is_found_under_both_names() {
        for (object, wanted) in [
            (r#"{"spec": {"n": 1}, "providerSpec": {"n": 2}}"#, 1),
            (r#"{"providerSpec": {"n": 2}}"#, 2),
        ] {
            let reply = wire::MachineClass { data: object.to_owned(), ..Default::default() };
            let spec: BTreeMap<String, i32> = class(&reply).unwrap().spec().unwrap();
            assert_eq!(spec["n"], wanted);
        }
    }
}
