//! The trace that a caller's request belongs to: the W3C trace context.

use std::sync::Arc;

use broker_otlp::Headers;
use tracing::Span;

/// What may be in `tracestate`; the standard promises no more than this to be passed on.
const MAX_STATE: usize = 512;
/// Of version 00. Later ones may be longer, and begin the same.
const PARENT: usize = 55;
const MAX_PARENT: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    parent: String,
    state: String,
}

impl Trace {
    /// Reads the two headers. `None` for what is not a trace: it is no reason to refuse a request.
    pub fn read(parent: &str, state: Option<&str>) -> Option<Self> {
        if !is_parent(parent) {
            return None;
        }
        let right = |state: &&str| {
            state.len() <= MAX_STATE && state.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        };
        let state = state.filter(right).unwrap_or_default().to_owned();
        Some(Self { parent: parent.to_owned(), state })
    }

    /// The trace for those who work for `span`, which was just made for what `caller` asks: the span
    /// itself is their parent if it is exported, and the caller otherwise.
    pub fn through(span: &Span, caller: Option<Arc<Self>>) -> Option<Arc<Self>> {
        // Nothing may be made of the caller's headers, for every operation, if nobody will see it.
        if span.is_disabled() {
            return caller;
        }
        let headers = caller.as_deref().map(|caller| Headers {
            traceparent: caller.parent.clone(),
            tracestate: caller.state.clone(),
        });
        let own = broker_otlp::join(span, &headers.unwrap_or_default());
        let own = own.and_then(|own| Self::read(&own.traceparent, Some(&own.tracestate)));
        own.map(Arc::new).or(caller)
    }

    pub fn parent(&self) -> &str {
        &self.parent
    }

    pub fn state(&self) -> &str {
        &self.state
    }

    /// The part that all spans of a trace share.
    pub fn id(&self) -> &str {
        &self.parent[3..35]
    }
}

fn is_parent(text: &str) -> bool {
    let hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let zero = |part: &str| part.bytes().all(|byte| byte == b'0');
    if !text.is_ascii() || text.len() < PARENT || text.len() > MAX_PARENT {
        return false;
    }
    let (known, more) = text.split_at(PARENT);
    let parts: Vec<&str> = known.split('-').collect();
    let [version, trace, span, flags] = parts.as_slice() else { return false };
    [version.len(), trace.len(), span.len(), flags.len()] == [2, 32, 16, 2]
        && parts.iter().all(|part| hex(part))
        && *version != "ff"
        && !zero(trace)
        && !zero(span)
        && (more.is_empty() || (*version != "00" && more.starts_with('-')))
        && more.bytes().all(|byte| matches!(byte, b'!'..=b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_trace_is_passed_on_as_it_came() {
        let trace = Trace::read(PARENT, Some("vendor=1,other=2")).unwrap();
        assert_eq!((trace.parent(), trace.state()), (PARENT, "vendor=1,other=2"));
        assert_eq!(trace.id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert!(Trace::read(&PARENT.replacen("00", "01", 1), None).is_some());
        assert!(Trace::read(&format!("01{}-more", &PARENT[2..]), None).is_some());
    }

    #[test]
    fn what_is_no_trace_is_left_out() {
        let wrong = [
            String::new(),
            PARENT[1..].to_owned(),
            PARENT.to_uppercase(),
            format!("{PARENT}-more"),
            PARENT.replacen("00", "ff", 1),
            PARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            PARENT.replace("00f067aa0ba902b7", &"0".repeat(16)),
            PARENT.replace("-01", "-0ä"),
            PARENT.replace('-', "_"),
        ];
        for wrong in wrong {
            assert_eq!(Trace::read(&wrong, None), None, "{wrong}");
        }
        let long = "x".repeat(MAX_STATE + 1);
        for state in [long.as_str(), "line\nbreak"] {
            assert_eq!(Trace::read(PARENT, Some(state)).unwrap().state(), "");
        }
    }
}
