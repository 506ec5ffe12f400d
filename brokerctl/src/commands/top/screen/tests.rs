use std::time::{Duration, UNIX_EPOCH};

use broker_proto::v1::{
    BrokerStatus, ClassRef, Concern, Delivery, Driver, DriverState, Kind, Operation,
};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use prost_types::Timestamp;
use ratatui::{Terminal, backend::TestBackend};

use super::{
    super::model::{Reading, Then},
    *,
};
use crate::commands::drivers::DriverList;

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

fn driver(instance: &str, state: DriverState, reason: &str) -> Driver {
    Driver {
        session_id: format!("session-of-{instance}"),
        instance_id: instance.into(),
        kinds: vec![Kind { kind: "SimMachineClass".into(), ..Kind::default() }],
        state: state.into(),
        state_reason: reason.into(),
        last_heard: seconds(2),
        round_trip: Some(prost_types::Duration { seconds: 0, nanos: 1_400_000 }),
        oldest_pending: seconds(40),
        capacity: 16,
        in_flight: 3,
        ..Driver::default()
    }
}

fn operation(id: &str, age: i64, stuck: &str) -> Operation {
    Operation {
        operation_id: id.into(),
        verb: "create".into(),
        class: Some(ClassRef { name: "small".into(), ..ClassRef::default() }),
        machine_name: format!("worker-{id}"),
        driver_instance: "sim-0".into(),
        delivery: Delivery::Accepted.into(),
        age: seconds(age),
        time_left: seconds(300),
        stuck: stuck.into(),
        ..Operation::default()
    }
}

fn reading() -> Reading {
    let status = BrokerStatus {
        replica_id: "broker-0".into(),
        version: "0.1.0".into(),
        started_at: Some(Timestamp { seconds: 60, nanos: 0 }),
        ready: true,
        concerns: vec![Concern { what: "sim-1 is suspect".into(), advice: "look".into() }],
        drivers_ready: 1,
        drivers_suspect: 1,
        operations_running: 2,
        oldest_pending: seconds(40),
        ..BrokerStatus::default()
    };
    let drivers = vec![
        driver("sim-0", DriverState::Ready, ""),
        driver("sim-1", DriverState::Suspect, "silent for 16s"),
    ];
    Reading::Fresh {
        status: Box::new(StatusView::new("127.0.0.1:5000".into(), status)),
        drivers: DriverList::new(drivers).into_drivers(),
        operations: vec![
            operation("a", 5, "").into(),
            operation("b", 40, "not accepted for 12s").into(),
        ],
    }
}

fn model() -> Model {
    let mut model = Model::new("127.0.0.1:5000".into(), false);
    model.read(reading());
    model.now = UNIX_EPOCH + Duration::from_secs(3660);
    model
}

fn terminal(model: &Model, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("cannot fail");
    terminal.draw(|frame| draw(model, frame)).expect("cannot fail");
    terminal
}

/// The screen as text, without what is blank at the ends of lines.
fn screen(model: &Model, width: u16, height: u16) -> String {
    let terminal = terminal(model, width, height);
    let cells = terminal.backend().buffer().content();
    let line = |cells: &[ratatui::buffer::Cell]| {
        let line: String = cells.iter().map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned() + "\n"
    };
    cells.chunks(usize::from(width)).map(line).collect()
}

fn press(model: &mut Model, code: KeyCode) -> Then {
    model.press(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn everything_is_on_a_screen_of_80_by_24() {
    let mut model = model();
    press(&mut model, KeyCode::Tab);
    let expected = "\
machine-broker 0.1.0 broker-0 at 127.0.0.1:5000, up 60m
1 concern: sim-1 is suspect
drivers: 1 ready, 1 suspect, 0 draining   operations: 2 running, oldest 40s
 Drivers (2) ───────────────────────────────────────────────────────────────────
INSTANCE    KIND(S)     STATE    HEARD     TRIP    LOAD   OLDEST REMARK
sim-0       SimMachineC Ready    2s ago    1.4ms   3/16   40s
sim-1       SimMachineC Suspect  2s ago    1.4ms   3/16   40s    silent for 16s

 Running operations (2) ────────────────────────────────────────────────────────
AGE    VERB       MACHINE    CLASS      DRIVER DELIVERY LEFT   STUCK
40s    create     worker-b   default/sm sim-0  ACCEPTED 5m     not accepted for
5s     create     worker-a   default/sm sim-0  ACCEPTED 5m










> b create worker-b: not accepted for 12s
 q quit   tab other table   ↑↓ move   ? help
";
    assert_eq!(screen(&model, 80, 24), expected);
}

#[test]
fn before_the_first_answer_it_says_so() {
    let text = screen(&Model::new("127.0.0.1:5000".into(), false), 80, 24);
    assert!(text.starts_with("machine-broker at 127.0.0.1:5000\n"), "{text}");
    assert!(text.ends_with("\n connecting\n"), "{text}");
}

#[test]
fn a_lost_connection_is_told_and_the_last_reading_stays() {
    let mut model = model();
    model.read(Reading::Lost("connection refused".into()));
    let text = screen(&model, 80, 24);
    assert!(text.ends_with("\n connection lost, retrying: connection refused\n"), "{text}");
    assert!(text.contains("sim-1"), "{text}");
    model.read(reading());
    assert!(screen(&model, 80, 24).ends_with(&format!("\n{KEYS}\n")));
}

#[test]
fn help_lies_over_the_tables_until_it_is_closed() {
    let mut model = model();
    press(&mut model, KeyCode::Char('?'));
    let text = screen(&model, 80, 24);
    assert!(text.contains("Help") && text.contains("Tab              the other table"), "{text}");
    assert_eq!(press(&mut model, KeyCode::Esc), Then::Stay);
    assert!(!screen(&model, 80, 24).contains("Help"));
    assert_eq!(press(&mut model, KeyCode::Esc), Then::Leave);
}

#[test]
fn keys_leave_and_move() {
    let mut model = model();
    assert_eq!(press(&mut model, KeyCode::Char('q')), Then::Leave);
    let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(model.press(ctrl_c), Then::Leave);

    assert_eq!(model.marked(Pane::Drivers), Some(0));
    press(&mut model, KeyCode::Down);
    press(&mut model, KeyCode::Down);
    assert_eq!(model.marked(Pane::Drivers), Some(1));
    press(&mut model, KeyCode::Tab);
    assert_eq!(model.focus, Pane::Operations);
    press(&mut model, KeyCode::End);
    assert_eq!(model.marked(Pane::Operations), Some(1));
    press(&mut model, KeyCode::Up);
    assert_eq!(model.marked(Pane::Operations), Some(0));
}

#[test]
fn the_mark_stays_with_its_line_when_the_table_moves() {
    let mut model = model();
    press(&mut model, KeyCode::Tab);
    press(&mut model, KeyCode::Down);
    let Reading::Fresh { status, drivers, mut operations } = reading() else {
        panic!("it is fresh")
    };
    operations.remove(1);
    model.read(Reading::Fresh { status, drivers, operations });
    assert_eq!(model.marked(Pane::Operations), Some(0));
    assert_eq!(model.operations[0].operation_id, "a");
}

#[test]
fn colour_is_used_only_where_it_is_wanted() {
    let coloured = |colour| {
        let mut model = model();
        model.colour = colour;
        let terminal = terminal(&model, 80, 24);
        terminal.backend().buffer().content().iter().any(|cell| cell.fg != Color::Reset)
    };
    assert!(coloured(true));
    assert!(!coloured(false));
}

#[test]
fn no_screen_is_too_small_and_no_table_too_long() {
    let mut model = model();
    let (one, two) = (model.drivers[0].clone(), model.operations[0].clone());
    model.drivers = vec![one; 500];
    model.operations = vec![two; 500];
    model.help = true;
    for (width, height) in [(1, 1), (10, 3), (40, 8), (80, 24), (300, 100)] {
        screen(&model, width, height);
    }
    model.help = false;
    let text = screen(&model, 80, 24);
    let (drivers, operations) =
        (text.matches("SimMachine").count(), text.matches("create ").count());
    // Both tables have their half.
    assert!(drivers >= 7 && operations >= 7, "{text}");
}
