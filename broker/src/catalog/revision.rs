//! Revisions: a number that changes when the content does.
//!
//! A revision is a hash of the content, not a counter. Drivers cache by (name, revision) over
//! reconnects and over several broker replicas: a counter would start again with each process and
//! differ between replicas, so that equal numbers could stand for different contents, and a driver
//! would go on with a class or a password of yesterday. For the same reason the hash function is one
//! that stays as it is: the standard library's may change with any release of Rust.

use std::hash::Hasher as _;

use serde_json::Value;
use siphasher::sip::SipHasher13;

/// The revision of a Kubernetes object: what its author says of it, whichever shape it has. Of the
/// metadata only who it is: the rest is the API server's bookkeeping, which changes when nothing did or
/// differs between two clusters that hold the same thing, and labels and annotations, with which tools
/// mark objects that they do not change. A `generation` would say the same, where a kind has one, and
/// would not be the same in two clusters.
pub(super) fn of_object(object: &Value) -> i32 {
    let mut digest = Digest::new();
    match object {
        Value::Object(fields) => digest.map(
            fields,
            |name| name != "status",
            |digest, name, value| match value {
                Value::Object(metadata) if name == "metadata" => {
                    let identity = |name: &str| name == "name" || name == "namespace";
                    digest.map(metadata, identity, |digest, _, value| digest.value(value));
                }
                value => digest.value(value),
            },
        ),
        other => digest.value(other),
    }
    digest.revision()
}

/// The revision of a list of byte strings.
pub(super) fn of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> i32 {
    let mut digest = Digest::new();
    for part in parts {
        digest.bytes(part);
    }
    digest.revision()
}

/// The revision of what is made of two things, where 0 stands for one that is missing.
pub(super) fn of_both(first: i32, second: i32) -> i32 {
    of_parts([&first.to_be_bytes()[..], &second.to_be_bytes()[..]])
}

/// Every item goes in with its type and length, so that no two contents have the same encoding.
struct Digest(SipHasher13);

impl Digest {
    fn new() -> Self {
        Self(SipHasher13::new())
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    fn tag(&mut self, tag: u8, length: usize) {
        self.raw(&[tag]);
        self.raw(&(length as u64).to_be_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.tag(b's', bytes.len());
        self.raw(bytes);
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.tag(b'0', 0),
            Value::Bool(value) => self.tag(b'b', usize::from(*value)),
            Value::Number(number) => {
                let text = number.to_string();
                self.tag(b'n', text.len());
                self.raw(text.as_bytes());
            }
            Value::String(text) => self.bytes(text.as_bytes()),
            Value::Array(items) => {
                self.tag(b'a', items.len());
                for item in items {
                    self.value(item);
                }
            }
            Value::Object(fields) => {
                self.map(fields, |_| true, |digest, _, value| digest.value(value))
            }
        }
    }

    /// Sorted here, since whether `serde_json` keeps its maps sorted is decided by a feature that
    /// any crate of the build can turn on.
    fn map(
        &mut self,
        fields: &serde_json::Map<String, Value>,
        counts: impl Fn(&str) -> bool,
        mut each: impl FnMut(&mut Self, &str, &Value),
    ) {
        let mut fields: Vec<_> = fields.iter().filter(|(name, _)| counts(name)).collect();
        fields.sort_unstable_by_key(|(name, _)| name.as_str());
        self.tag(b'm', fields.len());
        for (name, value) in fields {
            self.bytes(name.as_bytes());
            each(self, name, value);
        }
    }

    /// Positive, since 0 on the wire means "none" and historic drivers hold it as a signed number.
    fn revision(self) -> i32 {
        i32::try_from(self.0.finish() & 0x7fff_ffff).expect("31 bits fit").max(1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_order_of_fields_does_not_matter_and_every_value_does() {
        let one: Value = serde_json::from_str(r#"{"a":1,"b":{"c":[1,2]}}"#).unwrap();
        let same: Value = serde_json::from_str(r#"{"b":{"c":[1,2]},"a":1}"#).unwrap();
        assert_eq!(of_object(&one), of_object(&same));
        for other in [
            json!({"a": 1, "b": {"c": [2, 1]}}),
            json!({"a": "1", "b": {"c": [1, 2]}}),
            json!({"a": 1, "b": {"c": [1, 2]}, "d": null}),
            json!({"a": 1, "b": {"c": ["1", 2]}}),
        ] {
            assert_ne!(of_object(&one), of_object(&other), "{other}");
        }
    }

    #[test]
    fn bookkeeping_of_the_api_server_and_marks_of_tools_are_not_content() {
        let plain = json!({"metadata": {"name": "a"}, "spec": {"status": 1}});
        let stored = json!({
            "metadata": {"name": "a", "resourceVersion": "7", "uid": "x", "managedFields": [],
                "generation": 4, "labels": {"seen": "yes"}, "annotations": {"a": "b"}},
            "spec": {"status": 1},
            "status": {"phase": "Ready"},
        });
        assert_eq!(of_object(&plain), of_object(&stored));
        // Only in those places.
        assert_ne!(of_object(&plain), of_object(&json!({"metadata": {"name": "a"}, "spec": {}})));
    }

    #[test]
    fn revisions_stay_what_they_are_over_releases() {
        // If this fails, every driver's cache is thrown away with the update: is that meant?
        assert_eq!(of_object(&json!({"kind": "A", "spec": {"n": 1, "x": null}})), 2_072_463_014);
        assert_eq!(of_both(1, 2), 1_851_557_808);
    }

    proptest! {
        #[test]
        fn a_revision_is_positive(text in ".*", a: i32, b: i32) {
            let object = of_object(&json!({"x": text}));
            prop_assert!(object > 0);
            prop_assert!(of_both(a, b) > 0);
        }
    }
}
