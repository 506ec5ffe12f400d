//! The kinds that a cluster has to know, as CustomResourceDefinitions.
//!
//! The Rust types are the truth; `manifests/crds` holds what `cargo xtask crds` makes of them, and a
//! test fails when the two differ. Without the feature `definitions` there is only what the broker
//! writes itself.

#[cfg(feature = "definitions")]
mod definition;
#[cfg(feature = "definitions")]
mod definitions;
pub mod driver;
#[cfg(feature = "definitions")]
mod machine_class;
#[cfg(feature = "definitions")]
mod sim;
mod time;

#[cfg(feature = "definitions")]
pub use self::{definitions::all, machine_class::MachineClass, sim::SimMachineClass};
