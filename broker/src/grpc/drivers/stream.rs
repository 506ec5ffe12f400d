//! One driver's stream, from its first frame to its last.

use std::{
    borrow::Cow,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, SystemTime},
};

use broker_proto::{
    passing::{BrokerSide, DriverSide, broker_side::Control, driver_side::Response},
    v1::{self, reject::Reason},
};
use bytes::Bytes;
use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::time::{sleep, timeout};
use tonic::{Code, Status};
use tracing::{Instrument as _, Span, field::Empty};

use super::{
    super::status,
    Drivers,
    incoming::FromDriver,
    outgoing::{Outbound, Outgoing},
};
use crate::{
    audit::{self, Event, Outcome, Record, bounded},
    auth::{Auth, Caller, Denied, Territory},
    bounds::{self, Place},
    driver::{DriverKey, MachineId, SessionId},
    registry::{Registration, What},
    session::{
        Broken, End, Info, Session, SessionHandle, Token, forget,
        handshake::{self, Hello, PROTOCOL, Rejection},
    },
};

/// How long a broker that stops still listens to who has not registered, to tell it so.
const LAST_WORD: Duration = Duration::from_secs(1);
/// When a rejected driver should try again while this broker stops.
const AFTER_STOP: Duration = Duration::from_secs(2);
/// When one that was denied should: policies get mended.
const AFTER_DENIAL: Duration = Duration::from_secs(15);
/// When one should for whom there was no place, at the earliest: somebody has to leave before.
const AFTER_FULL: Duration = Duration::from_secs(10);

/// A driver that was let in.
struct Admitted {
    handle: SessionHandle,
    seats: Registration,
    // Dropped after the seats, so that callers whose operations come back unsent find another driver.
    session: Session,
    /// It knows an earlier process of this broker, and we do not know it.
    stranger: bool,
    /// Counted as long as it is seated.
    place: Place,
}

impl Drivers {
    /// The life of a stream:
    ///
    /// 1. The broker speaks first, as it did in 2018.
    /// 2. The driver registers within a few seconds, or the stream ends.
    /// 3. It takes its seats, or is told why not. What it runs is known in either case.
    /// 4. A native driver is welcomed.
    /// 5. Its session runs until it ends.
    ///
    /// The error is what the driver is told at the end, where it did not end it itself.
    pub(super) async fn serve(
        &self,
        inbound: &mut FromDriver,
        outbound: Outbound,
        caller: &Caller,
        unregistered: Place,
    ) -> Result<(), Status> {
        let span = tracing::info_span!("session", driver = Empty, id = Empty);
        // In a box of its own, gone when it is over: it needs several times the memory of the session,
        // which may stay for months.
        let meet = self.meet(inbound, outbound, caller, unregistered).instrument(span.clone());
        let Some(mut admitted) = Box::pin(meet).await? else { return Ok(()) };
        let end = self.attend(&mut admitted, inbound, caller, &span).await;
        span.in_scope(|| self.part(admitted, &end, caller));
        farewell(end)
    }

    /// Steps 1 to 4. `None` if the driver left before it registered.
    async fn meet(
        &self,
        inbound: &mut FromDriver,
        outbound: Outbound,
        caller: &Caller,
        unregistered: Place,
    ) -> Result<Option<Admitted>, Status> {
        let greeting = BrokerSide {
            operation_id: 1,
            operation_type: Bytes::from_static(b"register"),
            ..Default::default()
        };
        self.tell(&outbound, [Outgoing::frame(greeting)]).await?;
        let closed = async {
            self.closing.cancelled().await;
            sleep(LAST_WORD).await;
        };
        let first = tokio::select! {
            first = timeout(self.admission.hello_within, inbound.next()) => first,
            () = closed => return Err(Status::unavailable(End::ShutDown.to_string())),
        };
        let first = match first {
            Ok(Some(first)) => first?,
            Ok(None) => return Ok(None),
            Err(_) => {
                let why = "no registration came in time";
                self.metrics.driver_said_nothing();
                if self.bounds.refusals.tell(caller) {
                    tracing::info!(?caller, why, "driver rejected");
                    self.audit.write(|| rejection_record(caller).saying(why));
                }
                return Err(Status::deadline_exceeded(why));
            }
        };
        let (native, instance) = (is_native(&first), instance(&first));
        let mut outdated = Vec::new();
        let admitted = self.admit(first, caller, &mut outdated).await;
        drop(unregistered);
        let outdated = outdated
            .into_iter()
            .map(|machine: MachineId| Outgoing::frame(control("forget", forget(&machine))));
        self.tell(&outbound, outdated).await?;
        let admitted = match admitted {
            Ok(admitted) => admitted,
            Err(rejection) => {
                self.metrics.driver_rejected(rejection.reason);
                if self.bounds.refusals.tell(caller) {
                    tracing::info!(
                        ?caller, reason = ?rejection.reason, why = %rejection, "driver rejected"
                    );
                    if let Some(instance) = instance.clone() {
                        self.registry.history().turned_away(instance, &rejection.message);
                    }
                    self.audit.write(|| Record {
                        driver: instance.as_deref().map(audit::Driver::unseated).map(Cow::Owned),
                        code: Some(rejection.reason.as_str_name()),
                        outcome: match rejection.reason {
                            Reason::Denied => Outcome::Denied,
                            _ => Outcome::Refused,
                        },
                        ..rejection_record(caller).saying(&*rejection.message)
                    });
                }
                if native {
                    let rejection = reject(&rejection, &self.admission.replica);
                    self.tell(&outbound, [Outgoing::frame(rejection)]).await?;
                }
                return Err(rejected(&rejection));
            }
        };
        let info = admitted.handle.info();
        if native {
            self.tell(&outbound, [Outgoing::frame(self.welcome(info))]).await?;
        }
        // From here on the transport takes what there is from the session itself.
        self.tell(&outbound, [Outgoing::Session(admitted.handle.frames())]).await?;
        drop(outbound);
        self.metrics.driver_registered(info);
        let span = Span::current();
        span.record("driver", &*info.instance.id).record("id", info.id.to_string());
        tracing::info!(
            kinds = %kinds(&info.keys), version = info.version, protocol = info.protocol,
            ?caller, "driver registered"
        );
        self.audit.write(|| Record {
            kinds: info.keys.iter().map(ToString::to_string).collect(),
            ..Record::new(Event::DriverRegistered, Outcome::Ok).by(caller).about(info)
        });
        Ok(Some(admitted))
    }

    /// Step 5. Says how it ended. Not within the `span`, which would be entered for every frame: only for what
    /// is seldom.
    async fn attend(
        &self,
        admitted: &mut Admitted,
        inbound: &mut FromDriver,
        caller: &Caller,
        span: &Span,
    ) -> End {
        let Admitted { handle, session, stranger, .. } = admitted;
        let info = handle.info();
        let inbound = inbound.map(|frame| {
            frame.map_err(|status| Broken {
                code: status.code().into(),
                why: status.message().to_owned(),
            })
        });
        let resumed = |operation: v1::Resumed| {
            let _entered = span.enter();
            // What another replica asked for is as new to us as what an earlier process did.
            let unknown = *stranger || operation.elsewhere;
            if let Some(machine) = self.ledger.resumed(&operation, info, unknown) {
                handle.forget(machine);
            }
        };
        let still = |auth: &Auth| {
            let now = auth.territory(caller, &info.keys)?;
            if now == info.territory { Ok(()) } else { Err(Denied::Moved) }
        };
        // A set of one: it is polled when something changes, and not whenever a frame comes. In a box, as a set has
        // room for one more than it has.
        let mut revoked = FuturesUnordered::from_iter([Box::pin(self.auth.revoked(caller, still))]);
        let mut run = pin!(session.run(inbound, resumed));
        tokio::select! {
            biased;
            end = &mut run => end,
            Some(why) = revoked.next() => {
                handle.end(End::Revoked(why));
                run.await
            }
        }
    }

    /// Takes leave of a driver whose session has ended.
    fn part(&self, admitted: Admitted, end: &End, caller: &Caller) {
        let Admitted { handle, seats, session, place, .. } = admitted;
        // Before its operations are settled as lost, since they tell why.
        handle.note_end(&end.to_string());
        drop(seats);
        drop(session);
        drop(place);
        tracing::info!(%end, "session over");
        self.audit.write(|| {
            let record = Record::new(Event::DriverLeft, Outcome::Ok);
            record.by(caller).about(handle.info()).saying(end.to_string())
        });
    }

    /// Says something to a driver whose session does not run yet, so that nobody else would notice if it
    /// does not read.
    async fn tell(
        &self,
        outbound: &Outbound,
        words: impl IntoIterator<Item = Outgoing>,
    ) -> Result<(), Status> {
        let told = async {
            for word in words {
                let gone = |_| Status::cancelled("the driver has gone");
                outbound.send(word).await.map_err(gone)?;
            }
            Ok(())
        };
        timeout(self.admission.hello_within, told).await.unwrap_or_else(|_| {
            Err(Status::deadline_exceeded("the driver does not read what it is told"))
        })
    }

    /// `outdated` are the machines that others have changed since this driver did.
    async fn admit(
        &self,
        first: DriverSide,
        caller: &Caller,
        outdated: &mut Vec<MachineId>,
    ) -> Result<Admitted, Rejection> {
        let counts_as = self.auth.counts_as(caller);
        // Before anything else: what is wrong costs time as well.
        self.bounds.registrations.check(counts_as).map_err(|after| {
            let why = "too many drivers register at the moment";
            Rejection::new(Reason::Busy, why).retry_after(after)
        })?;
        let mut hello = handshake::read(first, &caller.address)?;
        self.check_open()?;
        let territory = self.auth.territory(caller, &hello.keys).map_err(|denied| {
            self.metrics.caller_denied(&denied);
            Rejection::new(Reason::Denied, denied.to_string()).retry_after(AFTER_DENIAL)
        })?;
        let place = self.bounds.drivers.take(counts_as).map_err(|taken| {
            let why = format!("too many drivers: {taken}");
            Rejection::new(Reason::Busy, why).retry_after(bounds::spread(AFTER_FULL))
        })?;
        self.check_alone(&hello)?;
        let (terms, returning) = (hello.terms, hello.returning);
        let told = std::mem::take(&mut hello.resumed);
        let (times, queue) = (self.admission.times, self.admission.queue);
        let (info, metrics) = (info(hello, territory, caller), self.metrics.clone());
        let (handle, session) = Session::new(info, terms, times, queue, metrics);
        let stranger = returning && self.registry.returned(&handle);
        // Before the seats: whoever is turned away for another may still be at its work.
        let tell = |resumed: &v1::Resumed| {
            self.ledger.resumed(resumed, handle.info(), stranger || resumed.elsewhere)
        };
        outdated.extend(told.iter().filter_map(tell));
        let history = self.registry.history();
        let instance = &handle.info().instance;
        let seats = self.registry.register(&handle).await;
        self.metrics.took_over(handle.info().takeovers.load(Ordering::Relaxed));
        let seats = seats.inspect_err(|rejection| {
            history.note(What::Rejected, &rejection.message, None, instance);
        })?;
        history.note(What::Registered, &*caller.address, Some(handle.info().id), instance);
        // Looked at once more with the seats taken: whoever closes drains all that are seated.
        self.check_open()?;
        Ok(Admitted { handle, session, seats, stranger, place })
    }

    fn check_open(&self) -> Result<(), Rejection> {
        if self.closing.is_cancelled() {
            let rejection = Rejection::new(Reason::Draining, "this broker is stopping");
            return Err(rejection.retry_after(AFTER_STOP));
        }
        Ok(())
    }

    /// Another address than the one that a driver is connected by leads here: it would take its own
    /// place, and what runs would be lost. If it is wrong about being connected, it may.
    fn check_alone(&self, hello: &Hello) -> Result<(), Rejection> {
        let seated = |key| self.registry.seated(key, &hello.instance).is_some();
        if hello.connected.contains(&self.admission.replica) && hello.keys.iter().any(seated) {
            let why = "this driver has a session with this replica already";
            return Err(Rejection::new(Reason::Connected, why).retry_after(AFTER_FULL));
        }
        Ok(())
    }

    fn welcome(&self, info: &Info) -> BrokerSide {
        let times = &self.admission.times;
        // Taken with the seat: whoever tells of a later change finds this session.
        let others = self.replicas.peers().to_wire();
        control(
            "welcome",
            Control::Welcome(Box::new(v1::Welcome {
                session_id: info.id.to_string(),
                session_token: info.token.reveal().to_owned(),
                replica_id: self.admission.replica.clone(),
                protocol: PROTOCOL,
                ping_interval: times.ping_every.try_into().ok(),
                dead_after: times.dead_after.try_into().ok(),
                peers: others.peers.iter().map(|peer| peer.address.clone()).collect(),
                others: Some(others),
            })),
        )
    }
}

fn info(hello: Hello, territory: Territory, caller: &Caller) -> Info {
    let id = SessionId::random();
    Info {
        id,
        token: Token::random(),
        name: hello.name,
        keys: hello.keys,
        territory,
        identity: caller.identity.clone(),
        in_audit: audit::Driver::new(&hello.instance.id, id),
        instance: hello.instance,
        version: hello.version,
        protocol: hello.protocol,
        verbs: hello.verbs,
        capacity: hello.terms.capacity,
        resumes: hello.resumes,
        connection: caller.connection,
        address: caller.address.clone(),
        connected_at: SystemTime::now(),
        takeovers: AtomicU32::new(0),
    }
}

/// A rejection as a native driver reads it.
fn reject(rejection: &Rejection, replica: &str) -> BrokerSide {
    control(
        "reject",
        Control::Reject(Box::new(v1::Reject {
            reason: rejection.reason.into(),
            message: rejection.message.clone(),
            retryable: rejection.is_retryable(),
            retry_after: rejection.retry_after.and_then(|after| after.try_into().ok()),
            replica_id: replica.to_owned(),
        })),
    )
}

/// A rejection as any gRPC client reads it.
fn rejected(rejection: &Rejection) -> Status {
    let code = match rejection.reason {
        Reason::Duplicate | Reason::Connected => Code::AlreadyExists,
        Reason::Denied => Code::PermissionDenied,
        Reason::Draining | Reason::Busy => Code::Unavailable,
        Reason::Invalid | Reason::Protocol | Reason::Unspecified => Code::InvalidArgument,
    };
    status::of_rejection(code, &rejection.message, rejection.retry_after)
}

fn farewell(end: End) -> Result<(), Status> {
    match end {
        End::Left => Ok(()),
        // One that still listens learns what it did wrong, such as a frame that is too large.
        End::Broken(Broken { code, ref why }) => Err(Status::new(Code::from_i32(code), why)),
        End::Silent => Err(Status::deadline_exceeded(end.to_string())),
        End::Replaced | End::Evicted(_) => Err(Status::aborted(end.to_string())),
        End::ShutDown => Err(Status::unavailable(end.to_string())),
        End::Revoked(denied) => Err(status::of_denied_caller(&denied)),
    }
}

fn control(operation_type: &'static str, control: Control) -> BrokerSide {
    BrokerSide {
        operation_type: Bytes::from_static(operation_type.as_bytes()),
        control: Some(control),
        ..Default::default()
    }
}

fn rejection_record(caller: &Caller) -> Record<'_> {
    Record::new(Event::DriverRejected, Outcome::Refused).by(caller)
}

/// Who it says it is, which may be wrong.
fn instance(first: &DriverSide) -> Option<Arc<str>> {
    let Some(Response::Registration(registration)) = &first.response else { return None };
    let instance = &registration.hello.as_ref()?.instance_id;
    (!instance.is_empty()).then(|| bounded(instance).into())
}

fn is_native(first: &DriverSide) -> bool {
    matches!(
        &first.response,
        Some(Response::Registration(registration)) if registration.hello.is_some()
    )
}

fn kinds(keys: &[DriverKey]) -> String {
    keys.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
