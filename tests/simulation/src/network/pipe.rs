//! One connection: two pipes with a latency, and the two ends that read and write them.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, Weak},
    task::{Context, Poll, Waker, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

use super::{Flow, Link, Network, Ways};

/// What is on its way and not read, at most: then the writer waits.
const WINDOW: usize = 256 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    Dialler,
    Listener,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Side::Dialler => Side::Listener,
            Side::Listener => Side::Dialler,
        }
    }
}

pub(crate) struct Wire {
    network: Network,
    link: Link,
    number: u64,
    /// From the dialler, and from the listener.
    pipes: [Pipe; 2],
}

/// One way of a connection.
#[derive(Default)]
struct Pipe {
    chunks: VecDeque<(Instant, VecDeque<u8>)>,
    /// Bytes that count against the window; those that were lost do for ever.
    on_the_way: usize,
    flow: Option<Flow>,
    /// Nothing overtakes what was sent before it.
    latest: Option<Instant>,
    /// The writer closed it; the end arrives at this time.
    closed: Option<Instant>,
    /// The reader is gone.
    unread: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// The reader's end is broken: nothing can be read or written there.
    broken: bool,
}

impl Pipe {
    fn flow(&self) -> Flow {
        self.flow.unwrap_or(Flow::Open)
    }

    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }

    /// When there is something to read next, if ever.
    fn next(&self) -> Option<Instant> {
        let next = self.chunks.front().map(|(at, _)| *at).or(self.closed);
        next.filter(|_| self.flow() == Flow::Open)
    }
}

impl Wire {
    fn from(&mut self, side: Side) -> &mut Pipe {
        &mut self.pipes[usize::from(side == Side::Listener)]
    }

    fn arrival(&mut self, side: Side) -> Instant {
        let arrives = self.network.arrival(&self.link, self.number, side);
        let pipe = self.from(side);
        let arrives = pipe.latest.map_or(arrives, |latest| latest.max(arrives));
        pipe.latest = Some(arrives);
        arrives
    }

    /// Nothing more goes out of this end; what went before arrives.
    fn close(&mut self, side: Side) {
        if self.from(side).closed.is_none() {
            let arrives = self.arrival(side);
            let pipe = self.from(side);
            pipe.closed = Some(arrives);
            pipe.wake();
        }
    }

    fn end(&mut self, side: Side) {
        self.close(side);
        let inbound = self.from(side.other());
        inbound.unread = true;
        inbound.wake();
    }

    pub(super) fn killed(wire: &Mutex<Wire>, side: Side) {
        let mut wire = lock(wire);
        wire.end(side);
        wire.from(side.other()).broken = true;
    }

    pub(super) fn reset(wire: &Mutex<Wire>) {
        for pipe in &mut lock(wire).pipes {
            pipe.broken = true;
            pipe.wake();
        }
    }

    pub(super) fn flow(wire: &Mutex<Wire>, ways: Ways) {
        let mut wire = lock(wire);
        for (side, flow) in [(Side::Dialler, ways.there), (Side::Listener, ways.back)] {
            // What was lost stays lost: there is a hole in the stream.
            if wire.from(side).flow() == Flow::Lost {
                continue;
            }
            let released = flow == Flow::Open && wire.from(side).flow() == Flow::Held;
            let again = released.then(|| wire.arrival(side));
            let pipe = wire.from(side);
            pipe.flow = Some(flow);
            if let Some(again) = again {
                pipe.chunks.iter_mut().for_each(|(at, _)| *at = again.max(*at));
            }
            pipe.wake();
        }
    }
}

/// One end of a connection. Dropping it closes the connection.
pub(crate) struct End {
    wire: Arc<Mutex<Wire>>,
    side: Side,
    sleep: Pin<Box<Sleep>>,
}

impl End {
    pub(super) fn pair(
        network: Network,
        link: Link,
        number: u64,
    ) -> (Self, Self, Weak<Mutex<Wire>>) {
        let pipes = [Pipe::default(), Pipe::default()];
        let wire = Arc::new(Mutex::new(Wire { network, link, number, pipes }));
        let weak = Arc::downgrade(&wire);
        let end = |side| Self {
            wire: Arc::clone(&wire),
            side,
            sleep: Box::pin(sleep_until(Instant::now())),
        };
        (end(Side::Dialler), end(Side::Listener), weak)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        lock(&self.wire).end(self.side);
    }
}

impl AsyncRead for End {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let next = {
                let mut wire = lock(&self.wire);
                let pipe = wire.from(self.side.other());
                if pipe.broken {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
                }
                pipe.reader = Some(cx.waker().clone());
                match pipe.next() {
                    None => return Poll::Pending,
                    Some(at) if at > Instant::now() => at,
                    Some(_) => {
                        // Without a chunk it is the end.
                        if let Some((_, chunk)) = pipe.chunks.front_mut() {
                            let count = chunk.len().min(buf.remaining());
                            for byte in chunk.drain(..count) {
                                buf.put_slice(&[byte]);
                            }
                            if chunk.is_empty() {
                                pipe.chunks.pop_front();
                            }
                            pipe.on_the_way -= count;
                            pipe.writer.take().into_iter().for_each(Waker::wake);
                        }
                        return Poll::Ready(Ok(()));
                    }
                }
            };
            self.sleep.as_mut().reset(next);
            ready!(self.sleep.as_mut().poll(cx));
        }
    }
}

impl AsyncWrite for End {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut wire = lock(&self.wire);
        let inbound_open = wire.from(self.side.other()).flow() == Flow::Open;
        let broken = wire.from(self.side.other()).broken;
        let pipe = wire.from(self.side);
        // Nobody there answers with a reset, if that finds its way back.
        let refused = pipe.unread && pipe.flow() == Flow::Open && inbound_open;
        if broken || pipe.closed.is_some() || refused {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let count = buf.len().min(WINDOW - pipe.on_the_way);
        if count == 0 && !buf.is_empty() {
            pipe.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        pipe.on_the_way += count;
        if pipe.flow() != Flow::Lost {
            let arrives = wire.arrival(self.side);
            let pipe = wire.from(self.side);
            pipe.chunks.push_back((arrives, buf[..count].iter().copied().collect()));
            pipe.reader.take().into_iter().for_each(Waker::wake);
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        lock(&self.wire).close(self.side);
        Poll::Ready(Ok(()))
    }
}

fn lock(wire: &Mutex<Wire>) -> MutexGuard<'_, Wire> {
    wire.lock().expect("no panic while locked")
}
