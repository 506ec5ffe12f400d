//! The books themselves, and callers, drivers and sessions around them.

use std::{sync::Arc, time::Duration};

use broker_proto::v1;
use futures::FutureExt as _;
use tokio::time::advance;

use super::{
    DRIVERS, Event, MACHINES, Success, Telling,
    model::{Attempt, End, Held, Model, Work},
    now,
};
use crate::{
    audit::Audit,
    auth::{Identity, Territory},
    catalog::{Catalog as _, Class, Static},
    driver::{ConnectionId, DriverKey, Instance, MachineId, SessionId, Verb},
    metrics::Metrics,
    operation::{
        Answer, Claim, Code, Ledger, Operation, Outcome, Payload, Request, Ticket, Waiter, Words,
    },
    session::{Info, Session, SessionHandle, Terms, Times, Token},
};

const PATIENCE: Duration = Duration::from_secs(300);

pub(super) struct Stage {
    ledger: Ledger,
    /// Of so many machines it may be known who was last there.
    most_served: usize,
    class: Arc<Class>,
    drivers: Vec<(SessionHandle, Session)>,
    models: [Model; MACHINES],
    /// What runs, and on which machine.
    live: Vec<Live>,
}

struct Live {
    machine: usize,
    operation: Arc<Operation>,
    ticket: Ticket,
    waiters: Vec<Waiter>,
    attempt: Attempt,
}

impl Stage {
    pub(super) fn new(most_served: usize) -> Self {
        let class = Static::sample().classes().remove(0);
        let drivers = (0..DRIVERS).map(|number| driver(number, &key(&class))).collect();
        let ledger = Ledger::knowing(most_served, Metrics::default(), Audit::default());
        let (models, live) = Default::default();
        Self { ledger, most_served, class, drivers, models, live }
    }

    pub(super) async fn happens(&mut self, event: Event) {
        match event {
            Event::Ask { machine, verb, request_id, to } => {
                self.ask(machine, verb, request_id, to);
            }
            Event::Leave(at) => {
                if let Some(live) = self.live.get_mut(at) {
                    live.waiters.clear();
                }
            }
            Event::Sent(at) => {
                if let Some(live) = self.live.get_mut(at).filter(|l| l.attempt.driver.is_some()) {
                    live.ticket.sent(now());
                    live.attempt.sent = true;
                }
            }
            Event::Accepted(at) => {
                if let Some(live) = self.live.get_mut(at).filter(|live| live.attempt.sent) {
                    live.ticket.accepted(now());
                    live.attempt.begun = true;
                }
            }
            Event::Answer(at, success) => {
                if self.live.get(at).is_some_and(|live| live.attempt.sent) {
                    self.answer(at, success);
                }
            }
            Event::Refuse(at) => {
                if self.live.get(at).is_some_and(|live| live.attempt.sent && !live.attempt.begun) {
                    let mut live = self.live.remove(at);
                    live.ticket.refused();
                    live.attempt.sent = false;
                    self.ends_there(live.machine, &live.attempt, End::Lost);
                    hears(&live.waiters, |outcome| matches!(outcome, Outcome::Lost));
                }
            }
            Event::Lose(at) => {
                if at < self.live.len() {
                    let live = self.live.remove(at);
                    drop(live.ticket);
                    self.ends_there(live.machine, &live.attempt, End::Lost);
                    hears(&live.waiters, |outcome| matches!(outcome, Outcome::Lost));
                }
            }
            Event::Resume(telling) => self.resume(&telling),
            Event::Pass(time) => advance(time).await,
            Event::Tidy => {
                self.ledger.forget_old();
                self.models.iter_mut().for_each(Model::tidy);
            }
        }
    }

    fn ask(&mut self, machine: usize, verb: Verb, request_id: &'static str, to: Option<usize>) {
        let request = self.request(machine, verb, request_id);
        let deadline = now() + PATIENCE;
        let running = self.live.iter_mut().find(|live| live.machine == machine);
        let model = &mut self.models[machine];
        match (self.ledger.claim(request, (now(), deadline)), running) {
            (Ok(Claim::Join(operation)), Some(live)) => {
                assert!(live.attempt.answers(verb, request_id), "{verb} joined {:?}", live.attempt);
                assert_eq!(operation.id, live.attempt.id);
                live.waiters.push(operation.wait());
                live.attempt.deadline = live.attempt.deadline.max(deadline);
            }
            (Err(conflict), Some(live)) => {
                assert!(!live.attempt.answers(verb, request_id), "a repetition conflicts");
                assert_eq!(conflict.running, live.attempt.id);
            }
            (Ok(Claim::Remembered(_)), None) => assert!(model.remembers(verb, request_id)),
            (Ok(Claim::Start(operation)), None) => {
                assert!(!model.remembers(verb, request_id), "an answer is kept for it");
                assert_eq!(operation.hold.as_deref().map(held), model.hold());
                let driver = to.map(|to| self.drivers[to].0.clone());
                if let (Some(to), Some(driver)) = (to, &driver) {
                    let recall = operation
                        .unchanged_for(&driver.info().instance, tokio::time::Instant::now());
                    assert_eq!(recall, model.recall(to, verb, model.hold().as_ref()));
                    operation.assign(driver.clone());
                }
                let attempt = Attempt {
                    id: operation.id,
                    verb,
                    request_id,
                    submitted: now(),
                    deadline,
                    driver: to,
                    sent: false,
                    begun: false,
                    met: model.hold(),
                };
                model.work = Work::Running(operation.id);
                let waiters = vec![operation.wait()];
                let ticket = Ticket::new(Arc::clone(&operation));
                self.live.push(Live { machine, operation, ticket, waiters, attempt });
            }
            (met, running) => panic!("{met:?}, and {:?} runs", running.map(|l| &l.attempt)),
        }
    }

    fn answer(&mut self, at: usize, success: Success) {
        let mut live = self.live.remove(at);
        let heard = !live.waiters.is_empty();
        let (answer, end) = match success {
            true => (Answer::ok(Payload::None), End::Success { heard }),
            false => (Answer::failed(Code::RESOURCE_EXHAUSTED, String::new()), End::Failure),
        };
        live.ticket.answered(answer.clone(), now());
        self.ends_there(live.machine, &live.attempt, end);
        hears(
            &live.waiters,
            |outcome| matches!(outcome, Outcome::Answered(heard) if **heard == answer),
        );
    }

    fn resume(&mut self, told: &Telling) {
        let code = |success| if success { 0 } else { 8 };
        let result =
            told.end.map(|end| v1::OperationResult { code: code(end), ..Default::default() });
        let class = &self.class.id;
        let resumed = v1::Resumed {
            verb: told.verb.as_str().to_owned(),
            class: Some(v1::ClassRef {
                api_version: class.api_version.to_string(),
                kind: class.kind.to_string(),
                namespace: class.namespace.to_string(),
                ..Default::default()
            }),
            machine_name: name(told.machine),
            result,
            age: told.age.try_into().ok(),
            ..Default::default()
        };
        let info = self.drivers[told.driver].0.info();
        let outdated = self.ledger.resumed(&resumed, info, told.stranger);
        let works = self.live.iter().find(|live| live.machine == told.machine);
        let works = works.and_then(|live| live.attempt.driver);
        let has_room = self.has_room();
        let expected = self.models[told.machine].is_told(told, works, has_room);
        assert_eq!(outdated, expected.then(|| self.machine(told.machine)));
    }

    fn ends_there(&mut self, machine: usize, attempt: &Attempt, end: End) {
        let has_room = self.has_room();
        self.models[machine].ends(attempt, end, has_room);
    }

    fn has_room(&self) -> bool {
        let known = self.models.iter().filter(|model| model.last.is_some()).count();
        known < self.most_served
    }

    /// What the books show is what the model holds.
    pub(super) fn agrees(&self) {
        let mut running: Vec<_> =
            self.ledger.running().iter().map(|operation| operation.id).collect();
        let mut live: Vec<_> = self.live.iter().map(|live| live.operation.id).collect();
        running.sort_unstable();
        live.sort_unstable();
        assert_eq!(running, live);
        let holds = self.ledger.holds();
        for (number, model) in self.models.iter().enumerate() {
            let hold = holds.iter().find(|(machine, _)| *machine == self.machine(number));
            assert_eq!(hold.map(|(_, hold)| held(hold)), model.hold(), "machine {number}");
        }
        let known = self.models.iter().filter(|model| model.is_known()).count();
        assert_eq!(self.ledger.0.pages.counted(), known, "pages");
    }

    /// When everything is over and old, the books are empty.
    pub(super) async fn ends(mut self) {
        self.live.clear();
        assert!(self.ledger.idle().now_or_never().is_some(), "something still runs");
        assert_eq!(self.ledger.running().len(), 0);
        advance(Duration::from_secs(3600)).await;
        self.ledger.forget_old();
        assert_eq!(self.ledger.0.pages.counted(), 0);
    }

    fn request(&self, machine: usize, verb: Verb, request_id: &str) -> Request {
        request_of(&self.class, verb, self.machine(machine), request_id)
    }

    fn machine(&self, number: usize) -> MachineId {
        MachineId::new(self.class.realm.clone(), name(number).into())
    }
}

impl Attempt {
    fn answers(&self, verb: Verb, request_id: &str) -> bool {
        self.verb == verb && (request_id.is_empty() || request_id == self.request_id)
    }
}

fn hears(waiters: &[Waiter], expected: impl Fn(&Outcome) -> bool) {
    for waiter in waiters {
        let outcome = waiter.outcome().now_or_never().expect("it is settled");
        assert!(expected(&outcome), "{outcome:?}");
    }
}

fn held(hold: &super::super::Hold) -> Held {
    let number = hold.instance.id.strip_prefix("driver-").and_then(|n| n.parse().ok());
    Held {
        driver: number.expect("one of ours"),
        operation: hold.operation,
        is_over: hold.is_over,
        delivery: hold.delivery,
        since: hold.since,
        until: hold.until,
    }
}

/// A request as any other, for a machine of the sample's class.
pub(super) fn request(verb: Verb, machine: &str, request_id: &str) -> Request {
    let class = Static::sample().classes().remove(0);
    let machine = MachineId::new(class.realm.clone(), machine.into());
    request_of(&class, verb, machine, request_id)
}

fn request_of(class: &Arc<Class>, verb: Verb, machine: MachineId, request_id: &str) -> Request {
    Request {
        verb,
        class: Arc::clone(class),
        secret_revision: 0,
        key: Arc::new(key(class)),
        machine,
        words: Arc::new(Words { request_id: request_id.to_owned(), ..Words::default() }),
        attempt: 1,
        trace: None,
        catalog_age: None,
    }
}

fn name(machine: usize) -> String {
    format!("machine-{machine}")
}

fn key(class: &Class) -> DriverKey {
    let (api_version, kind) = (class.id.api_version.clone(), class.id.kind.clone());
    DriverKey { api_version, kind, provider: None }
}

fn driver(number: usize, key: &DriverKey) -> (SessionHandle, Session) {
    let keys = vec![key.clone()];
    let id = SessionId::random();
    let info = Info {
        id,
        token: Token::random(),
        name: String::new(),
        territory: Territory::everywhere(&keys),
        keys,
        identity: Identity::anonymous(),
        in_audit: crate::audit::Driver::new("driver", id),
        instance: Instance { id: format!("driver-{number}").into(), boot: Some("one".into()) },
        version: String::new(),
        protocol: 1,
        verbs: Verb::ALL.to_vec(),
        capacity: 1,
        resumes: true,
        connection: ConnectionId(1),
        address: "nowhere".into(),
        connected_at: std::time::SystemTime::UNIX_EPOCH,
        takeovers: 0.into(),
    };
    let terms = Terms { native: true, cancel: true, drain: true, capacity: 1 };
    Session::new(info, terms, Times::default(), 1, Metrics::default())
}
