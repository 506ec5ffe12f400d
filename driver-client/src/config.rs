//! What a driver's author or operator decides.

use std::{env, fmt, sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use crate::dial::{Dial, Tcp, endpoint};

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
    /// The brokers to dial, each with a session of its own: `host:port` or a URL.
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
    /// Sent as bearer token with every call.
    pub token: Option<Token>,
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
            addresses: vec!["http://127.0.0.1:5000".to_owned()],
            name: String::new(),
            version: String::new(),
            kinds: Vec::new(),
            instance_id: None,
            capacity: 16,
            token: None,
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
    /// The defaults, with `BROKER_ADDRESS` (several with commas), `BROKER_TOKEN` and
    /// `BROKER_INSTANCE_ID` from the environment.
    pub fn from_env() -> Self {
        Self::from_variables(|name| env::var(name).ok().filter(|value| !value.trim().is_empty()))
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let mut config = Self::default();
        if let Some(addresses) = variable("BROKER_ADDRESS") {
            config.addresses = split_addresses(&addresses);
        }
        config.token = variable("BROKER_TOKEN").map(|token| Token::new(token.trim()));
        config.instance_id = variable("BROKER_INSTANCE_ID");
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
            let url = with_scheme(address);
            endpoint(&url).map_err(|_| format!("{address:?} is not an address"))?;
        }
        if self.capacity == 0 || u32::try_from(self.capacity).is_err() {
            return Err("the capacity has to be at least 1, and fit 32 bits".to_owned());
        }
        Ok(())
    }
}

fn split_addresses(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|address| !address.is_empty()).map(with_scheme).collect()
}

/// Addresses may be written without a scheme.
pub(crate) fn with_scheme(address: &str) -> String {
    if address.contains("://") { address.to_owned() } else { format!("http://{address}") }
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

/// A bearer token. Not printable.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    pub fn new(token: impl Into<String>) -> Self {
        Self(token.into())
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
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
                _ => return None,
            };
            Some(value.to_owned())
        });
        assert_eq!(config.addresses, ["http://one:5000", "https://two:1"]);
        assert_eq!(config.token.as_ref().map(Token::expose), Some("secret"));
        assert_eq!(config.instance_id.as_deref(), Some("i-1"));
        assert_eq!(format!("{:?}", config.token), "Some([hidden])");
    }

    #[test]
    fn without_an_environment_the_broker_is_on_this_host() {
        let config = Config::from_variables(|_| None);
        assert_eq!(config.addresses, ["http://127.0.0.1:5000"]);
        assert_eq!(config.capacity, 16);
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
