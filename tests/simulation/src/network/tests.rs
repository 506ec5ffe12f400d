//! The network does what it says, or the simulation shows nothing.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use super::*;

const LONG: Duration = Duration::from_secs(3600);

struct Pair {
    network: Network,
    dialler: End,
    listener: End,
}

/// A connection with a latency of 10 ms one way.
async fn connected() -> Pair {
    let network = Network::new(Chance::new(0, "test"), 10..11);
    let mut listening = network.listen("there");
    let dialler = network.dial("here", "there").await.expect("somebody listens");
    let listener = listening.recv().await.expect("it was dialled");
    Pair { network, dialler, listener }
}

async fn read(end: &mut End) -> io::Result<Vec<u8>> {
    let mut buffer = [0; 16];
    let count =
        timeout(LONG, end.read(&mut buffer)).await.map_err(|_| io::ErrorKind::TimedOut)??;
    Ok(buffer[..count].to_vec())
}

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> io::ErrorKind {
    result.expect_err("it cannot succeed").kind()
}

#[tokio::test(start_paused = true)]
async fn bytes_arrive_in_order_after_the_latency() {
    let Pair { mut dialler, mut listener, .. } = connected().await;
    let sent = Instant::now();
    dialler.write_all(b"one").await.unwrap();
    dialler.write_all(b"two").await.unwrap();
    assert_eq!(read(&mut listener).await.unwrap(), b"one");
    assert_eq!(sent.elapsed(), Duration::from_millis(10));
    assert_eq!(read(&mut listener).await.unwrap(), b"two");
}

#[tokio::test(start_paused = true)]
async fn what_is_held_arrives_later_and_what_is_lost_never() {
    let Pair { network, mut dialler, mut listener } = connected().await;
    for (flow, expected) in [(Flow::Held, Ok(b"held".to_vec())), (Flow::Lost, Err(()))] {
        network.set_ways("here", "there", Ways { there: flow, back: Flow::Open });
        dialler.write_all(b"held").await.unwrap();
        assert_eq!(kind(read(&mut listener).await), io::ErrorKind::TimedOut, "{flow:?}");
        // The other way is open.
        listener.write_all(b"back").await.unwrap();
        assert_eq!(read(&mut dialler).await.unwrap(), b"back");
        network.heal();
        assert_eq!(read(&mut listener).await.map_err(drop), expected, "{flow:?}");
    }
    // A new connection is not concerned.
    let _listening = network.listen("there");
    network.dial("here", "there").await.expect("the link is well");
}

#[tokio::test(start_paused = true)]
async fn what_a_killed_process_sent_arrives_and_then_the_end() {
    let Pair { network, mut dialler, mut listener } = connected().await;
    dialler.write_all(b"last").await.unwrap();
    network.kill("here");
    assert_eq!(kind(dialler.write_all(b"zombie").await), io::ErrorKind::BrokenPipe);
    assert_eq!(kind(read(&mut dialler).await), io::ErrorKind::ConnectionReset);
    assert_eq!(read(&mut listener).await.unwrap(), b"last");
    assert_eq!(read(&mut listener).await.unwrap(), b"");
    assert_eq!(kind(listener.write_all(b"nobody").await), io::ErrorKind::BrokenPipe);
}

#[tokio::test(start_paused = true)]
async fn a_reset_breaks_both_ends_and_nobody_listens_where_nobody_is() {
    let Pair { network, mut dialler, mut listener } = connected().await;
    network.reset("here", "there");
    assert_eq!(kind(read(&mut dialler).await), io::ErrorKind::ConnectionReset);
    assert_eq!(kind(read(&mut listener).await), io::ErrorKind::ConnectionReset);
    network.kill("there");
    let refused = network.dial("here", "there").await.map(drop);
    assert_eq!(kind(refused), io::ErrorKind::ConnectionRefused);
}

#[tokio::test(start_paused = true)]
async fn who_is_not_read_has_to_wait() {
    let Pair { mut dialler, mut listener, .. } = connected().await;
    let much = vec![0; 1024 * 1024];
    assert!(timeout(LONG, dialler.write_all(&much)).await.is_err());
    listener.read_exact(&mut vec![0; 64 * 1024]).await.unwrap();
    assert!(timeout(LONG, dialler.write(&much)).await.is_ok());
}
