use std::{io::ErrorKind, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::{Instant, timeout},
};

use super::*;

/// Nothing comes in this time if nothing is to come.
const A_WHILE: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(30);

/// The two ends of a connection through a proxy.
struct Ends {
    proxy: Proxy,
    dialled: TcpStream,
    reached: TcpStream,
    target: TcpListener,
}

impl Ends {
    async fn new() -> Self {
        let target = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy::to(target.local_addr().unwrap()).await;
        let dialled = TcpStream::connect(proxy.address).await.unwrap();
        let (reached, _) = target.accept().await.unwrap();
        Self { proxy, dialled, reached, target }
    }

    fn connection(&self) -> Connection {
        let [connection] = self.proxy.connections().try_into().expect("one connection");
        connection
    }
}

async fn reads(stream: &mut TcpStream, expected: &[u8]) {
    let mut bytes = vec![0; expected.len()];
    timeout(PATIENCE, stream.read_exact(&mut bytes)).await.expect("they come").unwrap();
    assert_eq!(bytes, expected);
}

async fn reads_nothing(stream: &mut TcpStream) {
    let read = timeout(A_WHILE, stream.read(&mut [0; 1])).await;
    assert!(read.is_err(), "something came: {read:?}");
}

/// All that comes until the end, and how it ends.
async fn rest(stream: &mut TcpStream) -> (Vec<u8>, Option<ErrorKind>) {
    let mut bytes = Vec::new();
    let end = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("it ends");
    (bytes, end.err().map(|error| error.kind()))
}

async fn until_none_stands(proxy: &Proxy) {
    let give_up = Instant::now() + PATIENCE;
    while !proxy.connections().is_empty() {
        assert!(Instant::now() < give_up, "a connection is left");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn bytes_flow_both_ways_and_each_end_hears_of_the_others() {
    let mut ends = Ends::new().await;
    ends.dialled.write_all(b"there").await.unwrap();
    reads(&mut ends.reached, b"there").await;
    ends.reached.write_all(b"and back").await.unwrap();
    reads(&mut ends.dialled, b"and back").await;
    assert_eq!(ends.connection().passed(Way::There), 5);
    assert_eq!(ends.connection().passed(Way::Back), 8);

    ends.dialled.shutdown().await.unwrap();
    assert_eq!(rest(&mut ends.reached).await, (vec![], None));
    ends.reached.write_all(b"still").await.unwrap();
    drop(ends.reached);
    assert_eq!(rest(&mut ends.dialled).await, (b"still".to_vec(), None));
    until_none_stands(&ends.proxy).await;
}

#[tokio::test]
async fn what_is_lost_in_one_direction_is_lost_in_silence_and_the_other_one_flows() {
    let mut ends = Ends::new().await;
    ends.proxy.flow(Way::There, Flow::Lost);
    // More than every buffer holds: the sender is never held up.
    ends.dialled.write_all(&vec![1; 16 * 1024 * 1024]).await.unwrap();
    ends.dialled.shutdown().await.unwrap();
    reads_nothing(&mut ends.reached).await;
    ends.reached.write_all(b"back").await.unwrap();
    reads(&mut ends.dialled, b"back").await;

    // The end comes through when the line is healed, and nothing that was lost.
    ends.proxy.heal();
    assert_eq!(rest(&mut ends.reached).await, (vec![], None));
}

#[tokio::test]
async fn what_is_frozen_waits_and_then_comes_complete() {
    let mut ends = Ends::new().await;
    ends.proxy.flow(Way::Both, Flow::Frozen);
    let bytes: Vec<u8> = (0..1_000_000).map(|number| number as u8).collect();
    ends.reached.write_all(&bytes[..1000]).await.unwrap();
    reads_nothing(&mut ends.dialled).await;

    ends.proxy.heal();
    let (sent, ()) = tokio::join!(ends.reached.write_all(&bytes[1000..]), async {
        reads(&mut ends.dialled, &bytes).await;
    });
    sent.unwrap();
}

#[tokio::test]
async fn a_frozen_line_holds_its_sender_up() {
    let mut ends = Ends::new().await;
    ends.proxy.flow(Way::There, Flow::Frozen);
    let bytes = vec![1; 64 * 1024 * 1024];
    let sent = timeout(A_WHILE, ends.dialled.write_all(&bytes)).await;
    assert!(sent.is_err(), "64 MiB went nowhere");
    ends.proxy.close().await;
}

#[tokio::test]
async fn a_slow_line_takes_its_time_and_loses_nothing() {
    let mut ends = Ends::new().await;
    ends.proxy.flow(Way::Back, Flow::Slow { bytes_per_second: 10_000 });
    let began = Instant::now();
    ends.reached.write_all(&[7; 3000]).await.unwrap();
    reads(&mut ends.dialled, &[7; 3000]).await;
    // Being too slow on a busy machine is no failure of the proxy; being too fast is one.
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_late_line_brings_everything_later() {
    let mut ends = Ends::new().await;
    ends.proxy.flow(Way::There, Flow::Late(A_WHILE));
    let began = Instant::now();
    ends.dialled.write_all(b"late").await.unwrap();
    reads(&mut ends.reached, b"late").await;
    assert!(began.elapsed() >= A_WHILE);
}

#[tokio::test]
async fn a_line_is_cut_after_exactly_so_many_bytes_and_so_are_later_ones() {
    let mut ends = Ends::new().await;
    ends.dialled.write_all(b"before").await.unwrap();
    reads(&mut ends.reached, b"before").await;
    ends.proxy.cut_after(Way::There, 4);
    ends.dialled.write_all(b"1234567").await.unwrap();
    assert_eq!(rest(&mut ends.reached).await.0, b"1234");
    until_none_stands(&ends.proxy).await;

    let mut dialled = TcpStream::connect(ends.proxy.address).await.unwrap();
    let (mut reached, _) = ends.target.accept().await.unwrap();
    dialled.write_all(b"1234567").await.unwrap();
    assert_eq!(rest(&mut reached).await.0, b"1234");
}

#[tokio::test]
async fn a_reset_is_one_for_both_ends_and_for_one_connection_alone() {
    let mut ends = Ends::new().await;
    let first = ends.connection();
    let mut other = TcpStream::connect(ends.proxy.address).await.unwrap();
    let (mut other_reached, _) = ends.target.accept().await.unwrap();

    first.reset();
    assert_eq!(rest(&mut ends.dialled).await, (vec![], Some(ErrorKind::ConnectionReset)));
    assert_eq!(rest(&mut ends.reached).await, (vec![], Some(ErrorKind::ConnectionReset)));
    assert!(!first.stands());

    other.write_all(b"fine").await.unwrap();
    reads(&mut other_reached, b"fine").await;
}

#[tokio::test]
async fn a_half_closed_line_still_speaks_in_the_other_direction() {
    let mut ends = Ends::new().await;
    ends.connection().half_close(Way::Back);
    assert_eq!(rest(&mut ends.dialled).await, (vec![], None));
    ends.dialled.write_all(b"there").await.unwrap();
    reads(&mut ends.reached, b"there").await;
}

#[tokio::test]
async fn who_dials_is_refused_when_so_ordered_or_when_the_target_is_away() {
    let ends = Ends::new().await;
    ends.proxy.refuse(true);
    let mut refused = TcpStream::connect(ends.proxy.address).await.unwrap();
    assert!(rest(&mut refused).await.1.is_some(), "a reset, not a farewell");

    ends.proxy.heal();
    drop(ends.target);
    let mut away = TcpStream::connect(ends.proxy.address).await.unwrap();
    assert!(rest(&mut away).await.1.is_some(), "a reset, not a farewell");

    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    ends.proxy.retarget(elsewhere.local_addr().unwrap());
    let mut dialled = TcpStream::connect(ends.proxy.address).await.unwrap();
    let (mut reached, _) = elsewhere.accept().await.unwrap();
    dialled.write_all(b"found").await.unwrap();
    reads(&mut reached, b"found").await;
}

#[tokio::test]
async fn a_proxy_that_is_closed_leaves_nothing_behind() {
    let mut ends = Ends::new().await;
    let (connection, address) = (ends.connection(), ends.proxy.address);
    ends.proxy.flow(Way::Both, Flow::Frozen);
    ends.proxy.close().await;
    assert!(!connection.stands());
    assert_eq!(rest(&mut ends.dialled).await.0, b"");
    assert!(TcpStream::connect(address).await.is_err(), "it listens no more");
}
