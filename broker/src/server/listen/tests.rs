//! What the doors learn of a peer, and that nobody holds the others up.

use std::{fs, path::PathBuf, time::Duration};

use axum::{Router, extract::ConnectInfo, routing::get};
use broker_tls::{
    Server, Tls,
    client::{connect, open},
    issue::{Authority, Subject},
    server::Files,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic::transport::Endpoint;

use super::*;
use crate::bounds::{Limits, Port::Grpc};

/// Served with TLS, and the settings of a client that is known as `spiffe://driver`.
async fn port(
    folder: &tempfile::TempDir,
    protocol: Protocol,
) -> (SocketAddr, JoinSet<()>, mpsc::Receiver<Ready>, Tls) {
    port_of(folder, protocol, Limits::default()).await
}

async fn port_of(
    folder: &tempfile::TempDir,
    protocol: Protocol,
    limits: Limits,
) -> (SocketAddr, JoinSet<()>, mpsc::Receiver<Ready>, Tls) {
    let file = |name: &str| -> PathBuf { folder.path().join(name) };
    let day = Duration::from_secs(24 * 60 * 60);
    let authority = Authority::new(&Subject::new("ca", day)).unwrap();
    fs::write(file("ca.crt"), authority.certificate()).unwrap();
    for name in ["broker", "driver"] {
        let subject = Subject::new(name, day).uri(format!("spiffe://{name}")).host("127.0.0.1");
        let issued = authority.issue(&subject).unwrap();
        fs::write(file(&format!("{name}.crt")), issued.certificate).unwrap();
        fs::write(file(&format!("{name}.key")), issued.key).unwrap();
    }
    let (cert, key) = (file("broker.crt"), file("broker.key"));
    let tls = Server::open(Files { cert, key, client_ca: Some(file("ca.crt")) }).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let metrics = Metrics::default();
    let crowd = Crowd::new(Grpc, 1_000, &limits, metrics.clone());
    let refusals = Refusals::new(limits.refusal_lines);
    let port = Port { listener, tls: Some(tls), protocol, crowd, refusals, metrics };
    let (task, ready) = port.open(CancellationToken::new());
    let mut tasks = JoinSet::new();
    tasks.spawn(task);
    let (cert, key) = (Some(file("driver.crt")), Some(file("driver.key")));
    let client = Tls { ca: Some(file("ca.crt")), cert, key, server_name: None };
    (address, tasks, ready, client)
}

fn uris(peer: &Peer) -> Vec<String> {
    peer.certificate.as_ref().map(|certificate| certificate.uri_sans.clone()).unwrap_or_default()
}

#[tokio::test]
async fn the_grpc_port_knows_a_peer_by_its_certificate_while_others_dawdle() {
    let folder = tempfile::tempdir().unwrap();
    let (address, _tasks, mut ready, client) = port(&folder, Protocol::Http2).await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let dial = async {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        connect(endpoint, Some(client)).await.unwrap()
    };
    let (_channel, accepted) = tokio::join!(dial, ready.recv());
    let (_io, peer) = accepted.unwrap();
    assert_eq!(uris(&peer), ["spiffe://driver"]);
    assert!(peer.address.starts_with("127.0.0.1:"), "{peer:?}");
}

#[tokio::test]
async fn handlers_of_the_admin_port_get_the_peer() {
    let folder = tempfile::tempdir().unwrap();
    let (address, mut tasks, ready, client) = port(&folder, Protocol::Http1).await;
    let who = get(|ConnectInfo(peer): ConnectInfo<Peer>| async move { uris(&peer).concat() });
    let service = Router::new().route("/", who).into_make_service_with_connect_info::<Peer>();
    tasks.spawn(async move { serve::serve(Admin { ready, address }, service).await.unwrap() });
    for (tls, who) in
        [(client.clone(), "spiffe://driver"), (Tls { cert: None, key: None, ..client }, "")]
    {
        let mut io = open(&address.to_string(), tls, Protocol::Http1).await.unwrap();
        io.write_all(b"GET / HTTP/1.1\r\nhost: broker\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        io.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.ends_with(&format!("\r\n\r\n{who}")), "{answer}");
    }
}

#[tokio::test]
async fn connections_on_which_nobody_is_let_in_are_closed_and_counted_for_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { newcomers: 2, ..Limits::default() };
    let (address, _tasks, mut ready, client) = port_of(&folder, Protocol::Http2, limits).await;
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    // The oldest two had to go for the youngest, in whatever state they were.
    for io in &mut silent[..2] {
        assert_eq!(io.read(&mut [0]).await.unwrap(), 0, "closed by the broker");
    }
    // One more, which is through its handshake and says nothing: the next is the third.
    let tls = open(&address.to_string(), client, Protocol::Http2).await.unwrap();
    let (mut io, peer) = ready.recv().await.unwrap();
    assert!(!peer.standing.is_settled());
    silent.push(TcpStream::connect(address).await.unwrap());
    silent.push(TcpStream::connect(address).await.unwrap());
    assert_eq!(
        io.read(&mut [0]).await.unwrap_err().kind(),
        io::ErrorKind::ConnectionAborted,
        "it goes after its handshake as well as before"
    );
    assert_eq!(peer.standing.why_out(), Some(WhyOut::Crowded));
    drop(tls);
}

#[tokio::test(start_paused = true)]
async fn who_was_let_in_stays_and_who_was_not_goes_when_its_time_is_over() {
    let crowd = Crowd::new(Grpc, 10, &Limits::default(), Metrics::default());
    let (_far, near) = tokio::io::duplex(64);
    let idle = crowd.join().unwrap();
    let mut idle_io = Guest::new(near, idle.clone());
    idle_io.read(&mut [0]).await.unwrap_err();
    assert_eq!(idle.why_out(), Some(WhyOut::Idle));
    idle_io.write(&[0]).await.unwrap_err();

    let (_far, near) = tokio::io::duplex(64);
    let settled = crowd.join().unwrap();
    let mut io = Guest::new(near, settled.clone());
    settled.settle(None).unwrap();
    let day = Duration::from_secs(24 * 60 * 60);
    tokio::time::timeout(day, io.read(&mut [0])).await.unwrap_err();
    assert_eq!(settled.why_out(), None);
}
