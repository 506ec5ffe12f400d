//! A network in memory: hosts, links between them and what goes wrong there.
//!
//! Connections behave as TCP's do. Bytes arrive in order or not at all; what is held back arrives once
//! the link is well again, as retransmissions would; what a firewall forgot never does, and neither
//! end hears of it; a process that is killed closes what it had.

mod pipe;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    hash::{Hash as _, Hasher as _},
    io,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, Weak},
    time::Duration,
};

use siphasher::sip::SipHasher13;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

pub(crate) use self::pipe::End;
use self::pipe::{Side, Wire};
use crate::chance::Chance;

/// How often a connection that finds no way is tried again.
const KNOCK_AGAIN: Duration = Duration::from_millis(500);
/// Two keepalive times, and a little more.
const FOUND_OUT: Duration = Duration::from_secs(21);
const BACKLOG: usize = 1024;

/// What becomes of bytes on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Open,
    /// They arrive when the link is open again.
    Held,
    /// They never arrive, and nothing else on that connection does, ever.
    Lost,
}

/// The two ways of a link, seen from the host that dials.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ways {
    pub(crate) there: Flow,
    pub(crate) back: Flow,
}

impl Ways {
    pub(crate) const OPEN: Ways = Ways { there: Flow::Open, back: Flow::Open };

    fn is_open(self) -> bool {
        self.there == Flow::Open && self.back == Flow::Open
    }
}

/// Who dials whom.
type Link = (String, String);

/// Cheap to clone: all clones are the same network.
#[derive(Clone)]
pub(crate) struct Network(Arc<Mutex<Inner>>);

struct Inner {
    chance: Chance,
    usual: Range<usize>,
    ways: BTreeMap<Link, Ways>,
    latencies: BTreeMap<Link, Range<usize>>,
    listeners: BTreeMap<String, mpsc::Sender<End>>,
    wires: Vec<(Link, Weak<Mutex<Wire>>)>,
    /// Of all that was sent: when and where.
    digest: SipHasher13,
    dialled: u64,
    began: Instant,
    /// When a link was disturbed last.
    disturbed: BTreeMap<Link, Instant>,
}

impl Network {
    /// With a latency of so many milliseconds one way.
    pub(crate) fn new(chance: Chance, latency: Range<usize>) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            chance,
            usual: latency,
            ways: BTreeMap::new(),
            latencies: BTreeMap::new(),
            listeners: BTreeMap::new(),
            wires: Vec::new(),
            digest: SipHasher13::new(),
            dialled: 0,
            began: Instant::now(),
            disturbed: BTreeMap::new(),
        })))
    }

    /// Connections to `host` come out here, until another process listens there or it is killed.
    pub(crate) fn listen(&self, host: &str) -> mpsc::Receiver<End> {
        let (accept, accepted) = mpsc::channel(BACKLOG);
        self.lock().listeners.insert(host.to_owned(), accept);
        accepted
    }

    /// Dials until the connection stands or is refused; how long that may take is the caller's matter.
    pub(crate) async fn dial(&self, from: &str, to: &str) -> io::Result<End> {
        let link = (from.to_owned(), to.to_owned());
        loop {
            let round_trip = {
                let mut inner = self.lock();
                inner.latency(&link) + inner.latency(&link)
            };
            sleep(round_trip).await;
            if self.lock().ways(&link).is_open() {
                break;
            }
            sleep(KNOCK_AGAIN).await;
        }
        let mut inner = self.lock();
        let listener = inner.listeners.get(to).cloned();
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let listener = listener.ok_or_else(refused)?;
        inner.dialled += 1;
        inner.disturbed.entry(link.clone()).or_insert_with(Instant::now);
        let (ours, theirs, wire) = End::pair(self.clone(), link.clone(), inner.dialled);
        inner.wires.retain(|(_, wire)| wire.strong_count() > 0);
        inner.wires.push((link, wire));
        drop(inner);
        listener.try_send(theirs).map_err(|_| refused())?;
        Ok(ours)
    }

    /// Nobody listens there any more, and all connections of the host end as those of a process do
    /// that was killed.
    pub(crate) fn kill(&self, host: &str) {
        self.lock().listeners.remove(host);
        self.disturb(|link| link.0 == host || link.1 == host);
        for ((from, to), wire) in self.wires() {
            if from == host {
                Wire::killed(&wire, Side::Dialler);
            } else if to == host {
                Wire::killed(&wire, Side::Listener);
            }
        }
    }

    /// Breaks all connections of a link, for both ends to see.
    pub(crate) fn reset(&self, from: &str, to: &str) {
        self.disturb(|link| link.0 == from && link.1 == to);
        for (_, wire) in self.wires_of(from, to) {
            Wire::reset(&wire);
        }
    }

    pub(crate) fn set_ways(&self, from: &str, to: &str, ways: Ways) {
        self.lock().ways.insert((from.to_owned(), to.to_owned()), ways);
        self.disturb(|link| link.0 == from && link.1 == to);
        for (_, wire) in self.wires_of(from, to) {
            Wire::flow(&wire, ways);
        }
    }

    /// `None`: as usual.
    pub(crate) fn set_latency(&self, from: &str, to: &str, latency: Option<Range<usize>>) {
        self.disturb(|link| link.0 == from && link.1 == to);
        let link = (from.to_owned(), to.to_owned());
        let latencies = &mut self.lock().latencies;
        match latency {
            Some(latency) => drop(latencies.insert(link, latency)),
            None => drop(latencies.remove(&link)),
        }
    }

    /// Everything is well again.
    pub(crate) fn heal(&self) {
        let links: Vec<_> = self.lock().ways.keys().cloned().collect();
        for (from, to) in links {
            self.set_ways(&from, &to, Ways::OPEN);
        }
        let slow = std::mem::take(&mut self.lock().latencies);
        // What is on its way is as slow as it was.
        self.disturb(|link| slow.contains_key(link));
    }

    /// Whether the link is well, and has been for so long that even keepalive has found out which
    /// connections are dead.
    pub(crate) fn is_well(&self, from: &str, to: &str, since: Instant) -> bool {
        let link = (from.to_owned(), to.to_owned());
        let inner = self.lock();
        let disturbed = inner.disturbed.get(&link).is_some_and(|at| *at + FOUND_OUT >= since);
        let slow = inner.latencies.contains_key(&link);
        inner.ways(&link).is_open() && !slow && !disturbed && inner.listeners.contains_key(to)
    }

    /// Whether a round trip takes little time, as a rule.
    pub(crate) fn is_near(&self) -> bool {
        self.lock().usual.end <= 10
    }

    fn disturb(&self, concerns: impl Fn(&Link) -> bool) {
        for (link, at) in &mut self.lock().disturbed {
            if concerns(link) {
                *at = Instant::now();
            }
        }
    }

    /// Tells two runs apart.
    pub(crate) fn digest(&self) -> u64 {
        self.lock().digest.finish()
    }

    fn wires(&self) -> Vec<(Link, Arc<Mutex<Wire>>)> {
        let inner = self.lock();
        let standing = |(link, wire): &(Link, Weak<_>)| Some((link.clone(), wire.upgrade()?));
        inner.wires.iter().filter_map(standing).collect()
    }

    fn wires_of(&self, from: &str, to: &str) -> Vec<(Link, Arc<Mutex<Wire>>)> {
        let mut wires = self.wires();
        wires.retain(|(link, _)| link.0 == from && link.1 == to);
        wires
    }

    /// When something that is sent now arrives.
    fn arrival(&self, link: &Link, connection: u64, side: Side) -> Instant {
        let mut inner = self.lock();
        let arrives = Instant::now() + inner.latency(link);
        let at = arrives - inner.began;
        (connection, side, at).hash(&mut inner.digest);
        arrives
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no panic while locked")
    }
}

impl Inner {
    fn latency(&mut self, link: &Link) -> Duration {
        let range = self.latencies.get(link).unwrap_or(&self.usual);
        self.chance.millis(range.clone())
    }

    fn ways(&self, link: &Link) -> Ways {
        self.ways.get(link).copied().unwrap_or(Ways::OPEN)
    }
}
