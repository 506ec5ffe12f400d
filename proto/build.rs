//! Compiles the `.proto` files with protox, a compiler in Rust, so that cargo is all a clone needs.

use std::{env, error::Error, fmt::Write as _, fs, path::PathBuf};

use protox::prost_reflect::{
    FieldDescriptor, MessageDescriptor, Value,
    prost_types::{FileDescriptorSet, field_descriptor_proto::Type},
};

const FILES: [&str; 3] = [
    "machinebroker/v1/driver.proto",
    "machinebroker/v1/machines.proto",
    "machinebroker/v1/registry.proto",
];
const PACKAGE: &str = "machinebroker.v1";

/// The messages of every operation, which the broker mostly passes on: it has types of its own for them.
const PASSED_ON: [&str; 5] =
    ["BrokerSide", "DriverSide", "GetVolumeIDsRequest", "ListMachinesRequest", "OperationResult"];
/// Their fields that are bytes in these types: on the wire they are the same.
const AS_BYTES: [&str; 5] = [
    "BrokerSide.operation_type",
    "DriverSide.operation_type",
    "GetVolumeIDsRequest.class",
    "ListMachinesRequest.class",
    "OperationResult.machine",
];

/// What is large, in a box: a frame is as large as its largest variant, and moved about.
const BOXED: [&str; 7] = [
    "BrokerSide.params",
    "BrokerSide.control.peers",
    "BrokerSide.control.reject",
    "BrokerSide.control.welcome",
    "DriverSide.response.registration",
    "DriverSide.response.result",
    "DriverSide.response.resumed",
];
/// The messages of every operation as a driver has them.
const DRIVEN: [&str; 2] = ["BrokerSide", "DriverSide"];
/// What an operation is about is read where it arrived ([`Asked`](src/asked.rs)).
const DRIVEN_AS_BYTES: [&str; 3] =
    ["BrokerSide.operation_type", "BrokerSide.params", "DriverSide.operation_type"];
/// Has fields that are hidden, which nobody can tell from its bytes.
const OPAQUE: &str = "BrokerSide.params";
/// Encoded by the driver itself, from what it has at hand.
const RESULT: &str = "OperationResult";
/// As bytes they are too small for a box.
const UNBOXED: [&str; 2] = [OPAQUE, "DriverSide.response.result"];

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
        ours.iter().filter(|message| is_reticent(message, None)).collect();
    fs::write(out.join("debug.rs"), debug_impls(&reticent, None)?)?;
    fs::write(out.join("messages.rs"), table(&ours, "v1")?)?;
    for (module, names, opaque) in
        [("passing", &PASSED_ON[..], None), ("driving", &DRIVEN, Some(OPAQUE))]
    {
        let is_in = |message: &&MessageDescriptor| names.contains(&message.name());
        let reticent: Vec<_> =
            ours.iter().filter(is_in).filter(|m| is_reticent(m, opaque)).collect();
        let messages: Vec<_> = ours.iter().filter(is_in).cloned().collect();
        fs::write(out.join(format!("{module}_debug.rs")), debug_impls(&reticent, opaque)?)?;
        fs::write(out.join(format!("{module}_messages.rs")), table(&messages, module)?)?;
    }

    let configure = || {
        tonic_prost_build::configure()
            .codec_path("crate::codec::FrugalCodec")
            .extern_path(".google.rpc.Status", "::tonic_types::Status")
            // `Vec<u8>` would copy user data once more on its way through.
            .bytes(".machinebroker.v1")
            .skip_debug(reticent.iter().map(|message| format!(".{}", message.full_name())))
    };
    configure().compile_fds(compiler.file_descriptor_set())?;

    // A module with types of its own for some messages, and those of `v1` for the others.
    let own_types = |module: &str, names: &[&str]| -> Result<_, Box<dyn Error>> {
        let folder = out.join(module);
        fs::create_dir_all(&folder)?;
        let mut configure = configure().out_dir(&folder);
        for boxed in BOXED.iter().filter(|boxed| module != "driving" || !UNBOXED.contains(boxed)) {
            configure = configure.boxed(format!(".{PACKAGE}.{boxed}"));
        }
        for other in ours.iter().filter(|message| !names.contains(&message.name())) {
            let (path, name) = (format!(".{}", other.full_name()), other.name());
            configure = configure.extern_path(path, format!("crate::v1::{name}"));
        }
        Ok(configure)
    };
    let files = compiler.file_descriptor_set();
    own_types("passing", &PASSED_ON)?
        // A machine of it is bytes, which must not be printed.
        .skip_debug([format!(".{PACKAGE}.OperationResult")])
        .compile_fds(with_bytes(files.clone(), &[], &AS_BYTES)?)?;
    let with_result: Vec<&str> = DRIVEN.into_iter().chain([RESULT]).collect();
    own_types("driving", &with_result)?
        .build_server(false)
        .skip_debug([format!(".{PACKAGE}.BrokerSide")])
        // That would be skipped as well, as a part of it.
        .enum_attribute(format!(".{PACKAGE}.BrokerSide.control"), "#[derive(Debug)]")
        .extern_path(format!(".{PACKAGE}.{RESULT}"), "crate::encoded::Encoded")
        .compile_fds(with_bytes(files, &["Drivers"], &DRIVEN_AS_BYTES)?)?;
    Ok(())
}

/// The same descriptors, with these services alone and these fields as bytes.
fn with_bytes(
    mut files: FileDescriptorSet,
    services: &[&str],
    fields: &[&str],
) -> Result<FileDescriptorSet, Box<dyn Error>> {
    let mut left: Vec<&str> = fields.to_vec();
    for file in files.file.iter_mut().filter(|file| file.package() == PACKAGE) {
        file.service.retain(|service| services.contains(&service.name()));
        for message in &mut file.message_type {
            let name = message.name().to_owned();
            for field in &mut message.field {
                let path = format!("{name}.{}", field.name());
                if let Some(at) = left.iter().position(|known| *known == path) {
                    left.swap_remove(at);
                    field.set_type(Type::Bytes);
                    field.type_name = None;
                }
            }
        }
    }
    if left.is_empty() { Ok(files) } else { Err(format!("there are no fields {left:?}").into()) }
}

/// Whether a field's value must not be printed: `[debug_redact = true]`.
fn is_hidden(field: &FieldDescriptor) -> bool {
    let options = field.options();
    options.get_field_by_name("debug_redact").is_some_and(|value| *value == Value::Bool(true))
}

fn is_reticent(message: &MessageDescriptor, opaque: Option<&str>) -> bool {
    message.fields().any(|field| is_hidden(&field) || is_opaque(&field, opaque))
}

/// Whether a field is the one with this path.
fn is_opaque(field: &FieldDescriptor, opaque: Option<&str>) -> bool {
    opaque.is_some_and(|path| field.full_name().strip_prefix(PACKAGE) == Some(&format!(".{path}")))
}

/// A `Debug` for each of these messages that shows all but the hidden fields and the `opaque` one.
fn debug_impls(
    messages: &[&MessageDescriptor],
    opaque: Option<&str>,
) -> Result<String, Box<dyn Error>> {
    let mut code = String::new();
    for message in messages {
        let oneofs = || message.oneofs().filter(|oneof| !oneof.is_synthetic());
        let in_oneofs: Vec<_> =
            oneofs().flat_map(|oneof| oneof.fields().collect::<Vec<_>>()).collect();
        if in_oneofs.iter().any(is_hidden) {
            return Err(format!("{} hides a choice: teach build.rs", message.full_name()).into());
        }
        let name = message.name();
        write!(
            code,
            "impl ::core::fmt::Debug for {name} {{\n\
             fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {{\n\
             f.debug_struct(\"{name}\")"
        )?;
        for oneof in oneofs() {
            write!(code, ".field(\"{0}\", &self.{0})", oneof.name())?;
        }
        for field in message.fields().filter(|field| !in_oneofs.contains(field)) {
            let shown = if is_hidden(&field) || is_opaque(&field, opaque) {
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
fn table(messages: &[MessageDescriptor], module: &str) -> Result<String, Box<dyn Error>> {
    let mut code = String::from("[\n");
    for message in messages.iter().filter(|message| !message.is_map_entry()) {
        let name = message.name();
        writeln!(code, "(\"{name}\", decoded_and_printed::<crate::{module}::{name}> as Print),")?;
    }
    code.push_str("]\n");
    Ok(code)
}
