//! The verbs: what every driver has to write.

use std::{io, time::Duration};

use driver_client::{Code, Driver, Error, ListedMachine, Machine, Operation, Verb, async_trait};
use tracing::Instrument as _;

use crate::{
    cloud::{Cloud, Owner, Vm},
    spec::Spec,
};

/// Makes machines in a [`Cloud`].
pub struct Sim {
    cloud: Cloud,
}

/// When to ask again for a place in a full class.
const RETRY_FULL: Duration = Duration::from_secs(5);
/// A file's name has room for this much of a machine's.
const LONGEST_NAME: usize = 200;

#[async_trait]
impl Driver for Sim {
    fn verbs(&self) -> &[Verb] {
        Verb::ALL
    }

    async fn create(&self, op: &Operation) -> Result<Machine, Error> {
        let _execution = self.cloud.journal().executing(op);
        let spec = prepare(op).await?;
        let user_data = op.user_data().await?;

        // A driver's first duty: look before you make. A retry finds the VM of the first attempt.
        if let Some(vm) = self.find(op).await? {
            return described(vm, &spec);
        }
        // Half of the time passes before the VM is there and half after, so that whoever is killed
        // in between leaves what real clouds leave: nothing, or a VM that nobody was told of.
        pause(op, spec.create_delay / 2).await?;
        let mut vm = Vm::new(op.machine_name(), Owner::from(op.class_ref()));
        vm.user_data_bytes = user_data.map_or(0, |data| data.len());
        if !spec.addresses.is_empty() {
            vm.addresses.clone_from(&spec.addresses);
        }
        let made = vm.clone();
        match spec.capacity {
            None => self.cloud("put", move |cloud| cloud.put(&made)).await?,
            Some(limit) => {
                if !self.cloud("put", move |cloud| cloud.put_within(&made, limit)).await? {
                    return Err(full(limit));
                }
            }
        }
        if let Err(cancelled) = pause(op, spec.create_delay / 2).await {
            // Nobody wants it any more, so do not leave it behind.
            self.cloud("remove", move |cloud| cloud.remove(&vm)).await?;
            return Err(cancelled);
        }
        described(vm, &spec)
    }

    async fn initialize(&self, op: &Operation) -> Result<Machine, Error> {
        let _execution = self.cloud.journal().executing(op);
        let spec = prepare(op).await?;
        let mut vm = self.find(op).await?.ok_or_else(|| absent(op))?;
        vm.initialized = true;
        let changed = vm.clone();
        self.cloud("put", move |cloud| cloud.put(&changed)).await?;
        described(vm, &spec)
    }

    async fn delete(&self, op: &Operation) -> Result<(), Error> {
        let _execution = self.cloud.journal().executing(op);
        let spec = prepare(op).await?;
        pause(op, spec.delete_delay).await?;
        // A driver's second duty: deleting what is not there succeeds.
        let vms = self.named(op).await?;
        self.cloud("remove", move |cloud| vms.iter().try_for_each(|vm| cloud.remove(vm))).await
    }

    async fn get_status(&self, op: &Operation) -> Result<Machine, Error> {
        let _execution = self.cloud.journal().executing(op);
        let spec = prepare(op).await?;
        let vm = self.find(op).await?.ok_or_else(|| absent(op))?;
        described(vm, &spec)
    }

    async fn list(&self, op: &Operation) -> Result<Vec<ListedMachine>, Error> {
        let _execution = self.cloud.journal().executing(op);
        let spec = prepare(op).await?;
        pause(op, spec.list_delay).await?;
        let owner = Owner::from(op.class_ref());
        let vms = self.cloud("list", move |cloud| cloud.list(&owner)).await?;
        let listed =
            |vm: Vm| ListedMachine { provider_id: vm.provider_id(), machine_name: vm.name };
        let wanted = |vm: &Vm| op.provider_id().is_none_or(|id| vm.provider_id() == id);
        Ok(vms.into_iter().filter(wanted).map(listed).collect())
    }

    async fn get_volume_ids(&self, op: &Operation) -> Result<Vec<String>, Error> {
        let _execution = self.cloud.journal().executing(op);
        prepare(op).await?;
        // As CSI does: the handle of a volume is its id. Volumes of others have none for us.
        let id = |spec: &String| {
            let spec: serde_json::Value = serde_json::from_str(spec)
                .map_err(|error| Error::invalid_argument(format!("a volume spec: {error}")))?;
            Ok(spec["csi"]["volumeHandle"].as_str().map(str::to_owned))
        };
        op.volume_specs().iter().filter_map(|spec| id(spec).transpose()).collect()
    }
}

impl Sim {
    pub fn new(cloud: Cloud) -> Self {
        Self { cloud }
    }

    /// The machine's VM, if it is there.
    async fn find(&self, op: &Operation) -> Result<Option<Vm>, Error> {
        Ok(self.named(op).await?.into_iter().next())
    }

    /// All VMs with the machine's name or, where that is known, the one with its provider id.
    async fn named(&self, op: &Operation) -> Result<Vec<Vm>, Error> {
        let (name, owner) = (checked_name(op)?.to_owned(), Owner::from(op.class_ref()));
        let mut vms = self.cloud("find", move |cloud| cloud.named(&name, &owner)).await?;
        vms.retain(|vm| op.provider_id().is_none_or(|id| vm.provider_id() == id));
        Ok(vms)
    }

    /// Calls the cloud. Files block, so this is done beside the tasks that must not wait. The span shows
    /// in a trace how much of an operation's time was the provider's.
    async fn cloud<T: Send + 'static>(
        &self,
        name: &'static str,
        call: impl FnOnce(&Cloud) -> io::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let cloud = self.cloud.clone();
        let span = tracing::debug_span!("cloud", otel.kind = "client", call = name);
        match tokio::task::spawn_blocking(move || call(&cloud)).instrument(span).await {
            Ok(result) => result.map_err(|error| Error::unavailable(format!("cloud: {error}"))),
            Err(error) => Err(Error::internal(format!("cloud: {error}"))),
        }
    }
}

/// What comes before every verb: the class, the credentials, and the faults that the class orders.
async fn prepare(op: &Operation) -> Result<Spec, Error> {
    let spec: Spec = op.spec().await?;
    if op.has_secret() {
        // This cloud needs no login. A real one would take its credentials from here.
        let secret = op.secret().await?;
        if let Some(key) = spec.secret_keys.iter().find(|key| secret.get(key).is_none()) {
            let of = op.class_ref();
            let message = format!("the secret of {of} has no key {key:?}: add it there");
            return Err(Error::new(Code::FailedPrecondition, message));
        }
    }
    if spec.hang.contains(&op.verb()) {
        op.cancellation().cancelled().await;
        return Err(cancelled());
    }
    match spec.failure(op.verb()) {
        Some(code) => Err(Error::new(code, "this class makes some operations fail")),
        None => Ok(spec),
    }
}

/// Lets time pass, unless the operation is cancelled meanwhile.
async fn pause(op: &Operation, time: Duration) -> Result<(), Error> {
    match op.cancellation().run_until_cancelled(tokio::time::sleep(time)).await {
        Some(()) => Ok(()),
        None => Err(cancelled()),
    }
}

fn described(vm: Vm, spec: &Spec) -> Result<Machine, Error> {
    let ready = vm.initialized || !spec.require_initialize;
    let machine = Machine {
        provider_id: vm.provider_id(),
        node_name: vm.name,
        addresses: vm.addresses.into_iter().map(Into::into).collect(),
        last_known_state: if ready { "running" } else { "uninitialized" }.to_owned(),
    };
    if ready {
        Ok(machine)
    } else {
        Err(Error::uninitialized("the VM is there and has to be initialized", machine))
    }
}

/// The name becomes part of a file's name, so it must not be more than a name.
fn checked_name(op: &Operation) -> Result<&str, Error> {
    let name = op.machine_name();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.len() > LONGEST_NAME || name.starts_with('.') || !name.chars().all(plain) {
        return Err(Error::invalid_argument("this cloud does not take such a name"));
    }
    Ok(name)
}

fn full(limit: usize) -> Error {
    Error::resource_exhausted(format!("the class has all the {limit} VMs it may have"))
        .with_retry_after(RETRY_FULL)
}

fn absent(op: &Operation) -> Error {
    Error::not_found(format!("there is no VM for machine {}", op.machine_name()))
}

fn cancelled() -> Error {
    Error::cancelled("stopped, as nobody waits for it any more")
}

#[cfg(test)]
mod tests;
