//! Compiles the `.proto` files with protox, a compiler in Rust, so that cargo is all a clone needs.

use std::{env, error::Error, fmt::Write as _, fs, path::PathBuf};

use protox::prost_reflect::{MessageDescriptor, Value};

const FILES: [&str; 3] = [
    "machinebroker/v1/driver.proto",
    "machinebroker/v1/machines.proto",
    "machinebroker/v1/registry.proto",
];
const PACKAGE: &str = "machinebroker.v1";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).open_files(FILES)?;
    // Server reflection hands the same descriptors out at run time.
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;

    let pool = compiler.descriptor_pool();
    let ours: Vec<MessageDescriptor> =
        pool.all_messages().filter(|message| message.package_name() == PACKAGE).collect();
    let reticent: Vec<&MessageDescriptor> =
        ours.iter().filter(|message| message.fields().any(|field| is_hidden(&field))).collect();
    fs::write(out.join("debug.rs"), debug_impls(&reticent)?)?;
    fs::write(out.join("messages.rs"), table(&ours)?)?;

    tonic_prost_build::configure()
        .codec_path("crate::codec::FrugalCodec")
        .extern_path(".google.rpc.Status", "::tonic_types::Status")
        // `Vec<u8>` would copy user data once more on its way through.
        .bytes(".machinebroker.v1")
        .skip_debug(reticent.iter().map(|message| format!(".{}", message.full_name())))
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}

/// Whether a field's value must not be printed: `[debug_redact = true]`.
fn is_hidden(field: &protox::prost_reflect::FieldDescriptor) -> bool {
    let options = field.options();
    options.get_field_by_name("debug_redact").is_some_and(|value| *value == Value::Bool(true))
}

/// A `Debug` for each of these messages that shows all but the hidden fields.
fn debug_impls(messages: &[&MessageDescriptor]) -> Result<String, Box<dyn Error>> {
    let mut code = String::new();
    for message in messages {
        if message.oneofs().any(|oneof| !oneof.is_synthetic()) {
            return Err(format!("{} has a oneof: teach build.rs", message.full_name()).into());
        }
        let name = message.name();
        write!(
            code,
            "impl ::core::fmt::Debug for {name} {{\n\
             fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {{\n\
             f.debug_struct(\"{name}\")"
        )?;
        for field in message.fields() {
            let shown = if is_hidden(&field) {
                "&::core::format_args!(\"[hidden]\")".to_owned()
            } else {
                format!("&self.{}", field.name())
            };
            write!(code, ".field(\"{}\", {shown})", field.name())?;
        }
        code.push_str(".finish()\n}\n}\n");
    }
    Ok(code)
}

/// All messages, each with a function that decodes one and prints it: for the test that none of them
/// tells too much.
fn table(messages: &[MessageDescriptor]) -> Result<String, Box<dyn Error>> {
    let mut code = String::from("[\n");
    for message in messages.iter().filter(|message| !message.is_map_entry()) {
        let name = message.name();
        writeln!(code, "(\"{name}\", decoded_and_printed::<crate::v1::{name}> as Print),")?;
    }
    code.push_str("]\n");
    Ok(code)
}
