//! The operators' side of the fake.

use broker_proto::v1::{
    BrokerStatus, DrainDriverRequest, Driver, DriverDetails, DriverEvent, EvictDriverRequest,
    GetBrokerStatusRequest, GetDriverRequest, ListClassesRequest, ListClassesResponse,
    ListDriversRequest, ListDriversResponse, ListOperationsRequest, ListOperationsResponse,
    LogFilter, OperationEvent, PingDriverRequest, PingDriverResponse, SetLogFilterRequest,
    WatchDriversRequest, WatchOperationsRequest, registry_server::Registry,
};
use tonic::{Request, Response, Status, codegen::BoxStream};

use super::{Asked, Script};

#[tonic::async_trait]
impl Registry for Script {
    async fn list_drivers(
        &self,
        request: Request<ListDriversRequest>,
    ) -> Result<Response<ListDriversResponse>, Status> {
        self.note(request, Asked::Drivers);
        Ok(Response::new(self.drivers.lock().unwrap().clone()))
    }

    async fn list_operations(
        &self,
        request: Request<ListOperationsRequest>,
    ) -> Result<Response<ListOperationsResponse>, Status> {
        self.note(request, Asked::Operations);
        Ok(Response::new(self.operations.lock().unwrap().clone()))
    }

    async fn get_broker_status(
        &self,
        request: Request<GetBrokerStatusRequest>,
    ) -> Result<Response<BrokerStatus>, Status> {
        self.note(request, Asked::BrokerStatus);
        Ok(Response::new(self.status.lock().unwrap().clone()))
    }

    async fn get_driver(
        &self,
        request: Request<GetDriverRequest>,
    ) -> Result<Response<DriverDetails>, Status> {
        self.note(request, Asked::Details);
        let answer = self.details.lock().unwrap().pop_front();
        answer.expect("an answer in the script").map(Response::new)
    }

    async fn ping_driver(
        &self,
        request: Request<PingDriverRequest>,
    ) -> Result<Response<PingDriverResponse>, Status> {
        self.note(request, Asked::Ping);
        let answer = self.pings.lock().unwrap().pop_front();
        answer.expect("an answer in the script").map(Response::new)
    }

    /// The driver has gone when one looks next.
    async fn drain_driver(
        &self,
        request: Request<DrainDriverRequest>,
    ) -> Result<Response<Driver>, Status> {
        self.note(request, Asked::Drain);
        let driver = self.drivers.lock().unwrap().drivers.pop();
        driver.map(Response::new).ok_or_else(|| Status::not_found("no driver has this name"))
    }

    async fn evict_driver(
        &self,
        request: Request<EvictDriverRequest>,
    ) -> Result<Response<Driver>, Status> {
        self.note(request, Asked::Evict);
        let driver = self.drivers.lock().unwrap().drivers.pop();
        driver.map(Response::new).ok_or_else(|| Status::not_found("no driver has this name"))
    }

    async fn list_classes(
        &self,
        request: Request<ListClassesRequest>,
    ) -> Result<Response<ListClassesResponse>, Status> {
        self.note(request, Asked::Classes);
        Ok(Response::new(self.classes.lock().unwrap().clone()))
    }

    /// It did log "info".
    async fn set_log_filter(
        &self,
        request: Request<SetLogFilterRequest>,
    ) -> Result<Response<LogFilter>, Status> {
        let SetLogFilterRequest { filter, lasts } = request.get_ref().clone();
        self.note(request, Asked::Log);
        let info = || "info".to_owned();
        let reverts_to = if lasts.is_some() { info() } else { String::new() };
        let filter = if filter.is_empty() { info() } else { filter };
        Ok(Response::new(LogFilter { filter, previous: info(), reverts_in: lasts, reverts_to }))
    }

    type WatchDriversStream = BoxStream<DriverEvent>;

    async fn watch_drivers(
        &self,
        request: Request<WatchDriversRequest>,
    ) -> Result<Response<Self::WatchDriversStream>, Status> {
        self.note(request, Asked::WatchDrivers);
        let events = self.driver_watches.lock().unwrap().pop_front();
        let events = events.ok_or_else(|| Status::permission_denied("the script is over"))?;
        Ok(Response::new(self.stream(events)))
    }

    type WatchOperationsStream = BoxStream<OperationEvent>;

    async fn watch_operations(
        &self,
        request: Request<WatchOperationsRequest>,
    ) -> Result<Response<Self::WatchOperationsStream>, Status> {
        self.note(request, Asked::WatchOperations);
        let events = self.operation_watches.lock().unwrap().pop_front();
        let events = events.ok_or_else(|| Status::permission_denied("the script is over"))?;
        Ok(Response::new(self.stream(events)))
    }
}
