//! A driver whose class has a spec of its own type, and perhaps a secret. Its cloud only says what it
//! was asked for.

use driver_client::{
    Config, Driver, Error, Kind, ListedMachine, Machine, Operation, RunError, async_trait, run,
};

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    machine_type: String,
    #[serde(default)]
    tags: Vec<String>,
}

struct Talker {
    cloud: Cloud,
}

#[async_trait]
impl Driver for Talker {
    async fn create(&self, op: &Operation) -> Result<Machine, Error> {
        let spec: Spec = op.spec().await?;
        let secret = if op.has_secret() { Some(op.secret().await?) } else { None };
        let token = secret.as_ref().and_then(|secret| secret.get("token")).and_then(|t| t.as_str());
        self.cloud.create(op.machine_name(), &spec.machine_type, &spec.tags, token).await
    }

    async fn delete(&self, _: &Operation) -> Result<(), Error> {
        Ok(())
    }

    async fn list(&self, _: &Operation) -> Result<Vec<ListedMachine>, Error> {
        Ok(Vec::new())
    }
}

struct Cloud;

impl Cloud {
    async fn create(
        &self,
        name: &str,
        machine_type: &str,
        tags: &[String],
        token: Option<&str>,
    ) -> Result<Machine, Error> {
        // Never the token itself.
        let signed = token.is_some();
        tracing::info!(name, machine_type, ?tags, signed, "asked for a machine");
        let provider_id = format!("talker:///{machine_type}/{name}");
        Ok(Machine { provider_id, node_name: name.into(), ..Machine::default() })
    }
}

#[tokio::main]
async fn main() -> Result<(), RunError> {
    tracing_subscriber::fmt().init();
    let kinds = vec![Kind::new("talker.machinebroker.dev/v1", "TalkerMachineClass")];
    run(Config { name: "talker".into(), kinds, ..Config::from_env() }, Talker { cloud: Cloud })
        .await
}
