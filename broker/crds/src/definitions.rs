//! All definitions, as texts.

use crate::{driver, machine_class, sim};

/// Goes before each text.
const HEADER: &str = "# Written by `cargo xtask crds` from broker/crds. Do not edit.\n";

/// All definitions, and the kustomization that lists them: the name of the file, and its text.
pub fn all() -> Vec<(String, String)> {
    let definitions = [driver::definition(), machine_class::definition(), sim::definition()];
    let mut files: Vec<_> = definitions
        .into_iter()
        .map(|definition| {
            let crd = definition.into_crd();
            let name = crd.metadata.name.clone().unwrap_or_default();
            let yaml = serde_saphyr::to_string(&crd).expect("a definition can be written");
            (format!("{name}.yaml"), format!("{HEADER}{yaml}"))
        })
        .collect();
    let resources: String = files.iter().map(|(name, _)| format!("- {name}\n")).collect();
    files.push((
        "kustomization.yaml".to_owned(),
        format!(
            "{HEADER}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n\
             resources:\n{resources}"
        ),
    ));
    files
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn the_files_say_what_the_types_say() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests/crds"));
        let mut written: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        written.sort_unstable();
        let all = all();
        let mut names: Vec<_> = all.iter().map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        assert_eq!(written, names, "run `cargo xtask crds`");
        for (name, text) in all {
            let written = fs::read_to_string(folder.join(&name)).unwrap();
            assert!(written == text, "{name} differs from its type: run `cargo xtask crds`");
        }
    }
}
