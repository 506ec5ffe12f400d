//! The provider: a folder with one JSON file per VM.
//!
//! It behaves like a real one. Ids are random, and nothing keeps two VMs from having the same name,
//! so a driver that creates a machine twice is found out. A VM is there when its file is, written
//! aside and moved into place, so no crash leaves half a VM.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use driver_client::{Address, ClassRef};
use serde::{Deserialize, Serialize};

use crate::journal::{Journal, What};

/// Cheap to clone; all clones, in any process, are the same cloud.
#[derive(Clone, Debug)]
pub struct Cloud {
    folder: PathBuf,
    journal: Journal,
}

/// One VM, as its file tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Vm {
    pub id: String,
    /// The machine's name. Also in the file's name, so that a search opens no other file.
    pub name: String,
    pub owner: Owner,
    pub initialized: bool,
    /// How many bytes of user data it was started with; never the data.
    pub user_data_bytes: usize,
    pub addresses: Vec<VmAddress>,
}

/// The class a VM belongs to: what a real driver would put into tags.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    pub api_version: String,
    pub kind: String,
    pub namespace: String,
    pub class: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VmAddress {
    #[serde(rename = "type")]
    pub kind: String,
    pub address: String,
}

impl Cloud {
    /// Opens the cloud in `folder`, which is made if it is missing.
    pub fn open(folder: impl Into<PathBuf>) -> io::Result<Self> {
        let folder = folder.into();
        fs::create_dir_all(&folder)?;
        Ok(Self { folder, journal: Journal::default() })
    }

    /// Whose VMs, and the executions of whose driver, are written down.
    pub fn with_journal(self, journal: Journal) -> Self {
        Self { journal, ..self }
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Starts a VM, or replaces what is known of it.
    pub fn put(&self, vm: &Vm) -> io::Result<()> {
        let aside = self.folder.join(format!(".{}.tmp", vm.id));
        let put = fs::write(&aside, serde_json::to_vec_pretty(vm)?).and_then(|()| {
            self.journal.write(What::Making { id: vm.provider_id(), machine: vm.name.clone() });
            fs::rename(&aside, self.path(&vm.name, &vm.id))
        });
        if put.is_err() {
            // A full disk has no room for what is no VM. If this fails too, it is still none.
            fs::remove_file(aside).ok();
        }
        put
    }

    /// Starts a VM, unless its owner has as many as `limit` already. Says whether it did.
    pub fn put_within(&self, vm: &Vm, limit: usize) -> io::Result<bool> {
        // Nobody else may count between our counting and our putting, in this process or another.
        // Freed by the system when the file is closed, however that comes about.
        let lock = fs::File::create(self.folder.join(".lock"))?;
        lock.lock()?;
        if self.list(&vm.owner)?.len() >= limit {
            return Ok(false);
        }
        self.put(vm).map(|()| true)
    }

    /// Ends a VM, if it is there.
    pub fn remove(&self, vm: &Vm) -> io::Result<()> {
        self.journal.write(What::Removing { id: vm.provider_id() });
        match fs::remove_file(self.path(&vm.name, &vm.id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => self.journal.write(What::Removed { id: vm.provider_id() }),
        }
        Ok(())
    }

    /// All VMs of an owner.
    pub fn list(&self, owner: &Owner) -> io::Result<Vec<Vm>> {
        self.search(|_| true, owner)
    }

    /// The VMs of an owner with this name. More than one is somebody's mistake.
    pub fn named(&self, name: &str, owner: &Owner) -> io::Result<Vec<Vm>> {
        self.search(|found| found == name, owner)
    }

    /// Every VM of the cloud.
    pub fn all(&self) -> io::Result<Vec<Vm>> {
        let mut vms = Vec::new();
        for path in self.files(|_| true)? {
            vms.extend(read(&path)?);
        }
        Ok(vms)
    }

    fn search(&self, wanted: impl Fn(&str) -> bool, owner: &Owner) -> io::Result<Vec<Vm>> {
        let mut vms = Vec::new();
        for path in self.files(wanted)? {
            vms.extend(read(&path)?.filter(|vm| vm.owner == *owner));
        }
        Ok(vms)
    }

    /// The files of VMs whose name is wanted.
    fn files(&self, wanted: impl Fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let file = entry?.file_name();
            let name = file.to_str().and_then(|file| file.strip_suffix(".json"));
            // <name>.<id>.json; the id has no dot.
            if name.and_then(|name| name.rsplit_once('.')).is_some_and(|(name, _)| wanted(name)) {
                files.push(self.folder.join(file));
            }
        }
        Ok(files)
    }

    fn path(&self, name: &str, id: &str) -> PathBuf {
        self.folder.join(format!("{name}.{id}.json"))
    }
}

/// `None` if the VM ended since its file was listed.
fn read(path: &Path) -> io::Result<Option<Vm>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Vm {
    /// A new VM with a random id.
    pub fn new(name: &str, owner: Owner) -> Self {
        let number = rand::random::<u64>();
        let [a, b, c, ..] = number.to_be_bytes();
        let kind = "InternalIP".to_owned();
        Self {
            id: format!("{number:016x}"),
            name: name.to_owned(),
            owner,
            initialized: false,
            user_data_bytes: 0,
            addresses: vec![VmAddress { kind, address: format!("10.{a}.{b}.{c}") }],
        }
    }

    pub fn provider_id(&self) -> String {
        format!("sim:///{}", self.id)
    }
}

impl From<&ClassRef> for Owner {
    fn from(class: &ClassRef) -> Self {
        Self {
            api_version: class.api_version.clone(),
            kind: class.kind.clone(),
            namespace: class.namespace.clone(),
            class: class.name.clone(),
        }
    }
}

impl From<VmAddress> for Address {
    fn from(address: VmAddress) -> Self {
        Self { kind: address.kind, address: address.address }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(class: &str) -> Owner {
        Owner {
            api_version: "v1".to_owned(),
            kind: "K".to_owned(),
            namespace: "default".to_owned(),
            class: class.to_owned(),
        }
    }

    #[test]
    fn two_vms_may_have_one_name() {
        let folder = tempfile::tempdir().unwrap();
        let cloud = Cloud::open(folder.path()).unwrap();
        cloud.put(&Vm::new("a.b", owner("small"))).unwrap();
        cloud.put(&Vm::new("a.b", owner("small"))).unwrap();
        cloud.put(&Vm::new("a", owner("small"))).unwrap();
        assert_eq!(cloud.named("a.b", &owner("small")).unwrap().len(), 2);
        assert_eq!(cloud.all().unwrap().len(), 3);
    }

    #[test]
    fn vms_outlive_the_one_who_made_them_and_keep_to_their_class() {
        let folder = tempfile::tempdir().unwrap();
        let vm = Vm::new("a", owner("small"));
        Cloud::open(folder.path()).unwrap().put(&vm).unwrap();

        let cloud = Cloud::open(folder.path()).unwrap();
        assert_eq!(cloud.list(&owner("small")).unwrap().as_slice(), std::slice::from_ref(&vm));
        assert_eq!(cloud.list(&owner("large")).unwrap(), []);
        cloud.remove(&vm).unwrap();
        cloud.remove(&vm).unwrap();
        assert_eq!(cloud.all().unwrap(), []);
    }
}
