//! Our span's place in the caller's trace, where spans are exported.

#[cfg(feature = "otlp")]
pub(super) use self::exported::{ended, join};
#[cfg(not(feature = "otlp"))]
pub(super) use self::unheard::{ended, join};

#[cfg(feature = "otlp")]
mod exported {
    use broker_otlp::Headers;
    use tracing::Span;

    use crate::{answer::Outcome, operation::Operation};

    /// Puts the span below that of the broker or, if it has none, of its caller.
    pub(crate) fn join(span: &Span, operation: &Operation) {
        if span.is_disabled() {
            return;
        }
        let caller = Headers {
            traceparent: operation.traceparent().unwrap_or_default().to_owned(),
            tracestate: operation.tracestate().unwrap_or_default().to_owned(),
        };
        broker_otlp::join(span, &caller);
    }

    pub(crate) fn ended(span: &Span, outcome: &Outcome) {
        let code = outcome.as_ref().map_or_else(|error| error.code().as_str(), |_| "OK");
        broker_otlp::ended(span, code, outcome.is_ok());
    }
}

#[cfg(not(feature = "otlp"))]
mod unheard {
    use tracing::Span;

    use crate::{answer::Outcome, operation::Operation};

    pub(crate) fn join(_: &Span, _: &Operation) {}

    pub(crate) fn ended(_: &Span, _: &Outcome) {}
}
