//! What a driver's author or operator decides.

use std::{env, fmt, path::PathBuf, sync::Arc, time::Duration};

use broker_secret::Sensitive;
use broker_tls::Tls;
use tokio_util::sync::CancellationToken;

use crate::dial::{Dial, Tcp, endpoint, resolve};

/// Everything [`run`](crate::run) has to know. Start from [`Config::from_env`] or
/// [`Config::default`] and say at least the name and the kinds:
///
/// ```
/// use driver_client::{Config, Kind};
///
/// let config = Config {
///     name: "mycloud".into(),
///     kinds: vec![Kind::new("mycloud.example/v1", "MyMachineClass")],
///     ..Config::from_env()
/// };
/// ```
#[derive(Clone)]
pub struct Config {
    /// The brokers to dial, each with a session of its own: `host:port` or a URL. `https://` means
    /// TLS, `http://` none; without either it is TLS if [`Config::tls`] says anything.
    pub addresses: Vec<String>,
    /// What the driver calls itself, for people.
    pub name: String,
    /// The driver's own version, for people.
    pub version: String,
    /// The machine classes it serves.
    pub kinds: Vec<Kind>,
    /// Which of several equal drivers this is. Has to be the same after a restart of the process
    /// and another one for each process. `None`: the host's name, the first kind and the first
    /// free number.
    pub instance_id: Option<String>,
    /// How many operations run at once, over all sessions.
    pub capacity: usize,
    /// Sent as bearer token with every call, and so only with TLS or to this very host.
    pub token: Option<Token>,
    /// The same from a file, which is read for every session, so that it can be replaced.
    pub token_file: Option<PathBuf>,
    /// Whom to trust, and which certificate to show. The files are read for every session, so that
    /// they can be renewed.
    pub tls: Tls,
    /// How long an operation may go on after it was cancelled or its deadline passed. Then it is
    /// dropped, wherever it is.
    pub cancel_grace: Duration,
    /// How long running operations may go on after the driver was told to stop.
    pub drain_grace: Duration,
    /// Stops the driver as SIGTERM does: for tests, and for programs with signals of their own.
    pub shutdown: CancellationToken,
    /// Whether SIGTERM and SIGINT stop the driver.
    pub handle_signals: bool,
    /// How connections are made.
    pub dial: Arc<dyn Dial>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            addresses: vec!["127.0.0.1:5000".to_owned()],
            name: String::new(),
            version: String::new(),
            kinds: Vec::new(),
            instance_id: None,
            capacity: 16,
            token: None,
            token_file: None,
            tls: Tls::default(),
            cancel_grace: Duration::from_secs(60),
            // Whoever stops us kills us when it has waited enough. Until then finishing is better.
            drain_grace: Duration::from_secs(5 * 60),
            shutdown: CancellationToken::new(),
            handle_signals: true,
            dial: Arc::new(Tcp),
        }
    }
}

impl Config {
    /// The defaults, with what the environment says: `BROKER_ADDRESS` (several with commas),
    /// `BROKER_TOKEN` or `BROKER_TOKEN_FILE`, `BROKER_INSTANCE_ID`, and for TLS `BROKER_CA`,
    /// `BROKER_CERT`, `BROKER_KEY` and `BROKER_SERVER_NAME`.
    pub fn from_env() -> Self {
        Self::from_variables(|name| env::var(name).ok().filter(|value| !value.trim().is_empty()))
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let mut config = Self::default();
        if let Some(addresses) = variable("BROKER_ADDRESS") {
            config.addresses = split_addresses(&addresses);
        }
        config.token = variable("BROKER_TOKEN").map(|token| Token::new(token.trim()));
        config.token_file = variable("BROKER_TOKEN_FILE").map(PathBuf::from);
        config.instance_id = variable("BROKER_INSTANCE_ID");
        config.tls = Tls {
            ca: variable("BROKER_CA").map(PathBuf::from),
            cert: variable("BROKER_CERT").map(PathBuf::from),
            key: variable("BROKER_KEY").map(PathBuf::from),
            server_name: variable("BROKER_SERVER_NAME"),
        };
        config
    }

    /// Checks what cannot work, so that it is said at once and not at the first connection.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.kinds.is_empty() {
            return Err("the driver serves no kind".to_owned());
        }
        if self.kinds.iter().any(|kind| kind.kind.is_empty() || kind.api_version.is_empty()) {
            return Err("a kind needs an apiVersion and a name".to_owned());
        }
        if self.addresses.is_empty() {
            return Err("there is no broker address".to_owned());
        }
        for address in &self.addresses {
            let (url, secure) = resolve(address, &self.tls);
            endpoint(&url).map_err(|_| format!("{address:?} is not an address"))?;
            if secure {
                self.tls.check().map_err(|problem| problem.to_string())?;
            } else if self.tls.is_wanted() {
                return Err(format!("{address} means no TLS, but there are settings of TLS"));
            }
            let token = self.token.is_some() || self.token_file.is_some();
            if token && !self.dial.is_private(address, &self.tls) {
                return Err(format!(
                    "the token is not sent to {address} without TLS: say https:// and --ca FILE"
                ));
            }
        }
        if self.token.is_some() && self.token_file.is_some() {
            return Err("there is a token and a file with a token: one is enough".to_owned());
        }
        if self.capacity == 0 || u32::try_from(self.capacity).is_err() {
            return Err("the capacity has to be at least 1, and fit 32 bits".to_owned());
        }
        Ok(())
    }
}

fn split_addresses(list: &str) -> Vec<String> {
    let addresses = list.split(',').map(str::trim).filter(|address| !address.is_empty());
    addresses.map(str::to_owned).collect()
}

/// A kind of machine class that the driver serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// `group/version`, or `version` alone.
    pub api_version: String,
    pub kind: String,
    /// Serves only those classes of a shared kind that name this provider.
    pub provider: Option<String>,
}

impl Kind {
    pub fn new(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { api_version: api_version.into(), kind: kind.into(), provider: None }
    }
}

/// A bearer token, or the token of a session. Not printable, and wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Sensitive);

impl Token {
    pub fn new(token: impl Into<String>) -> Self {
        Self(Sensitive::new(token.into()))
    }

    pub(crate) fn expose(&self) -> &str {
        self.0.as_str().expect("made of a string")
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_gives_addresses_token_and_instance() {
        let config = Config::from_variables(|name| {
            let value = match name {
                "BROKER_ADDRESS" => "one:5000, https://two:1 ,",
                "BROKER_TOKEN" => "secret\n",
                "BROKER_INSTANCE_ID" => "i-1",
                "BROKER_CA" => "/ca.crt",
                "BROKER_SERVER_NAME" => "broker",
                _ => return None,
            };
            Some(value.to_owned())
        });
        assert_eq!(config.addresses, ["one:5000", "https://two:1"]);
        assert_eq!(config.token.as_ref().map(Token::expose), Some("secret"));
        assert_eq!(config.instance_id.as_deref(), Some("i-1"));
        assert_eq!(format!("{:?}", config.token), "Some([hidden])");
        let server_name = Some("broker".to_owned());
        let tls = Tls { ca: Some("/ca.crt".into()), server_name, ..Tls::default() };
        assert_eq!(config.tls, tls);
    }

    #[test]
    fn without_an_environment_the_broker_is_on_this_host() {
        let config = Config::from_variables(|_| None);
        assert_eq!(config.addresses, ["127.0.0.1:5000"]);
        assert!(!config.tls.is_wanted());
        assert_eq!(config.capacity, 16);
    }

    #[test]
    fn what_is_said_of_tls_has_to_fit() {
        let tls = Tls { ca: Some("/ca.crt".into()), ..Tls::default() };
        let config = |addresses: &[&str], tls: &Tls| Config {
            addresses: addresses.iter().map(|address| (*address).to_owned()).collect(),
            kinds: vec![Kind::new("v1", "K")],
            tls: tls.clone(),
            ..Config::default()
        };
        assert_eq!(config(&["one:1", "https://two:2"], &tls).check(), Ok(()));
        let said = |addresses: &[&str], tls: &Tls| config(addresses, tls).check().unwrap_err();
        assert!(said(&["https://one:1"], &Tls::default()).contains("--ca FILE"));
        assert!(said(&["http://one:1"], &tls).contains("http://one:1 means no TLS"));
        let half = Tls { cert: Some("/driver.crt".into()), ..tls };
        assert!(said(&["one:1"], &half).contains("--cert needs --key"));
    }

    #[test]
    fn a_token_goes_nowhere_in_clear_but_to_this_host() {
        let token = Config { token: Some(Token::new("t")), ..Config::default() };
        let file = Config { token_file: Some("/token".into()), ..Config::default() };
        let tls = Tls { ca: Some("/ca.crt".into()), ..Tls::default() };
        for config in [token, file] {
            let check = |address: &str, tls: &Tls| {
                let addresses = vec!["localhost:1".to_owned(), address.to_owned()];
                let kinds = vec![Kind::new("v1", "K")];
                Config { addresses, kinds, tls: tls.clone(), ..config.clone() }.check()
            };
            assert_eq!(check("127.0.0.1:1", &Tls::default()), Ok(()));
            assert_eq!(check("one:1", &tls), Ok(()));
            for address in ["one:1", "http://one:1", "10.0.0.1:1"] {
                let told = check(address, &Tls::default()).unwrap_err();
                let expected = format!("the token is not sent to {address} without TLS: say https");
                assert!(told.starts_with(&expected), "{told}");
            }
        }
    }

    #[test]
    fn a_driver_without_kinds_is_refused_at_once() {
        assert!(Config::default().check().is_err());
        let kinds = vec![Kind::new("v1", "K")];
        assert_eq!(Config { kinds: kinds.clone(), ..Config::default() }.check(), Ok(()));
        assert!(Config { kinds: kinds.clone(), capacity: 0, ..Config::default() }.check().is_err());
        let addresses = vec!["not an address".to_owned()];
        assert!(Config { kinds, addresses, ..Config::default() }.check().is_err());
    }
}
