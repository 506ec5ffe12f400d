//! A folder with a catalog and a cloud, and the real binaries around it.

use std::{path::PathBuf, process::Command};

use sim_driver::Cloud;

use crate::{
    API_VERSION, CLASS, KIND,
    process::{BrokerProcess, Process, binary},
};

/// What the class of the sim driver says unless told otherwise: long enough for a retry to come while
/// the first execution is still at it.
const SPEC: &str = "createDelay: 600ms";

pub struct World {
    folder: tempfile::TempDir,
}

impl Default for World {
    fn default() -> Self {
        Self::with(SPEC)
    }
}

impl World {
    /// Whose class says this, as fields of YAML.
    pub fn with(spec: &str) -> Self {
        let class = format!(
            "
apiVersion: {API_VERSION}
kind: {KIND}
metadata: {{name: {CLASS}, namespace: default}}
spec: {{{spec}, secretRef: {{name: credentials, namespace: default}}}}
---
apiVersion: v1
kind: Secret
metadata: {{name: credentials, namespace: default}}
stringData: {{token: secret, userData: hello}}
"
        );
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("catalog")).expect("a folder");
        std::fs::write(folder.path().join("catalog/classes.yaml"), class).expect("a file");
        Self { folder }
    }

    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    /// A broker that listens on this address.
    pub fn broker(&self, listen: &str, more: &[&str]) -> BrokerProcess {
        BrokerProcess::start(
            &[&self.broker_args(listen).each_ref().map(String::as_str), more].concat(),
        )
    }

    /// The same within a limit, as the shell's `ulimit` takes it.
    pub fn broker_within(&self, limit: &str, listen: &str, more: &[&str]) -> BrokerProcess {
        let args = self.broker_args(listen);
        BrokerProcess::start_within(limit, &[&args.each_ref().map(String::as_str), more].concat())
    }

    fn broker_args(&self, listen: &str) -> [String; 7] {
        let catalog = format!("dir:{}", self.path("catalog"));
        ["serve", "--listen", listen, "--admin", "127.0.0.1:0", "--catalog", &catalog]
            .map(str::to_owned)
    }

    pub fn driver(&self, broker: &str, instance: &str, more: &[&str]) -> Process {
        let mut driver = self.driver_command(broker, instance);
        Process::start(driver.arg("--journal").arg(self.journal()).args(more))
    }

    /// The same within a limit, as the shell's `ulimit` takes it. It writes nothing down: whoever keeps
    /// a journal has to have room for it.
    pub fn driver_within(&self, limit: &str, broker: &str, instance: &str) -> Process {
        Process::start_within(limit, &self.driver_command(broker, instance))
    }

    fn driver_command(&self, broker: &str, instance: &str) -> Command {
        let mut driver = Command::new(binary("sim-driver"));
        let cloud = self.path("cloud");
        driver.args(["--cloud", &cloud, "--broker", broker, "--instance-id", instance]);
        driver
    }

    /// Where drivers write down what they do.
    pub fn journal(&self) -> PathBuf {
        self.folder.path().join("journal")
    }

    /// The provider, whoever is alive.
    pub fn cloud(&self) -> Cloud {
        Cloud::open(self.path("cloud")).expect("the cloud is there")
    }
}
