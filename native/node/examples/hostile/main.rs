//! A libp2p speaker without manners, for the fuzzers: raw bytes on any protocol.
//!
//! It has no gate, no identify, no ping: whatever it says is what a test told it to say.
//! Commands come as lines on standard input, each with a number of the caller's; one line
//! with that number answers each, in any order. Bytes are hexadecimal, `-` is none.
//!
//! ```text
//! connect N SEED ADDRESS ACCEPTED,…     → N ok LINK        | N failed WHY
//! open    N LINK PROTOCOL               → N ok STREAM      | N failed WHY
//! write   N STREAM BYTES                → N ok             | N failed WHY
//! read    N STREAM COUNT MILLISECONDS   → N ok BYTES       | N end BYTES | N silent BYTES
//! close   N STREAM                      → N ok
//! pelt    N LINK PROTOCOL WAIT BYTES,…  → N ok ENDED SILENT FAILED
//! flood   N STREAM PER_SECOND BYTES,…   → N ok SENT        | N failed SENT
//! leave   N LINK                        → N ok
//! sign    N SEED BYTES                  → N ok SIGNATURE
//! ```
//!
//! `pelt` opens a stream for each of its payloads, writes and half-closes it, and counts
//! how many of them the other end closed, left alone for WAIT milliseconds, or did not
//! take. `flood` writes its payloads on one stream at a steady rate.

mod link;

use std::{
    collections::HashMap,
    io::{BufRead, Write},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{AsyncReadExt, AsyncWriteExt};
use libp2p::{Stream, StreamProtocol, identity};
use link::Link;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};

/// Longer than any limit of the other side: what takes this long is stuck.
const STUCK: Duration = Duration::from_secs(15);

type Shared<T> = Arc<Mutex<HashMap<u64, T>>>;
type SharedStream = Arc<tokio::sync::Mutex<Stream>>;
type Answer = Result<String, String>;

#[derive(Clone, Default)]
struct Hostile {
    next: Arc<std::sync::atomic::AtomicU64>,
    links: Shared<Link>,
    streams: Shared<SharedStream>,
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let (lines, mut inbox) = mpsc::unbounded_channel::<String>();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = lines.send(line);
        }
    });
    runtime.block_on(async {
        let hostile = Hostile::default();
        while let Some(line) = inbox.recv().await {
            let hostile = hostile.clone();
            tokio::spawn(async move {
                let words: Vec<&str> = line.split(' ').collect();
                let number = words.get(1).copied().unwrap_or("0");
                let answer = match hostile.obey(&words).await {
                    Ok(answer) => format!("{number} {answer}\n"),
                    Err(why) => format!("{number} failed {}\n", why.replace('\n', " ")),
                };
                let _ = std::io::stdout().lock().write_all(answer.as_bytes());
            });
        }
    });
}

impl Hostile {
    async fn obey(&self, words: &[&str]) -> Answer {
        match words {
            ["connect", _, seed, address, accepted] => {
                let accepted = protocols(accepted)?;
                let link = Link::connect(bytes(seed)?, address, accepted).await?;
                Ok(format!("ok {}", self.keep(&self.links, link)))
            }
            ["open", _, link, protocol] => {
                let stream = self.link(link)?.open(protocol_of(protocol)?).await?;
                let shared = Arc::new(tokio::sync::Mutex::new(stream));
                Ok(format!("ok {}", self.keep(&self.streams, shared)))
            }
            ["write", _, stream, payload] => {
                let stream = self.stream(stream)?;
                write(&mut *stream.lock().await, &bytes(payload)?).await?;
                Ok("ok".into())
            }
            ["read", _, stream, count, milliseconds] => {
                let stream = self.stream(stream)?;
                let mut stream = stream.lock().await;
                read(&mut stream, parsed(count)?, millis(milliseconds)?).await
            }
            ["close", _, stream] => {
                let stream =
                    lock(&self.streams).remove(&parsed(stream)?).ok_or("no such stream")?;
                let _ = timeout(STUCK, stream.lock().await.close()).await;
                Ok("ok".into())
            }
            ["pelt", _, link, protocol, wait, payloads] => {
                let (link, protocol) = (self.link(link)?, protocol_of(protocol)?);
                pelt(&link, &protocol, millis(wait)?, &all_bytes(payloads)?).await
            }
            ["flood", _, stream, per_second, payloads] => {
                let stream = self.stream(stream)?;
                let mut stream = stream.lock().await;
                Ok(flood(&mut stream, parsed(per_second)?, &all_bytes(payloads)?).await)
            }
            ["leave", _, link] => {
                lock(&self.links).remove(&parsed(link)?);
                Ok("ok".into())
            }
            ["sign", _, seed, message] => {
                let key = identity::Keypair::ed25519_from_bytes(bytes(seed)?);
                let signature = key.map_err(|error| error.to_string())?.sign(&bytes(message)?);
                Ok(format!("ok {}", hex(&signature.map_err(|error| error.to_string())?)))
            }
            _ => Err("not a command".into()),
        }
    }

    fn keep<T>(&self, shared: &Shared<T>, value: T) -> u64 {
        let number = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        lock(shared).insert(number, value);
        number
    }

    fn link(&self, number: &str) -> Result<Link, String> {
        lock(&self.links).get(&parsed(number)?).cloned().ok_or_else(|| "no such link".into())
    }

    fn stream(&self, number: &str) -> Result<SharedStream, String> {
        lock(&self.streams).get(&parsed(number)?).cloned().ok_or_else(|| "no such stream".into())
    }
}

async fn write(stream: &mut Stream, payload: &[u8]) -> Result<(), String> {
    let all = async {
        stream.write_all(payload).await?;
        stream.flush().await
    };
    match timeout(STUCK, all).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err("stuck".into()),
    }
}

/// `count` bytes, or what came before the end or the time-out.
async fn read(stream: &mut Stream, count: usize, wait: Duration) -> Answer {
    let (mut got, mut buffer) = (Vec::new(), [0; 4096]);
    let ends_at = Instant::now() + wait;
    let how = loop {
        if got.len() >= count {
            break "ok";
        }
        let room = buffer.len().min(count - got.len());
        match tokio::time::timeout_at(ends_at, stream.read(&mut buffer[..room])).await {
            Ok(Ok(0) | Err(_)) => break "end",
            Ok(Ok(size)) => got.extend_from_slice(&buffer[..size]),
            Err(_) => break "silent",
        }
    };
    Ok(format!("{how} {}", hex(&got)))
}

async fn pelt(
    link: &Link,
    protocol: &StreamProtocol,
    wait: Duration,
    payloads: &[Vec<u8>],
) -> Answer {
    let (mut ended, mut silent, mut failed) = (0, 0, 0);
    for payload in payloads {
        let Ok(mut stream) = link.open(protocol.clone()).await else {
            failed += 1;
            continue;
        };
        if write(&mut stream, payload).await.is_err() {
            failed += 1; // cut while it was written: part of it arrived
            continue;
        }
        let _ = timeout(STUCK, stream.close()).await;
        match read(&mut stream, usize::MAX, wait).await?.split(' ').next() {
            Some("end") => ended += 1,
            _ => silent += 1,
        }
    }
    Ok(format!("ok {ended} {silent} {failed}"))
}

async fn flood(stream: &mut Stream, per_second: f64, payloads: &[Vec<u8>]) -> String {
    let began = Instant::now();
    for (sent, payload) in payloads.iter().enumerate() {
        sleep_until(began + Duration::from_secs_f64(sent as f64 / per_second)).await;
        if write(stream, payload).await.is_err() {
            return format!("failed {sent}");
        }
    }
    format!("ok {}", payloads.len())
}

fn lock<T>(shared: &Shared<T>) -> std::sync::MutexGuard<'_, HashMap<u64, T>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn protocol_of(name: &str) -> Result<StreamProtocol, String> {
    StreamProtocol::try_from_owned(name.to_owned()).map_err(|error| error.to_string())
}

fn protocols(names: &str) -> Result<Vec<StreamProtocol>, String> {
    names.split(',').filter(|name| *name != "-").map(protocol_of).collect()
}

fn parsed<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

fn millis(text: &str) -> Result<Duration, String> {
    Ok(Duration::from_millis(parsed(text)?))
}

fn all_bytes(list: &str) -> Result<Vec<Vec<u8>>, String> {
    list.split(',').map(bytes).collect()
}

fn bytes(text: &str) -> Result<Vec<u8>, String> {
    if text == "-" {
        return Ok(Vec::new());
    }
    let digits = text.as_bytes().chunks(2);
    let pairs = digits.map(|pair| std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2));
    pairs
        .map(|pair| pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()))
        .collect::<Option<_>>()
        .ok_or_else(|| "these are no hexadecimal bytes".into())
}

fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "-".into();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
