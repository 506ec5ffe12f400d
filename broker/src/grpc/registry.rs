//! The operators' door: look at drivers, operations and classes, and steer drivers.

mod board;
mod watch;

use std::{pin::Pin, sync::Arc, time::Duration};

use broker_proto::v1::{self, registry_server};
use futures::Stream;
use tonic::{Request, Response, Status};

use self::watch::Watched;
use super::caller;
use crate::{
    audit::{Audit, Caller, Event, Outcome, Record},
    catalog::secret_revision,
    inspect::{self, Rooms},
    registry::{NotOne, What},
    session::{End, SessionHandle},
};

/// How many finished operations are listed unless asked otherwise.
const FINISHED: usize = 100;
/// How long a driver has to answer an operator's ping.
const PING_WITHIN: Duration = Duration::from_secs(5);
/// How much of an operator's reason is passed on.
const MAX_REASON: usize = 1024;

/// Cheap to clone: every clone is the same door.
#[derive(Clone, Debug)]
pub(super) struct RegistryDoor {
    watched: Arc<Watched>,
    audit: Audit,
}

impl RegistryDoor {
    pub(super) fn new(rooms: Arc<Rooms>, audit: Audit) -> Self {
        Self { watched: Arc::new(Watched::new(rooms)), audit }
    }

    fn rooms(&self) -> &Rooms {
        &self.watched.rooms
    }

    fn driver(&self, name: &str) -> Result<SessionHandle, Status> {
        self.rooms().registry.named(name).map_err(|not_one| match not_one {
            NotOne::None => Status::not_found(format!(
                "no driver is called {name:?}: give a session id, its beginning, or an instance id"
            )),
            NotOne::Several(sessions) => {
                let sessions: Vec<String> = sessions.iter().map(ToString::to_string).collect();
                Status::failed_precondition(format!(
                    "{name:?} fits several drivers: {}",
                    sessions.join(", ")
                ))
            }
        })
    }

    fn steer(
        &self,
        event: Event,
        caller: Caller,
        (name, reason): (&str, &str),
    ) -> Result<(SessionHandle, String), Status> {
        let session = if reason.len() > MAX_REASON {
            Err(Status::invalid_argument(format!("reason: at most {MAX_REASON} bytes")))
        } else {
            self.driver(name)
        };
        let reason = if reason.is_empty() { "no reason was given" } else { reason };
        self.audit.write(|| match &session {
            Ok(session) => {
                Record::new(event, Outcome::Ok).by(caller).about(session.info()).saying(reason)
            }
            Err(status) => Record::new(event, Outcome::Refused).by(caller).saying(status.message()),
        });
        Ok((session?, reason.to_owned()))
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
        let mut drivers = inspect::drivers(self.rooms(), &request.kind);
        drivers.retain(|driver| state == v1::DriverState::Unspecified || driver.state() == state);
        Ok(Response::new(v1::ListDriversResponse { drivers }))
    }

    async fn get_driver(
        &self,
        request: Request<v1::GetDriverRequest>,
    ) -> Result<Response<v1::DriverDetails>, Status> {
        let session = self.driver(&request.into_inner().driver)?;
        Ok(Response::new(inspect::details(self.rooms(), &session)))
    }

    async fn watch_drivers(
        &self,
        request: Request<v1::WatchDriversRequest>,
    ) -> Result<Response<Self::WatchDriversStream>, Status> {
        let request = request.into_inner();
        let events = watch::drivers(Arc::clone(&self.watched), request.kind, request.resume_token);
        Ok(Response::new(Box::pin(events)))
    }

    async fn ping_driver(
        &self,
        request: Request<v1::PingDriverRequest>,
    ) -> Result<Response<v1::PingDriverResponse>, Status> {
        let session = self.driver(&request.into_inner().driver)?;
        if !session.is_native() {
            return Err(Status::unimplemented(
                "a driver of the 2018 protocol cannot be pinged; its connection stands",
            ));
        }
        let round_trip = session.ping(PING_WITHIN).await.ok_or_else(|| {
            let waited = PING_WITHIN.as_secs();
            Status::deadline_exceeded(format!("the driver did not answer within {waited} s"))
        })?;
        Ok(Response::new(v1::PingDriverResponse {
            session_id: session.info().id.to_string(),
            round_trip: round_trip.try_into().ok(),
        }))
    }

    async fn drain_driver(
        &self,
        request: Request<v1::DrainDriverRequest>,
    ) -> Result<Response<v1::Driver>, Status> {
        let (caller, request) = (caller(&request), request.into_inner());
        let asked = (request.driver.as_str(), request.reason.as_str());
        let (session, reason) = self.steer(Event::DriverDrained, caller, asked)?;
        let info = session.info();
        tracing::info!(session = %info.id, driver = %info.instance, reason, "drained by an operator");
        self.rooms().registry.history().note(What::Asked, &reason, Some(info.id), &info.instance);
        session.drain(&reason, Duration::ZERO);
        Ok(Response::new(inspect::driver(self.rooms(), &session)))
    }

    async fn evict_driver(
        &self,
        request: Request<v1::EvictDriverRequest>,
    ) -> Result<Response<v1::Driver>, Status> {
        let (caller, request) = (caller(&request), request.into_inner());
        let asked = (request.driver.as_str(), request.reason.as_str());
        let (session, reason) = self.steer(Event::DriverEvicted, caller, asked)?;
        let info = session.info();
        tracing::info!(session = %info.id, driver = %info.instance, reason, "evicted by an operator");
        let driver = inspect::driver(self.rooms(), &session);
        session.end(End::Evicted(reason));
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
        let token = request.into_inner().resume_token;
        Ok(Response::new(Box::pin(watch::operations(Arc::clone(&self.watched), token))))
    }

    async fn list_classes(
        &self,
        request: Request<v1::ListClassesRequest>,
    ) -> Result<Response<v1::ListClassesResponse>, Status> {
        let kind = request.into_inner().kind;
        let catalog = &*self.rooms().catalog;
        let mut classes = catalog.classes();
        classes.retain(|class| kind.is_empty() || *class.id.kind == kind);
        let classes = classes.iter().map(|class| v1::ListedClass {
            class: Some(v1::ClassRef {
                provider: class.provider.as_deref().unwrap_or_default().to_owned(),
                ..inspect::class(&class.id)
            }),
            revision: class.revision,
            secret_revision: secret_revision(catalog, class),
            served_by: inspect::served_by(self.rooms(), class),
        });
        Ok(Response::new(v1::ListClassesResponse {
            classes: classes.collect(),
            problems: catalog.problems().iter().map(ToString::to_string).collect(),
        }))
    }
}
