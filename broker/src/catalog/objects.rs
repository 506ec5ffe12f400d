//! Text in, objects out: ordinary Kubernetes YAML or JSON, several documents to a file.
//!
//! What becomes what:
//!
//! - `v1/Secret` is a secret.
//! - A `List` (`v1/List`, or any kind that ends in `List` and has `items`) is its items.
//! - Any other object is a machine class if its kind ends in `Class`, or if it has a `spec` or a
//!   `providerSpec`; unless it belongs to Kubernetes itself (`v1`, `apps/v1`, `….k8s.io/…`), whose
//!   Deployments and StorageClasses look alike and may well lie in the same folder.
//! - Everything else is left alone, with a note.
//!
//! Scalars are read as YAML 1.2 has it (`yes` is a word, not a truth), except that `0644` is octal
//! as for kubectl.

use std::{borrow::Cow, sync::Arc};

use serde_json::Value;
use serde_saphyr::{MessageFormatter, UserMessageFormatter};

use super::{Class, Secret, class_name, secret::wipe};

/// How a text is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Yaml,
    Json,
}

/// The objects of one text.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) classes: Vec<(Line, Arc<Class>)>,
    pub(super) secrets: Vec<(Line, Arc<Secret>)>,
    /// What was left alone, and why.
    pub(super) notes: Vec<Fault>,
}

/// Where an object begins, counted from 1.
pub(super) type Line = u64;

/// One remark about a text. Never quotes it, since it may hold secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) line: Option<Line>,
    pub(super) message: String,
}

/// Reads all objects of a text, or says everything that is wrong with it.
pub(super) fn read(text: &str, format: Format) -> Result<Objects, Vec<Fault>> {
    let documents = match format {
        Format::Yaml => yaml(text),
        Format::Json => json(text),
    };
    let mut objects = Objects::default();
    let mut faults = Vec::new();
    for (line, document) in documents.map_err(|fault| vec![fault])? {
        if let Err(message) = objects.add(line, document) {
            faults.push(Fault { line: Some(line), message });
        }
    }
    if faults.is_empty() { Ok(objects) } else { Err(faults) }
}

impl Objects {
    fn add(&mut self, line: Line, mut object: Value) -> Result<(), String> {
        let field = |field| match object.get(field) {
            Some(Value::String(text)) if !text.is_empty() => Ok(text.as_str()),
            _ => Err(format!("not a Kubernetes object: {field} is missing")),
        };
        let (api_version, kind) = (field("apiVersion")?, field("kind")?);
        let described = describe(kind, &object);
        match shape(api_version, kind, &object) {
            Shape::Secret => {
                let secret =
                    Secret::from_object(object).map_err(|error| format!("{described}: {error}"))?;
                self.secrets.push((line, Arc::new(secret)));
            }
            Shape::Class => {
                let class =
                    Class::from_object(object).map_err(|error| format!("{described}: {error}"))?;
                self.classes.push((line, Arc::new(class)));
            }
            Shape::List => {
                let Some(Value::Array(items)) = object.get_mut("items").map(Value::take) else {
                    return Ok(());
                };
                for item in items {
                    self.add(line, item)?;
                }
            }
            Shape::Other => {
                let version = class_name::valid_api_version(api_version).map(|()| api_version);
                let version = version.unwrap_or("without a valid apiVersion");
                let message = format!("{described} ({version}) is no machine class: left alone");
                self.notes.push(Fault { line: Some(line), message });
                wipe(&mut object);
            }
        }
        Ok(())
    }
}

enum Shape {
    Secret,
    Class,
    List,
    Other,
}

fn shape(api_version: &str, kind: &str, object: &Value) -> Shape {
    let has = |field| object.get(field).is_some_and(|value: &Value| !value.is_null());
    if api_version == "v1" && kind == "Secret" {
        Shape::Secret
    } else if kind.ends_with("List") && object.get("items").is_some_and(Value::is_array) {
        Shape::List
    } else if belongs_to_kubernetes(api_version) {
        Shape::Other
    } else if kind.ends_with("Class") || has("spec") || has("providerSpec") {
        Shape::Class
    } else {
        Shape::Other
    }
}

fn belongs_to_kubernetes(api_version: &str) -> bool {
    const GROUPS: [&str; 5] = ["apps", "autoscaling", "batch", "extensions", "policy"];
    match api_version.split_once('/') {
        Some((group, _)) => GROUPS.contains(&group) || group.ends_with(".k8s.io"),
        None => api_version == "v1",
    }
}

/// How the author calls the object, for a message about it. What is not a name is not quoted: it may be
/// anything, in the wrong place.
fn describe(kind: &str, object: &Value) -> String {
    let kind = Some(kind).filter(|kind| class_name::valid_kind(kind).is_ok());
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    let name = name.filter(|name| super::valid_name(name).is_ok());
    let (kind, name) = (kind.unwrap_or("object"), name.unwrap_or("(without a valid name)"));
    format!("{kind} {name}")
}

/// Says what is wrong without what stands there.
struct Discreet;

impl MessageFormatter for Discreet {
    fn format_message<'a>(&self, error: &'a serde_saphyr::Error) -> Cow<'a, str> {
        use serde_saphyr::Error;
        match error {
            Error::DuplicateMappingKey { .. } => "the same key is there twice".into(),
            Error::UnsupportedTag { .. } => "this tag is not known".into(),
            Error::NonFiniteFloat { .. } => "this number is not finite".into(),
            Error::QuotingRequired { .. } => "this text must be in quotes".into(),
            Error::Message { .. }
            | Error::SerdeInvalidType { .. }
            | Error::SerdeInvalidValue { .. } => "this value is not right".into(),
            other => UserMessageFormatter.format_message(other),
        }
    }
}

fn yaml(text: &str) -> Result<Vec<(Line, Value)>, Fault> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        legacy_octal_numbers: true,
        // A snippet would print the neighbourhood of the fault, which may be a secret.
        with_snippet: false,
        // The size of the text is bounded already. These let every honest file of that size
        // through, and no one grows beyond it by aliases.
        budget: serde_saphyr::budget! {
            max_documents: 50_000,
            max_nodes: 2_000_000,
            max_events: 4_000_000,
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 200_000 },
    };
    serde_saphyr::from_multiple_with_options::<serde_saphyr::Spanned<Value>>(text, options)
        .map(|documents| {
            documents
                .into_iter()
                .map(|document| (document.referenced.line(), document.value))
                .collect()
        })
        .map_err(|error| {
            let message = error.render_with_formatter(&Discreet);
            let Some(location) = error.location() else { return Fault { line: None, message } };
            let (line, column) = (location.line(), location.column());
            let message = told_once(&message, &format!(" at line {line}, column {column}"), column);
            Fault { line: Some(line), message }
        })
}

fn json(text: &str) -> Result<Vec<(Line, Value)>, Fault> {
    let mut documents = Vec::new();
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    loop {
        let rest = &text[stream.byte_offset()..];
        let begin = text.len() - rest.trim_start().len();
        let line = 1 + text[..begin].matches('\n').count() as Line;
        match stream.next() {
            Some(Ok(document)) => documents.push((line, document)),
            Some(Err(error)) => {
                let (line, column) = (error.line(), error.column() as u64);
                let place = format!(" at line {line} column {column}");
                let message = told_once(&error.to_string(), &place, column);
                return Err(Fault { line: Some(line as Line), message });
            }
            None => return Ok(documents),
        }
    }
}

/// The line stands before the message already.
fn told_once(message: &str, place: &str, column: u64) -> String {
    match message.strip_suffix(place) {
        Some(message) => format!("{message} (column {column})"),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(objects: &Objects) -> Vec<(Line, &str)> {
        objects.classes.iter().map(|(line, class)| (*line, &*class.id.name)).collect()
    }

    #[test]
    fn json_is_read_with_its_lines_tabs_and_all() {
        let text = "\n\t{\"apiVersion\": \"a.b/v1\", \"kind\": \"XClass\",\n\t\t\"metadata\": \
                    {\"name\": \"a\"}}\n\n{\"apiVersion\": \"a.b/v1\", \"kind\": \"XClass\", \
                    \"metadata\": {\"name\": \"b\"}}";
        assert_eq!(names(&read(text, Format::Json).unwrap()), [(2, "a"), (5, "b")]);
        let faults = read("{\n\"a\": 1,\n]", Format::Json).unwrap_err();
        assert_eq!(
            faults,
            [Fault { line: Some(3), message: "key must be a string (column 1)".to_owned() }]
        );
    }

    #[test]
    fn faults_of_yaml_are_told_with_line_and_column_in_plain_words() {
        let faults = |text| read(text, Format::Yaml).unwrap_err();
        let fault = |line, message: &str| [Fault { line: Some(line), message: message.to_owned() }];
        assert_eq!(
            faults("a: 1\nb: 2\na: 3\n"),
            fault(3, "the same key is there twice (column 1)")
        );
        assert_eq!(
            faults("a:\n\t- x\n"),
            fault(2, "tabs disallowed within this context (block indentation) (column 2)")
        );
        assert_eq!(faults("just text"), fault(1, "not a Kubernetes object: apiVersion is missing"));
    }

    #[test]
    fn typed_lists_are_their_items_and_other_objects_are_left_alone_with_a_note() {
        let text = "\
apiVersion: a.b/v1
kind: XClassList
items:
- {apiVersion: a.b/v1, kind: XClass, metadata: {name: one}}
---
apiVersion: a.b/v1
kind: Thing
metadata: {name: by-its-spec}
spec: {}
---
apiVersion: a.b/v1
kind: Thing
metadata: {name: without}
";
        let objects = read(text, Format::Yaml).unwrap();
        assert_eq!(names(&objects), [(1, "one"), (6, "by-its-spec")]);
        let note = "Thing without (a.b/v1) is no machine class: left alone".to_owned();
        assert_eq!(objects.notes, [Fault { line: Some(11), message: note }]);
    }

    #[test]
    fn a_large_honest_file_is_read() {
        let class = |n| {
            format!(
                "apiVersion: a.b/v1\nkind: XClass\nmetadata: {{name: c{n}}}\nspec: {{a: 1}}\n---\n"
            )
        };
        let text: String = (0..5000).map(class).collect();
        assert_eq!(read(&text, Format::Yaml).unwrap().classes.len(), 5000);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC*|([-a-z:{}\\[\\]&*|>!'\"# \n\t]|kind: |apiVersion: )*") {
            drop(read(&text, Format::Yaml));
            drop(read(&text, Format::Json));
        }
    }
}
