//! etcd, kube-apiserver and kubectl, built once from their modules and kept in the cache.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};

use crate::shell;

/// What is built, and from which package. Which versions is said by `go.mod` alone.
const PROGRAMS: [(&str, &str); 3] = [
    ("etcd", "go.etcd.io/etcd/server/v3"),
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
];

/// The folder with the programs.
pub(super) fn find_or_build() -> anyhow::Result<PathBuf> {
    let module = Path::new("tests/kubernetes/tools");
    let read = |name: &str| {
        let file = module.join(name);
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
    };
    let (go_mod, go_sum) = (read("go.mod")?, read("go.sum")?);
    let wanted = format!("{go_mod}\n{go_sum}");
    let home = shell::cache()?.join("kubernetes");
    // Written last, so half of the programs are never taken for all of them.
    let built = home.join("built-from.txt");
    if fs::read_to_string(&built).is_ok_and(|built| built == wanted) {
        return Ok(home);
    }
    if Command::new("go").arg("version").output().is_err() {
        bail!(
            "the Kubernetes tier builds etcd, kube-apiserver and kubectl, and needs Go 1.24 or newer \
             to do so (see go.dev/dl, or the package golang-go)"
        );
    }
    eprintln!("building etcd, kube-apiserver and kubectl, once; this takes some minutes");
    fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
    let version = version_of("k8s.io/kubernetes", &go_mod)?;
    for (program, package) in PROGRAMS {
        shell::run(
            Command::new("go")
                .current_dir(module)
                .args(["build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags"])
                // Without it the API server calls itself v0.0.0.
                .arg(format!("-s -w -X k8s.io/component-base/version.gitVersion={version}"))
                .arg("-o")
                .arg(home.join(program))
                .arg(package)
                .env("CGO_ENABLED", "0"),
        )?;
    }
    fs::write(&built, wanted).context("cannot note what was built")?;
    Ok(home)
}

/// The version of a module that a `go.mod` requires.
fn version_of<'a>(module: &str, go_mod: &'a str) -> anyhow::Result<&'a str> {
    let version = |line: &'a str| {
        let line = line.trim().trim_start_matches("require ");
        line.strip_prefix(module)?.split_whitespace().next().filter(|word| word.starts_with('v'))
    };
    go_mod.lines().find_map(version).with_context(|| format!("go.mod does not require {module}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_a_module_is_found_in_either_form() {
        let text = "module x\n\nrequire (\n\tk8s.io/kubernetes/y v9.0.0\n\tk8s.io/kubernetes v1.34.4 // why\n)\n";
        assert_eq!(version_of("k8s.io/kubernetes", text).unwrap(), "v1.34.4");
        assert_eq!(version_of("a.b/c", "require a.b/c v0.1.0").unwrap(), "v0.1.0");
        assert!(version_of("a.b/d", text).is_err());
    }
}
