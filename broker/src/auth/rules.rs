//! What each method of each service asks of its caller. What is not in here cannot be called.

/// What a caller needs. The doors look closer where it depends on what is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing: probes carry no credentials.
    Nothing,
    /// Any role.
    AnyRole,
    /// To be a driver; of which kinds, the drivers' door looks.
    Driver,
    /// To be a controller; of which kinds, namespaces and verbs, the controllers' door looks.
    Controller,
    /// To be an operator who may look.
    Read,
    /// To be an operator who may steer.
    Steer,
}

/// What calling the method at `path` needs; `None` for what does not exist.
pub fn need(path: &str) -> Option<Need> {
    Some(match path {
        "/machinebroker.v1.Drivers/Register"
        | "/machinebroker.v1.Drivers/GetMachineClass"
        | "/machinebroker.v1.Drivers/GetSecret" => Need::Driver,
        "/machinebroker.v1.Machines/CreateMachine"
        | "/machinebroker.v1.Machines/InitializeMachine"
        | "/machinebroker.v1.Machines/DeleteMachine"
        | "/machinebroker.v1.Machines/GetMachineStatus"
        | "/machinebroker.v1.Machines/ListMachines"
        | "/machinebroker.v1.Machines/GetVolumeIDs"
        | "/machinebroker.v1.Machines/Submit" => Need::Controller,
        "/machinebroker.v1.Registry/GetBrokerStatus"
        | "/machinebroker.v1.Registry/ListDrivers"
        | "/machinebroker.v1.Registry/GetDriver"
        | "/machinebroker.v1.Registry/WatchDrivers"
        | "/machinebroker.v1.Registry/PingDriver"
        | "/machinebroker.v1.Registry/ListOperations"
        | "/machinebroker.v1.Registry/WatchOperations"
        | "/machinebroker.v1.Registry/ListClasses"
        | "/machinebroker.v1.Registry/SetLogFilter" => Need::Read,
        "/machinebroker.v1.Registry/DrainDriver" | "/machinebroker.v1.Registry/EvictDriver" => {
            Need::Steer
        }
        "/grpc.health.v1.Health/Check" | "/grpc.health.v1.Health/List" => Need::Nothing,
        // Stays open, so it takes somebody who can be named.
        "/grpc.health.v1.Health/Watch" => Need::AnyRole,
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo" => Need::AnyRole,
        _ => return None,
    })
}
