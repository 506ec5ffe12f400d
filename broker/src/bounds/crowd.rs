//! The connections of one port. A connection is a newcomer until somebody was let in on it: who wants in
//! needs a few round trips for that, who only holds a place needs it for ever. So when there are too
//! many the oldest newcomer goes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::{Limits, Place, Places, Taken, part};
use crate::{auth::Identity, metrics::Metrics};

/// Above the bound there may be so many that have been told to go and have not gone.
const LEAVING: usize = 64;

/// Which port it is, and what becomes of those on which somebody was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Drivers work on them: they stay.
    Grpc,
    /// Nobody loses more than a page that loads again: when there are too many and no newcomer is among
    /// them, the oldest goes, so that probes are always answered.
    Admin,
}

/// Cheap to clone: every clone is the same crowd.
#[derive(Clone, Debug)]
pub struct Crowd(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    port: Port,
    most: usize,
    most_newcomers: usize,
    time: Duration,
    /// Of those on which somebody was let in.
    places: Places,
    metrics: Metrics,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// Also those that have been told to go and have not gone.
    open: usize,
    /// The oldest have the lowest number.
    newcomers: BTreeMap<u64, CancellationToken>,
    /// Of those that may be told to go.
    settled: BTreeMap<u64, CancellationToken>,
}

/// There are too many, and none that could go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Why a connection has to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyOut {
    /// It was the oldest when there were too many.
    Crowded,
    /// Nobody was let in on it in time.
    Idle,
}

impl WhyOut {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Crowded => "crowded_out",
            Self::Idle => "idle",
        }
    }
}

/// How a connection stands. The default is one that nobody counts, such as one within this process.
#[derive(Clone, Debug, Default)]
pub struct Standing(Option<Arc<Guest>>);

#[derive(Debug)]
struct Guest {
    number: u64,
    crowd: Crowd,
    /// `None` once it stays, whatever comes: then nobody waits for it any more.
    leave: Mutex<Option<CancellationToken>>,
    /// Set once somebody was let in.
    settled: OnceLock<Place>,
    out: OnceLock<WhyOut>,
}

impl Crowd {
    /// Of at most so many connections; all else is as the limits say.
    pub fn new(port: Port, most: usize, limits: &Limits, metrics: Metrics) -> Self {
        let part = part(most, limits.identity_share);
        Self(Arc::new(Shared {
            port,
            most,
            most_newcomers: limits.newcomers,
            time: limits.newcomer_time,
            // All together are bounded here.
            places: Places::new("connections", usize::MAX, part, metrics.clone()),
            metrics,
            state: Mutex::default(),
        }))
    }

    /// Takes in a connection. The oldest newcomer may have to go for it.
    pub fn join(&self) -> Result<Standing, Full> {
        let mut state = self.lock();
        if state.open >= self.0.most {
            if !state.send_away() {
                self.0.metrics.connection_refused("full");
                return Err(Full);
            }
        } else if state.newcomers.len() >= self.0.most_newcomers {
            state.send_away();
        }
        let (number, leave) = (state.next, CancellationToken::new());
        state.next += 1;
        state.open += 1;
        state.newcomers.insert(number, leave.clone());
        self.show(&state);
        let (settled, out) = (OnceLock::new(), OnceLock::new());
        let leave = Mutex::new(Some(leave));
        Ok(Standing(Some(Arc::new(Guest { number, crowd: self.clone(), leave, settled, out }))))
    }

    /// Has the oldest newcomer go, if there is one: the system has no room for more.
    pub fn make_room(&self) {
        self.lock().send_away();
    }

    /// Whether those that were told to go have to be waited for.
    pub fn is_overfull(&self) -> bool {
        self.lock().open >= self.0.most + LEAVING
    }

    fn settle(&self, number: u64) {
        let mut state = self.lock();
        if let Some(leave) = state.newcomers.remove(&number)
            && self.0.port == Port::Admin
        {
            state.settled.insert(number, leave);
        }
        self.show(&state);
    }

    fn leave(&self, number: u64) {
        let mut state = self.lock();
        state.open -= 1;
        state.newcomers.remove(&number);
        state.settled.remove(&number);
        self.show(&state);
    }

    fn show(&self, state: &State) {
        let port = match self.0.port {
            Port::Grpc => "grpc",
            Port::Admin => "admin",
        };
        self.0.metrics.connections(port, state.open, state.newcomers.len());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Tells the oldest that may go to do so. Returns whether there was one.
    fn send_away(&mut self) -> bool {
        let oldest = self.newcomers.pop_first().or_else(|| self.settled.pop_first());
        oldest.map(|(_, leave)| leave.cancel()).is_some()
    }
}

impl Standing {
    /// Somebody was let in. The first one's identity has the connection, if it may have one more.
    pub fn settle(&self, identity: Option<&Identity>) -> Result<(), Taken> {
        let Some(guest) = &self.0 else { return Ok(()) };
        if guest.settled.get().is_some() {
            return Ok(());
        }
        let place = guest.crowd.0.places.take(identity)?;
        // Of two at once one comes too late, and gives its place back.
        if guest.settled.set(place).is_ok() {
            guest.crowd.settle(guest.number);
            if self.is_safe() {
                guest.leave().take();
            }
        }
        Ok(())
    }

    /// Whether somebody was let in.
    pub fn is_settled(&self) -> bool {
        self.0.as_ref().is_none_or(|guest| guest.settled.get().is_some())
    }

    /// How long it may be a newcomer.
    pub(crate) fn time(&self) -> Option<Duration> {
        self.0.as_ref().map(|guest| guest.crowd.0.time)
    }

    /// Whether it stays, whatever comes.
    pub(crate) fn is_safe(&self) -> bool {
        self.0
            .as_ref()
            .is_none_or(|guest| guest.crowd.0.port == Port::Grpc && guest.settled.get().is_some())
    }

    /// Ends when it has to go.
    pub(crate) fn told_to_go(&self) -> Option<WaitForCancellationFutureOwned> {
        let leave = self.0.as_ref().and_then(|guest| guest.leave().clone());
        leave.map(CancellationToken::cancelled_owned)
    }

    /// It has to go, and is counted once.
    pub(crate) fn goes(&self, why: WhyOut) {
        if let Some(guest) = &self.0
            && guest.out.set(why).is_ok()
        {
            guest.crowd.0.metrics.connection_refused(why.as_str());
        }
    }

    /// Why it had to go, if it had.
    pub fn why_out(&self) -> Option<WhyOut> {
        self.0.as_ref().and_then(|guest| guest.out.get().copied())
    }
}

impl Guest {
    fn leave(&self) -> MutexGuard<'_, Option<CancellationToken>> {
        self.leave.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.crowd.leave(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crowd(port: Port, most: usize, newcomers: usize) -> Crowd {
        let limits = Limits { newcomers, ..Limits::default() };
        Crowd::new(port, most, &limits, Metrics::default())
    }

    fn settle(standing: &Standing) {
        standing.settle(None).unwrap();
    }

    fn has_to_go(standing: &Standing) -> bool {
        let leave = standing.0.as_ref().unwrap().leave();
        leave.as_ref().is_some_and(CancellationToken::is_cancelled)
    }

    #[test]
    fn when_there_are_too_many_newcomers_the_oldest_one_goes() {
        let crowd = crowd(Port::Grpc, 100, 2);
        let guests: Vec<_> = (0..4).map(|_| crowd.join().unwrap()).collect();
        assert_eq!(guests.iter().map(has_to_go).collect::<Vec<_>>(), [true, true, false, false]);
    }

    #[test]
    fn who_was_let_in_stays_and_who_comes_to_a_full_port_of_such_is_refused() {
        let crowd = crowd(Port::Grpc, 2, 2);
        let guests = [crowd.join().unwrap(), crowd.join().unwrap()];
        guests.iter().for_each(settle);
        assert_eq!(crowd.join().unwrap_err(), Full);
        assert!(!guests.iter().any(has_to_go));
        let [left, _stays] = guests;
        drop(left);
        assert!(crowd.join().is_ok());
    }

    #[test]
    fn a_full_port_prefers_newcomers_to_go() {
        let crowd = crowd(Port::Grpc, 2, 2);
        let (settled, newcomer) = (crowd.join().unwrap(), crowd.join().unwrap());
        settle(&settled);
        let _third = crowd.join().unwrap();
        assert!(has_to_go(&newcomer) && !has_to_go(&settled));
    }

    #[test]
    fn probes_always_get_in_at_the_admin_port() {
        let crowd = crowd(Port::Admin, 2, 2);
        let guests = [crowd.join().unwrap(), crowd.join().unwrap()];
        guests.iter().for_each(settle);
        let _probe = crowd.join().unwrap();
        assert_eq!(guests.map(|guest| has_to_go(&guest)), [true, false]);
    }

    #[test]
    fn those_that_have_not_gone_are_waited_for() {
        let crowd = crowd(Port::Grpc, 1, 1);
        let guests: Vec<_> = (0..=LEAVING).map(|_| crowd.join().unwrap()).collect();
        assert!(crowd.is_overfull());
        drop(guests);
        assert!(!crowd.is_overfull());
    }

    #[test]
    fn an_identity_has_no_more_connections_than_its_part() {
        let crowd = crowd(Port::Grpc, 2, 2);
        let (first, second) = (crowd.join().unwrap(), crowd.join().unwrap());
        let identity = Identity::token("driver");
        first.settle(Some(&identity)).unwrap();
        first.settle(Some(&identity)).unwrap();
        second.settle(Some(&identity)).unwrap_err();
        assert!(first.is_settled() && !second.is_settled());
        drop(first);
        second.settle(Some(&identity)).unwrap();
    }
}
