//! Our manifests, as kubectl and its kustomize make them, in a namespace of a scenario's own.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use serde_json::Value;

use crate::cluster::Cluster;

/// A kustomization on top of ours, as somebody writes it who wants another namespace.
pub(crate) struct Overlay {
    folder: PathBuf,
}

impl Overlay {
    /// The broker, the sim driver and classes in one namespace, which it makes.
    pub(crate) fn new(namespace: &str, folder: &Path) -> Self {
        let overlay = Self::classes(namespace, namespace, folder);
        let ours = overlay.ours();
        overlay.add(&format!(
            "resources: [{ours}/base]\n\
             transformers:\n\
             - |-\n\
             \x20 # What has no namespace would meet that of another scenario.\n\
             \x20 apiVersion: builtin\n\
             \x20 kind: PrefixSuffixTransformer\n\
             \x20 metadata: {{name: apart}}\n\
             \x20 suffix: -{namespace}\n\
             \x20 fieldSpecs: [{{path: metadata/name, kind: ClusterRoleBinding}}]\n\
             components:\n\
             - {ours}/components/sim-driver\n\
             - {ours}/components/machine-class\n\
             - {ours}/components/classes-namespace\n"
        ));
        overlay
    }

    /// What lets the broker of one namespace read the secrets of another.
    pub(crate) fn of_classes(namespace: &str, broker: &str, folder: &Path) -> Self {
        let overlay = Self::classes(namespace, broker, folder);
        overlay.add(&format!("components: [{}/components/classes-namespace]\n", overlay.ours()));
        overlay
    }

    fn classes(namespace: &str, broker: &str, folder: &Path) -> Self {
        let folder = folder.join(format!("overlay-{namespace}"));
        fs::create_dir(&folder).expect("a folder");
        let overlay = Self { folder };
        overlay.add(&format!(
            "namespace: {namespace}\n\
             patches:\n\
             - target: {{kind: RoleBinding, name: machine-broker-secrets}}\n\
             \x20 patch: |-\n\
             \x20   - op: replace\n\
             \x20     path: /subjects/0/namespace\n\
             \x20     value: {broker}\n"
        ));
        overlay
    }

    fn add(&self, text: &str) {
        let file = self.folder.join("kustomization.yaml");
        let before = fs::read_to_string(&file).unwrap_or_default();
        fs::write(file, before + text).expect("a file");
    }

    fn ours(&self) -> String {
        from(&self.folder, Path::new("manifests"))
    }

    pub(crate) fn apply(&self, cluster: &Cluster) {
        apply(cluster, &self.folder);
    }

    pub(crate) fn objects(&self, cluster: &Cluster) -> Vec<Value> {
        objects(cluster, &self.folder)
    }
}

/// Applies a kustomization, as operators of today do.
pub(crate) fn apply(cluster: &Cluster, folder: &Path) {
    let folder = folder.to_str().expect("UTF-8");
    cluster.kubectl(&["apply", "--server-side", "--force-conflicts", "-k", folder]);
}

/// Our own kinds: CustomResourceDefinitions go first, since what follows may be of their kinds.
pub(crate) fn install_definitions(cluster: &Cluster) {
    apply(cluster, Path::new("manifests/crds"));
    cluster.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "crd", "--all"]);
}

/// What a kustomization comes to.
pub(crate) fn objects(cluster: &Cluster, folder: &Path) -> Vec<Value> {
    let yaml = cluster.kubectl(&["kustomize", folder.to_str().expect("UTF-8")]);
    serde_saphyr::from_multiple(&yaml).unwrap_or_else(|error| panic!("{error}\nin\n{yaml}"))
}

/// The way from one folder to another: kustomize takes no absolute ones.
fn from(here: &Path, there: &Path) -> String {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|e| panic!("{path:?}: {e}"));
    let steps = |path: &Path| {
        let real = real(path);
        real.components().filter(|step| matches!(step, Component::Normal(_))).count()
    };
    let up = "../".repeat(steps(here));
    format!("{up}{}", real(there).strip_prefix("/").expect("it is absolute").display())
}
