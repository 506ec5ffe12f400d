//! TLS on either side of a connection: certificates, keys and CA bundles from PEM files that may
//! change at any time, and words for what goes wrong with them.
//!
//! - [`server`]: what the broker serves with. It looks at its files again and again, and new
//!   handshakes get what is there; see [`Server`].
//! - [`client`]: what drivers, controllers and operators dial with. Their files are read for every
//!   connection; see [`client::connect`].
//! - [`Certificate`]: what a certificate says of its owner.
//! - [`Problem`]: what can be wrong with files and certificates, for people.
//! - `issue` (a feature): makes certificates, for trying things out and for tests.
//!
//! TLS 1.3 alone, by construction: the code for anything older is not compiled in. The one
//! cryptography is `ring`. No session is ever resumed, so that every connection proves anew who it
//! comes from.

mod certificate;
pub mod client;
mod files;
#[cfg(feature = "issue")]
pub mod issue;
mod problem;
pub mod server;

use std::sync::{Arc, LazyLock};

use rustls::crypto::CryptoProvider;

pub use self::{
    certificate::{Certificate, PeerCertificate},
    client::Tls,
    problem::Problem,
    server::Server,
};

/// Given to every configuration by hand: a default of the process would be anybody's to set.
static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));
