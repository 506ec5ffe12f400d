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

/// The service and the method at `path`, if it leads to one.
pub fn names(path: &str) -> Option<(&str, &str)> {
    let path = path.strip_prefix('/')?;
    // A search for a character is made for long texts.
    let slash = path.bytes().position(|byte| byte == b'/')?;
    Some((&path[..slash], &path[slash + 1..]))
}

/// What calling the method at `path` needs; `None` for what does not exist.
pub fn need(path: &str) -> Option<Need> {
    Some(match names(path)? {
        ("machinebroker.v1.Drivers", "Register" | "GetMachineClass" | "GetSecret") => Need::Driver,
        (
            "machinebroker.v1.Machines",
            "CreateMachine" | "InitializeMachine" | "DeleteMachine" | "GetMachineStatus"
            | "ListMachines" | "GetVolumeIDs" | "Submit",
        ) => Need::Controller,
        (
            "machinebroker.v1.Registry",
            "GetBrokerStatus" | "ListDrivers" | "GetDriver" | "WatchDrivers" | "PingDriver"
            | "ListOperations" | "WatchOperations" | "ListClasses" | "SetLogFilter",
        ) => Need::Read,
        ("machinebroker.v1.Registry", "DrainDriver" | "EvictDriver") => Need::Steer,
        ("grpc.health.v1.Health", "Check" | "List") => Need::Nothing,
        // Stays open, so it takes somebody who can be named.
        ("grpc.health.v1.Health", "Watch") => Need::AnyRole,
        ("grpc.reflection.v1.ServerReflection", "ServerReflectionInfo") => Need::AnyRole,
        _ => return None,
    })
}
