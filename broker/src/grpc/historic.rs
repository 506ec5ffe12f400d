//! The two names that the drivers' service had in 2018.

use tonic::codegen::http::{Request, Uri, uri::PathAndQuery};

const TODAY: &str = "/machinebroker.v1.Drivers/";
const HISTORIC: [&str; 2] = ["/infra.Infragrpc/", "/service.Servicegrpc/"];

/// Sends calls under a historic service name to today's service. The messages are the same, so the
/// path is all that differs.
pub(super) fn answer_to_historic_names<B>(request: &mut Request<B>) {
    let path = request.uri().path();
    let Some(method) = HISTORIC.iter().find_map(|name| path.strip_prefix(name)) else { return };
    if let Ok(path) = PathAndQuery::try_from(format!("{TODAY}{method}")) {
        let mut parts = request.uri().clone().into_parts();
        parts.path_and_query = Some(path);
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_after(uri: &str) -> String {
        let mut request = Request::builder().uri(uri).body(()).unwrap();
        answer_to_historic_names(&mut request);
        request.uri().to_string()
    }

    #[test]
    fn both_historic_names_reach_todays_service() {
        for name in ["infra.Infragrpc", "service.Servicegrpc"] {
            assert_eq!(
                path_after(&format!("http://broker:5000/{name}/GetSecret")),
                "http://broker:5000/machinebroker.v1.Drivers/GetSecret"
            );
        }
    }

    #[test]
    fn other_services_are_left_alone() {
        let uri = "http://broker:5000/machinebroker.v1.Machines/CreateMachine";
        assert_eq!(path_after(uri), uri);
    }
}
