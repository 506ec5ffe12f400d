//! All parts of a connection in one task.
//!
//! hyper has a task for a connection, and one for what each of its streams sends. They wake each other, and
//! tokio lets three tasks run on a thread that were woken one by the other, but wakes another thread for a
//! fourth, which mostly finds nothing to do. From a frame to its answer there were four: the session, the
//! operation, what the stream sends, and the connection again. The last two are one here.

use std::{
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures::{StreamExt as _, stream::FuturesUnordered, task::AtomicWaker};
use hyper::rt::Executor;
use tokio::{sync::mpsc, task::coop};

type Part = Pin<Box<dyn Future<Output = ()> + Send>>;

/// So often the parts may wake each other before others get their turn.
const AT_ONCE: usize = 32;

/// So many parts has the connection of a single driver: hyper's connection and who hands requests to it, tonic's
/// own of the latter, and what goes out on the stream.
const OF_ONE_DRIVER: usize = 4;

/// Runs the parts of one connection. The task is there when the first of them is.
#[derive(Default)]
pub(crate) struct Together(OnceLock<mpsc::UnboundedSender<Part>>);

impl Executor<Part> for Together {
    #[expect(clippy::disallowed_methods, reason = "as hyper's own: it ends with its connection")]
    fn execute(&self, part: Part) {
        let parts = self.0.get_or_init(|| {
            let (add, parts) = Parts::new();
            tokio::spawn(parts);
            add
        });
        // The task ends early with its runtime, and then we are in another, or by a panic: then so does
        // what comes after it, as its connection is gone.
        if let Err(mpsc::error::SendError(part)) = parts.send(part) {
            tokio::spawn(part);
        }
    }
}

/// The task.
struct Parts {
    /// Closed when nobody can add one any more.
    new: mpsc::UnboundedReceiver<Part>,
    parts: FuturesUnordered<Part>,
    bell: Arc<Bell>,
    /// Rings it.
    waker: Waker,
    /// Others have had their turn since it was rung.
    has_waited: bool,
}

/// What the parts wake. While they are polled, that does not wake the task.
#[derive(Default)]
struct Bell {
    state: AtomicU8,
    task: AtomicWaker,
}

/// Nobody polls the parts, and none was woken.
const QUIET: u8 = 0;
/// They are being polled, and none was woken since that began.
const POLLING: u8 = 1;
/// Some are to be polled, by who does already or by the task, which was woken.
const RUNG: u8 = 2;

impl Parts {
    /// With the way to add one.
    #[expect(clippy::disallowed_methods, reason = "one for each stream, which HTTP/2 bounds")]
    fn new() -> (mpsc::UnboundedSender<Part>, Self) {
        let (add, new) = mpsc::unbounded_channel();
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(bell.clone());
        (add, Self { new, parts: FuturesUnordered::new(), bell, waker, has_waited: false })
    }

    /// Polls those that were woken. Ready when there are none, and never will be.
    fn poll_parts(&mut self) -> Poll<()> {
        let mut context = Context::from_waker(&self.waker);
        let is_closed = loop {
            match self.new.poll_recv(&mut context) {
                Poll::Ready(Some(part)) => self.parts.push(part),
                Poll::Ready(None) => break true,
                Poll::Pending => break false,
            }
        };
        loop {
            match self.parts.poll_next_unpin(&mut context) {
                Poll::Ready(Some(())) => {}
                Poll::Ready(None) if is_closed => return Poll::Ready(()),
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Future for Parts {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.bell.task.register(context.waker());
        // Of many drivers on a connection others are about to answer, too: then they share a write.
        if self.parts.len() > OF_ONE_DRIVER && !self.has_waited {
            self.has_waited = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.has_waited = false;
        for _ in 0..AT_ONCE {
            self.bell.state.store(POLLING, Ordering::SeqCst);
            if self.poll_parts().is_ready() {
                return Poll::Ready(());
            }
            let (all, relaxed) = (Ordering::SeqCst, Ordering::Relaxed);
            if self.bell.state.compare_exchange(POLLING, QUIET, all, relaxed).is_ok() {
                return Poll::Pending;
            }
            // Without it nothing of tokio is ever ready: the next turn brings more.
            if !coop::has_budget_remaining() {
                break;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(RUNG, Ordering::SeqCst) == QUIET {
            self.task.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{pending, poll_fn},
        sync::atomic::AtomicUsize,
    };

    use futures::{FutureExt as _, task::ArcWake};
    use tokio::sync::oneshot;

    use super::*;

    /// Counts how often a task is woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl ArcWake for Woken {
        fn wake_by_ref(woken: &Arc<Self>) {
            woken.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn parts_that_wake_each_other_do_not_wake_their_task() {
        let (add, mut parts) = Parts::new();
        let (first, waits_for_first) = oneshot::channel();
        let (second, waits_for_second) = oneshot::channel();
        let (third, mut waits_for_third) = oneshot::channel();
        let relay = async move {
            waits_for_first.await.unwrap();
            second.send(()).unwrap();
        };
        let last = async move {
            waits_for_second.await.unwrap();
            third.send(()).unwrap();
        };
        add.send(last.boxed()).unwrap();
        add.send(relay.boxed()).unwrap();
        let woken = Arc::new(Woken::default());
        let waker = futures::task::waker(woken.clone());
        let mut context = Context::from_waker(&waker);
        assert!(parts.poll_unpin(&mut context).is_pending());
        assert_eq!(woken.0.load(Ordering::SeqCst), 0);

        first.send(()).unwrap();
        assert_eq!(woken.0.load(Ordering::SeqCst), 1, "nobody polled them");
        assert!(parts.poll_unpin(&mut context).is_pending(), "there may be more of them");
        waits_for_third.try_recv().expect("both were polled");
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);

        drop(add);
        assert_eq!(woken.0.load(Ordering::SeqCst), 2);
        assert!(parts.poll_unpin(&mut context).is_ready());
    }

    #[test]
    fn with_many_drivers_all_who_are_about_to_answer_do_so_before_it_goes_on() {
        let (add, mut parts) = Parts::new();
        for _ in 0..OF_ONE_DRIVER {
            add.send(pending().boxed()).unwrap();
        }
        let (answer, waits_for_answer) = oneshot::channel();
        let (sent, mut waits_for_sent) = oneshot::channel();
        let stream = async move {
            waits_for_answer.await.unwrap();
            sent.send(()).unwrap();
        };
        add.send(stream.boxed()).unwrap();
        let woken = Arc::new(Woken::default());
        let waker = futures::task::waker(woken.clone());
        let mut context = Context::from_waker(&waker);
        assert!(parts.poll_unpin(&mut context).is_pending());

        answer.send(()).unwrap();
        assert!(parts.poll_unpin(&mut context).is_pending());
        assert!(waits_for_sent.try_recv().is_err(), "others go first");
        assert_eq!(woken.0.load(Ordering::SeqCst), 2, "it will have its turn");
        assert!(parts.poll_unpin(&mut context).is_pending());
        waits_for_sent.try_recv().expect("it had its turn");
    }

    #[test]
    fn a_part_that_always_has_something_to_do_lets_others_have_their_turn() {
        let (add, mut parts) = Parts::new();
        let restless = poll_fn(|context| {
            context.waker().wake_by_ref();
            Poll::Pending
        });
        add.send(restless.boxed()).unwrap();
        let woken = Arc::new(Woken::default());
        let waker = futures::task::waker(woken.clone());
        let mut context = Context::from_waker(&waker);
        for turn in 1..4 {
            assert!(parts.poll_unpin(&mut context).is_pending());
            assert_eq!(woken.0.load(Ordering::SeqCst), turn);
        }
    }
}
