//! Draining and evicting from the page, for operators who may steer.

use axum::{
    Extension, Json,
    extract::{FromRequest as _, Path, Request, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::{
    BODY_WITHIN, Web,
    api::{json, of_unknown},
    entrance::{Stranger, Visitor},
    facts, origin,
};
use crate::{
    auth::{Caller, Denied},
    inspect::Rooms,
    steer,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    #[serde(default)]
    reason: String,
}

/// What is told of who asks.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Me {
    identity: String,
    may_steer: bool,
    /// And so can log out.
    logged_in: bool,
}

pub(super) async fn me(State(web): State<Web>, Extension(visitor): Extension<Visitor>) -> Response {
    json(&Me {
        identity: visitor.caller.identity.to_string(),
        may_steer: web.entrance.may_steer(&visitor.caller).is_ok(),
        logged_in: visitor.session.is_some(),
    })
}

pub(super) async fn drain(
    State(web): State<Web>,
    Extension(visitor): Extension<Visitor>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    steered(&web, visitor, &name, request, steer::drain).await
}

pub(super) async fn evict(
    State(web): State<Web>,
    Extension(visitor): Extension<Visitor>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    steered(&web, visitor, &name, request, steer::evict).await
}

type Act = fn(&Rooms, &Caller, &str, &str) -> Result<broker_proto::v1::Driver, steer::Error>;

async fn steered(web: &Web, visitor: Visitor, name: &str, request: Request, act: Act) -> Response {
    let entrance = &web.entrance;
    if !entrance.auth.has_policy() {
        let why = "without a policy nothing can be steered from here: use brokerctl, or start the \
                   broker with --policy\n";
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    let (asked, body) = request.into_parts();
    let allowed = origin::is_ours(&asked.headers, entrance.has_tls())
        .and_then(|()| origin::is_scripted(&asked.headers))
        .map_err(Denied::CrossSite)
        .and_then(|()| entrance.may_steer(&visitor.caller));
    if let Err(denied) = allowed {
        return entrance.turn_away(&asked, &Stranger::new(visitor.caller, denied));
    }
    let request = Request::from_parts(asked, body);
    let wish = match timeout(BODY_WITHIN, Json::<Wish>::from_request(request, &())).await {
        Ok(Ok(Json(wish))) => wish,
        Ok(Err(wrong)) => {
            return (wrong.status(), format!("{}\n", wrong.body_text())).into_response();
        }
        Err(_) => return (StatusCode::REQUEST_TIMEOUT, "that took too long\n").into_response(),
    };
    match act(&web.rooms, &visitor.caller, name, &wish.reason) {
        Ok(driver) => json(&facts::Driver::from(driver)),
        Err(error) => (status(&error), format!("{error}\n")).into_response(),
    }
}

fn status(error: &steer::Error) -> StatusCode {
    match error {
        steer::Error::LongReason => StatusCode::BAD_REQUEST,
        steer::Error::Driver(unknown) => of_unknown(unknown),
    }
}
