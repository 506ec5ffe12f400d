//! The protocol under arbitrary orders of events, with a model beside it.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use broker_proto::passing::{Native, OperationResult, Parts, driver_side, operation_result};
use proptest::prelude::*;

use super::*;
use crate::operation::{Code, Payload};

/// What happened to one operation.
#[derive(Clone, Debug, PartialEq)]
struct Fate {
    deadline: Instant,
    unwanted: bool,
    sent: bool,
    accepted: bool,
    ends: Vec<&'static str>,
    answer: Option<Answer>,
}

#[derive(Debug)]
struct Probe {
    fate: Rc<RefCell<Fate>>,
    settled: bool,
}

impl Probe {
    fn new() -> (Self, Rc<RefCell<Fate>>) {
        let fate = Fate {
            deadline: Instant::now() + Duration::from_secs(60),
            unwanted: false,
            sent: false,
            accepted: false,
            ends: Vec::new(),
            answer: None,
        };
        let fate = Rc::new(RefCell::new(fate));
        (Self { fate: Rc::clone(&fate), settled: false }, fate)
    }

    fn end(&mut self, end: &'static str) {
        self.settled = true;
        self.fate.borrow_mut().ends.push(end);
    }
}

impl Ticket for Probe {
    fn is_wanted(&self) -> bool {
        !self.fate.borrow().unwanted
    }

    fn deadline(&self) -> Instant {
        self.fate.borrow().deadline
    }

    fn params(&self, _: bool, now: Instant) -> Parts<'_> {
        let time_left = self.deadline().saturating_duration_since(now);
        let native = Some(Native { time_left: Some(time_left), ..Native::default() });
        Parts { native, ..Parts::default() }
    }

    fn sent(&self, _: Instant) {
        self.fate.borrow_mut().sent = true;
    }

    fn accepted(&self, _: Instant) {
        self.fate.borrow_mut().accepted = true;
    }

    fn answered(mut self, answer: Answer, _: Instant) {
        self.fate.borrow_mut().answer = Some(answer);
        self.end("answered");
    }

    fn refused(mut self) {
        self.end("refused");
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if !self.settled {
            self.end("lost");
        }
    }
}

fn native(capacity: usize) -> Terms {
    Terms { native: true, cancel: true, drain: true, capacity }
}

fn historic() -> Terms {
    Terms { native: false, cancel: false, drain: false, capacity: 1 }
}

struct Stage {
    machine: Machine<Probe>,
    now: Instant,
}

impl Stage {
    fn new(terms: Terms) -> Self {
        let now = Instant::now();
        Self { machine: Machine::new(terms, Times::default(), now), now }
    }

    fn submit(&mut self, verb: Verb) -> Rc<RefCell<Fate>> {
        let (ticket, fate) = Probe::new();
        self.machine.submit(Call { ticket, verb });
        fate
    }

    fn frames(&mut self) -> Vec<BrokerSide> {
        let mut frames = Vec::new();
        while let Some(frame) = self.machine.next_frame(self.now) {
            let mut bytes = BytesMut::new();
            frame.encode(&mut bytes);
            frames.push(BrokerSide::decode(bytes).expect("a frame"));
        }
        frames
    }

    fn hear(&mut self, id: i32, operation_type: &str, response: Response) -> Option<Notice> {
        let frame = DriverSide {
            operation_id: id,
            operation_type: Bytes::copy_from_slice(operation_type.as_bytes()),
            response: Some(response),
        };
        self.machine.hear(frame, self.now)
    }

    fn accept(&mut self, id: i32) {
        self.hear(id, "create", Response::Accepted(v1::Accepted {}));
    }

    fn answer(&mut self, id: i32, verb: Verb, code: Code) {
        let result = OperationResult { code: code.number(), ..Default::default() };
        self.hear(id, verb.as_str(), Response::Result(result.into()));
    }

    fn pong(&mut self, sequence: u64, in_flight: Vec<i32>) {
        self.hear(0, "pong", Response::Pong(v1::Pong { sequence, in_flight, free_slots: 0 }));
    }

    /// Lets time pass; `false` when the driver is dead by then.
    fn pass(&mut self, time: Duration) -> bool {
        self.now += time;
        self.machine.tick(self.now);
        !self.machine.is_dead(self.now)
    }
}

fn ends(fate: &Rc<RefCell<Fate>>) -> Vec<&'static str> {
    fate.borrow().ends.clone()
}

#[test]
fn an_operation_is_unsent_until_its_frame_is_taken() {
    let mut stage = Stage::new(native(1));
    let fate = stage.submit(Verb::Create);
    assert!(!fate.borrow().sent);
    assert_eq!(stage.frames().len(), 1);
    assert!(fate.borrow().sent);
}

#[test]
fn no_more_goes_out_than_the_driver_can_take() {
    let mut stage = Stage::new(native(2));
    let fates: Vec<_> = (0..3).map(|_| stage.submit(Verb::List)).collect();
    let frames = stage.frames();
    assert_eq!(frames.len(), 2);
    assert!(!fates[2].borrow().sent);
    stage.answer(frames[0].operation_id, Verb::List, Code::OK);
    assert_eq!(stage.frames().len(), 1);
}

#[test]
fn control_frames_go_first() {
    let mut stage = Stage::new(native(4));
    stage.submit(Verb::Create);
    stage.machine.ping_now(stage.now);
    let types: Vec<Bytes> = stage.frames().into_iter().map(|f| f.operation_type).collect();
    assert_eq!(types, ["ping", "create"]);
}

#[test]
fn nonsense_is_counted_and_disturbs_nothing() {
    let mut stage = Stage::new(native(4));
    let fate = stage.submit(Verb::Create);
    let id = stage.frames()[0].operation_id;
    stage.answer(4711, Verb::Create, Code::OK);
    stage.answer(id, Verb::Delete, Code::OK);
    let list = OperationResult {
        payload: Some(operation_result::Payload::List(v1::ListPage::default())),
        ..Default::default()
    };
    stage.hear(id, "create", Response::Result(list.into()));
    stage.hear(id, "create", Response::Create(v1::CreateResponse::default()));
    stage.machine.hear(DriverSide { operation_id: id, ..Default::default() }, stage.now);
    let registration = Response::Registration(Box::default());
    stage.hear(1, "register", registration);
    assert_eq!(ends(&fate), Vec::<&str>::new());
    let oddities = stage.machine.oddities();
    assert_eq!(
        oddities,
        Oddities { unknown_id: 1, wrong_verb: 2, empty: 1, unexpected: 2, forgotten: 0 }
    );
    stage.answer(id, Verb::Create, Code::OK);
    assert_eq!(ends(&fate), ["answered"]);
    stage.answer(id, Verb::Create, Code::OK);
    assert_eq!(stage.machine.oddities().unknown_id, 2, "a second answer finds nothing");
}

#[test]
fn a_driver_is_pinged_on_its_own_clock_and_dead_after_thirty_seconds_of_silence() {
    let mut stage = Stage::new(native(1));
    for second in 1..30 {
        assert!(stage.pass(Duration::from_secs(1)), "alive at {second} s");
    }
    let pings = stage.frames().len();
    assert_eq!(pings, 7, "one every four seconds");
    assert!(!stage.pass(Duration::from_secs(1)), "dead at 30 s");
}

#[test]
fn any_frame_proves_life() {
    let mut stage = Stage::new(native(1));
    assert!(stage.pass(Duration::from_secs(29)));
    stage.pong(1, vec![]);
    assert!(stage.pass(Duration::from_secs(29)));
}

#[test]
fn a_historic_driver_is_never_pinged_and_never_dead_of_silence() {
    let mut stage = Stage::new(historic());
    assert!(stage.pass(Duration::from_secs(3600)));
    stage.machine.ping_now(stage.now);
    assert_eq!(stage.frames(), []);
}

#[test]
fn an_operation_that_is_not_accepted_in_time_is_noticed() {
    let mut stage = Stage::new(native(2));
    stage.submit(Verb::Create);
    assert_eq!(stage.machine.accept_due(), None);
    let id = stage.frames()[0].operation_id;
    assert_eq!(stage.machine.accept_due(), Some(stage.now + Duration::from_secs(5)));
    stage.accept(id);
    assert_eq!(stage.machine.accept_due(), None);
}

#[test]
fn an_acceptance_behind_a_line_full_of_answers_is_not_overdue_until_a_later_pong_came() {
    let seconds = Duration::from_secs;
    let mut stage = Stage::new(native(2));
    stage.submit(Verb::List);
    let list = stage.frames()[0].operation_id;
    stage.hear(list, "list", Response::Accepted(v1::Accepted {}));
    stage.submit(Verb::Create);
    stage.frames();
    let sent = stage.now;
    for _ in 0..10 {
        // The line is full of this; the pings are unanswered like the create.
        stage.pass(seconds(1));
        let page = v1::ListPage { machines: Vec::new(), more: true };
        let payload = Some(operation_result::Payload::List(page));
        let result = OperationResult { payload, ..Default::default() };
        stage.hear(list, "list", Response::Result(result.into()));
        assert_eq!(stage.machine.accept_due(), Some(stage.now + seconds(5)));
    }
    // The driver read a ping that came after the create, and did not accept it.
    stage.pong(1, vec![list]);
    assert_eq!(stage.machine.accept_due(), Some(sent + seconds(5)));
}

#[test]
fn a_driver_in_doubt_is_sent_nothing_and_gives_back_what_waits() {
    let mut stage = Stage::new(native(2));
    let (first, second, third) =
        (stage.submit(Verb::Create), stage.submit(Verb::Create), stage.submit(Verb::Create));
    let id = stage.frames()[0].operation_id;
    stage.accept(id);
    stage.answer(id, Verb::Create, Code::OK);
    stage.now += Duration::from_secs(5);
    assert_eq!(stage.frames(), [], "the second was not accepted in time");
    assert!(stage.machine.wake_at(stage.now) <= stage.now);
    assert!(stage.pass(Duration::ZERO));
    assert_eq!((ends(&first), ends(&second)), (vec!["answered"], vec![]));
    assert_eq!(ends(&third), ["lost"]);
    assert!(!third.borrow().sent);
}

#[test]
fn nobody_waiting_means_cancel_once_and_the_slot_stays_until_the_answer() {
    let mut stage = Stage::new(native(1));
    let (sent, queued) = (stage.submit(Verb::Create), stage.submit(Verb::Create));
    let id = stage.frames()[0].operation_id;
    sent.borrow_mut().unwanted = true;
    queued.borrow_mut().unwanted = true;
    stage.machine.sweep(stage.now);
    stage.machine.sweep(stage.now);
    let frames = stage.frames();
    assert!(matches!(frames.as_slice(), [BrokerSide { control: Some(Control::Cancel(_)), .. }]));
    assert_eq!(ends(&queued), ["lost"]);
    assert!(!queued.borrow().sent);
    assert_eq!(stage.machine.in_flight(), 1);
    stage.answer(id, Verb::Create, Code::CANCELLED);
    assert_eq!(ends(&sent), ["answered"]);
    assert_eq!(stage.machine.in_flight(), 0);
}

#[test]
fn an_accepted_operation_that_a_later_pong_does_not_list_is_lost() {
    let mut stage = Stage::new(native(2));
    let fate = stage.submit(Verb::Create);
    let id = stage.frames()[0].operation_id;
    let early = stage.machine.ping_now(stage.now);
    stage.accept(id);
    stage.pong(early, vec![]);
    assert_eq!(ends(&fate), Vec::<&str>::new(), "that ping may have crossed it");
    let later = stage.machine.ping_now(stage.now);
    stage.pong(later, vec![id]);
    assert_eq!(ends(&fate), Vec::<&str>::new());
    let last = stage.machine.ping_now(stage.now);
    stage.pong(last, vec![]);
    assert_eq!(ends(&fate), ["lost"]);
    assert_eq!(stage.machine.oddities().forgotten, 1);
}

#[test]
fn draining_gives_back_what_was_not_sent_and_keeps_what_runs() {
    let mut stage = Stage::new(native(1));
    let (running, queued) = (stage.submit(Verb::Create), stage.submit(Verb::Create));
    let id = stage.frames()[0].operation_id;
    let notice = stage.hear(0, "drain", Response::Drain(v1::Drain::default()));
    assert_eq!(notice, Some(Notice::Draining));
    assert_eq!(ends(&queued), ["lost"]);
    assert!(!queued.borrow().sent);
    stage.answer(id, Verb::Create, Code::OK);
    assert_eq!(ends(&running), ["answered"]);
}

#[test]
fn an_operation_that_a_draining_driver_gives_back_counts_as_never_sent() {
    let mut stage = Stage::new(native(3));
    let [outage, given_back, failed] = [(); 3].map(|()| stage.submit(Verb::Create));
    let ids: Vec<i32> = stage.frames().iter().map(|frame| frame.operation_id).collect();
    stage.answer(ids[0], Verb::Create, Code::UNAVAILABLE);
    assert_eq!(ends(&outage), ["answered"], "a provider's outage is an answer");
    stage.accept(ids[2]);
    stage.hear(0, "drain", Response::Drain(v1::Drain::default()));
    stage.answer(ids[1], Verb::Create, Code::UNAVAILABLE);
    stage.answer(ids[2], Verb::Create, Code::UNAVAILABLE);
    assert_eq!(ends(&given_back), ["refused"]);
    assert_eq!(ends(&failed), ["answered"]);
}

#[test]
fn a_driver_is_told_when_someone_waits_longer() {
    let mut stage = Stage::new(native(1));
    let fate = stage.submit(Verb::Create);
    let id = stage.frames()[0].operation_id;
    stage.machine.sweep(stage.now);
    assert_eq!(stage.frames(), [], "nothing is new");
    fate.borrow_mut().deadline += Duration::from_secs(60);
    stage.machine.sweep(stage.now);
    stage.machine.sweep(stage.now);
    let frames = stage.frames();
    let [BrokerSide { operation_id, control: Some(Control::Extend(extend)), .. }] =
        frames.as_slice()
    else {
        panic!("not told once: {frames:?}");
    };
    assert_eq!(*operation_id, id);
    assert!(extend.time_left.is_some_and(|left| left.seconds >= 119));
}

#[test]
fn a_list_without_an_end_is_given_up() {
    let mut pages = Vec::new();
    let answer = (0..2_000).find_map(|_| {
        let page = v1::ListPage { machines: vec![v1::Machine::default(); 1_000], more: true };
        let payload = Some(operation_result::Payload::List(page));
        let result = OperationResult { payload, ..Default::default() };
        let reply = Reply::read(Response::Result(result.into()), true).expect("an answer");
        reply.into_answer(&mut pages)
    });
    let answer = answer.expect("two million machines are too many");
    assert_eq!(answer.code, Code::RESOURCE_EXHAUSTED);
    assert!(answer.message.contains("more than 1000000"), "{}", answer.message);
    assert!(pages.is_empty(), "nothing of it is kept");
}

#[test]
fn pages_of_a_list_are_one_answer() {
    let mut stage = Stage::new(native(1));
    let fate = stage.submit(Verb::List);
    let id = stage.frames()[0].operation_id;
    for page in 0..3 {
        let machine = v1::Machine { provider_id: page.to_string(), machine_name: String::new() };
        let page = v1::ListPage { machines: vec![machine], more: page < 2 };
        let payload = Some(operation_result::Payload::List(page));
        let result = OperationResult { payload, ..Default::default() };
        stage.hear(id, "list", Response::Result(result.into()));
    }
    let fate = fate.borrow();
    let Some(Answer { payload: Payload::List(machines), .. }) = &fate.answer else {
        panic!("no list: {fate:?}");
    };
    assert_eq!(machines.len(), 3);
}

#[test]
fn ids_wrap_around_past_those_in_use_and_the_register_frame() {
    let mut stage = Stage::new(native(3));
    stage.submit(Verb::Create);
    let long_running = stage.frames()[0].operation_id;
    stage.machine.last_id = i32::MAX - 1;
    stage.submit(Verb::Create);
    stage.submit(Verb::Create);
    let ids: Vec<i32> = stage.frames().iter().map(|frame| frame.operation_id).collect();
    assert_eq!(long_running, 2);
    assert_eq!(ids, [i32::MAX, 3]);
}

#[test]
fn a_historic_answer_is_read_and_its_error_is_unknown_to_us() {
    let mut stage = Stage::new(historic());
    let fate = stage.submit(Verb::Create);
    let id = stage.frames()[0].operation_id;
    assert!(fate.borrow().accepted, "what is sent counts as accepted");
    let create = v1::CreateResponse { error: "quota".into(), ..Default::default() };
    stage.hear(id, "create", Response::Create(create));
    let answer = fate.borrow().answer.clone().unwrap();
    assert_eq!((answer.code, answer.message.as_str()), (Code::UNKNOWN, "quota"));
}

#[test]
fn a_historic_driver_that_answered_nonsense_takes_the_next_operation() {
    let mut stage = Stage::new(historic());
    let fate = stage.submit(Verb::Create);
    let id = stage.frames()[0].operation_id;
    let empty = DriverSide { operation_id: id, operation_type: "create".into(), response: None };
    stage.machine.hear(empty, stage.now);
    stage.submit(Verb::Create);
    assert_eq!(stage.frames().len(), 1, "the driver has moved on");
    assert_eq!(ends(&fate), Vec::<&str>::new(), "the right answer may still come");
    fate.borrow_mut().unwanted = true;
    stage.machine.sweep(stage.now);
    assert_eq!(ends(&fate), ["lost"]);
}

/// One thing that can happen to a session.
#[derive(Clone, Debug)]
enum Event {
    Submit,
    Write,
    Accept(usize),
    Answer(usize, i32),
    Nonsense(i32),
    Leave(usize),
    Pass(u64),
    Pong(Option<usize>),
    Drain,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Submit),
        4 => Just(Event::Write),
        3 => any::<usize>().prop_map(Event::Accept),
        4 => (any::<usize>(), 0..18).prop_map(|(which, code)| Event::Answer(which, code)),
        1 => any::<i32>().prop_map(Event::Nonsense),
        1 => any::<usize>().prop_map(Event::Leave),
        1 => (0u64..10).prop_map(Event::Pass),
        1 => any::<Option<usize>>().prop_map(Event::Pong),
        1 => Just(Event::Drain),
    ]
}

proptest! {
    /// Whatever the order: every operation ends exactly once, with the answer that was given to its
    /// own id and to no other; no more run than the driver takes; none is sent after a drain.
    #[test]
    fn every_operation_ends_once_and_with_its_own_answer(
        capacity in 1usize..5,
        start_id in prop_oneof![Just(1), Just(i32::MAX - 3)],
        events in proptest::collection::vec(event(), 0..120),
    ) {
        let mut stage = Stage::new(native(capacity));
        stage.machine.last_id = start_id;
        let mut fates = Vec::new();
        // The model: which operation each id stands for, as the driver sees it.
        let mut order = std::collections::VecDeque::new();
        let mut open: HashMap<i32, (usize, bool)> = HashMap::new();
        let mut expected: HashMap<usize, i32> = HashMap::new();
        let mut drained = false;
        for event in events {
            let nth = |which: usize, open: &HashMap<i32, (usize, bool)>| {
                let mut ids: Vec<i32> = open.keys().copied().collect();
                ids.sort_unstable();
                (!ids.is_empty()).then(|| ids[which % ids.len()])
            };
            match event {
                Event::Submit if drained => {}
                Event::Submit => {
                    order.push_back(fates.len());
                    fates.push(stage.submit(Verb::Create));
                }
                Event::Write => {
                    for frame in stage.frames() {
                        if frame.params.is_some() {
                            prop_assert!(!drained);
                            let which = order.pop_front().expect("sent in order of submission");
                            prop_assert!(fates[which].borrow().sent);
                            prop_assert!(open.insert(frame.operation_id, (which, false)).is_none());
                        }
                    }
                    prop_assert!(open.len() <= capacity);
                }
                Event::Accept(which) => if let Some(id) = nth(which, &open) {
                    stage.accept(id);
                    open.get_mut(&id).expect("listed").1 = true;
                },
                Event::Answer(which, code) => if let Some(id) = nth(which, &open) {
                    stage.answer(id, Verb::Create, Code::from_wire(code));
                    let (which, accepted) = open.remove(&id).expect("listed");
                    let given_back = drained && code == 14 && !accepted;
                    expected.insert(which, if given_back { -1 } else { code });
                },
                Event::Nonsense(id) => if !open.contains_key(&id) {
                    stage.answer(id, Verb::Create, Code::OK);
                },
                Event::Leave(which) => if !fates.is_empty() {
                    let which = which % fates.len();
                    fates[which].borrow_mut().unwanted = true;
                    stage.machine.sweep(stage.now);
                    order.retain(|queued| *queued != which);
                },
                Event::Pass(seconds) => {
                    // Whether it is alive is for other tests.
                    let _alive = stage.pass(Duration::from_secs(seconds));
                    if stage.machine.queued() == 0 {
                        // A driver in doubt gave back what it had not sent.
                        order.clear();
                    }
                }
                Event::Pong(forgets) => {
                    let ping = stage.machine.ping_now(stage.now);
                    // It forgets one that it had accepted.
                    if let Some(id) = forgets.and_then(|which| nth(which, &open)) && open[&id].1 {
                        open.remove(&id);
                    }
                    stage.pong(ping, open.keys().copied().collect());
                }
                Event::Drain => {
                    stage.hear(0, "drain", driver_side::Response::Drain(v1::Drain::default()));
                    order.clear();
                    drained = true;
                }
            }
            let is_one_due = open.values().any(|(_, accepted)| !accepted);
            prop_assert_eq!(stage.machine.accept_due().is_some(), is_one_due);
        }
        drop(stage);
        for (which, fate) in fates.iter().enumerate() {
            let fate = fate.borrow();
            prop_assert_eq!(fate.ends.len(), 1, "operation {} ended {:?}", which, &fate.ends);
            let got = match fate.ends[0] {
                "answered" => fate.answer.as_ref().map(|answer| answer.code.number()),
                "refused" => Some(-1),
                _ => None,
            };
            prop_assert_eq!(got, expected.get(&which).copied());
        }
    }
}
