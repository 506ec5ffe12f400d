//! Connections that the drivers of one process share.
//!
//! A [`Line`] is one of them. It is dialled by one driver for all that need it, and the waits between
//! attempts are its own, not those of each driver: when it stands, all go on at once. That is no crowd
//! for the broker, which sees one connection, and bounds who registers on it.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use broker_tls::{Tls, client::connect_once};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Error};

use crate::{
    backoff::Backoff,
    dial::{Dial, Tcp, endpoint, resolve},
};

/// A few TCP connections to each broker, for all drivers of a process that have this as their
/// [`Config::dial`](crate::Config::dial). With certificates, only those that show the same one share any,
/// and one that was renewed is shown on a new connection.
#[derive(Debug)]
pub struct Pool {
    connections: usize,
    places: Mutex<Vec<Arc<Place>>>,
}

/// Where several lines lead.
#[derive(Debug)]
struct Place {
    address: String,
    tls: Tls,
    /// The certificate that is shown there is of this time.
    certified: Option<SystemTime>,
    lines: Vec<Line<Channel>>,
    next: AtomicUsize,
}

/// One connection, when there is one.
#[derive(Debug)]
struct Line<T> {
    up: watch::Sender<Option<Up<T>>>,
    /// Whoever has it makes the connection.
    turn: tokio::sync::Mutex<Turn>,
    /// Those who need it now.
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct Up<T> {
    connection: T,
    since: Instant,
    gone: CancellationToken,
}

#[derive(Debug, Default)]
struct Turn {
    backoff: Backoff,
    not_before: Option<Instant>,
}

impl Pool {
    /// So many connections to each broker, and at least one.
    pub fn new(connections: usize) -> Self {
        Self { connections: connections.max(1), places: Mutex::default() }
    }

    fn place(&self, address: &str, tls: &Tls, certified: Option<SystemTime>) -> Arc<Place> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = |place: &Place| place.address == address && place.tls == *tls;
        let found = places.iter().find(|place| is_there(place) && place.certified == certified);
        if let Some(place) = found {
            return Arc::clone(place);
        }
        // Certificates are renewed, and replicas come and go. Sessions keep the connections that they have.
        places.retain(|place| !is_there(place) && place.is_used());
        let place = Arc::new(Place {
            address: address.to_owned(),
            tls: tls.clone(),
            certified,
            lines: (0..self.connections).map(|_| Line::default()).collect(),
            next: AtomicUsize::new(0),
        });
        places.push(Arc::clone(&place));
        place
    }
}

#[async_trait::async_trait]
impl Dial for Pool {
    async fn dial(&self, address: &str, tls: &Tls) -> Result<Channel, Error> {
        let place = self.place(address, tls, certified(tls).await);
        let turn = place.next.fetch_add(1, Ordering::Relaxed) % place.lines.len();
        let make = async {
            let (url, secure) = resolve(address, tls);
            connect_once(endpoint(&url)?, secure.then(|| tls.clone())).await
        };
        place.lines[turn].get(make).await
    }

    async fn look_up(&self, address: &str) -> Option<Vec<String>> {
        Tcp.look_up(address).await
    }
}

/// When our certificate was last written, if there is one.
async fn certified(tls: &Tls) -> Option<SystemTime> {
    tokio::fs::metadata(tls.cert.as_ref()?).await.ok()?.modified().ok()
}

impl Place {
    fn is_used(&self) -> bool {
        self.lines.iter().any(Line::is_used)
    }
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        let (turn, waiting) = (tokio::sync::Mutex::default(), AtomicUsize::new(0));
        Self { up: watch::Sender::new(None), turn, waiting }
    }
}

impl<T> Line<T> {
    fn is_used(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0 || Up::stands(&self.up.borrow())
    }
}

impl<T: Clone> Line<T> {
    /// The connection, as soon as there is one. `make` tries once to make it, if it is our turn to: the
    /// failure is ours then, and the next one tries when it is time to. It says when a connection is gone.
    async fn get<E>(
        &self,
        make: impl Future<Output = Result<(T, CancellationToken), E>>,
    ) -> Result<T, E> {
        let waits = Waits::new(&self.waiting);
        let mut turn = tokio::select! {
            biased;
            connection = self.stands() => return Ok(connection),
            turn = self.turn.lock() => turn,
        };
        // Who had the turn before us may just have made it. Not to be waited for: it is our turn.
        if let Some(up) = self.up.borrow().as_ref().filter(|up| !up.gone.is_cancelled()) {
            return Ok(up.connection.clone());
        }
        if let Some(lost) = self.up.send_replace(None) {
            // As for one: other processes have lost theirs at the same time, and a broker that hangs up
            // does not want to be dialled.
            turn.put_off(1, lost.since.elapsed());
        }
        if let Some(not_before) = turn.not_before {
            sleep_until(not_before).await;
        }
        // Now, as whoever tries may be called off.
        turn.put_off(waits.count(), Duration::ZERO);
        let (connection, gone) = make.await?;
        let since = Instant::now();
        self.up.send_replace(Some(Up { connection: connection.clone(), since, gone }));
        Ok(connection)
    }

    /// Returns when there is a connection.
    async fn stands(&self) -> T {
        let mut changes = self.up.subscribe();
        let up = changes.wait_for(Up::stands).await.expect("the sender is ours");
        up.as_ref().expect("it stands").connection.clone()
    }
}

impl<T> Up<T> {
    fn stands(up: &Option<Self>) -> bool {
        up.as_ref().is_some_and(|up| !up.gone.is_cancelled())
    }
}

impl Turn {
    fn put_off(&mut self, waiting: usize, lived: Duration) {
        let wait = self.backoff.next_for(waiting, lived, rand::random());
        self.not_before = Some(Instant::now() + wait);
    }
}

/// One of those who wait, for as long as it does.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {

    use futures::future::join_all;
    use tokio::time::{sleep, timeout};

    use super::*;

    /// A broker that may be down, and counts who dials.
    #[derive(Default)]
    struct Far {
        up: Mutex<CancellationToken>,
        dialled: AtomicUsize,
        stood: AtomicUsize,
    }

    impl Far {
        fn up() -> Self {
            Self::default()
        }

        fn down() -> Self {
            let far = Self::default();
            far.go_down();
            far
        }

        fn go_down(&self) {
            self.up.lock().unwrap().cancel();
        }

        fn come_up(&self) {
            *self.up.lock().unwrap() = CancellationToken::new();
        }

        async fn dial(&self) -> Result<(usize, CancellationToken), &'static str> {
            self.dialled.fetch_add(1, Ordering::Relaxed);
            let up = self.up.lock().unwrap().clone();
            match up.is_cancelled() {
                true => Err("down"),
                false => Ok((self.stood.fetch_add(1, Ordering::Relaxed), up)),
            }
        }

        fn dialled(&self) -> usize {
            self.dialled.load(Ordering::Relaxed)
        }
    }

    /// As a driver does: again and again, but for its own waits.
    async fn until_up(line: &Line<usize>, far: &Far) -> usize {
        loop {
            if let Ok(connection) = line.get(far.dial()).await {
                return connection;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_drivers_share_one_connection() {
        let (line, far) = (Line::default(), Far::up());
        let all = join_all((0..1_000).map(|_| line.get(far.dial()))).await;
        assert!(all.iter().all(|one| *one == Ok(0)));
        assert_eq!(far.dialled(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_broken_connection_is_made_anew_once_for_all() {
        let (line, far) = (Line::default(), Far::up());
        assert_eq!(line.get(far.dial()).await, Ok(0));
        far.go_down();
        far.come_up();
        let all = join_all((0..1_000).map(|_| line.get(far.dial()))).await;
        assert!(all.iter().all(|one| *one == Ok(1)));
        assert_eq!(far.dialled(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn all_go_on_at_once_when_the_broker_is_back() {
        for (away, late) in [(300, 50), (30_000, 250)] {
            let (line, far) = (Line::default(), Far::down());
            let all = join_all((0..1_000).map(|_| until_up(&line, &far)));
            let back = async {
                sleep(Duration::from_millis(away)).await;
                far.come_up();
                Instant::now()
            };
            let (_, back) = tokio::join!(all, back);
            assert!(back.elapsed() <= Duration::from_millis(late), "{:?}", back.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_broker_that_is_down_is_dialled_no_oftener_by_many_than_by_one_every_eighth_second() {
        let (line, far) = (Line::default(), Far::down());
        let all = join_all((0..1_000).map(|_| until_up(&line, &far)));
        assert!(timeout(Duration::from_secs(100), all).await.is_err());
        assert!((500..1_100).contains(&far.dialled()), "{}", far.dialled());
    }

    #[tokio::test(start_paused = true)]
    async fn one_driver_alone_waits_longer_and_longer() {
        let (line, far) = (Line::default(), Far::down());
        assert!(timeout(Duration::from_secs(100), until_up(&line, &far)).await.is_err());
        // Every two seconds on average, once the waits have grown.
        assert!((25..100).contains(&far.dialled()), "{}", far.dialled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_broker_that_hangs_up_at_once_is_not_dialled_in_a_loop() {
        let (line, far) = (Line::default(), Far::up());
        let hung_up = async {
            loop {
                line.get(far.dial()).await.unwrap();
                far.go_down();
                far.come_up();
            }
        };
        assert!(timeout(Duration::from_secs(100), hung_up).await.is_err());
        assert!(far.dialled() < 100, "{}", far.dialled());
    }

    #[tokio::test(start_paused = true)]
    async fn who_stops_waiting_leaves_it_to_the_next() {
        let (line, far) = (Line::default(), Far::down());
        assert_eq!(line.get(far.dial()).await, Err("down"));
        let called_off = timeout(Duration::from_millis(1), line.get(far.dial()));
        far.come_up();
        let (called_off, next) = tokio::join!(called_off, line.get(far.dial()));
        assert!(called_off.is_err());
        assert_eq!(next, Ok(0));
    }

    #[test]
    fn places_that_nobody_uses_are_forgotten() {
        let pool = Pool::new(2);
        for replica in 0..100 {
            drop(pool.place(&format!("10.0.0.{replica}:5000"), &Tls::default(), None));
        }
        assert_eq!(pool.places.lock().unwrap().len(), 1);
    }

    #[test]
    fn who_shows_another_certificate_has_another_connection() {
        let pool = Pool::new(1);
        let certified = |name: &str| Tls { cert: Some(name.into()), ..Tls::default() };
        let at = |seconds| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        let mine = pool.place("a:1", &certified("mine"), at(1));
        assert!(Arc::ptr_eq(&mine, &pool.place("a:1", &certified("mine"), at(1))));
        assert!(!Arc::ptr_eq(&mine, &pool.place("a:1", &certified("yours"), at(1))));
        let renewed = pool.place("a:1", &certified("mine"), at(2));
        assert!(!Arc::ptr_eq(&mine, &renewed));
        assert!(Arc::ptr_eq(&renewed, &pool.place("a:1", &certified("mine"), at(2))));
    }
}
