//! Whoever prints a frame prints no secret: a marker in every text of every message.

use std::fmt;

use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorSet, field_descriptor_proto::Type};

type Print = fn(&[u8]) -> String;

const MARKER: &str = "marker-of-a-secret";

/// What may not be printed. Not read from the options, so that a lost option is noticed.
const HIDDEN: [&str; 10] = [
    "MachineClassMeta.session_token",
    "MachineRequest.last_known_state",
    "MachineRequest.user_data",
    "MachineResponse.last_known_state",
    "OperationParams.credentials",
    "OperationParams.last_known_state",
    "OperationParams.user_data",
    "Secret.data",
    "SecretMeta.session_token",
    "Welcome.session_token",
];

/// Names of fields that sound like secrets. `resume_token` only counts events.
const TELLING: [&str; 6] =
    ["session_token", "user_data", "last_known_state", "credentials", "password", "private_key"];

fn decoded_and_printed<M: Message + Default + fmt::Debug>(bytes: &[u8]) -> String {
    let message = M::decode(bytes).expect("it was encoded for this");
    format!("{message:?} {message:#?}")
}

/// A message with nothing but the marker in its field of this number.
fn with_marker(number: i32) -> Vec<u8> {
    let number = u32::try_from(number).expect("numbers are positive");
    let mut bytes = Vec::new();
    prost::encoding::string::encode(number, &MARKER.to_owned(), &mut bytes);
    bytes
}

fn messages() -> Vec<DescriptorProto> {
    let descriptors = FileDescriptorSet::decode(crate::DESCRIPTORS).expect("our own");
    let ours = descriptors.file.into_iter().filter(|file| file.package() == "machinebroker.v1");
    ours.flat_map(|file| file.message_type).collect()
}

#[test]
fn exactly_the_hidden_fields_do_not_print() {
    let table: &[(&str, Print)] = &include!(concat!(env!("OUT_DIR"), "/messages.rs"));
    let mut hidden = Vec::new();
    let mut shown = 0;
    for message in messages() {
        let name = message.name();
        let (_, print) = table.iter().find(|(known, _)| *known == name).expect("all are listed");
        for field in &message.field {
            if !matches!(field.r#type(), Type::String | Type::Bytes) {
                continue;
            }
            if print(&with_marker(field.number())).contains(MARKER) {
                shown += 1;
            } else {
                hidden.push(format!("{name}.{}", field.name()));
            }
        }
    }
    hidden.sort_unstable();
    assert_eq!(hidden, HIDDEN);
    assert!(shown > 50, "the others do print, or this proves nothing: {shown}");
}

#[test]
fn what_others_have_types_of_their_own_for_prints_no_more() {
    let passing: &[(&str, Print)] = &include!(concat!(env!("OUT_DIR"), "/passing_messages.rs"));
    let driving: &[(&str, Print)] = &include!(concat!(env!("OUT_DIR"), "/driving_messages.rs"));
    for (message, (_, print)) in messages().iter().flat_map(|message| {
        let tables = passing.iter().chain(driving);
        tables.filter(|(known, _)| *known == message.name()).map(move |known| (message, known))
    }) {
        let name = message.name();
        for field in &message.field {
            let is_hidden = HIDDEN.contains(&format!("{name}.{}", field.name()).as_str());
            let printed = is_hidden.then(|| print(&with_marker(field.number())));
            assert!(printed.is_none_or(|text| !text.contains(MARKER)), "{name}.{}", field.name());
        }
    }
}

#[test]
fn a_field_that_sounds_like_a_secret_is_hidden() {
    for message in messages() {
        for field in &message.field {
            let name = format!("{}.{}", message.name(), field.name());
            let telling = TELLING.contains(&field.name());
            assert!(!telling || HIDDEN.contains(&name.as_str()), "{name} would be printed");
        }
    }
}

#[test]
fn a_frame_with_hidden_fields_deep_inside_does_not_print_them() {
    use crate::v1::{BrokerSide, MachineRequest, OperationParams, SubmitRequest, submit_request};
    let params = OperationParams { user_data: Some(MARKER.into()), ..Default::default() };
    let frame = BrokerSide { params: Some(params), ..Default::default() };
    let request = MachineRequest { last_known_state: MARKER.to_owned(), ..Default::default() };
    let operation = Some(submit_request::Operation::Create(request));
    let submit = SubmitRequest { operation, ..Default::default() };
    let printed = format!("{frame:?} {submit:?}");
    assert!(!printed.contains(MARKER) && printed.matches("[hidden]").count() >= 5, "{printed}");
}

#[test]
fn what_a_driver_is_asked_does_not_print() {
    let params =
        crate::v1::OperationParams { user_data: Some(MARKER.into()), ..Default::default() };
    let frame = crate::v1::BrokerSide { params: Some(params), ..Default::default() };
    let printed = decoded_and_printed::<crate::driving::BrokerSide>(&frame.encode_to_vec());
    assert!(printed.contains("params: [hidden]") && !printed.contains(MARKER), "{printed}");
}
