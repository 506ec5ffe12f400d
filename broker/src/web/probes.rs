//! Probes as Kubernetes asks them: `ok`, or what is wrong; with `?verbose`, every check.

use std::{borrow::Cow, fmt::Write as _};

use axum::{
    extract::{RawQuery, State},
    http::StatusCode,
};

use super::Web;
use crate::{catalog::Reading, inspect::Rooms, replicas::Report};

struct Check {
    name: &'static str,
    /// What is wrong, if anything is.
    fails: Option<Cow<'static, str>>,
}

pub(super) async fn livez(RawQuery(query): RawQuery) -> (StatusCode, String) {
    // Who can answer lives.
    probe(&[Check { name: "answers", fails: None }], query.as_deref())
}

pub(super) async fn readyz(
    State(web): State<Web>,
    RawQuery(query): RawQuery,
) -> (StatusCode, String) {
    let rooms = &web.rooms;
    let stopping = rooms.closing.is_cancelled();
    let starting = !stopping && !web.readiness.get();
    let checks = [
        Check {
            name: "started",
            fails: starting.then_some("the gRPC port is not served yet".into()),
        },
        Check {
            name: "not-stopping",
            fails: stopping.then_some("the broker is stopping and takes no new work".into()),
        },
        Check {
            name: "has-drivers-of-replicas",
            fails: rooms
                .replicas
                .awaits(|| Report::of(&rooms.registry), || unread(rooms))
                .map(Into::into),
        },
    ];
    probe(&checks, query.as_deref())
}

/// Which classes of the drivers here were never read so far.
fn unread(rooms: &Rooms) -> Option<String> {
    let keys = rooms.registry.keys();
    keys.iter().find_map(|key| match rooms.catalog.reading(&key.api_version, &key.kind) {
        Reading::Never(why) => Some(why),
        Reading::Current | Reading::Stale(_) => None,
    })
}

fn probe(checks: &[Check], query: Option<&str>) -> (StatusCode, String) {
    let verbose = query
        .into_iter()
        .flat_map(|query| query.split('&'))
        .any(|part| part.split_once('=').map_or(part, |(name, _)| name) == "verbose");
    let fails = checks.iter().any(|check| check.fails.is_some());
    let mut text = String::new();
    for check in checks.iter().filter(|check| verbose || check.fails.is_some()) {
        let line = match &check.fails {
            Some(why) => writeln!(text, "[-] {}: {why}", check.name),
            None => writeln!(text, "[+] {}", check.name),
        };
        line.expect("text grows");
    }
    text += if fails { "not ok\n" } else { "ok\n" };
    (if fails { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }, text)
}
