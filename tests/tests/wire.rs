//! The bytes of 2018, so that nobody can break the wire unnoticed.
//!
//! Drivers in the field were compiled against the historic protocol and will not be compiled again.
//! Each message they send or receive stands here byte by byte, written down from the protocol's
//! table and not from our encoder, and is held against the generated types in both directions.
//!
//! How to read a golden: `number << 3 | wire type` is a field's first byte (wire type 0: varint,
//! 2: length and content), so `0a` opens field 1 as a string or message, `08` as a number.

use std::{collections::BTreeMap, fmt};

use broker_proto::{
    DESCRIPTORS,
    v1::{
        BrokerSide, CreateResponse, DeleteResponse, DriverSide, ListResponse, ListedMachine,
        MachineClass, MachineClassMeta, OperationParams, Registration, Secret, SecretMeta,
        driver_side::Response,
    },
};
use prost::Message;
use prost_types::{
    DescriptorProto, FileDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};

/// Fields from here on are for native drivers; what lies below is history.
const FIRST_NATIVE_FIELD: i32 = 16;

// ---- broker -> driver (MCMside) ----

#[test]
fn broker_side_asks_for_a_registration() {
    golden(
        "08 01              # 1: operationID = 1
         12 08 'register'   # 2: operationType, 8 bytes",
        BrokerSide {
            operation_id: 1,
            operation_type: "register".into(),
            params: None,
            control: None,
        },
    );
}

#[test]
fn broker_side_asks_for_a_machine() {
    golden(
        "08 02                  # 1: operationID = 2
         12 06 'create'         # 2: operationType
         1a 62                  # 3: params, 98 bytes
           0a 54                #   1: MachineClassMeta, 84 bytes
             0a 50              #     1: name, 80 bytes
               '/apis/machine.sapcloud.io/v1alpha1'
               '/namespaces/default/awsmachineclasses/test-aws'
             10 05              #     2: revision = 5
                                #   2: credentials, always empty, so not on the wire
                                #   3: machineID, empty on create
           22 0a 'machine-00'   #   4: machineName",
        BrokerSide {
            operation_id: 2,
            operation_type: "create".into(),
            params: Some(OperationParams {
                machine_class: Some(MachineClassMeta {
                    name: CLASS_PATH.into(),
                    revision: 5,
                    ..Default::default()
                }),
                machine_name: "machine-00".into(),
                ..Default::default()
            }),
            control: None,
        },
    );
}

#[test]
fn broker_side_with_every_parameter_set() {
    golden(
        "08 ac 02                 # 1: operationID = 300, low seven bits first
         12 06 'delete'           # 2: operationType
         1a 20                    # 3: params, 32 bytes
           0a 07                  #   1: MachineClassMeta, 7 bytes
             0a 03 'aws'          #     1: name
             10 01                #     2: revision = 1
           12 04 'cred'           #   2: credentials
           1a 0a 'aws:///i-1'     #   3: machineID, the provider's id
           22 03 'm-1'            #   4: machineName",
        BrokerSide {
            operation_id: 300,
            operation_type: "delete".into(),
            params: Some(OperationParams {
                machine_class: Some(MachineClassMeta {
                    name: "aws".into(),
                    revision: 1,
                    ..Default::default()
                }),
                credentials: "cred".into(),
                machine_id: "aws:///i-1".into(),
                machine_name: "m-1".into(),
                ..Default::default()
            }),
            control: None,
        },
    );
}

/// The Go client dereferences both without a look: set but empty must not become absent.
#[test]
fn broker_side_keeps_empty_params_and_an_empty_class_apart_from_absent_ones() {
    golden(
        "08 03          # 1: operationID = 3
         12 04 'list'   # 2: operationType
         1a 02          # 3: params, 2 bytes
           0a 00        #   1: MachineClassMeta, set and empty",
        BrokerSide {
            operation_id: 3,
            operation_type: "list".into(),
            params: Some(OperationParams {
                machine_class: Some(MachineClassMeta::default()),
                ..Default::default()
            }),
            control: None,
        },
    );
}

/// `int32` travels sign-extended to 64 bits. `sint32` or `uint32` would not.
#[test]
fn operation_ids_are_plain_int32() {
    golden(
        "08 ff ff ff ff ff ff ff ff ff 01   # 1: operationID = -1, ten bytes",
        BrokerSide { operation_id: -1, ..Default::default() },
    );
    golden(
        "08 ff ff ff ff 07                  # 1: operationID = 2147483647",
        DriverSide { operation_id: i32::MAX, ..Default::default() },
    );
}

// ---- driver -> broker (DriverSide) ----

#[test]
fn driver_side_registers() {
    golden(
        "08 01                                # 1: operationID, that of the question
         12 08 'register'                     # 2: operationType
         1a 40                                # 3: registration, 64 bytes
           0a 0e 'externalDriver'             #   1: name
           12 13 'machine.sapcloud.io'        #   2: group
           1a 0f 'AWSMachineClass'            #   3: kind
           22 08 'v1alpha1'                   #   4: version",
        DriverSide {
            operation_id: 1,
            operation_type: "register".into(),
            response: Some(Response::Registration(Registration {
                name: "externalDriver".into(),
                group: "machine.sapcloud.io".into(),
                kind: "AWSMachineClass".into(),
                version: "v1alpha1".into(),
                hello: None,
            })),
        },
    );
}

#[test]
fn driver_side_has_created_a_machine() {
    golden(
        "08 02                       # 1: operationID
         12 06 'create'              # 2: operationType
         22 17                       # 4: create, 23 bytes
           0a 0a 'aws:///i-1'        #   1: providerID
           12 09 'ip-10-0-0'         #   2: nodename
                                     #   3: error, empty is success",
        DriverSide {
            operation_id: 2,
            operation_type: "create".into(),
            response: Some(Response::Create(CreateResponse {
                provider_id: "aws:///i-1".into(),
                node_name: "ip-10-0-0".into(),
                error: String::new(),
            })),
        },
    );
}

#[test]
fn driver_side_could_not_create_a_machine() {
    golden(
        "08 02                # 1: operationID
         12 06 'create'       # 2: operationType
         22 07                # 4: create, 7 bytes
           1a 05 'quota'      #   3: error",
        DriverSide {
            operation_id: 2,
            operation_type: "create".into(),
            response: Some(Response::Create(CreateResponse {
                error: "quota".into(),
                ..Default::default()
            })),
        },
    );
}

/// A delete that went well is an empty message that is there: its absence means "unknown type".
#[test]
fn driver_side_has_deleted_a_machine() {
    golden(
        "08 03            # 1: operationID
         12 06 'delete'   # 2: operationType
         2a 00            # 5: delete, set and empty",
        DriverSide {
            operation_id: 3,
            operation_type: "delete".into(),
            response: Some(Response::Delete(DeleteResponse::default())),
        },
    );
}

#[test]
fn driver_side_could_not_delete_a_machine() {
    golden(
        "08 03               # 1: operationID
         12 06 'delete'      # 2: operationType
         2a 06               # 5: delete, 6 bytes
           0a 04 'busy'      #   1: error",
        DriverSide {
            operation_id: 3,
            operation_type: "delete".into(),
            response: Some(Response::Delete(DeleteResponse { error: "busy".into() })),
        },
    );
}

#[test]
fn driver_side_lists_machines() {
    golden(
        "08 04                 # 1: operationID
         12 04 'list'          # 2: operationType
         32 18                 # 6: list, 24 bytes
           0a 0a               #   1: first machine, 10 bytes
             0a 03 'i-1'       #     1: machineID
             12 03 'm-1'       #     2: machineName
           0a 0a               #   1: second machine, 10 bytes
             0a 03 'i-2'       #     1: machineID
             12 03 'm-2'       #     2: machineName",
        DriverSide {
            operation_id: 4,
            operation_type: "list".into(),
            response: Some(Response::List(ListResponse {
                machines: vec![listed("i-1", "m-1"), listed("i-2", "m-2")],
                error: String::new(),
            })),
        },
    );
}

#[test]
fn driver_side_has_no_machines_to_list() {
    golden(
        "08 04          # 1: operationID
         12 04 'list'   # 2: operationType
         32 00          # 6: list, set and empty",
        DriverSide {
            operation_id: 4,
            operation_type: "list".into(),
            response: Some(Response::List(ListResponse::default())),
        },
    );
}

#[test]
fn driver_side_could_not_list_machines() {
    golden(
        "08 04               # 1: operationID
         12 04 'list'        # 2: operationType
         32 08               # 6: list, 8 bytes
           12 06 'denied'    #   2: error",
        DriverSide {
            operation_id: 4,
            operation_type: "list".into(),
            response: Some(Response::List(ListResponse {
                machines: Vec::new(),
                error: "denied".into(),
            })),
        },
    );
}

#[test]
fn driver_side_does_not_know_the_type() {
    golden(
        "08 05                   # 1: operationID
         12 0a 'get_status'      # 2: operationType, as it came, and no response",
        DriverSide { operation_id: 5, operation_type: "get_status".into(), response: None },
    );
}

#[test]
fn driver_side_leaves() {
    golden(
        "12 0a 'unregister'   # 2: operationType; the operationID stays 0, so not on the wire",
        DriverSide { operation_type: "unregister".into(), ..Default::default() },
    );
}

// ---- classes and secrets ----

#[test]
fn machine_class_meta() {
    golden(
        "0a 50              # 1: name, 80 bytes
           '/apis/machine.sapcloud.io/v1alpha1'
           '/namespaces/default/awsmachineclasses/test-aws'
         10 07              # 2: revision = 7",
        MachineClassMeta { name: CLASS_PATH.into(), revision: 7, ..Default::default() },
    );
}

#[test]
fn secret_meta() {
    golden(
        "0a 0b 'test-secret'   # 1: secretName
         12 07 'default'       # 2: nameSpace
         18 01                 # 3: revision = 1",
        SecretMeta {
            secret_name: "test-secret".into(),
            namespace: "default".into(),
            revision: 1,
            ..Default::default()
        },
    );
}

#[test]
fn machine_class() {
    golden(
        "0a 10 '{\"spec\":{\"a\":1}}'   # 1: data, the whole object as JSON",
        MachineClass { data: r#"{"spec":{"a":1}}"#.into(), ..Default::default() },
    );
    golden(
        "12 07 'no-such'   # 2: error",
        MachineClass { error: "no-such".into(), ..Default::default() },
    );
}

#[test]
fn secret() {
    golden(
        "0a 15 '{\"data\":{\"a\":\"Yg==\"}}'   # 1: data, the whole Secret, its values in base64",
        Secret { data: r#"{"data":{"a":"Yg=="}}"#.into(), error: String::new(), revision: 0 },
    );
    golden(
        "12 07 'no-such'   # 2: error",
        Secret { data: String::new(), error: "no-such".into(), revision: 0 },
    );
}

// ---- what keeps both sides free to grow ----

/// What is not set is not sent, native fields included: a historic peer never meets one by default.
#[test]
fn an_empty_message_is_no_bytes_at_all() {
    golden("", DriverSide::default());
    golden("", BrokerSide::default());
    golden("", Registration::default());
    golden("", OperationParams::default());
    golden("", MachineClassMeta::default());
    golden("", MachineClass::default());
    golden("", SecretMeta::default());
    golden("", Secret::default());
}

#[test]
fn fields_of_a_later_time_are_skipped_at_every_depth() {
    let known: DriverSide = decode(
        "08 02                  # 1: operationID
         12 06 'create'         # 2: operationType
         22 05                  # 4: create, 5 bytes
           0a 03 'i-1'          #   1: providerID",
    );
    let grown: DriverSide = decode(
        "9a 06 03 'new'         # 99: a string from the future, first
         08 02                  # 1: operationID
         98 06 2a               # 99: and a number
         12 06 'create'         # 2: operationType
         22 0b                  # 4: create, 11 bytes
           0a 03 'i-1'          #   1: providerID
           9a 06 03 'new'       #   99
         9a 06 00               # 99: and an empty one, last",
    );
    assert_eq!(grown, known);

    let known: BrokerSide = decode("1a 04  0a 02  10 05   # 3: params, 1: class, 2: revision");
    let grown: BrokerSide = decode(
        "1a 0d                  # 3: params, 13 bytes
           0a 05                #   1: MachineClassMeta, 5 bytes
             10 05              #     2: revision = 5
             98 06 01           #     99
           9d 06 'four'         #   99: a fixed32, whose length is in its type",
    );
    assert_eq!(grown, known);
}

/// The table itself. Goldens show single messages; this shows that nothing is missing from them.
#[test]
fn historic_fields_are_those_of_the_table_and_all_others_are_native() {
    let table = "
        MachineClassMeta 1 string        MachineClassMeta 2 int32
        SecretMeta 1 string              SecretMeta 2 string             SecretMeta 3 int32
        MachineClass 1 string            MachineClass 2 string
        Secret 1 string                  Secret 2 string
        DriverSide 1 int32               DriverSide 2 string
        DriverSide 3 Registration        DriverSide 4 CreateResponse
        DriverSide 5 DeleteResponse      DriverSide 6 ListResponse
        Registration 1 string            Registration 2 string
        Registration 3 string            Registration 4 string
        CreateResponse 1 string          CreateResponse 2 string         CreateResponse 3 string
        DeleteResponse 1 string
        ListResponse 1 ListedMachine*    ListResponse 2 string
        ListedMachine 1 string           ListedMachine 2 string
        BrokerSide 1 int32               BrokerSide 2 string             BrokerSide 3 OperationParams
        OperationParams 1 MachineClassMeta                               OperationParams 2 string
        OperationParams 3 string         OperationParams 4 string";
    let mut expected = BTreeMap::<&str, BTreeMap<i32, String>>::new();
    let words: Vec<_> = table.split_whitespace().collect();
    for field in words.chunks_exact(3) {
        let number = field[1].parse().expect("a field number");
        expected.entry(field[0]).or_default().insert(number, field[2].to_owned());
    }

    let driver = driver_proto();
    for (name, fields) in expected {
        let message = driver.message_type.iter().find(|message| message.name() == name);
        let message = message.unwrap_or_else(|| panic!("{name} is gone from driver.proto"));
        assert_eq!(historic_fields(message), fields, "fields of {name}");
    }
}

#[test]
fn the_service_has_the_historic_methods() {
    let driver = driver_proto();
    let service = driver.service.iter().find(|service| service.name() == "Drivers");
    let methods: Vec<_> = service
        .expect("driver.proto has a service Drivers")
        .method
        .iter()
        .map(|method| {
            let stream = |yes| if yes { "stream " } else { "" };
            format!(
                "{}({}{}) {}{}",
                method.name(),
                stream(method.client_streaming()),
                local_name(method.input_type()),
                stream(method.server_streaming()),
                local_name(method.output_type()),
            )
        })
        .collect();
    assert_eq!(
        methods,
        [
            "Register(stream DriverSide) stream BrokerSide",
            "GetMachineClass(MachineClassMeta) MachineClass",
            "GetSecret(SecretMeta) Secret",
        ]
    );
}

// ---- helpers ----

const CLASS_PATH: &str =
    "/apis/machine.sapcloud.io/v1alpha1/namespaces/default/awsmachineclasses/test-aws";

fn listed(id: &str, name: &str) -> ListedMachine {
    ListedMachine { machine_id: id.into(), machine_name: name.into() }
}

/// Holds `message` against its golden bytes in both directions.
#[track_caller]
fn golden<M: Message + Default + PartialEq + fmt::Debug>(bytes: &str, message: M) {
    assert_eq!(hex(&message.encode_to_vec()), hex(&parse(bytes)), "encoding {message:?}");
    assert_eq!(decode::<M>(bytes), message, "decoding");
}

#[track_caller]
fn decode<M: Message + Default>(bytes: &str) -> M {
    M::decode(parse(bytes).as_slice()).expect("golden bytes are a message")
}

/// Bytes from hex digits and `'text'`; `#` opens a remark that lasts to the end of the line.
#[track_caller]
fn parse(golden: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in golden.lines() {
        let code = line.split('#').next().unwrap_or_default();
        for word in code.split_whitespace() {
            match word.strip_prefix('\'').and_then(|word| word.strip_suffix('\'')) {
                Some(text) => bytes.extend(text.as_bytes()),
                None => bytes.push(u8::from_str_radix(word, 16).expect("two hex digits")),
            }
        }
    }
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x} ")).collect()
}

fn driver_proto() -> FileDescriptorProto {
    FileDescriptorSet::decode(DESCRIPTORS)
        .expect("our own descriptors")
        .file
        .into_iter()
        .find(|file| file.name() == "machinebroker/v1/driver.proto")
        .expect("driver.proto is among them")
}

/// The fields below the native range, each with its type; `*` stands for repeated.
fn historic_fields(message: &DescriptorProto) -> BTreeMap<i32, String> {
    let mut fields = BTreeMap::new();
    for field in message.field.iter().filter(|field| field.number() < FIRST_NATIVE_FIELD) {
        let mut kind = match field.r#type() {
            Type::String => "string".to_owned(),
            Type::Int32 => "int32".to_owned(),
            Type::Message => local_name(field.type_name()).to_owned(),
            other => format!("{other:?}"),
        };
        if field.label() == Label::Repeated {
            kind.push('*');
        }
        fields.insert(field.number(), kind);
    }
    fields
}

/// The last part of a type's full name: packages differ between the generations, types do not.
fn local_name(full: &str) -> &str {
    full.rsplit('.').next().unwrap_or(full)
}
