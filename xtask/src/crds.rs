//! Runs `broker-crds`: the CustomResourceDefinitions, from their Rust types.

use crate::shell::{self, cargo};

pub(crate) fn run() -> anyhow::Result<()> {
    shell::run(cargo().args(["run", "--quiet", "--package", "broker-crds", "--", "manifests/crds"]))
}
