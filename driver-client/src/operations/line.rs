//! Numbers in a line, any of which may leave it.

/// A circle of neighbours that is closed by [`HEAD`], which is before the first and behind the last.
/// Small and by itself: whoever leaves has both neighbours touched, and what these stand for is cold.
#[derive(Debug)]
pub(super) struct Line {
    /// Of number `n` at `n + 1`. Who is not in line has nobody but itself.
    neighbours: Vec<Neighbours>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Neighbours {
    before: usize,
    behind: usize,
}

const HEAD: usize = 0;

impl Default for Line {
    fn default() -> Self {
        Self { neighbours: vec![Neighbours::alone(HEAD)], len: 0 }
    }
}

impl Line {
    /// Comes to the end of the line, from wherever it was.
    pub(super) fn join(&mut self, number: usize) {
        self.leave(number);
        let at = number + 1;
        for alone in self.neighbours.len()..=at {
            self.neighbours.push(Neighbours::alone(alone));
        }
        let last = self.neighbours[HEAD].before;
        self.neighbours[at] = Neighbours { before: last, behind: HEAD };
        self.neighbours[last].behind = at;
        self.neighbours[HEAD].before = at;
        self.len += 1;
    }

    /// It may not even be there.
    pub(super) fn leave(&mut self, number: usize) {
        let at = number + 1;
        let Some(&Neighbours { before, behind }) = self.neighbours.get(at) else { return };
        if before != at {
            self.neighbours[before].behind = behind;
            self.neighbours[behind].before = before;
            self.neighbours[at] = Neighbours::alone(at);
            self.len -= 1;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn first(&self) -> Option<usize> {
        self.neighbours[HEAD].behind.checked_sub(1)
    }

    pub(super) fn last_to_first(&self) -> impl Iterator<Item = usize> {
        let mut at = HEAD;
        std::iter::from_fn(move || {
            at = self.neighbours[at].before;
            at.checked_sub(1)
        })
    }
}

impl Neighbours {
    fn alone(at: usize) -> Self {
        Self { before: at, behind: at }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn who_joins_comes_last_and_who_leaves_is_not_missed(
            steps in proptest::collection::vec((0_usize..8, any::<bool>()), 0..60),
        ) {
            let (mut line, mut model) = (Line::default(), Vec::new());
            for (number, joins) in steps {
                model.retain(|other| *other != number);
                if joins {
                    line.join(number);
                    model.push(number);
                } else {
                    line.leave(number);
                }
                let mut numbers: Vec<_> = line.last_to_first().collect();
                numbers.reverse();
                prop_assert_eq!(&numbers, &model);
                prop_assert_eq!((line.first(), line.len()), (model.first().copied(), model.len()));
            }
        }
    }
}
