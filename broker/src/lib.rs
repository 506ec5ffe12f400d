//! The server: see ARCHITECTURE.md for the flow.

pub mod driver;
