//! The operators' door: look at drivers, operations and classes, and steer drivers.

mod board;
mod watch;

use std::{pin::Pin, sync::Arc, time::Duration};

use broker_proto::v1::{self, registry_server};
use futures::Stream;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use self::watch::Watched;
use super::{entrance::caller, guard::while_allowed, status, timeout};
use crate::{
    audit::{Audit, Event, Outcome, Record},
    auth::{Act, Auth, Need},
    bounds::Bounds,
    catalog::secret_revision,
    inspect::{self, Rooms, Serving},
    steer,
    telemetry::{LogControl, Wish, mistyped},
};

/// How many events of a driver's history are told unless asked otherwise.
const EVENTS: usize = 100;
/// How many finished operations are listed unless asked otherwise.
const FINISHED: usize = 100;
/// How long a driver has to answer an operator's ping.
const PING_WITHIN: Duration = Duration::from_secs(5);
/// What an operator may ask of the log.
const MAX_FILTER: usize = 1024;
const LONGEST_FILTER: Duration = Duration::from_secs(24 * 3600);

/// Cheap to clone: every clone is the same door.
#[derive(Clone, Debug)]
pub(super) struct RegistryDoor {
    watched: Arc<Watched>,
    auth: Auth,
    audit: Audit,
    bounds: Bounds,
}

impl RegistryDoor {
    pub(super) fn new(rooms: Arc<Rooms>, auth: Auth, audit: Audit, bounds: Bounds) -> Self {
        Self { watched: Arc::new(Watched::new(rooms)), auth, audit, bounds }
    }

    fn rooms(&self) -> &Rooms {
        &self.watched.rooms
    }
}

type Events<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl registry_server::Registry for RegistryDoor {
    type WatchDriversStream = Events<v1::DriverEvent>;
    type WatchOperationsStream = Events<v1::OperationEvent>;

    async fn get_broker_status(
        &self,
        _: Request<v1::GetBrokerStatusRequest>,
    ) -> Result<Response<v1::BrokerStatus>, Status> {
        Ok(Response::new(inspect::status(self.rooms())))
    }

    async fn list_drivers(
        &self,
        request: Request<v1::ListDriversRequest>,
    ) -> Result<Response<v1::ListDriversResponse>, Status> {
        let request = request.into_inner();
        let state = request.state();
        let mut drivers = match state {
            v1::DriverState::Gone => inspect::gone(self.rooms(), &request.kind),
            _ => inspect::drivers(self.rooms(), &request.kind),
        };
        drivers.retain(|driver| state == v1::DriverState::Unspecified || driver.state() == state);
        Ok(Response::new(v1::ListDriversResponse { drivers }))
    }

    async fn get_driver(
        &self,
        request: Request<v1::GetDriverRequest>,
    ) -> Result<Response<v1::DriverDetails>, Status> {
        let request = request.into_inner();
        let session = inspect::known(self.rooms(), &request.driver)?;
        let events = request.history.map_or(EVENTS, |most| most as usize);
        Ok(Response::new(inspect::details(self.rooms(), &session, events)))
    }

    async fn watch_drivers(
        &self,
        request: Request<v1::WatchDriversRequest>,
    ) -> Result<Response<Self::WatchDriversStream>, Status> {
        let (caller, request) = (caller(&request)?, request.into_inner());
        let events = watch::drivers(Arc::clone(&self.watched), request.kind, request.resume_token);
        let guard = (&self.auth, &self.bounds);
        while_allowed(events, guard, caller, Need::Read).map(Response::new)
    }

    async fn ping_driver(
        &self,
        request: Request<v1::PingDriverRequest>,
    ) -> Result<Response<v1::PingDriverResponse>, Status> {
        let caller_waits = timeout::of(request.metadata().as_ref())?;
        let session = inspect::connected(self.rooms(), &request.into_inner().driver)?;
        if !session.is_native() {
            return Err(Status::unimplemented(
                "a driver of the 2018 protocol cannot be pinged; its connection stands",
            ));
        }
        let within = caller_waits.map_or(PING_WITHIN, |waits| waits.min(PING_WITHIN));
        let round_trip = session.ping(within).await.ok_or_else(|| status::of_silent(within))?;
        Ok(Response::new(v1::PingDriverResponse {
            session_id: session.info().id.to_string(),
            round_trip: round_trip.try_into().ok(),
        }))
    }

    async fn drain_driver(
        &self,
        request: Request<v1::DrainDriverRequest>,
    ) -> Result<Response<v1::Driver>, Status> {
        let (caller, request) = (caller(&request)?, request.into_inner());
        let driver = steer::drain(self.rooms(), &caller, &request.driver, &request.reason)?;
        Ok(Response::new(driver))
    }

    async fn evict_driver(
        &self,
        request: Request<v1::EvictDriverRequest>,
    ) -> Result<Response<v1::Driver>, Status> {
        let (caller, request) = (caller(&request)?, request.into_inner());
        let driver = steer::evict(self.rooms(), &caller, &request.driver, &request.reason)?;
        Ok(Response::new(driver))
    }

    async fn list_operations(
        &self,
        request: Request<v1::ListOperationsRequest>,
    ) -> Result<Response<v1::ListOperationsResponse>, Status> {
        let most = request.into_inner().finished.map_or(FINISHED, |most| most as usize);
        let operations = inspect::operations(self.rooms(), most);
        Ok(Response::new(v1::ListOperationsResponse { operations }))
    }

    async fn watch_operations(
        &self,
        request: Request<v1::WatchOperationsRequest>,
    ) -> Result<Response<Self::WatchOperationsStream>, Status> {
        let (caller, token) = (caller(&request)?, request.into_inner().resume_token);
        let events = watch::operations(Arc::clone(&self.watched), token);
        let guard = (&self.auth, &self.bounds);
        while_allowed(events, guard, caller, Need::Read).map(Response::new)
    }

    async fn list_classes(
        &self,
        request: Request<v1::ListClassesRequest>,
    ) -> Result<Response<v1::ListClassesResponse>, Status> {
        let kind = request.into_inner().kind;
        let catalog = &*self.rooms().catalog;
        let serving = Serving::now(self.rooms());
        let mut classes = catalog.classes();
        classes.retain(|class| kind.is_empty() || *class.id.kind == kind);
        let classes = classes.iter().map(|class| v1::ListedClass {
            class: Some(v1::ClassRef {
                provider: class.key.provider.as_deref().unwrap_or_default().to_owned(),
                ..inspect::class(&class.id)
            }),
            revision: class.revision,
            secret_revision: secret_revision(catalog, class),
            served_by: serving.instances(class).to_vec(),
            deleted: class.deleted.is_some(),
        });
        Ok(Response::new(v1::ListClassesResponse {
            classes: classes.collect(),
            problems: catalog.problems().iter().map(ToString::to_string).collect(),
        }))
    }

    async fn set_log_filter(
        &self,
        request: Request<v1::SetLogFilterRequest>,
    ) -> Result<Response<v1::LogFilter>, Status> {
        let (caller, request) = (caller(&request)?, request.into_inner());
        // To ask is to look, to set is to steer.
        if !request.filter.is_empty()
            && let Err(denied) = self.auth.allows(&caller, Act::Steer)
        {
            self.audit.write(|| {
                let record = Record::new(Event::LogFilterSet, Outcome::Denied).by(&caller);
                record.saying(denied.to_string())
            });
            return Err(status::of_denied_caller(&denied));
        }
        let Some(log) = &self.rooms().log else {
            return Err(Status::failed_precondition("the log of this broker cannot be steered"));
        };
        let before = match request.filter.as_str() {
            "" => log.wish(),
            filter => {
                let set = set_log(log, filter, request.lasts);
                self.audit.write(|| match &set {
                    Ok(_) => {
                        Record::new(Event::LogFilterSet, Outcome::Ok).by(&caller).saying(filter)
                    }
                    Err(status) => Record::new(Event::LogFilterSet, Outcome::Refused)
                        .by(&caller)
                        .saying(status.message()),
                });
                set?
            }
        };
        let now = log.wish();
        let (at, to) = now.back.unzip();
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        Ok(Response::new(v1::LogFilter {
            filter: now.filter,
            previous: before.filter,
            reverts_in: at.and_then(|at| left(at).try_into().ok()),
            reverts_to: to.unwrap_or_default(),
        }))
    }
}

/// Returns what was before.
fn set_log(
    log: &LogControl,
    filter: &str,
    lasts: Option<prost_types::Duration>,
) -> Result<Wish, Status> {
    if filter.len() > MAX_FILTER {
        return Err(Status::invalid_argument(format!("filter: at most {MAX_FILTER} bytes")));
    }
    if let Some(word) = mistyped(filter) {
        return Err(Status::invalid_argument(format!(
            "filter: {word:?} is no level; there are off, error, warn, info, debug and trace, and \
             MODULE=LEVEL"
        )));
    }
    let lasts = lasts.map(Duration::try_from).transpose();
    let lasts = lasts.ok().filter(|lasts| lasts.is_none_or(|lasts| lasts <= LONGEST_FILTER));
    let Some(lasts) = lasts else {
        let hours = LONGEST_FILTER.as_secs() / 3600;
        return Err(Status::invalid_argument(format!("lasts: from now on, at most {hours} hours")));
    };
    let before = log.set(filter, lasts);
    let before = before.map_err(|error| Status::invalid_argument(format!("{error:#}")))?;
    tracing::info!(filter, ?lasts, before = before.filter, "log filter set by an operator");
    Ok(before)
}
