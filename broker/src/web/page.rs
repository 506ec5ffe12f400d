//! The page itself, from the binary.

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    ([(CONTENT_TYPE, kind)], text)
}

pub(super) async fn html() -> impl IntoResponse {
    asset("text/html; charset=utf-8", include_str!("page.html"))
}

pub(super) async fn css() -> impl IntoResponse {
    asset("text/css; charset=utf-8", include_str!("page.css"))
}

pub(super) async fn js() -> impl IntoResponse {
    asset("text/javascript; charset=utf-8", include_str!("page.js"))
}

pub(super) async fn charts() -> impl IntoResponse {
    asset("text/javascript; charset=utf-8", include_str!("charts.js"))
}

pub(super) async fn dom() -> impl IntoResponse {
    asset("text/javascript; charset=utf-8", include_str!("dom.js"))
}

pub(super) async fn steer() -> impl IntoResponse {
    asset("text/javascript; charset=utf-8", include_str!("steer.js"))
}

pub(super) async fn icon() -> impl IntoResponse {
    asset("image/svg+xml", include_str!("icon.svg"))
}
