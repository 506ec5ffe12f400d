//! The broker in a real cluster: as far as it can be had from registries.

use clap::Subcommand;

mod definitions;
mod kubernetes;
mod tools;

#[derive(Debug, Subcommand)]
pub(crate) enum Tier {
    /// A real kube-apiserver on loopback, and the broker as one of its clients
    Kubernetes {
        /// Only scenarios whose name contains one of these
        only: Vec<String>,
    },
}

pub(crate) fn run(tier: &Tier) -> anyhow::Result<()> {
    match tier {
        Tier::Kubernetes { only } => kubernetes::run(only),
    }
}
