//! Compiles the `.proto` files with protox, a compiler in Rust, so that cargo is all a clone needs.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

const FILES: [&str; 3] = [
    "machinebroker/v1/driver.proto",
    "machinebroker/v1/machines.proto",
    "machinebroker/v1/registry.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    // Server reflection hands the same descriptors out at run time.
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;

    tonic_prost_build::configure()
        .extern_path(".google.rpc.Status", "::tonic_types::Status")
        // `Vec<u8>` would copy user data once more on its way through.
        .bytes(".machinebroker.v1")
        .compile_fds(descriptors)?;
    Ok(())
}
