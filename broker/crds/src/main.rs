//! Writes the definitions into a folder, and removes others from it.

use std::{collections::HashSet, env, fs, path::PathBuf};

use anyhow::Context as _;

fn main() -> anyhow::Result<()> {
    let folder: PathBuf = env::args_os().nth(1).context("name the folder to write to")?.into();
    let all = broker_crds::all();
    let names: HashSet<_> = all.iter().map(|(name, _)| name.as_str()).collect();
    fs::create_dir_all(&folder)?;
    for file in fs::read_dir(&folder)? {
        let file = file?;
        let is_ours = file.file_name().to_str().is_some_and(|name| names.contains(name));
        if !is_ours && file.path().extension().is_some_and(|ending| ending == "yaml") {
            fs::remove_file(file.path())?;
        }
    }
    for (name, text) in &all {
        fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))?;
    }
    Ok(())
}
