//! What the broker says of a failure beyond code and message: the details of its status.

use std::{borrow::Cow, time::Duration};

use tonic::Status;
use tonic_types::StatusExt as _;

/// How far the operation got. [`None`] in its place: the status is not the broker's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    NotSent,
    Sent,
    Accepted,
    Answered,
}

/// What the broker says beyond code and message.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) reason: String,
    pub(super) delivery: Option<Delivery>,
    operation: Option<String>,
    driver: Option<String>,
    pub(super) provider_id: Option<String>,
    pub(super) retry_after: Option<Duration>,
}

impl Report {
    pub(super) fn of(status: &Status) -> Self {
        let retry_after = status.get_details_retry_info().and_then(|info| info.retry_delay);
        let Some(mut info) = status.get_details_error_info() else {
            return Self { retry_after, ..Self::default() };
        };
        let mut take = |key: &str| info.metadata.remove(key).filter(|value| !value.is_empty());
        let delivery = take("delivery").map(|delivery| match delivery.as_str() {
            "NOT_SENT" => Delivery::NotSent,
            "ACCEPTED" => Delivery::Accepted,
            "ANSWERED" => Delivery::Answered,
            // A broker newer than this may say something else: nothing is promised then.
            _ => Delivery::Sent,
        });
        let (operation, driver) = (take("operation_id"), take("driver_instance"));
        let provider_id = take("provider_id");
        Self { reason: info.reason, delivery, operation, driver, provider_id, retry_after }
    }

    /// Where to look for more, in logs and `brokerctl operations`.
    pub(super) fn place(&self) -> Option<Cow<'static, str>> {
        match (&self.operation, &self.driver) {
            (Some(operation), Some(driver)) => {
                Some(format!("operation {operation}, driver {driver}").into())
            }
            (Some(operation), None) => Some(format!("operation {operation}").into()),
            (None, Some(driver)) => Some(format!("driver {driver}").into()),
            (None, None) => None,
        }
    }
}
