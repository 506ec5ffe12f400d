//! The token file: names, and digests of their tokens.

use std::{cell::LazyCell, sync::Arc, time::SystemTime};

use arc_swap::ArcSwap;
use futures::{FutureExt as _, future::BoxFuture};
use serde::Deserialize;
use serde_saphyr::Spanned;
use zeroize::Zeroizing;

use super::{Authenticator, Bearer, CannotTell, Holder, Identity, identity};

/// Texts that YAML takes for something else.
const RESERVED: [&str; 6] = ["null", "true", "false", "yes", "no", "-"];

/// The tokens of a file. Cheap to clone: every clone is the same.
#[derive(Clone, Debug)]
pub struct TokenFile {
    entries: Arc<ArcSwap<Vec<Entry>>>,
}

#[derive(Debug)]
struct Entry {
    identity: Identity,
    token: Bearer,
    expires: Option<SystemTime>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    tokens: Vec<Spanned<EntryText>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryText {
    name: String,
    sha256: String,
    expires: Option<String>,
}

impl TokenFile {
    pub fn new(text: &str) -> Result<Self, String> {
        let entries = read(text)?;
        Ok(Self { entries: Arc::new(ArcSwap::from_pointee(entries)) })
    }

    /// Takes over what the file says now, or leaves everything as it was.
    pub(super) fn take(&self, text: &str) -> Result<(), String> {
        self.entries.store(Arc::new(read(text)?));
        Ok(())
    }
}

impl Authenticator for TokenFile {
    fn holder(&self, token: Bearer) -> BoxFuture<'_, Result<Option<Holder>, CannotTell>> {
        let found = self.knows(&token);
        async { Ok(found) }.boxed()
    }

    fn knows(&self, token: &Bearer) -> Option<Holder> {
        // Most have no end.
        let now = LazyCell::new(SystemTime::now);
        let entries = self.entries.load();
        // All of them, so that the time taken tells nothing of which one is right.
        let mut found = None;
        for entry in entries.iter() {
            let valid = entry.expires.is_none_or(|expires| *now < expires);
            if (entry.token == *token) & valid {
                found = Some(Holder {
                    identity: entry.identity.clone(),
                    expires: entry.expires,
                    by_text: false,
                });
            }
        }
        found
    }
}

/// A new token of 256 random bits, and the entry for the file. The token is shown once and kept nowhere.
pub fn make(name: &str) -> Result<(Zeroizing<String>, String), String> {
    check_name(name)?;
    let digits = Zeroizing::new(hex::encode(rand::random::<[u8; 32]>()));
    let token = Zeroizing::new(format!("mb_{}", *digits));
    let entry = format!("- name: {name}\n  sha256: {}\n", Bearer::new(token.as_bytes()).to_hex());
    Ok((token, entry))
}

fn read(text: &str) -> Result<Vec<Entry>, String> {
    let options = serde_saphyr::options! { with_snippet: false };
    let file: FileText = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| unquoted(&error.to_string()))?;
    let mut entries: Vec<Entry> = Vec::new();
    for text in file.tokens {
        let line = text.referenced.line();
        let entry = entry(text.value).map_err(|problem| format!("line {line}: {problem}"))?;
        if entries.iter().any(|other| other.token == entry.token) {
            return Err(format!("line {line}: the same token is there twice"));
        }
        entries.push(entry);
    }
    Ok(entries)
}

fn entry(text: EntryText) -> Result<Entry, String> {
    check_name(&text.name)?;
    let token = Bearer::from_hex(&text.sha256).ok_or(
        "sha256 must be 64 hexadecimal digits, the digest of the token and not the token itself; \
         `machine-broker tokens new NAME` makes both",
    )?;
    let expires = text.expires.map(|time| {
        humantime::parse_rfc3339(&time)
            .map_err(|_| "expires must be a time like 2027-01-31T00:00:00Z".to_owned())
    });
    Ok(Entry { identity: Identity::token(&text.name), token, expires: expires.transpose()? })
}

fn check_name(name: &str) -> Result<(), String> {
    // What YAML reads as the same text, quoted or not.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@/".contains(c);
    if identity::is_usable(name) && name.chars().all(plain) && !RESERVED.contains(&name) {
        return Ok(());
    }
    Err("a name consists of letters, digits and any of -_.@/ and is not very long".to_owned())
}

/// A parser may quote what it read, and somebody may have written a token there.
fn unquoted(error: &str) -> String {
    let line = error.split("line ").nth(1).and_then(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        (!digits.is_empty()).then_some(digits)
    });
    let what = "not a list of `tokens`, each with `name`, `sha256` and perhaps `expires`";
    match line {
        Some(line) => format!("line {line}: {what}"),
        None => what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(file: &TokenFile, token: &str) -> Option<String> {
        let holder = file.holder(Bearer::new(token.as_bytes())).now_or_never().unwrap();
        holder.unwrap().map(|holder| holder.identity.to_string())
    }

    #[test]
    fn a_new_token_is_known_by_its_entry_alone() {
        let (token, entry) = make("alice").unwrap();
        assert!(!entry.contains(token.as_str()));
        let file = TokenFile::new(&format!("tokens:\n{entry}")).unwrap();
        assert_eq!(known(&file, &token).as_deref(), Some("token:alice"));
        assert_eq!(known(&file, &token[1..]), None);
        assert_eq!(known(&file, ""), None);
    }

    #[test]
    fn an_expired_token_is_not_known() {
        let (token, entry) = make("alice").unwrap();
        for (expires, is_known) in [("2020-01-01T00:00:00Z", false), ("2999-01-01T00:00:00Z", true)]
        {
            let text = format!("tokens:\n{entry}  expires: {expires}\n");
            let file = TokenFile::new(&text).unwrap();
            assert_eq!(known(&file, &token).is_some(), is_known, "{expires}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line_and_without_what_stands_there() {
        let secret = "hunter2hunter2";
        for text in [
            format!("tokens:\n- name: a\n  sha256: {secret}\n"),
            format!("tokens:\n- name: a\n  token: {secret}\n"),
            format!("tokens:\n- {secret}\n"),
            format!("{secret}\n"),
            format!("tokens:\n- name: a\n  sha256: [{secret}\n"),
        ] {
            let error = TokenFile::new(&text).unwrap_err();
            assert!(!error.contains(secret), "{error}");
            assert!(error.contains("sha256"), "{error}");
        }
    }

    #[test]
    fn a_broken_file_leaves_the_tokens_as_they_were() {
        let (token, entry) = make("alice").unwrap();
        let file = TokenFile::new(&format!("tokens:\n{entry}")).unwrap();
        assert!(file.take("tokens: [").is_err());
        assert!(known(&file, &token).is_some());
        file.take("tokens: []\n").unwrap();
        assert!(known(&file, &token).is_none());
    }

    #[test]
    fn tokens_do_not_print() {
        let (token, entry) = make("alice").unwrap();
        let file = TokenFile::new(&format!("tokens:\n{entry}")).unwrap();
        let digest = Bearer::new(token.as_bytes()).to_hex();
        assert!(!format!("{file:?}").contains(&digest[..8]));
    }
}
