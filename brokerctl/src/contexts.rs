//! The file of contexts: brokers by name, each with its address and credentials, and which of them
//! is the current one. Tokens go from here to the wire and nowhere else.

use std::{
    collections::BTreeMap,
    env, fmt, fs,
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use broker_tls::Tls;
use serde::{Deserialize, Serialize};
use tonic::metadata::{Ascii, MetadataValue};
use zeroize::Zeroizing;

use crate::{Exit, Failure, args::Address};

/// Readable and writable by its owner alone.
const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_FOLDER: u32 = 0o700;

#[derive(Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Contexts {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    #[serde(default)]
    pub(crate) contexts: BTreeMap<String, Context>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Context {
    pub(crate) address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<Secret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cert: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) server_name: Option<String>,
}

/// Something to keep to oneself.
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(transparent)]
pub(crate) struct Secret(Zeroizing<String>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

/// A token as the wire wants it. It does not print either.
pub(crate) type Bearer = MetadataValue<Ascii>;

/// The file, which need not exist.
#[derive(Debug)]
pub(crate) struct File {
    path: PathBuf,
}

impl File {
    /// The given one, or the one in the home folder.
    pub(crate) fn find(given: Option<PathBuf>) -> Result<Self, Failure> {
        if let Some(path) = given {
            return Ok(Self { path });
        }
        let home = env::home_dir().filter(|home| !home.as_os_str().is_empty());
        let home = home.ok_or_else(|| {
            wrong("there is no home folder to keep contexts in").advise("set BROKERCTL_CONFIG")
        })?;
        Ok(Self { path: home.join(".config/brokerctl/contexts.yaml") })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn load(&self) -> Result<Contexts, Failure> {
        let place = self.path.display();
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => Zeroizing::new(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Contexts::default()),
            Err(error) => {
                return Err(wrong(format!("cannot read the contexts in {place}: {error}")));
            }
        };
        if text.trim().is_empty() {
            return Ok(Contexts::default());
        }
        // Without the library's excerpt of the file, which may show a token.
        let options = serde_saphyr::options! { with_snippet: false };
        serde_saphyr::from_str_with_options(&text, options).map_err(|error| {
            wrong(format!("{place} is no file of contexts: {error}"))
                .advise("it looks like `contexts: {dev: {address: 127.0.0.1:5000}}`")
        })
    }

    /// Replaces the file as a whole, so that nobody ever sees half of it.
    pub(crate) fn save(&self, contexts: &Contexts) -> Result<(), Failure> {
        self.write(contexts).map_err(|error| {
            let place = self.path.display();
            Failure::new(Exit::Failed, format!("cannot write the contexts to {place}: {error}"))
        })
    }

    fn write(&self, contexts: &Contexts) -> io::Result<()> {
        let text = Zeroizing::new(serde_saphyr::to_string(contexts).map_err(io::Error::other)?);
        // Through a link, as people keep such files elsewhere.
        let target = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        if let Some(folder) = target.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::DirBuilder::new().recursive(true).mode(PRIVATE_FOLDER).create(folder)?;
        }
        let mut draft = target.clone().into_os_string();
        draft.push(format!(".{}", std::process::id()));
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE).open(&draft)?;
        let written = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&draft, target));
        if written.is_err() {
            drop(fs::remove_file(&draft));
        }
        written
    }

    /// Whether others than its owner may read the file.
    pub(crate) fn is_open(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
    }

    /// The token of a context, from the file it names where it does not have it itself.
    pub(crate) fn bearer(&self, name: &str, context: &Context) -> Result<Option<Bearer>, Failure> {
        let whose = format!("the token of context {name}");
        match (&context.token, &context.token_file) {
            (Some(Secret(token)), _) => bearer(token, &whose).map(Some),
            (None, Some(file)) => bearer_in(&self.beside(file), &whose).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// What a context says of TLS.
    pub(crate) fn tls(&self, context: &Context) -> Tls {
        let file = |file: &Option<PathBuf>| file.as_ref().map(|file| self.beside(file));
        Tls {
            ca: file(&context.ca),
            cert: file(&context.cert),
            key: file(&context.key),
            server_name: context.server_name.clone(),
        }
    }

    /// Names in the file are relative to its own folder.
    fn beside(&self, file: &Path) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(file)
    }
}

/// The token in a file; `whose` is for people.
pub(crate) fn bearer_in(file: &Path, whose: &str) -> Result<Bearer, Failure> {
    let token = fs::read_to_string(file)
        .map_err(|error| wrong(format!("cannot read {whose} in {}: {error}", file.display())))?;
    bearer(&token, whose)
}

fn bearer(token: &str, whose: &str) -> Result<Bearer, Failure> {
    let token = token.trim();
    let mut bearer: Bearer = match format!("Bearer {token}").parse() {
        Ok(bearer) if !token.is_empty() => bearer,
        _ => return Err(wrong(format!("{whose} is empty, or not ASCII"))),
    };
    bearer.set_sensitive(true);
    Ok(bearer)
}

impl Contexts {
    /// The named context, or else the current one. There may be none.
    pub(crate) fn choose(&self, name: Option<&str>) -> Result<Option<(&str, &Context)>, Failure> {
        let Some(name) = name.or(self.current.as_deref()) else { return Ok(None) };
        self.get(name).map(Some)
    }

    pub(crate) fn get(&self, name: &str) -> Result<(&str, &Context), Failure> {
        let found =
            self.contexts.get_key_value(name).map(|(name, context)| (name.as_str(), context));
        found.ok_or_else(|| {
            let known: Vec<_> = self.contexts.keys().map(String::as_str).collect();
            let advice = match known.as_slice() {
                [] => "make it with `brokerctl contexts set NAME --address ADDR`".to_owned(),
                known => format!("there are: {}", known.join(", ")),
            };
            wrong(format!("there is no context {name:?}")).advise(advice)
        })
    }
}

impl Context {
    pub(crate) fn address(&self, name: &str) -> Result<Address, Failure> {
        let wrong_address = |error| wrong(format!("the address of context {name}: {error}"));
        self.address.parse().map_err(wrong_address)
    }
}

fn wrong(message: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, message)
}

#[cfg(test)]
mod tests;
