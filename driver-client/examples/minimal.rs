//! A whole driver: its cloud is a map in memory.

use std::{collections::BTreeMap, sync::Mutex};

use driver_client::{
    Config, Driver, Error, Kind, ListedMachine, Machine, Operation, RunError, async_trait, run,
};

#[derive(Default)]
struct Memory {
    machines: Mutex<BTreeMap<String, String>>,
}

#[async_trait]
impl Driver for Memory {
    async fn create(&self, op: &Operation) -> Result<Machine, Error> {
        let mut machines = self.machines.lock().unwrap();
        let made = || format!("memory:///{}", op.machine_name());
        let provider_id = machines.entry(op.machine_name().into()).or_insert_with(made).clone();
        Ok(Machine { provider_id, node_name: op.machine_name().into(), ..Machine::default() })
    }

    async fn delete(&self, op: &Operation) -> Result<(), Error> {
        self.machines.lock().unwrap().remove(op.machine_name());
        Ok(())
    }

    async fn list(&self, op: &Operation) -> Result<Vec<ListedMachine>, Error> {
        let machines = self.machines.lock().unwrap();
        let wanted = |id: &str| op.provider_id().is_none_or(|only| only == id);
        let listed = |(name, id): (&String, &String)| ListedMachine {
            machine_name: name.clone(),
            provider_id: id.clone(),
        };
        Ok(machines.iter().filter(|(_, id)| wanted(id)).map(listed).collect())
    }
}

#[tokio::main]
async fn main() -> Result<(), RunError> {
    tracing_subscriber::fmt().init();
    let kinds = vec![Kind::new("memory.machinebroker.dev/v1", "MemoryMachineClass")];
    run(Config { name: "memory".into(), kinds, ..Config::from_env() }, Memory::default()).await
}
