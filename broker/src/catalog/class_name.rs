//! The names of classes as they travel, and which names are names at all.
//!
//! A driver may name a class in three ways: `name` (in the namespace `default`),
//! `namespace/name`, and the historic absolute API path
//! `/apis/<group>/<version>/namespaces/<namespace>/<plural>/<name>` (`/api/<version>/…` for the
//! core group). Parsing is strict, with no decoding and no repair: a name that looks like a path
//! upwards or a query is wrong, and never reaches anything that could read it so.

use super::DEFAULT_NAMESPACE;
use crate::driver::ClassId;

/// What Kubernetes allows for the name of an object.
pub const MAX_NAME: usize = 253;
/// What Kubernetes allows for one label: a version, a kind, a plural.
const MAX_LABEL: usize = 63;
/// No well-formed name comes near it; what is longer is not even looked at.
const MAX_WIRE_NAME: usize = 1024;

/// A class as a driver named it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassName<'a> {
    /// Of whichever kind.
    Short { namespace: &'a str, name: &'a str },
    /// Of the kind with this plural.
    Path { api_version: &'a str, plural: &'a str, namespace: &'a str, name: &'a str },
}

impl<'a> ClassName<'a> {
    pub fn namespace(&self) -> &'a str {
        match self {
            Self::Short { namespace, .. } | Self::Path { namespace, .. } => namespace,
        }
    }
}

/// Why a text names no class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the class name is {length} bytes long, more than {MAX_WIRE_NAME}")]
    TooLong { length: usize },

    #[error(
        "a class is named as name, namespace/name or \
         /apis/<group>/<version>/namespaces/<namespace>/<plural>/<name>"
    )]
    Form,

    #[error("bad {part} of a class: {reason}")]
    Part { part: &'static str, reason: NameError },
}

/// Why a text is not a name. Reads well after "machine name: ".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("it is empty")]
    Empty,

    #[error("it is {length} bytes long, more than {limit}")]
    TooLong { length: usize, limit: usize },

    #[error("it contains {0:?}; lower-case letters, digits, '-' and '.' are allowed")]
    Character(char),

    #[error("each part between dots must begin and end with a lower-case letter or a digit")]
    Edge,

    #[error("it must be group/version, or version alone")]
    ApiVersion,

    #[error("it must be letters and digits, beginning with a letter")]
    Kind,
}

/// Checks the name of a machine, class, secret or namespace: a DNS-1123 subdomain.
pub fn valid_name(name: &str) -> Result<(), NameError> {
    check(name, MAX_NAME)
}

/// Checks `group/version`, or `version` for the core group.
pub fn valid_api_version(api_version: &str) -> Result<(), NameError> {
    let (group, version) = match api_version.split_once('/') {
        Some((group, version)) => (Some(group), version),
        None => (None, api_version),
    };
    if api_version.is_empty() {
        return Err(NameError::Empty);
    }
    if version.is_empty() || version.contains(['/', '.']) || group == Some("") {
        return Err(NameError::ApiVersion);
    }
    group.map_or(Ok(()), valid_name)?;
    check(version, MAX_LABEL)
}

/// Checks a kind such as `AWSMachineClass`.
pub fn valid_kind(kind: &str) -> Result<(), NameError> {
    // Two for the ending of the plural, which is a label too.
    let limit = MAX_LABEL - 2;
    match kind.bytes().next() {
        None => Err(NameError::Empty),
        Some(_) if kind.len() > limit => Err(NameError::TooLong { length: kind.len(), limit }),
        Some(first)
            if first.is_ascii_alphabetic() && kind.bytes().all(|b| b.is_ascii_alphanumeric()) =>
        {
            Ok(())
        }
        Some(_) => Err(NameError::Kind),
    }
}

/// Reads a class name in any of its forms.
pub fn parse(text: &str) -> Result<ClassName<'_>, Error> {
    if text.len() > MAX_WIRE_NAME {
        return Err(Error::TooLong { length: text.len() });
    }
    if text.starts_with('/') {
        return parse_path(text);
    }
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (part("namespace", namespace)?, name),
        None => (DEFAULT_NAMESPACE, text),
    };
    Ok(ClassName::Short { namespace, name: part("name", name)? })
}

/// The absolute API path of a class.
pub fn path(id: &ClassId, plural: &str) -> String {
    let root = if id.api_version.contains('/') { "apis" } else { "api" };
    let ClassId { api_version, namespace, name, .. } = id;
    format!("/{root}/{api_version}/namespaces/{namespace}/{plural}/{name}")
}

/// The plural of a kind where nobody says otherwise: `AWSMachineClass` becomes `awsmachineclasses`.
pub fn plural(kind: &str) -> String {
    let kind = kind.to_ascii_lowercase();
    let hisses = ["s", "x", "z", "ch", "sh"].iter().any(|ending| kind.ends_with(ending));
    kind + if hisses { "es" } else { "s" }
}

fn parse_path(text: &str) -> Result<ClassName<'_>, Error> {
    let (api_version, rest) = if let Some(rest) = text.strip_prefix("/apis/") {
        let (group, after) = rest.split_once('/').ok_or(Error::Form)?;
        let (version, _) = after.split_once('/').ok_or(Error::Form)?;
        part("group", group)?;
        label("version", version)?;
        // Both, as they stand in the path: `group/version`.
        rest.split_at(group.len() + 1 + version.len())
    } else if let Some(rest) = text.strip_prefix("/api/") {
        let (version, _) = rest.split_once('/').ok_or(Error::Form)?;
        label("version", version)?;
        rest.split_at(version.len())
    } else {
        return Err(Error::Form);
    };
    let rest = rest.strip_prefix("/namespaces/").ok_or(Error::Form)?;
    let mut parts = rest.split('/');
    let (Some(namespace), Some(plural), Some(name), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Error::Form);
    };
    Ok(ClassName::Path {
        api_version,
        plural: label("plural", plural)?,
        namespace: part("namespace", namespace)?,
        name: part("name", name)?,
    })
}

fn part<'a>(part: &'static str, text: &'a str) -> Result<&'a str, Error> {
    valid_name(text).map(|()| text).map_err(|reason| Error::Part { part, reason })
}

fn label<'a>(part: &'static str, text: &'a str) -> Result<&'a str, Error> {
    let reason = match check(text, MAX_LABEL) {
        Ok(()) if !text.contains('.') => return Ok(text),
        Ok(()) => NameError::Character('.'),
        Err(reason) => reason,
    };
    Err(Error::Part { part, reason })
}

const PLAIN: u8 = 1;
const HYPHEN: u8 = 2;
const OTHER: u8 = 4;
/// What each byte is in a name.
const LETTERS: [u8; 256] = {
    let mut letters = [OTHER; 256];
    let mut at = 0;
    while at < 256 {
        match at as u8 {
            b'a'..=b'z' | b'0'..=b'9' => letters[at] = PLAIN,
            b'-' => letters[at] = HYPHEN,
            _ => {}
        }
        at += 1;
    }
    letters
};

fn check(name: &str, limit: usize) -> Result<(), NameError> {
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.len() > limit {
        return Err(NameError::TooLong { length: name.len(), limit });
    }
    // Every operation has names, and most have neither dots nor mistakes.
    let seen = name.bytes().fold(0, |seen, byte| seen | LETTERS[usize::from(byte)]);
    if seen & !(PLAIN | HYPHEN) == 0 {
        let edge = name.starts_with('-') || name.ends_with('-');
        return if edge { Err(NameError::Edge) } else { Ok(()) };
    }
    // Before the first it is as after a dot.
    let (mut before, mut bad_edge) = (b'.', false);
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' => {}
            b'-' => bad_edge |= before == b'.',
            b'.' => bad_edge |= matches!(before, b'.' | b'-'),
            _ => return Err(NameError::Character(first_strange(name))),
        }
        before = byte;
    }
    if bad_edge || matches!(before, b'.' | b'-') { Err(NameError::Edge) } else { Ok(()) }
}

fn first_strange(name: &str) -> char {
    let allowed = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '-' | '.');
    name.chars().find(|c| !allowed(*c)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HISTORIC: &str =
        "/apis/machine.sapcloud.io/v1alpha1/namespaces/default/awsmachineclasses/test-aws";

    #[test]
    fn every_form_is_read() {
        assert_eq!(parse("small"), Ok(ClassName::Short { namespace: "default", name: "small" }));
        assert_eq!(parse("a/b.c"), Ok(ClassName::Short { namespace: "a", name: "b.c" }));
        assert_eq!(
            parse(HISTORIC),
            Ok(ClassName::Path {
                api_version: "machine.sapcloud.io/v1alpha1",
                plural: "awsmachineclasses",
                namespace: "default",
                name: "test-aws",
            })
        );
        assert_eq!(
            parse("/api/v1/namespaces/n/things/x"),
            Ok(ClassName::Path { api_version: "v1", plural: "things", namespace: "n", name: "x" })
        );
    }

    #[test]
    fn the_historic_path_of_a_class_is_what_the_client_of_2018_was_given() {
        let id = ClassId {
            api_version: "machine.sapcloud.io/v1alpha1".into(),
            kind: "AWSMachineClass".into(),
            namespace: "default".into(),
            name: "test-aws".into(),
        };
        assert_eq!(path(&id, &plural(&id.kind)), HISTORIC);
    }

    #[test]
    fn kinds_have_their_plurals() {
        for (kind, expected) in [
            ("SimMachineClass", "simmachineclasses"),
            ("Box", "boxes"),
            ("Buzz", "buzzes"),
            ("Branch", "branches"),
            ("Mesh", "meshes"),
            ("Template", "templates"),
        ] {
            assert_eq!(plural(kind), expected);
        }
    }

    #[test]
    fn what_is_not_exactly_a_name_is_refused() {
        for text in [
            "",
            "/",
            "//",
            "a/",
            "/a",
            "a/b/c",
            "..",
            "../a",
            "a/..",
            "A",
            "a b",
            "a%2fb",
            "a?watch=1",
            "a#b",
            "a\0",
            "ä",
            "-a",
            "a-",
            "a..b",
            ".a",
            "/apis",
            "/apis/",
            "/apis/g/v1/namespaces/n/things",
            "/apis/g/v1/namespaces/n/things/x/",
            "/apis/g/v1/namespaces/n/things/x/status",
            "/apis/g/v1/namespaces//things/x",
            "/apis/g/v1/namespaces/n/things/..",
            "/apis/g/v1/things/x",
            "/apis//v1/namespaces/n/things/x",
            "/apis/g/v1.2/namespaces/n/things/x",
            "/apis/g/v1/namespaces/n/things.y/x",
            "/apis/v1/namespaces/n/things/x",
            "/api/g/v1/namespaces/n/things/x",
            "/version/v1/namespaces/n/things/x",
            " /apis/g/v1/namespaces/n/things/x",
            "https://host/apis/g/v1/namespaces/n/things/x",
        ] {
            assert!(parse(text).is_err(), "{text:?} was read as {:?}", parse(text));
        }
    }

    #[test]
    fn each_kind_of_bad_name_has_its_own_clear_message() {
        let message = |name: &str| valid_name(name).unwrap_err().to_string();
        assert_eq!(message(""), "it is empty");
        assert_eq!(message(&"a".repeat(254)), "it is 254 bytes long, more than 253");
        assert!(message("Worker").starts_with("it contains 'W'; "));
        assert!(message("a\nb").starts_with("it contains '\\n'; "));
        assert!(message("-a").starts_with("each part between dots"));
        assert_eq!(valid_name(&"a".repeat(253)), Ok(()));
        assert_eq!(
            parse(&"a".repeat(5000)).unwrap_err().to_string(),
            "the class name is 5000 bytes long, more than 1024"
        );
        assert_eq!(parse("shoot/").unwrap_err().to_string(), "bad name of a class: it is empty");
    }

    #[test]
    fn api_versions_and_kinds_are_checked() {
        for good in ["v1", "v1alpha1", "apps/v1", "sim.machinebroker.dev/v1alpha1"] {
            assert_eq!(valid_api_version(good), Ok(()), "{good}");
        }
        for bad in ["", "/v1", "a/", "a/b/c", "a//b", "A/v1", "g/v1.0", "..", "g/.."] {
            assert!(valid_api_version(bad).is_err(), "{bad}");
        }
        for good in ["A", "AWSMachineClass", "class2"] {
            assert_eq!(valid_kind(good), Ok(()), "{good}");
        }
        for bad in ["", "2a", "a/b", "a-b", "ä", &"a".repeat(62)] {
            assert!(valid_kind(bad).is_err(), "{bad}");
        }
    }

    fn name() -> impl Strategy<Value = String> {
        "[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]{0,9}[a-z0-9])?){0,3}"
    }

    proptest! {
        #[test]
        fn a_path_names_the_class_it_was_made_of(
            group in proptest::option::of(name()),
            version in "v[0-9][a-z0-9]{0,10}",
            kind in "[A-Za-z][A-Za-z0-9]{0,60}",
            namespace in name(),
            name in name(),
        ) {
            let api_version = group.map_or(version.clone(), |group| format!("{group}/{version}"));
            prop_assert_eq!(valid_api_version(&api_version), Ok(()));
            prop_assert_eq!(valid_kind(&kind), Ok(()));
            let id = ClassId {
                api_version: api_version.as_str().into(),
                kind: kind.as_str().into(),
                namespace: namespace.as_str().into(),
                name: name.as_str().into(),
            };
            let plural = plural(&kind);
            let path = path(&id, &plural);
            prop_assert_eq!(parse(&path), Ok(ClassName::Path {
                api_version: &api_version,
                plural: &plural,
                namespace: &namespace,
                name: &name,
            }));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC*|[-a-z./%]*|/apis?/[-a-z./]*") {
            let parsed = parse(&text);
            drop((valid_name(&text), valid_api_version(&text), valid_kind(&text), plural(&text)));
            // Whatever was accepted can be written into a path again without a way out of it.
            if let Ok(ClassName::Short { namespace, name } | ClassName::Path { namespace, name, .. }) = parsed {
                prop_assert!(!namespace.contains(['/', '%', '?']) && !name.contains(['/', '%', '?']));
                prop_assert!(!name.contains("..") && !namespace.contains(".."));
            }
        }
    }
}
