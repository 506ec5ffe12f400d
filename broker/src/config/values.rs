//! Values as they are written in flags and files.

use std::{net::Ipv6Addr, path::PathBuf, str::FromStr, time::Duration};

use serde::Deserialize;

use crate::registry::Policy;

/// Where machine classes and secrets come from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum CatalogSource {
    Directory(PathBuf),
    /// Of this kubeconfig, or of the surroundings.
    Kubernetes(Option<PathBuf>),
}

impl FromStr for CatalogSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("dir", path)) if !path.is_empty() => Ok(Self::Directory(path.into())),
            Some(("kubernetes", path)) if !path.is_empty() => {
                Ok(Self::Kubernetes(Some(path.into())))
            }
            None if text == "kubernetes" => Ok(Self::Kubernetes(None)),
            _ => Err(format!(
                "{text:?} is not a catalog: write dir:PATH, kubernetes or kubernetes:KUBECONFIG"
            )),
        }
    }
}

impl TryFrom<String> for CatalogSource {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Where drivers are shown as resources of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum DriverResources {
    /// In the namespace of the broker.
    #[default]
    Here,
    In(String),
    Off,
}

impl FromStr for DriverResources {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            _ if is_label(text) => Ok(Self::In(text.to_owned())),
            _ => Err(format!("{text:?} is no namespace: write its name, or off")),
        }
    }
}

impl TryFrom<String> for DriverResources {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Whether it can be a name in Kubernetes, such as that of a namespace.
pub(super) fn is_label(text: &str) -> bool {
    let within = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let ends = |c: char| c != '-';
    (1..=63).contains(&text.len())
        && text.bytes().all(within)
        && text.starts_with(ends)
        && text.ends_with(ends)
}

/// The policy of one kind, as `KIND=POLICY`.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct KindPolicy {
    pub(super) kind: String,
    pub(super) policy: Policy,
}

impl FromStr for KindPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, policy) = text.split_once('=').ok_or("write KIND=share|standby|exclusive")?;
        let policy = <Policy as clap::ValueEnum>::from_str(policy, true)
            .map_err(|_| format!("{policy:?} is not share, standby or exclusive"))?;
        Ok(Self { kind: kind.to_owned(), policy })
    }
}

impl TryFrom<String> for KindPolicy {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// A time with its unit, such as `500ms` or `2m`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Span(pub(super) Duration);

impl FromStr for Span {
    type Err = humantime::DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        humantime::parse_duration(text).map(Self)
    }
}

impl TryFrom<String> for Span {
    type Error = humantime::DurationError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// Where a replica is reached, as `HOST:PORT`.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Place(pub(super) String);

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not HOST:PORT");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let right = match bare {
            Some(bare) => bare.parse::<Ipv6Addr>().is_ok(),
            None => {
                let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
                !host.is_empty() && host.chars().all(inner)
            }
        };
        match port.parse::<u16>() {
            Ok(port) if port > 0 && right => Ok(Self(text.to_owned())),
            _ => Err(wrong()),
        }
    }
}

impl TryFrom<String> for Place {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}
