//! What a client is told, and what the server says of the same.

use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use tokio_rustls::TlsConnector;

use super::*;
use crate::{
    Server,
    issue::{Authority, Subject},
    server::{Files, Protocol, REASONS},
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// With which every server of HTTP/2 begins.
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

/// A folder of certificates, and a port.
struct World {
    folder: tempfile::TempDir,
    listener: TcpListener,
}

impl World {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let world = Self { folder, listener };
        for ca in ["ca", "other"] {
            let authority = Authority::new(&Subject::new(ca, DAY)).unwrap();
            world.write(&format!("{ca}.crt"), &authority.certificate());
            let now = SystemTime::now();
            for (name, host) in [("broker", "broker.example"), ("here", "127.0.0.1")] {
                let subject = Subject::new(name, DAY).host(host).uri(format!("spiffe://{name}"));
                world.issue(&authority, &format!("{ca}-{name}"), &subject);
                let (not_before, not_after) = (now - 2 * DAY, now - DAY);
                let subject = Subject { not_before, not_after, ..subject };
                world.issue(&authority, &format!("{ca}-{name}-expired"), &subject);
            }
        }
        world
    }

    fn issue(&self, authority: &Authority, name: &str, subject: &Subject) {
        let issued = authority.issue(subject).unwrap();
        self.write(&format!("{name}.crt"), &issued.certificate);
        self.write(&format!("{name}.key"), &issued.key);
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.file(name), content).unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn tls(&self, ca: &str, cert: Option<&str>) -> Tls {
        Tls {
            ca: Some(self.file(&format!("{ca}.crt"))),
            cert: cert.map(|cert| self.file(&format!("{cert}.crt"))),
            key: cert.map(|cert| self.file(&format!("{cert}.key"))),
            server_name: None,
        }
    }

    fn server(&self, cert: &str) -> Server {
        let files = Files {
            cert: self.file(&format!("{cert}.crt")),
            key: self.file(&format!("{cert}.key")),
            client_ca: Some(self.file("ca.crt")),
        };
        Server::open(files).unwrap()
    }

    async fn dial(&self, tls: Option<Tls>) -> Result<Channel, tonic::transport::Error> {
        let address = self.listener.local_addr().unwrap();
        connect(Endpoint::from_shared(format!("http://{address}")).unwrap(), tls).await
    }

    /// What the client is told, and why the server refuses it, or whom it sees.
    async fn meet(&self, cert: &str, tls: Tls) -> (Result<Channel, String>, String) {
        let server = self.server(cert);
        let accept = async {
            let (tcp, _) = self.listener.accept().await.unwrap();
            match server.accept(tcp, Protocol::Http2).await {
                Ok(mut secured) => {
                    secured.io.write_all(&SETTINGS).await.unwrap();
                    secured.io.flush().await.unwrap();
                    let whom = secured.certificate.map(|certificate| certificate.uri_sans.clone());
                    format!("{whom:?}")
                }
                Err(refusal) => {
                    assert!(REASONS.contains(&refusal.reason));
                    format!("{}: {refusal}", refusal.reason)
                }
            }
        };
        let (channel, seen) = tokio::join!(self.dial(Some(tls)), accept);
        let told = channel.map_err(|error| {
            Failure::in_chain(&error).map_or(format!("{error:?}"), ToString::to_string)
        });
        (told, seen)
    }
}

fn has(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} is not in: {text}");
}

#[tokio::test]
async fn both_sides_know_each_other() {
    let world = World::new().await;
    let (told, seen) = world.meet("ca-here", world.tls("ca", Some("ca-broker"))).await;
    told.unwrap();
    assert_eq!(seen, r#"Some(["spiffe://broker"])"#);
    // A certificate is not demanded.
    let (told, seen) = world.meet("ca-here", world.tls("ca", None)).await;
    told.unwrap();
    assert_eq!(seen, "None");
    // The right name for a broker that is dialled by another one.
    let named = Tls { server_name: Some("broker.example".into()), ..world.tls("ca", None) };
    world.meet("ca-broker", named).await.0.unwrap();
}

#[tokio::test]
async fn the_brokers_own_certificate_can_be_trusted_instead_of_its_ca() {
    let world = World::new().await;
    world.meet("ca-here", world.tls("ca-here", None)).await.0.unwrap();
    let told = world.meet("ca-here", world.tls("ca-broker", None)).await.0.unwrap_err();
    has(&told, "the broker's certificate is not signed by the CA in");
    let told = world.meet("ca-broker", world.tls("ca-broker", None)).await.0.unwrap_err();
    has(&told, "is for broker.example, not for 127.0.0.1");
    let expired = world.tls("ca-here-expired", None);
    let told = world.meet("ca-here-expired", expired).await.0.unwrap_err();
    has(&told, "the broker's certificate expired at 20");
}

#[tokio::test]
async fn a_broker_that_is_not_to_be_trusted_is_told_apart() {
    let world = World::new().await;
    for (broker, told_part, seen_part) in [
        ("ca-here-expired", "the broker's certificate expired at 20", "it finds ours expired"),
        ("other-here", "is not signed by the CA in", "the CA that it trusts did not sign ours"),
        ("ca-broker", "is for broker.example, not for 127.0.0.1; if", "a name that ours does not"),
    ] {
        let (told, seen) = world.meet(broker, world.tls("ca", None)).await;
        has(&told.unwrap_err(), told_part);
        has(&seen, seen_part);
        has(&seen, "refused_by_peer: ");
    }
}

#[tokio::test]
async fn a_client_that_is_not_to_be_trusted_hears_of_it_before_it_says_anything() {
    let world = World::new().await;
    let (told, seen) = world.meet("ca-here", world.tls("ca", Some("other-broker"))).await;
    has(&told.unwrap_err(), "the broker does not know the CA that signed the certificate in");
    has(&seen, "unknown_ca: the peer: the certificate is not signed by a CA in");
    // One that is expired is not even sent.
    let error = world.dial(Some(world.tls("ca", Some("ca-broker-expired")))).await.unwrap_err();
    let told = Failure::in_chain(&error).unwrap().to_string();
    has(&told, "ca-broker-expired.crt expired at 20");
    // By one whose clock is two days late it is.
    let late = SystemTime::now() - 3 * DAY / 2;
    let config = dial::config(&world.tls("ca", Some("ca-broker-expired")), late).unwrap();
    let (client, server) = (TlsConnector::from(Arc::new(config)), world.server("ca-here"));
    let (ours, theirs) = tokio::io::duplex(4096);
    let (connected, accepted) = tokio::join!(
        client.connect("127.0.0.1".try_into().unwrap(), ours),
        server.accept(theirs, Protocol::Http2),
    );
    let refusal = accepted.unwrap_err();
    assert_eq!(refusal.reason, "expired");
    has(&refusal.to_string(), "the peer: the certificate expired at 20");
    // In TLS 1.3 a client learns of it when it first reads.
    let error = connected.unwrap().read_u8().await.unwrap_err();
    let tls = world.tls("ca", Some("ca-broker-expired"));
    let told = stream::Context { broker: "b".into(), tls }.explain(&error, false).to_string();
    has(&told, "the broker finds the certificate in");
}

#[tokio::test]
async fn files_that_do_not_work_are_named_before_anything_is_dialled() {
    let world = World::new().await;
    let good = world.tls("ca", Some("ca-broker"));
    let other_key = Some(world.file("other-broker.key"));
    for (tls, part) in [
        (Tls { ca: None, ..good.clone() }, "TLS needs --ca FILE"),
        (Tls { key: None, ..good.clone() }, "--cert needs --key"),
        (Tls { cert: None, ..good.clone() }, "--key needs --cert"),
        (Tls { key: other_key, ..good.clone() }, "does not belong to the certificate in"),
        (Tls { ca: Some("/no/such".into()), ..good.clone() }, "cannot read /no/such: No such file"),
        (Tls { server_name: Some("no name".into()), ..good.clone() }, "\"no name\" is not a name"),
    ] {
        let error = world.dial(Some(tls)).await.unwrap_err();
        has(&Failure::in_chain(&error).expect("one of ours").to_string(), part);
    }
}

#[tokio::test]
async fn who_speaks_no_tls_is_told_apart() {
    let world = World::new().await;
    let plain = async {
        let (mut tcp, _) = world.listener.accept().await.unwrap();
        tcp.write_all(&SETTINGS).await.unwrap();
        tcp
    };
    let (channel, _tcp) = tokio::join!(world.dial(Some(world.tls("ca", None))), plain);
    let error = channel.unwrap_err();
    has(&Failure::in_chain(&error).unwrap().to_string(), " speaks no TLS: say http://127.0.0.1:");

    let (server, address) = (world.server("ca-here"), world.listener.local_addr().unwrap());
    let greet = async {
        let mut tcp = TcpStream::connect(address).await.unwrap();
        tcp.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        tcp
    };
    let accept = async {
        let (tcp, _) = world.listener.accept().await.unwrap();
        server.accept(tcp, Protocol::Http2).await.unwrap_err()
    };
    let (_tcp, refusal) = tokio::join!(greet, accept);
    assert_eq!(refusal.reason, "no_tls");
    assert_eq!(refusal.to_string(), "the peer speaks no TLS (plain HTTP/2?)");
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_is_given_up_in_time() {
    let world = World::new().await;
    let server = world.server("ca-here");
    let (_silent, ours) = tokio::io::duplex(64);
    let began = tokio::time::Instant::now();
    let refusal = server.accept(ours, Protocol::Http2).await.unwrap_err();
    assert_eq!(refusal.reason, "timeout");
    assert_eq!(began.elapsed(), crate::server::HANDSHAKE_WITHIN);
}

#[tokio::test]
async fn the_port_for_browsers_is_not_the_one_for_grpc() {
    let world = World::new().await;
    let server = world.server("ca-here");
    let accept = async {
        let (tcp, _) = world.listener.accept().await.unwrap();
        server.accept(tcp, Protocol::Http1).await.unwrap_err()
    };
    let (channel, refusal) = tokio::join!(world.dial(Some(world.tls("ca", None))), accept);
    has(&Failure::in_chain(&channel.unwrap_err()).unwrap().to_string(), "the --admin address?");
    assert_eq!(refusal.reason, "protocol");
}

#[tokio::test]
async fn a_renewed_certificate_is_used_for_the_next_connection() {
    let world = World::new().await;
    let tls = world.tls("ca", Some("ca-broker"));
    world.meet("ca-here", tls.clone()).await.0.unwrap();
    let read = |name: &Path| fs::read_to_string(name).unwrap();
    for end in ["crt", "key"] {
        let renewed = read(&world.file(&format!("ca-here.{end}")));
        world.write(&format!("ca-broker.{end}"), &renewed);
    }
    let (told, seen) = world.meet("ca-here", tls).await;
    told.unwrap();
    assert_eq!(seen, r#"Some(["spiffe://here"])"#);
}
