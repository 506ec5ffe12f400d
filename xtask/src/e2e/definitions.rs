//! The CustomResourceDefinitions of others that our manifests are written for, from their Go modules.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};

use crate::shell;

struct Module {
    name: &'static str,
    /// With its digest, as in a `go.sum`.
    version: &'static str,
    digest: &'static str,
    files: &'static [&'static str],
}

const MODULES: [Module; 2] = [
    Module {
        name: "github.com/cert-manager/cert-manager",
        version: "v1.21.2",
        digest: "h1:UWgoYM+KLNtRlqmoWOKjKBOBUPVHeepQ6/ac3ERJW68=",
        files: &[
            "deploy/crds/cert-manager.io_certificates.yaml",
            "deploy/crds/cert-manager.io_issuers.yaml",
        ],
    },
    Module {
        name: "github.com/prometheus-operator/prometheus-operator",
        version: "v0.85.0",
        digest: "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
        files: &[
            "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
            "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
        ],
    },
];

/// The folder with the definitions, fetched if this is the first time.
pub(super) fn find_or_fetch() -> anyhow::Result<PathBuf> {
    let versions: Vec<&str> = MODULES.iter().map(|module| module.version).collect();
    let cache = shell::cache()?;
    let home = cache.join(format!("definitions-{}", versions.join("-")));
    if home.is_dir() {
        return Ok(home);
    }
    // Under another name until it is complete.
    let draft = cache.join("definitions-draft");
    fs::create_dir_all(&draft).with_context(|| format!("cannot make {}", draft.display()))?;
    for module in MODULES {
        let source = download(&module, &draft)?;
        for file in module.files {
            let name = Path::new(file).file_name().expect("a file has a name");
            fs::copy(source.join(file), draft.join(name))
                .with_context(|| format!("{} has no {file}", module.name))?;
        }
    }
    fs::rename(&draft, &home).with_context(|| format!("cannot make {}", home.display()))?;
    Ok(home)
}

/// Where Go has put a module.
fn download(module: &Module, folder: &Path) -> anyhow::Result<PathBuf> {
    let wanted = format!("{}@{}", module.name, module.version);
    let output = Command::new("go")
        .current_dir(folder)
        .args(["mod", "download", "-json", &wanted])
        .output()
        .context("cannot run go, which the Kubernetes tier needs")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "go mod download {wanted} failed:\n{text}");
    let digest = field(&text, "Sum").with_context(|| format!("{wanted} has no digest"))?;
    ensure!(digest == module.digest, "{wanted} is not what it was: {digest}");
    field(&text, "Dir").map(PathBuf::from).with_context(|| format!("{wanted} is nowhere"))
}

/// A field of what `go mod download -json` prints: one to a line.
fn field<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    let start = format!("\"{name}\": \"");
    let line = json.lines().find_map(|line| line.trim().strip_prefix(&start))?;
    line.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "{\n\t\"Dir\": \"/a/b\",\n\t\"GoModSum\": \"h1:x=\",\n\t\"Sum\": \"h1:y=\"\n}";
        assert_eq!(field(text, "Dir"), Some("/a/b"));
        assert_eq!(field(text, "Sum"), Some("h1:y="));
        assert_eq!(field(text, "Zip"), None);
    }
}
