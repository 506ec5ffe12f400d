//! One connection: two directions, each with its orders.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::{Notify, watch},
    time::sleep,
};

use super::{Flow, Way};

/// As much as is on its way inside the proxy, in one direction.
const PIECE: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Orders {
    pub(super) flow: Flow,
    /// How many bytes may pass in all.
    pub(super) cut_at: Option<u64>,
    half_closed: bool,
}

/// A connection through the proxy. Cheap to clone: all clones are the same one.
#[derive(Clone, Debug)]
pub struct Connection {
    there: Arc<Lane>,
    back: Arc<Lane>,
    reset: Arc<Notify>,
}

#[derive(Debug)]
struct Lane {
    /// Nobody receives them any more when the connection has ended.
    orders: watch::Sender<Orders>,
    passed: AtomicU64,
}

/// The part of a connection that moves the bytes.
pub(super) struct Pumps {
    there: Pump,
    back: Pump,
    reset: Arc<Notify>,
}

struct Pump {
    lane: Arc<Lane>,
    orders: watch::Receiver<Orders>,
}

/// Why a connection ends before both sides have closed it.
enum Break {
    /// As it was ordered.
    Cut,
    /// One side did, so the other one is to hear of it.
    Broken,
}

impl Connection {
    pub(super) fn new(there: Orders, back: Orders) -> (Self, Pumps) {
        let ((there, to_target), (back, to_dialler)) = (lane(there), lane(back));
        let reset = Arc::new(Notify::new());
        let pumps = Pumps { there: to_target, back: to_dialler, reset: Arc::clone(&reset) };
        (Self { there, back, reset }, pumps)
    }

    /// What becomes of the bytes.
    pub fn flow(&self, way: Way, flow: Flow) {
        self.order(way, |orders, _| orders.flow = flow);
    }

    /// Closes it once so many more bytes have passed in this direction.
    pub fn cut_after(&self, way: Way, bytes: u64) {
        self.order(way, |orders, passed| orders.cut_at = Some(passed + bytes));
    }

    /// Tells the receiver of this direction that its sender has nothing more to say; the other
    /// direction goes on.
    pub fn half_close(&self, way: Way) {
        self.order(way, |orders, _| orders.half_closed = true);
    }

    /// Breaks it off for both sides, with nothing said before.
    pub fn reset(&self) {
        self.reset.notify_one();
    }

    /// Lets everything flow again.
    pub fn heal(&self) {
        self.order(Way::Both, |orders, _| {
            (orders.flow, orders.cut_at) = (Flow::Open, None);
        });
    }

    /// How many bytes were passed on. What is lost on the way does not count.
    pub fn passed(&self, way: Way) -> u64 {
        self.lanes(way).map(|lane| lane.passed.load(Ordering::Acquire)).sum()
    }

    /// Whether it is still there.
    pub fn stands(&self) -> bool {
        !self.there.orders.is_closed()
    }

    fn order(&self, way: Way, change: impl Fn(&mut Orders, u64)) {
        for lane in self.lanes(way) {
            let passed = lane.passed.load(Ordering::Acquire);
            lane.orders.send_modify(|orders| change(orders, passed));
        }
    }

    fn lanes(&self, way: Way) -> impl Iterator<Item = &Lane> {
        let there = (way != Way::Back).then_some(&*self.there);
        let back = (way != Way::There).then_some(&*self.back);
        there.into_iter().chain(back)
    }
}

fn lane(orders: Orders) -> (Arc<Lane>, Pump) {
    let (send, orders) = watch::channel(orders);
    let lane = Arc::new(Lane { orders: send, passed: AtomicU64::new(0) });
    (Arc::clone(&lane), Pump { lane, orders })
}

/// Lets its end be a reset instead of a farewell.
pub(super) fn reset(stream: &TcpStream) {
    // A stream that is broken already needs none.
    stream.set_zero_linger().ok();
}

impl Pumps {
    /// Moves bytes both ways until both sides have closed, or something breaks the connection.
    pub(super) async fn run(mut self, mut dialled: TcpStream, mut reached: TcpStream) {
        // What is passed on leaves at once, so that a cut is where it was ordered to be.
        for stream in [&dialled, &reached] {
            stream.set_nodelay(true).ok();
        }
        let broken = {
            let (from_dialler, to_dialler) = dialled.split();
            let (from_target, to_target) = reached.split();
            let moved = async {
                tokio::try_join!(
                    self.there.run(from_dialler, to_target),
                    self.back.run(from_target, to_dialler),
                )
            };
            tokio::select! {
                biased;
                () = self.reset.notified() => true,
                moved = moved => matches!(moved, Err(Break::Broken)),
            }
        };
        if broken {
            reset(&dialled);
            reset(&reached);
        }
    }
}

impl Pump {
    async fn run(&mut self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> Result<(), Break> {
        let mut buffer = vec![0; PIECE];
        loop {
            let orders = self.next_orders();
            if orders.half_closed {
                to.shutdown().await.map_err(|_| Break::Broken)?;
                // The sender may go on for as long as it likes; it is not told.
                while from.read(&mut buffer).await.map_err(|_| Break::Broken)? > 0 {}
                return Ok(());
            }
            if orders.cut_at.is_some_and(|at| self.passed() >= at) {
                return Err(Break::Cut);
            }
            let room = match orders.flow {
                Flow::Frozen => {
                    self.changed().await;
                    continue;
                }
                // Ten pieces in a second, so that it is slow and not only late.
                Flow::Slow { bytes_per_second } => (bytes_per_second as usize / 10).clamp(1, PIECE),
                Flow::Open | Flow::Lost | Flow::Late(_) => PIECE,
            };
            let read = tokio::select! {
                biased;
                () = self.changed() => continue,
                read = from.read(&mut buffer[..room]) => read,
            };
            match read {
                Ok(0) => {
                    self.until_news_pass().await;
                    return to.shutdown().await.map_err(|_| Break::Broken);
                }
                Ok(read) => self.pass(&buffer[..read], &mut to).await?,
                Err(_) => {
                    self.until_news_pass().await;
                    return Err(Break::Broken);
                }
            }
        }
    }

    /// Passes these bytes on, by the orders that come meanwhile as well.
    async fn pass(&mut self, bytes: &[u8], to: &mut WriteHalf<'_>) -> Result<(), Break> {
        let mut rest = bytes;
        let mut rested = false;
        while !rest.is_empty() {
            let orders = self.next_orders();
            let pause = match orders.flow {
                _ if orders.half_closed => return Ok(()),
                Flow::Lost => return Ok(()),
                Flow::Frozen => {
                    self.changed().await;
                    continue;
                }
                Flow::Open => Duration::ZERO,
                Flow::Slow { bytes_per_second } => {
                    Duration::from_secs(1) * u32::try_from(rest.len()).expect("a piece is small")
                        / bytes_per_second.max(1)
                }
                Flow::Late(time) => time,
            };
            if !rested && !pause.is_zero() {
                tokio::select! {
                    biased;
                    () = self.changed() => continue,
                    () = sleep(pause) => rested = true,
                }
            }
            let room = orders.cut_at.map_or(rest.len(), |at| {
                let room = at.saturating_sub(self.passed());
                usize::try_from(room).unwrap_or(usize::MAX).min(rest.len())
            });
            if room == 0 {
                return Err(Break::Cut);
            }
            let written = tokio::select! {
                biased;
                () = self.changed() => continue,
                written = to.write(&rest[..room]) => written.map_err(|_| Break::Broken)?,
            };
            self.lane.passed.fetch_add(written as u64, Ordering::Release);
            rest = &rest[written..];
        }
        Ok(())
    }

    /// Waits for as long as even the end of the sender is kept from the receiver.
    async fn until_news_pass(&mut self) {
        while matches!(self.next_orders().flow, Flow::Lost | Flow::Frozen) {
            self.changed().await;
        }
    }

    fn next_orders(&mut self) -> Orders {
        *self.orders.borrow_and_update()
    }

    async fn changed(&mut self) {
        self.orders.changed().await.expect("the lane that we hold gives the orders");
    }

    fn passed(&self) -> u64 {
        self.lane.passed.load(Ordering::Acquire)
    }
}
