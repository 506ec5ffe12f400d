//! One trace over several processes: W3C trace context in, W3C trace context out.

use opentelemetry::{
    Context,
    propagation::{Extractor, Injector, TextMapPropagator as _},
    trace::{Status, TraceContextExt as _},
};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// The two headers of a trace context. Empty: there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    pub traceparent: String,
    pub tracestate: String,
}

/// Makes a span that was just made a child of `caller`, or the first of a new trace if that is none,
/// and gives the headers for whoever works for it. `None` if the span goes nowhere: it is off, or the
/// subscriber has no OpenTelemetry layer.
///
/// The span may have an empty field `otel.kind`; it is filled in here, so that only those who export
/// see it in their log.
pub fn join(span: &Span, caller: &Headers) -> Option<Headers> {
    let w3c = TraceContextPropagator::new();
    span.set_parent(w3c.extract_with_context(&Context::new(), caller)).ok()?;
    span.record("otel.kind", "server");
    let context = span.context();
    if !context.span().span_context().is_valid() {
        return None;
    }
    let mut headers = Headers::default();
    w3c.inject_context(&context, &mut headers);
    Some(headers)
}

/// Says in a span that is exported how it ended: in a word, since messages may say too much.
pub fn ended(span: &Span, code: &'static str, is_ok: bool) {
    span.set_attribute("code", code);
    if !is_ok {
        span.set_status(Status::error(code));
    }
}

impl Extractor for Headers {
    fn get(&self, key: &str) -> Option<&str> {
        let value = match key {
            "traceparent" => &self.traceparent,
            "tracestate" => &self.tracestate,
            _ => return None,
        };
        Some(value.as_str()).filter(|value| !value.is_empty())
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}

impl Injector for Headers {
    fn set(&mut self, key: &str, value: String) {
        match key {
            "traceparent" => self.traceparent = value,
            "tracestate" => self.tracestate = value,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TracerProvider as _;
    use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
    use tracing_subscriber::{Registry, layer::SubscriberExt as _};

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn caller(flags: &str) -> Headers {
        let traceparent = format!("00-{TRACE}-00f067aa0ba902b7-{flags}");
        Headers { traceparent, tracestate: "vendor=1".to_owned() }
    }

    fn joined(sampler: Sampler, caller: Headers) -> Headers {
        let sampler = Sampler::ParentBased(Box::new(sampler));
        let provider = SdkTracerProvider::builder().with_sampler(sampler).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        tracing::subscriber::with_default(Registry::default().with(layer), || {
            join(&tracing::debug_span!("operation"), &caller).expect("a span that is exported")
        })
    }

    #[test]
    fn a_span_takes_its_callers_place_in_the_trace() {
        let headers = joined(Sampler::AlwaysOff, caller("01"));
        assert!(headers.traceparent.starts_with(&format!("00-{TRACE}-")), "{headers:?}");
        assert!(headers.traceparent.ends_with("-01"), "{headers:?}");
        assert_ne!(headers.traceparent, caller("01").traceparent);
        assert_eq!(headers.tracestate, "vendor=1");
    }

    #[test]
    fn what_the_caller_does_not_export_nobody_below_it_does() {
        assert!(joined(Sampler::AlwaysOn, caller("00")).traceparent.ends_with("-00"));
    }

    #[test]
    fn without_a_caller_a_trace_begins() {
        let nonsense = Headers { traceparent: "nonsense".to_owned(), tracestate: String::new() };
        for caller in [Headers::default(), nonsense] {
            let headers = joined(Sampler::AlwaysOn, caller);
            assert_eq!(headers.traceparent.len(), 55, "{headers:?}");
            assert!(!headers.traceparent.contains(TRACE), "{headers:?}");
        }
    }

    #[test]
    fn without_an_export_there_is_nothing_to_join() {
        assert_eq!(join(&Span::none(), &caller("01")), None);
        tracing::subscriber::with_default(Registry::default(), || {
            let span = tracing::debug_span!("operation");
            assert_eq!(join(&span, &caller("01")), None);
            assert_eq!(join(&span, &Headers::default()), None);
        });
    }
}
