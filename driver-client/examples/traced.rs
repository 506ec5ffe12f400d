//! A driver that exports its spans to an OpenTelemetry collector. Its cloud says yes to everything.

use driver_client::{
    Config, Driver, Error, Kind, ListedMachine, Machine, Operation, async_trait, otlp, run,
};
use tracing::Instrument as _;
use tracing_subscriber::{
    EnvFilter, Layer as _, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

struct MyCloud;

impl MyCloud {
    fn new() -> Self {
        Self
    }

    async fn make(&self, name: &str) -> Machine {
        let provider_id = format!("mycloud:///{name}");
        Machine { provider_id, node_name: name.into(), ..Machine::default() }
    }
}

#[async_trait]
impl Driver for MyCloud {
    async fn create(&self, op: &Operation) -> Result<Machine, Error> {
        // Each call of the cloud is a span below the operation's.
        Ok(self.make(op.machine_name()).instrument(tracing::info_span!("cloud")).await)
    }

    async fn delete(&self, _: &Operation) -> Result<(), Error> {
        Ok(())
    }

    async fn list(&self, _: &Operation) -> Result<Vec<ListedMachine>, Error> {
        Ok(Vec::new())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let kinds = vec![Kind::new("mycloud.example/v1", "MyMachineClass")];
    let config = Config { name: "mycloud".into(), kinds, ..Config::from_env() };
    let (spans, exporter) = otlp::start("http://127.0.0.1:4317".parse()?, &config, &["traced"])?;
    let log = fmt::layer().with_filter(EnvFilter::from_default_env());
    tracing_subscriber::registry().with(log).with(spans).init();
    run(config, MyCloud::new()).await?;
    exporter.stop().await; // sends the last ones
    Ok(())
}
