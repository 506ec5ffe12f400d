//! Frames as a driver sends them.

use std::{cell::Cell, rc::Rc, time::Duration};

use broker::{
    driver::Verb,
    operation::{self, Answer},
    session::{Call, Terms, Ticket, Times, handshake, machine::Machine},
};
use broker_proto::{
    passing::{self, Native, Parts},
    v1::{self, DriverSide, driver_side::Response, operation_result::Payload},
};
use prost::{Message as _, bytes::BytesMut};
use tokio::time::Instant;

pub(crate) const WORDS: &[&str] = &[
    "register",
    "create",
    "delete",
    "list",
    "unregister",
    "get_status",
    "get_volume_ids",
    "initialize",
    "SimMachineClass",
    "v1alpha1",
    "sim.machinebroker.dev/v1",
    "\u{0}",
    "\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}\u{7f}\u{1}",
];

/// How many operations are offered to a session at most.
const OPERATIONS: usize = 32;
const VERBS: [Verb; 6] =
    [Verb::Create, Verb::Initialize, Verb::Delete, Verb::GetStatus, Verb::List, Verb::GetVolumeIds];

/// What became of the operations.
#[derive(Default)]
struct Count {
    settled: Cell<usize>,
    unwanted: Cell<bool>,
}

struct Probe {
    count: Rc<Count>,
    deadline: Instant,
    is_settled: bool,
}

impl Probe {
    fn settle(&mut self) {
        assert!(!self.is_settled, "settled twice");
        self.is_settled = true;
        self.count.settled.set(self.count.settled.get() + 1);
    }
}

impl Ticket for Probe {
    fn is_wanted(&self) -> bool {
        !self.count.unwanted.get()
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn params(&self, native_session: bool, now: Instant) -> Parts<'_> {
        let time_left = self.deadline().saturating_duration_since(now);
        let native =
            Native { request_id: "again", time_left: Some(time_left), ..Native::default() };
        Parts {
            machine_name: "worker-0",
            native: native_session.then_some(native),
            ..Parts::default()
        }
    }

    fn sent(&self, _: Instant) {}

    fn accepted(&self, _: Instant) {}

    fn answered(mut self, answer: Answer, _: Instant) {
        drop(format!("{answer:?}"));
        if let operation::Payload::Machine(machine) = &answer.payload {
            machine.read().expect("what is passed on can be read");
        }
        self.settle();
    }

    fn refused(mut self) {
        self.settle();
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if !self.is_settled {
            self.settle();
        }
    }
}

/// The input is a list of events: a byte that says which, and two with the length of what belongs to it.
/// The first byte of all is what the driver can do.
pub(crate) fn session(input: &[u8]) {
    let Some((first, mut rest)) = input.split_first() else { return };
    let terms = Terms {
        native: first & 1 == 0,
        cancel: first & 2 == 0,
        drain: first & 4 == 0,
        capacity: usize::from(first >> 3) + 1,
    };
    let mut now = Instant::now();
    let mut machine = Machine::new(terms, Times::default(), now);
    let count = Rc::new(Count::default());
    let mut submitted = 0;
    while let Some((event, content)) = next_event(&mut rest) {
        match event % 8 {
            0..=2 => {
                if let Ok(frame) = passing::DriverSide::decode(content) {
                    drop(machine.hear(frame, now));
                }
            }
            3 if submitted < OPERATIONS && !machine.is_draining() => {
                submitted += 1;
                let deadline = now + Duration::from_secs(60);
                let ticket = Probe { count: Rc::clone(&count), deadline, is_settled: false };
                let verb = VERBS[usize::from(content.first().copied().unwrap_or(0)) % VERBS.len()];
                machine.submit(Call { ticket, verb });
            }
            3 => {}
            4 => {
                while let Some(frame) = machine.next_frame(now) {
                    let mut bytes = BytesMut::new();
                    frame.encode(&mut bytes);
                    v1::BrokerSide::decode(bytes.freeze()).expect("a driver can read it");
                }
            }
            5 => {
                now += Duration::from_millis(content.iter().map(|byte| u64::from(*byte)).sum());
                machine.tick(now);
            }
            6 => {
                count.unwanted.set(content.first().is_some_and(|byte| byte & 1 == 1));
                machine.sweep(now);
            }
            _ => machine.drain(),
        }
        let here = machine.in_flight() + machine.queued();
        assert_eq!(here + count.settled.get(), submitted, "each is here or settled, and once");
        assert!(!terms.native || machine.in_flight() <= terms.capacity, "more than it can do");
    }
    drop(machine);
    assert_eq!(count.settled.get(), submitted, "none is forgotten");
}

fn next_event<'a>(rest: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&[event, low, high], after) = rest.split_first_chunk()?;
    let length = usize::from(u16::from_le_bytes([low, high])).min(after.len());
    let (content, after) = after.split_at(length);
    *rest = after;
    Some((event, content))
}

pub(crate) fn handshake(input: &[u8]) {
    let Ok(frame) = passing::DriverSide::decode(input) else { return };
    match handshake::read(frame, "10.0.0.1:1234") {
        Ok(hello) => {
            assert!((1..=64).contains(&hello.keys.len()), "{} kinds", hello.keys.len());
            assert!((1..=100_000).contains(&hello.terms.capacity));
            for text in [&*hello.name, &*hello.instance.id, &*hello.version] {
                assert!(text.len() <= 600, "{} bytes", text.len());
            }
            for key in &hello.keys {
                assert!(key.kind.bytes().all(|byte| byte.is_ascii_alphanumeric()));
            }
            assert!(hello.verbs.len() <= 64, "{} verbs", hello.verbs.len());
            assert!(!hello.instance.id.chars().any(char::is_control), "{:?}", hello.instance);
            assert!(!hello.name.chars().any(char::is_control), "{:?}", hello.name);
            assert!(!hello.version.chars().any(char::is_control), "{:?}", hello.version);
        }
        Err(rejection) => {
            let told = rejection.to_string();
            assert!(told.len() < 2048 && !told.chars().any(char::is_control), "{told:?}");
        }
    }
}

/// Events of a session as bytes.
struct Script(Vec<u8>);

impl Script {
    fn of(terms: u8) -> Self {
        Self(vec![terms])
    }

    fn event(mut self, event: u8, content: &[u8]) -> Self {
        let length = u16::try_from(content.len()).expect("seeds are short");
        self.0.push(event);
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(content);
        self
    }

    fn hear(self, id: i32, operation_type: &str, response: Option<Response>) -> Self {
        let operation_type = operation_type.to_owned();
        let frame = DriverSide { operation_id: id, operation_type, response };
        self.event(0, &frame.encode_to_vec())
    }

    fn submit(self, verb: u8) -> Self {
        self.event(3, &[verb]).event(4, &[])
    }
}

pub(crate) fn sessions() -> Vec<(&'static str, Vec<u8>)> {
    let machine = v1::MachineResponse { provider_id: "id".to_owned(), ..Default::default() };
    let result = |payload| {
        let retry_after = Some(prost_types::Duration { seconds: i64::MAX, nanos: -1 });
        Some(Response::Result(v1::OperationResult { payload, retry_after, ..Default::default() }))
    };
    let page = |more| {
        let machines = vec![v1::Machine::default()];
        result(Some(Payload::List(v1::ListPage { machines, more })))
    };
    let accepted = || Some(Response::Accepted(v1::Accepted {}));
    let pong = |sequence| {
        Some(Response::Pong(v1::Pong { sequence, in_flight: vec![2, 3], free_slots: 1 }))
    };
    let resumed = v1::Resumed { verb: "create".to_owned(), ..Default::default() };
    let drain = v1::Drain { reason: "why".to_owned(), after: None };
    let created = v1::CreateResponse { provider_id: "id".to_owned(), ..Default::default() };
    let listed =
        v1::ListResponse { machines: vec![v1::ListedMachine::default()], ..Default::default() };
    vec![
        (
            "native",
            Script::of(0x18)
                .submit(0)
                .hear(2, "create", accepted())
                .hear(2, "create", result(Some(Payload::Machine(machine))))
                .submit(4)
                .hear(3, "list", accepted())
                .hear(3, "list", page(true))
                .hear(3, "list", page(false))
                .0,
        ),
        (
            "native-pings",
            Script::of(0x18)
                .submit(0)
                .hear(2, "create", accepted())
                .event(5, &[255; 20])
                .event(4, &[])
                .hear(0, "pong", pong(1))
                .event(5, &[255; 250])
                .hear(0, "pong", pong(u64::MAX))
                .0,
        ),
        (
            "native-leaves",
            Script::of(0)
                .hear(0, "resumed", Some(Response::Resumed(resumed)))
                .submit(2)
                .submit(2)
                .hear(0, "drain", Some(Response::Drain(drain)))
                .hear(2, "delete", result(None))
                .event(6, &[1])
                .event(4, &[])
                .hear(0, "unregister", None)
                .0,
        ),
        (
            "historic",
            Script::of(1)
                .submit(0)
                .hear(2, "create", Some(Response::Create(created)))
                .submit(2)
                .hear(3, "delete", Some(Response::Delete(v1::DeleteResponse::default())))
                .submit(4)
                .hear(4, "list", Some(Response::List(listed)))
                .hear(-1, "", None)
                .0,
        ),
        ("nonsense", Script::of(1).submit(0).hear(2, "create", None).submit(1).event(7, &[]).0),
    ]
}

pub(crate) fn hellos() -> Vec<(&'static str, Vec<u8>)> {
    let frame = |registration| {
        let response = Some(Response::Registration(registration));
        let operation_type = "register".to_owned();
        DriverSide { operation_id: 1, operation_type, response }.encode_to_vec()
    };
    let historic = v1::Registration {
        name: "driver".to_owned(),
        group: "machine.sapcloud.io".to_owned(),
        kind: "AWSMachineClass".to_owned(),
        version: "v1alpha1".to_owned(),
        hello: None,
    };
    let kind = v1::Kind {
        api_version: "sim.machinebroker.dev/v1alpha1".to_owned(),
        kind: "SimMachineClass".to_owned(),
        provider: "aws".to_owned(),
    };
    let hello = v1::Hello {
        protocol_min: 1,
        protocol_max: 1,
        instance_id: "sim-0".to_owned(),
        boot_id: "b".to_owned(),
        driver_version: "1.0".to_owned(),
        kinds: vec![kind],
        verbs: ["create", "delete", "list"].map(str::to_owned).to_vec(),
        capacity: u32::MAX,
        ..Default::default()
    };
    let both = v1::Registration { hello: Some(hello.clone()), ..historic.clone() };
    let native = v1::Registration { hello: Some(hello), ..Default::default() };
    vec![
        ("historic", frame(historic)),
        ("native", frame(native)),
        ("both", frame(both)),
        (
            "not-a-registration",
            DriverSide { operation_id: 9, ..Default::default() }.encode_to_vec(),
        ),
    ]
}
