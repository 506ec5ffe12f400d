//! Files that people write.

use broker::{
    auth::{Act, Identity, Need, Policy, TokenFile},
    catalog::{Catalog as _, Scope, Static},
    driver::DriverKey,
};

/// Stands in the seeds wherever a secret would.
const SECRET: &str = "Hunter2/Hunter2";

pub(crate) const CATALOG_WORDS: &[&str] = &[
    "apiVersion: v1\n",
    "kind: Secret\n",
    "kind: SimClass\n",
    "kind: List\n",
    "items:\n",
    "- ",
    "metadata: {name: a}\n",
    "stringData: {a: Hunter2/Hunter2}\n",
    "data: {a: aHVudGVyMg==}\n",
    "secretRef: {name: a, namespace: b}\n",
    "spec:\n  ",
    "\n---\n",
    "&a ",
    "*a",
    "*Hunter2/Hunter2",
    "!!binary ",
    "!Hunter2/Hunter2 ",
    "<<: ",
    "{",
    "[",
    "\"",
    "'",
    "|\n",
    "? ",
    "\t",
    "\u{feff}",
    "%YAML 1.1\n",
    "null",
    "0777",
    "1e999",
];

pub(crate) const POLICY_WORDS: &[&str] = &[
    "rules:\n",
    "- who: ",
    "'*'",
    "[a, b]",
    "  driver: {kinds: ['*']}\n",
    "  controller: {kinds: [v1/Sim], verbs: [create], namespaces: [a]}\n",
    "  operator: steer\n",
    "  autoscaler: {kinds: ['*']}\n",
    "&a ",
    "*a",
    "spiffe://",
    "token:",
    "anonymous",
    "{",
    "[",
    "\n",
];

pub(crate) const TOKEN_WORDS: &[&str] = &[
    "tokens:\n",
    "- name: ",
    "  sha256: ",
    "  expires: 2027-01-31T00:00:00Z\n",
    "Hunter2/Hunter2",
    "*Hunter2/Hunter2",
    "!Hunter2/Hunter2 ",
    "0000000000000000000000000000000000000000000000000000000000000000",
    "&a ",
    "{",
    "[",
    "\n",
];

/// No word of what is told about a file is one of its secrets.
fn quotes_nothing(told: &str) {
    assert!(!told.contains(SECRET), "{told}");
    assert!(told.len() < 64 * 1024, "{} bytes are told", told.len());
}

pub(crate) fn catalog(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let catalog = match Static::from_yaml(text) {
        Ok(catalog) => catalog,
        Err(error) => return quotes_nothing(&format!("{error} {error:?}")),
    };
    for problem in catalog.problems() {
        quotes_nothing(&problem.to_string());
    }
    for class in catalog.classes() {
        assert_eq!(catalog.class(&class.id).map(|found| found.revision), Some(class.revision));
        let key = DriverKey {
            api_version: class.id.api_version.clone(),
            kind: class.id.kind.clone(),
            provider: None,
        };
        let territory = broker::auth::Territory::everywhere(&[key]);
        let scope = Scope::new(&*catalog, &territory);
        if let Ok(Some(secret)) = scope.secret_of(&class.id) {
            quotes_nothing(&format!("{secret:?} {secret:#?}"));
            let json = secret.to_json();
            assert!(json.starts_with('{') && json.ends_with('}'), "not an object");
        }
    }
}

pub(crate) fn policy(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let policy = match Policy::read(text) {
        Ok(policy) => policy,
        Err(error) => return assert!(error.to_string().len() < 64 * 1024),
    };
    let nobody = Identity::named("spiffe://nobody/ever").expect("a name");
    let is_named = !policy.lines_about(&nobody).is_empty();
    // As far as can be told without the policy's own eyes: no star and no such name, no rule about it.
    let could_be = ["*", "spiffe://nobody/ever", "\\"].iter().any(|part| text.contains(part));
    assert!(could_be || !is_named, "a rule names somebody whom the text does not");
    for need in [Need::Driver, Need::Controller, Need::Read, Need::Steer, Need::AnyRole] {
        // Who is not named may do nothing.
        assert!(is_named || policy.meets(&nobody, need).is_err(), "{need:?}");
    }
    for act in [Act::Read, Act::Steer] {
        let by = policy.allows(&nobody, act);
        assert!(is_named || by.is_err());
        // Whoever steers may look.
        let steers = policy.allows(&nobody, Act::Steer).is_ok();
        assert!(!steers || policy.allows(&nobody, Act::Read).is_ok());
    }
    assert!(policy.meets(&nobody, Need::Nothing).is_ok());
}

pub(crate) fn tokens(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match TokenFile::new(text) {
        Ok(file) => {
            // Names are told, whatever they look like. They have no quotes, and stand between some.
            let printed = format!("{file:?}");
            let beside_names: String = printed.split('"').step_by(2).collect();
            quotes_nothing(&beside_names);
            assert!(!beside_names.contains("0000000000000000"), "a digest is told: {printed}");
        }
        Err(told) => quotes_nothing(&told),
    }
}
