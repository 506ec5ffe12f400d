//! Those who misuse HTTP/2 lose their connection, and nobody else anything. The frames are made by hand:
//! no client would send them.

use std::{fs, net::SocketAddr, pin::pin};

use broker_proto::v1::{GetBrokerStatusRequest, registry_client::RegistryClient};
use broker_tests::{
    catalog::catalog_text,
    process::{BrokerProcess, PATIENCE},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpStream, tcp::OwnedWriteHalf},
    task::JoinSet,
    time::timeout,
};

const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const RST_STREAM: u8 = 0x3;
const SETTINGS: u8 = 0x4;
const GOAWAY: u8 = 0x7;
const CONTINUATION: u8 = 0x9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const CANCEL: [u8; 4] = [0, 0, 0, 8];
const ENHANCE_YOUR_CALM: u32 = 11;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame is short").to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

/// The headers of a call, as literals that are not indexed.
fn call() -> Vec<u8> {
    let mut block = vec![0x83, 0x86]; // POST, http
    let path = b"/grpc.health.v1.Health/Check";
    block.extend([0x04, path.len() as u8]);
    block.extend(path);
    block.extend([0x01, 6]);
    block.extend(b"broker");
    block.extend(header("content-type", "application/grpc"));
    block.extend(header("te", "trailers"));
    block
}

fn header(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0x00, name.len() as u8];
    bytes.extend(name.as_bytes());
    // A length of more than 126 goes on in the next bytes, seven bits each.
    match value.len().checked_sub(127) {
        None => bytes.push(value.len() as u8),
        Some(mut rest) => {
            bytes.push(127);
            while rest >= 128 {
                bytes.push((rest % 128) as u8 | 128);
                rest /= 128;
            }
            bytes.push(rest as u8);
        }
    }
    bytes.extend(value.as_bytes());
    bytes
}

/// A frame that the broker sent.
#[derive(Debug)]
struct Frame {
    kind: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// A connection, and all that the broker sends on it until it ends.
struct Raw {
    write: OwnedWriteHalf,
    frames: JoinSet<Vec<Frame>>,
}

impl Raw {
    async fn open(address: SocketAddr) -> Self {
        let io = TcpStream::connect(address).await.expect("it listens");
        let (mut read, mut write) = io.into_split();
        write.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("it reads");
        write.write_all(&frame(SETTINGS, 0, 0, &[])).await.expect("it reads");
        let mut frames = JoinSet::new();
        frames.spawn(async move {
            let (mut frames, mut head) = (Vec::new(), [0; 9]);
            while read.read_exact(&mut head).await.is_ok() {
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
                let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
                let mut payload = vec![0; length];
                if read.read_exact(&mut payload).await.is_err() {
                    break;
                }
                frames.push(Frame { kind: head[3], stream, payload });
            }
            frames
        });
        Self { write, frames }
    }

    /// Sends until all is sent or the broker has closed. Returns what it said until then.
    async fn send(mut self, parts: impl Iterator<Item = Vec<u8>>) -> Vec<Frame> {
        for part in parts {
            if self.write.write_all(&part).await.is_err() {
                break;
            }
        }
        let ended = timeout(PATIENCE, self.frames.join_next()).await;
        ended.expect("the broker closes").expect("one task").expect("no panic")
    }
}

/// The code of the last words, if there were any.
fn last_words(frames: &[Frame]) -> Option<u32> {
    let goaway = frames.iter().find(|frame| frame.kind == GOAWAY)?;
    let code = goaway.payload.get(4..8).expect("it has a code");
    Some(u32::from_be_bytes(code.try_into().expect("four bytes")))
}

struct World {
    _folder: TempDir,
    broker: BrokerProcess,
}

impl World {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("all.yaml"), catalog_text("token")).expect("a file");
        let catalog = format!("dir:{}", folder.path().to_str().expect("UTF-8"));
        let any = "127.0.0.1:0";
        let args = ["serve", "--catalog", &catalog, "--listen", any, "--admin", any];
        Self { broker: BrokerProcess::start(&args), _folder: folder }
    }

    /// Others are served on a connection of their own, while `attack` lasts and after it. Returns how
    /// often meanwhile.
    async fn serves_others_during<T>(&self, attack: impl Future<Output = T>) -> (T, usize) {
        let mut registry = RegistryClient::new(self.broker.channel().await);
        let mut attack = pin!(attack);
        let mut served = 0;
        loop {
            let call = registry.get_broker_status(GetBrokerStatusRequest::default());
            let call = timeout(PATIENCE, call);
            tokio::select! {
                ended = &mut attack => {
                    let request = GetBrokerStatusRequest::default();
                    registry.get_broker_status(request).await.expect("served after it");
                    return (ended, served);
                }
                answer = call => {
                    answer.expect("in time").expect("served meanwhile");
                    served += 1;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_takes_back_every_call_at_once_loses_the_connection() {
    let world = World::start();
    let headers = call();
    // A hundred thousand of them, many to a packet.
    let wave = |wave: u32| {
        let ids = (0..100).map(|n| (wave * 100 + n) * 2 + 1);
        let both = ids.map(|id| {
            let begin = frame(HEADERS, END_HEADERS, id, &headers);
            [begin, frame(RST_STREAM, 0, id, &CANCEL)].concat()
        });
        both.collect::<Vec<_>>().concat()
    };
    // It does not last long, so it comes again and again.
    let attacks = async {
        for _ in 0..50 {
            let raw = Raw::open(world.broker.drivers).await;
            let frames = raw.send((0..1_000).map(wave)).await;
            let code = last_words(&frames);
            // They may be lost where we still write when the broker has closed.
            assert!(code.is_none_or(|code| code == ENHANCE_YOUR_CALM), "{frames:?}");
        }
    };
    let ((), served) = world.serves_others_during(attacks).await;
    assert!(served > 0, "others are served meanwhile");
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_are_too_large_are_refused_and_the_connection_stands() {
    let world = World::start();
    let raw = Raw::open(world.broker.drivers).await;
    let too_many: Vec<u8> =
        (0..20).flat_map(|n| header(&format!("x-{n}"), &"v".repeat(1_000))).collect();
    let block = [call(), too_many].concat();
    let (first, rest) = block.split_at(16_000);
    let refused = [
        frame(HEADERS, END_STREAM, 1, first),
        frame(CONTINUATION, END_HEADERS, 1, rest),
        // A health check with an empty message.
        frame(HEADERS, END_HEADERS, 3, &call()),
        frame(DATA, END_STREAM, 3, &[0; 5]),
        // The end, so that the broker closes as well.
        frame(GOAWAY, 0, 0, &[0; 8]),
    ];
    let frames = raw.send(refused.into_iter()).await;
    let answers = |stream| {
        let of = move |frame: &&Frame| frame.stream == stream && frame.kind == HEADERS;
        frames.iter().filter(of).map(|frame| frame.payload.clone()).collect::<Vec<_>>()
    };
    let [refusal] = &answers(1)[..] else { panic!("{frames:?}") };
    // ":status: 431" as the Huffman code has it: Request Header Fields Too Large.
    assert_eq!(refusal[..], [0x48, 0x83, 0x69, 0x90, 0xff]);
    assert_eq!(answers(3).len(), 2, "headers and trailers: {frames:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_without_an_end_end_the_connection_and_fill_no_memory() {
    let world = World::start();
    let before = world.broker.memory();
    let raw = Raw::open(world.broker.drivers).await;
    let padding = header("x", &"v".repeat(16_000));
    let first = frame(HEADERS, END_STREAM, 1, &call());
    // 160 MB of them.
    let endless = (0..10_000).map(move |_| frame(CONTINUATION, 0, 1, &padding));
    let attack = raw.send(std::iter::once(first).chain(endless));
    let (frames, _) = world.serves_others_during(attack).await;
    let code = last_words(&frames);
    assert!(code.is_none_or(|code| code != 0), "not in peace: {frames:?}");
    let grown = world.broker.memory().saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} KiB more than before");
}
