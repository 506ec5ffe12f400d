//! The operations that run, each where its execution's id says.

use crate::{operation::Operation, operations::ExecutionId};

#[derive(Default)]
pub(super) struct Running(Vec<Option<Operation>>);

impl Running {
    pub(super) fn put(&mut self, id: ExecutionId, operation: Operation) {
        if self.0.len() <= id.0 {
            self.0.resize_with(id.0 + 1, || None);
        }
        self.0[id.0] = Some(operation);
    }

    pub(super) fn get(&self, id: ExecutionId) -> Option<&Operation> {
        self.0.get(id.0)?.as_ref()
    }

    pub(super) fn remove(&mut self, id: ExecutionId) -> Option<Operation> {
        self.0.get_mut(id.0)?.take()
    }
}
