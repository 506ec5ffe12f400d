//! Every crate of ours obeys the lints of the workspace: `unsafe_code = "forbid"` is one of them, and a
//! crate that does not inherit them may do as it likes.

use std::fs;

use anyhow::{Context as _, bail, ensure};

use crate::shell::cargo;

pub(crate) fn check() -> anyhow::Result<()> {
    let root = fs::read_to_string("Cargo.toml").context("cannot read Cargo.toml")?;
    ensure!(root.contains("\nunsafe_code = \"forbid\"\n"), "the workspace does not forbid unsafe");
    let listed = cargo()
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .output()
        .context("cannot run cargo metadata")?;
    ensure!(listed.status.success(), "cargo metadata failed");
    let listed = String::from_utf8(listed.stdout).context("cargo metadata is not text")?;
    let manifests = manifests(&listed);
    ensure!(manifests.len() > 5, "only {} crates were found", manifests.len());
    for manifest in manifests {
        let text =
            fs::read_to_string(manifest).with_context(|| format!("cannot read {manifest}"))?;
        if !inherits(&text) {
            bail!("{manifest} does not say `[lints] workspace = true`");
        }
    }
    Ok(())
}

/// Where the members' manifests are.
fn manifests(metadata: &str) -> Vec<&str> {
    let fields = metadata.split("\"manifest_path\":\"").skip(1);
    fields.filter_map(|rest| rest.split('"').next()).collect()
}

fn inherits(manifest: &str) -> bool {
    let mut lines = manifest.lines().map(str::trim);
    lines.by_ref().any(|line| line == "[lints]")
        && lines.take_while(|line| !line.starts_with('[')).any(|line| line == "workspace = true")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_section_of_lints_counts() {
        assert!(inherits("[package]\n\n[lints]\nworkspace = true\n"));
        assert!(!inherits("[package]\nname = \"x\"\n"));
        assert!(!inherits("[lints]\n[other]\nworkspace = true\n"));
        assert!(!inherits("[lints.rust]\nunsafe_code = \"allow\"\n"));
    }

    #[test]
    fn manifests_are_found_in_what_cargo_tells() {
        let metadata = r#"{"packages":[{"manifest_path":"/a/Cargo.toml","x":1},{"manifest_path":"/b/Cargo.toml"}]}"#;
        assert_eq!(manifests(metadata), ["/a/Cargo.toml", "/b/Cargo.toml"]);
    }
}
