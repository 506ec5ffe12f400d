//! The broker: drivers dial in, controllers submit machine operations, operators look.
//!
//! The rooms, in reading order. Data flows one way: door → dispatch → session → driver and back.
//!
//! - [`driver`]: the nouns every room shares.
//! - [`operation`]: one request on its way to an answer; [`operation::Ledger`] keeps them all, and
//!   which machine each works on.
//! - [`session`]: one connected driver: the protocol as a pure state machine, and the task around it.
//! - [`registry`]: who is connected, and which session gets an operation.
//! - [`replicas`]: which other replicas there are, and which drivers they see.
//! - [`dispatch`]: an operation in, its answer out.
//! - [`catalog`]: machine classes and secrets, for dispatch and for drivers that ask.
//! - [`inspect`]: what operators see of all this, through whichever door.
//! - [`steer`]: what operators do to drivers, through whichever door.
//! - [`auth`]: who is calling, and what they may do.
//! - [`bounds`]: how much of the broker anyone may take.
//! - [`audit`]: who did what, one line each.
//! - [`grpc`]: the doors of drivers, controllers and operators.
//! - [`metrics`]: what is counted, for Prometheus.
//! - [`web`]: the admin port: the operators' page, for those who may, and probes.
//! - [`mirror`]: shows in a cluster who is connected.
//! - [`children`]: driver programs that the broker starts itself.
//! - [`server`]: starts every task and knows in which order they stop.
//! - [`commands`], [`config`], [`telemetry`]: flags, environment, logs.

pub mod audit;
pub mod auth;
mod backoff;
pub mod bounds;
pub mod catalog;
pub mod children;
pub mod commands;
pub mod config;
pub mod dispatch;
pub mod driver;
pub mod grpc;
pub mod inspect;
mod maps;
pub mod metrics;
pub mod mirror;
pub mod operation;
pub mod registry;
pub mod replicas;
pub mod server;
pub mod session;
pub mod steer;
pub mod telemetry;
mod turns;
pub mod web;
