//! What the looks at one part's files have seen so far.

use super::in_force::Loaded;
use crate::Problem;

#[derive(Debug, Default)]
pub(super) struct Sight {
    /// New and good at the last look, by its hash.
    seen: Option<u64>,
    /// Why the files are not in force as they are now.
    problem: Option<String>,
    /// The same, until somebody was told.
    untold: Option<Problem>,
}

impl Sight {
    /// Notes what a look found, and returns it if it is to be in force: when the look before saw the
    /// same. A bundle that is cut between two certificates looks like a whole one, so that new content
    /// counts only once its writer has had the time to finish.
    pub(super) fn note<T>(
        &mut self,
        found: Result<Option<Loaded<T>>, Problem>,
    ) -> Option<Loaded<T>> {
        match found {
            Ok(found) => {
                let hash = found.as_ref().map(|found| found.hash);
                let before = std::mem::replace(self, Self { seen: hash, ..Self::default() }).seen;
                found.filter(|_| before == hash)
            }
            Err(problem) => {
                self.seen = None;
                let text = Some(problem.to_string());
                if self.problem != text {
                    (self.problem, self.untold) = (text, Some(problem));
                }
                None
            }
        }
    }

    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Once, not at every look.
    pub(super) fn tell(&mut self) -> Option<Problem> {
        self.untold.take()
    }
}
