//! For the tests of drivers: an [`Operation`] without a broker.
//!
//! ```
//! use driver_client::{Verb, testing::TestOperation};
//!
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! let op = TestOperation::new(Verb::Create, "worker-0")
//!     .spec(serde_json::json!({"size": "large"}))
//!     .secret([("token", "x")])
//!     .build();
//! let spec: serde_json::Value = op.spec().await.unwrap();
//! assert_eq!(spec["size"], "large");
//! # });
//! ```

use std::sync::Arc;

use broker_proto::{driving::Asked, v1::OperationParams};
use bytes::Bytes;
use prost::Message as _;
use tokio::time::Instant;

use crate::{
    CancellationToken, ClassRef, Operation, Secret, Sensitive, Verb,
    classes::{Class, ClassQuery, Classes},
    operation::Job,
};

/// Says what an operation is about; everything has a default.
pub struct TestOperation {
    verb: Verb,
    class: broker_proto::v1::ClassRef,
    params: OperationParams,
    object: serde_json::Value,
    secret: Option<Secret>,
    cancellation: CancellationToken,
}

impl TestOperation {
    /// An operation on a machine of class `default/test`, of kind `Test` in `test/v1`.
    pub fn new(verb: Verb, machine_name: &str) -> Self {
        let class = broker_proto::v1::ClassRef {
            api_version: "test/v1".to_owned(),
            kind: "Test".to_owned(),
            namespace: "default".to_owned(),
            name: "test".to_owned(),
            provider: String::new(),
        };
        let params =
            OperationParams { machine_name: machine_name.to_owned(), ..Default::default() };
        let object = serde_json::json!({});
        Self { verb, class, params, object, secret: None, cancellation: CancellationToken::new() }
    }

    /// The class that is referred to.
    pub fn class_ref(mut self, class: &ClassRef) -> Self {
        self.class = class.to_wire();
        self
    }

    /// The class's `spec`.
    pub fn spec(mut self, spec: serde_json::Value) -> Self {
        self.object = serde_json::json!({ "spec": spec });
        self
    }

    /// Makes the class refer to a secret with these values.
    pub fn secret<const N: usize>(mut self, values: [(&str, &str); N]) -> Self {
        let owned = |(key, value): (&str, &str)| (key.to_owned(), Sensitive::new(value.to_owned()));
        self.secret = Some(values.into_iter().map(owned).collect());
        self
    }

    pub fn provider_id(mut self, id: &str) -> Self {
        self.params.machine_id = id.to_owned();
        self
    }

    pub fn user_data(mut self, data: impl Into<Bytes>) -> Self {
        self.params.user_data = Some(data.into());
        self
    }

    pub fn volume_specs(mut self, specs: Vec<String>) -> Self {
        self.params.volume_specs = specs;
        self
    }

    /// Cancels the operation when `token` is.
    pub fn cancellation(mut self, token: CancellationToken) -> Self {
        self.cancellation = token;
        self
    }

    /// Panics if the machine's name is empty for a verb that needs one.
    pub fn build(mut self) -> Operation {
        self.params.secret_revision = i32::from(self.secret.is_some());
        let classes = Classes::fixed(Class::from_object(self.object), self.secret);
        let query = Arc::new(ClassQuery::new(self.class, &Default::default()));
        let params = self.params.encode_to_vec();
        let asked = Asked::read(&params).expect("just encoded");
        let (classes, scratch) = (Arc::new(classes), &mut String::new());
        let job = Job::from_wire(self.verb, &asked, query, classes, Instant::now(), scratch)
            .expect("an operation needs the name of its machine");
        Operation::with_cancellation(job, self.cancellation)
    }
}
