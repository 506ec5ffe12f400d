//! What this program plays beside the broker, each in a process of its own.

pub(crate) mod direct;
pub(crate) mod driver;
pub(crate) mod nats;
pub(crate) mod relay;

use std::net::SocketAddr;

/// Says that others may dial in now.
pub(crate) fn ready_at(address: SocketAddr) {
    println!("ready {address}");
}

/// The address in such a line.
pub(crate) fn ready(line: &str) -> Option<SocketAddr> {
    line.strip_prefix("ready ")?.parse().ok()
}
