//! Who somebody proved to be.

use std::{
    fmt,
    sync::{Arc, LazyLock},
};

const MAX_LENGTH: usize = 512;

/// A proven name, marked with what proved it, so that no certificate can carry the name of a token, nor
/// a common name that of a SPIFFE id:
///
/// | | |
/// |---|---|
/// | `spiffe://cluster/ns/drivers` | URI name of a certificate |
/// | `dns:driver.example` | DNS name of a certificate without a URI name |
/// | `cn:driver` | common name of a certificate with neither |
/// | `token:alice` | name of a token in the token file |
/// | `child:sim` | driver program that the broker started |
/// | `system:serviceaccount:ns:name` | service account of the cluster, by a review of its token |
/// | `anonymous` | nobody: no credential was shown |
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity(Arc<str>);

impl Identity {
    pub fn anonymous() -> Self {
        // Everyone is, until more is known.
        static ANONYMOUS: LazyLock<Identity> = LazyLock::new(|| Identity("anonymous".into()));
        ANONYMOUS.clone()
    }

    pub fn token(name: &str) -> Self {
        Self(format!("token:{name}").into())
    }

    /// By the name of its program, which may be any that a file can have.
    pub fn child(name: &str) -> Self {
        let usable = |c: char| if is_usable(c.encode_utf8(&mut [0; 4])) { c } else { '_' };
        Self(format!("child:{}", name.chars().map(usable).collect::<String>()).into())
    }

    /// By the first usable name: URI, else DNS, else common name. `None` if it has none.
    pub fn of_certificate(
        uris: &[String],
        dns: &[String],
        common_name: Option<&str>,
    ) -> Option<Self> {
        let uri = uris.iter().find(|uri| is_authority_uri(uri)).cloned();
        let name = uri
            .or_else(|| dns.first().map(|name| format!("dns:{}", name.to_ascii_lowercase())))
            .or_else(|| common_name.map(|name| format!("cn:{name}")))?;
        is_usable(&name).then(|| Self(name.into()))
    }

    /// As an operator writes it: for questions about the policy.
    pub fn named(name: &str) -> Option<Self> {
        (is_usable(name) && has_form(name)).then(|| Self(name.into()))
    }

    pub(super) fn is_anonymous(&self) -> bool {
        &*self.0 == "anonymous"
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// `scheme://…`. "child:x" and "child:x://y" are URIs as well, and must not pass for what we call so.
fn is_authority_uri(uri: &str) -> bool {
    let scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    uri.split_once("://").is_some_and(|(before, after)| {
        !before.is_empty() && before.chars().all(scheme) && !after.is_empty()
    })
}

/// What an identity looks like, for people who mistype one.
pub const FORMS: &str = "write spiffe://… (or another URI), dns:NAME, cn:NAME, token:NAME, child:NAME, \
     system:serviceaccount:NAMESPACE:NAME or anonymous";

/// Whether somebody can be called so, or begin so: all others would be in a policy for nothing.
pub(super) fn has_form(name: &str) -> bool {
    let proven = ["dns:", "cn:", "token:", "child:", "system:"];
    name == "anonymous"
        || is_authority_uri(name)
        || name
            .split_once("://")
            .is_some_and(|(scheme, rest)| !scheme.is_empty() && rest.is_empty())
        || proven.iter().any(|prefix| name.starts_with(prefix))
}

/// Names end in logs and are compared with patterns that end in a star.
pub(super) fn is_usable(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MAX_LENGTH
        && name.chars().all(|c| !c.is_control() && !c.is_whitespace() && c != '*')
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(uris: &[&str], dns: &[&str], common_name: Option<&str>) -> Option<String> {
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        Identity::of_certificate(&owned(uris), &owned(dns), common_name)
            .map(|identity| identity.to_string())
    }

    #[test]
    fn a_uri_goes_before_a_dns_name_and_that_before_the_common_name() {
        let uri = "spiffe://cluster/driver";
        assert_eq!(identity(&[uri], &["d.example"], Some("d")).as_deref(), Some(uri));
        assert_eq!(identity(&[], &["D.example"], Some("d")).as_deref(), Some("dns:d.example"));
        assert_eq!(identity(&[], &[], Some("d")).as_deref(), Some("cn:d"));
        assert_eq!(identity(&[], &[], None), None);
    }

    #[test]
    fn no_name_passes_for_one_that_was_proven_otherwise() {
        for uri in ["token:alice", "child:x://y", "dns:a://b", "://x", "spiffe://"] {
            assert_eq!(identity(&[uri], &[], Some("x")).as_deref(), Some("cn:x"), "{uri}");
        }
        let cn = identity(&[], &[], Some("spiffe://cluster/driver"));
        assert_eq!(cn.as_deref(), Some("cn:spiffe://cluster/driver"));
    }

    #[test]
    fn names_that_would_confuse_a_log_or_a_pattern_are_none() {
        let long = "x".repeat(MAX_LENGTH);
        for name in ["a b", "a\nb", "a*", "\u{7f}", &long] {
            assert_eq!(identity(&[], &[], Some(name)), None, "{name:?}");
        }
    }
}
