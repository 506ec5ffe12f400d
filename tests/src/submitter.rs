//! A Submit stream: many operations at once.

use broker_proto::v1::{
    SubmitRequest, SubmitResponse, machines_client::MachinesClient, submit_request::Operation,
    submit_response::Outcome,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Status, Streaming, transport::Channel};

pub struct Submitter {
    requests: mpsc::UnboundedSender<SubmitRequest>,
    answers: Streaming<SubmitResponse>,
}

/// One operation on a Submit stream, with the verb's default time.
pub fn submission(tag: u64, operation: Operation) -> SubmitRequest {
    SubmitRequest { tag, operation: Some(operation), timeout: None }
}

impl Submitter {
    pub(crate) async fn open(mut machines: MachinesClient<Channel>) -> Self {
        let (requests, submitted) = mpsc::unbounded_channel();
        let answers = machines.submit(UnboundedReceiverStream::new(submitted)).await;
        Self { requests, answers: answers.expect("the stream opens").into_inner() }
    }

    pub fn send(&self, tag: u64, operation: Operation) {
        self.send_request(submission(tag, operation));
    }

    pub fn send_request(&self, request: SubmitRequest) {
        self.requests.send(request).expect("the stream stands");
    }

    /// The next answer with its tag, in whatever order they come.
    pub async fn next(&mut self) -> (u64, Result<Outcome, Status>) {
        let answer = self.answers.message().await.expect("the stream stands");
        let answer = answer.expect("an answer to everything that was submitted");
        match answer.outcome.expect("an outcome") {
            Outcome::Error(error) => {
                let details = prost::Message::encode_to_vec(&error).into();
                (
                    answer.tag,
                    Err(Status::with_details(Code::from_i32(error.code), error.message, details)),
                )
            }
            outcome => (answer.tag, Ok(outcome)),
        }
    }

    /// Why the broker ends the stream.
    pub async fn end(&mut self) -> Status {
        loop {
            match self.answers.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended without a reason"),
                Err(status) => return status,
            }
        }
    }

    /// Submits no more. What is left comes with [`Submitter::next`].
    pub fn half_close(self) -> HalfClosed {
        HalfClosed(self.answers)
    }
}

/// A Submit stream whose request side is closed.
pub struct HalfClosed(Streaming<SubmitResponse>);

impl HalfClosed {
    /// The tags of all that is still answered, until the broker ends the stream.
    pub async fn rest(mut self) -> Vec<u64> {
        let mut tags = Vec::new();
        while let Some(answer) = self.0.message().await.expect("the stream ends in good order") {
            tags.push(answer.tag);
        }
        tags
    }
}
