//! A TCP proxy that does to a connection what networks do: it loses, holds, slows, breaks and ends.
//!
//! It listens on a free port of loopback and dials its target for everybody who comes. What happens
//! to the bytes is decided while they flow, per direction, for all connections or for one. Orders to
//! the [`Proxy`] hold for connections that come later as well, as those to a firewall do.

mod pump;
#[cfg(test)]
mod tests;

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::{
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

pub use self::pump::Connection;

/// Which of the two directions of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From who dialled to the target.
    There,
    /// From the target to who dialled.
    Back,
    Both,
}

/// What becomes of the bytes of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Flow {
    /// They are passed on.
    #[default]
    Open,
    /// They are read and thrown away, and so is the news of the sender's end: neither side hears of
    /// anything. No network loses the middle of a connection that then goes on: reset it, or let both
    /// sides give it up, before others flow.
    Lost,
    /// They are not read, so that the sender has to stop at some time; with any other order they flow
    /// again and none is missing.
    Frozen,
    /// No more than so many in a second.
    Slow { bytes_per_second: u32 },
    /// They rest for so long, at most 16 KiB of them at once.
    Late(std::time::Duration),
}

/// Dropping it ends all its connections; [`Proxy::close`] waits for that as well.
pub struct Proxy {
    pub address: SocketAddr,
    switchboard: Arc<Mutex<Switchboard>>,
    listening: JoinHandle<()>,
}

/// What is ordered for all, and the connections that there are.
struct Switchboard {
    target: SocketAddr,
    refusing: bool,
    there: pump::Orders,
    back: pump::Orders,
    connections: Vec<Connection>,
}

impl Proxy {
    /// Listens for those who want to reach `target`.
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let switchboard = Arc::new(Mutex::new(Switchboard {
            target,
            refusing: false,
            there: pump::Orders::default(),
            back: pump::Orders::default(),
            connections: Vec::new(),
        }));
        let listening = tokio::spawn(listen(listener, Arc::clone(&switchboard)));
        Self { address, switchboard, listening }
    }

    /// Later connections go to another target.
    pub fn retarget(&self, target: SocketAddr) {
        self.lock().target = target;
    }

    /// What becomes of the bytes of all connections, also of those that come later.
    pub fn flow(&self, way: Way, flow: Flow) {
        self.order(way, |orders| orders.flow = flow);
        for connection in self.connections() {
            connection.flow(way, flow);
        }
    }

    /// Closes each connection once so many bytes have passed in this direction, of those that are
    /// there from now on, of those that come from their first byte.
    pub fn cut_after(&self, way: Way, bytes: u64) {
        self.order(way, |orders| orders.cut_at = Some(bytes));
        for connection in self.connections() {
            connection.cut_after(way, bytes);
        }
    }

    /// Resets all connections that are there. Those who dial again get through.
    pub fn reset(&self) {
        for connection in self.connections() {
            connection.reset();
        }
    }

    /// Whether those who dial are turned away with a reset.
    pub fn refuse(&self, refusing: bool) {
        self.lock().refusing = refusing;
    }

    /// Takes every order back. Connections that were cut, reset or half closed stay so.
    pub fn heal(&self) {
        self.refuse(false);
        self.order(Way::Both, |orders| *orders = pump::Orders::default());
        for connection in self.connections() {
            connection.heal();
        }
    }

    /// Those that are there now, the oldest first.
    pub fn connections(&self) -> Vec<Connection> {
        let mut switchboard = self.lock();
        switchboard.connections.retain(Connection::stands);
        switchboard.connections.clone()
    }

    /// Ends all connections, and returns when nothing of them is left.
    pub async fn close(mut self) {
        self.listening.abort();
        // It was aborted, so there is nothing to learn of its end.
        (&mut self.listening).await.ok();
    }

    fn order(&self, way: Way, change: impl Fn(&mut pump::Orders)) {
        let mut switchboard = self.lock();
        if way != Way::Back {
            change(&mut switchboard.there);
        }
        if way != Way::There {
            change(&mut switchboard.back);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Switchboard> {
        self.switchboard.lock().expect("no panic while locked")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// Takes in whoever dials. Its connections end with it.
async fn listen(listener: TcpListener, switchboard: Arc<Mutex<Switchboard>>) {
    let mut tasks = JoinSet::new();
    loop {
        let (dialled, _) = listener.accept().await.expect("a listener on loopback lasts");
        while tasks.try_join_next().is_some() {}
        let (target, pumps) = {
            let mut switchboard = switchboard.lock().expect("no panic while locked");
            if switchboard.refusing {
                pump::reset(&dialled);
                continue;
            }
            let (connection, pumps) = Connection::new(switchboard.there, switchboard.back);
            switchboard.connections.push(connection);
            (switchboard.target, pumps)
        };
        tasks.spawn(async move {
            match TcpStream::connect(target).await {
                Ok(reached) => pumps.run(dialled, reached).await,
                Err(_) => pump::reset(&dialled),
            }
        });
    }
}
