//! Admission inside the transport upgrade.
//!
//! [`Gate::admit`] is given to `Transport::and_then` on the outermost transport. It gets
//! a connection after encryption and multiplexing, and hands it on only when each end
//! has accepted the other's token on one substream. The swarm never hears of a
//! connection that fails here: no behaviour, no handler, no identify.
//!
//! ```text
//! dialer                                    listener
//!   [version][length][hello]     ───────▶   judge
//!   judge                        ◀───────   [version][verdict][length][hello | reason]
//!   [verdict][length][reason]    ───────▶   hand the connection on
//!   hand the connection on
//! ```
//!
//! The frame around the hello never changes, so that every version can say that it does not
//! speak another one.
//!
//! A muxer moves bytes only while somebody polls it, so whatever uses the substream runs
//! inside [`drive`], which polls the muxer in the same task.

use std::{
    collections::{HashMap, VecDeque},
    future::{Future, poll_fn},
    io,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Poll,
    time::{Duration, Instant},
};

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use libp2p::{
    PeerId,
    core::{
        ConnectedPoint, Endpoint,
        muxing::{StreamMuxerBox, StreamMuxerExt, SubstreamBox},
        upgrade::Version,
    },
    identity::{Keypair, PublicKey},
};
use multistream_select::{dialer_select_proto, listener_select_proto};

use crate::{
    clock,
    failure::{Refusal, refusal},
    hello::{Hello, Instance},
    lock,
    membership::{self, Token, TokenError},
    revocation::{self, Id, Revocations},
};

pub const HELLO_PROTOCOL: &str = "/mycel/hello/1";
pub const HELLO_VERSION: u8 = 1;
pub const MAX_BLOCK_BYTES: usize = 16 * 1024;

/// How long a refusal may take to reach the other end before the connection drops.
const LINGER: Duration = Duration::from_millis(500);
/// A member that has passed the gate is known for this long before its connection must
/// stand, else the sweep forgets it.
const CONNECTS_WITHIN: Duration = Duration::from_secs(30);

const ADMITTED: u8 = 0;
const REFUSED: u8 = 1;

/// A peer's earlier processes that are remembered; see [`Admitted::retired`].
const RETIRED_MAX: usize = 4;

/// What a gate is made of.
pub struct Entrance {
    pub owner: PublicKey,
    pub swarm: String,
    /// What this node presents: bound to its own peer id.
    pub token: Vec<u8>,
    pub timeout: Duration,
    /// Granted beyond a token's expiry.
    pub tolerance: Duration,
    /// A peer whose clock is farther off is refused: nothing that has a time would hold.
    pub max_clock_skew: Duration,
    pub max_members: usize,
    pub max_revocations: usize,
}

pub struct Gate {
    entrance: Entrance,
    owner: [u8; 32],
    /// Of this process: whoever has this identity and another instance is another process.
    instance: Instance,
    members: Mutex<HashMap<PeerId, Member>>,
    revocations: Mutex<Revocations>,
    /// Hellos that ended well, and how long they took in all.
    hellos: AtomicU64,
    hello_microseconds: AtomicU64,
}

/// What the gate learnt of a peer when it let it in.
#[derive(Clone, Debug)]
pub struct Admission {
    pub token: Token,
    /// The peer's clock minus ours.
    pub clock_skew_seconds: f64,
    /// It knows of other revocations than we do.
    pub revocations_differ: bool,
    /// New with each start of the peer's process.
    pub instance: Instance,
}

struct Member {
    admission: Admission,
    admitted_at: Instant,
    /// Its processes before this one. A process never comes back under an earlier instance,
    /// so that one of these again is a second machine with the same key.
    retired: VecDeque<Instance>,
}

impl From<TokenError> for Refusal {
    fn from(error: TokenError) -> Refusal {
        refusal(error.kind(), error.to_string())
    }
}

impl Gate {
    /// Fails if the owner's key is not of the kind that signs tokens.
    pub fn new(entrance: Entrance) -> Result<Gate, String> {
        let owner = entrance.owner.clone().try_into_ed25519().map_err(|error| error.to_string())?;
        let fresh = Keypair::generate_ed25519().public().encode_protobuf();
        let mut instance = Instance::default();
        instance.copy_from_slice(&blake3::hash(&fresh).as_bytes()[..16]);
        Ok(Gate {
            owner: owner.to_bytes(),
            instance,
            members: Mutex::default(),
            revocations: Mutex::new(Revocations::new(entrance.max_revocations)),
            hellos: AtomicU64::default(),
            hello_microseconds: AtomicU64::default(),
            entrance,
        })
    }

    /// How many connections passed, and the microseconds that this has added to them.
    pub fn hellos(&self) -> (u64, u64) {
        (self.hellos.load(Relaxed), self.hello_microseconds.load(Relaxed))
    }

    pub fn admission_of(&self, peer: &PeerId) -> Option<Admission> {
        lock(&self.members).get(peer).map(|member| member.admission.clone())
    }

    /// Takes in what the owner signed; gives back which records were good and news.
    pub fn revoke(&self, records: &[Vec<u8>]) -> Vec<bool> {
        let read =
            |record: &Vec<u8>| revocation::read(&self.entrance.owner, &self.entrance.swarm, record);
        // Signatures first: they take longer than anybody should wait for the lock.
        let found: Vec<Option<(Id, u64)>> = records.iter().map(read).collect();
        let mut revocations = lock(&self.revocations);
        let now = clock::wall_seconds();
        let tolerance = self.entrance.tolerance.as_secs();
        let mut take = |(id, ends): (Id, u64)| {
            ends.saturating_add(tolerance) > now && revocations.insert(id, ends)
        };
        found.into_iter().map(|record| record.is_some_and(&mut take)).collect()
    }

    /// The connected peers whose token is over, and why. Forgets who is not connected.
    pub fn sweep(&self, is_connected: impl Fn(&PeerId) -> bool) -> Vec<(PeerId, &'static str)> {
        let now = clock::wall_seconds();
        let tolerance = self.entrance.tolerance.as_secs();
        let mut revocations = lock(&self.revocations);
        revocations.prune(now, tolerance);
        let mut members = lock(&self.members);
        members.retain(|peer, member| {
            is_connected(peer) || member.admitted_at.elapsed() < CONNECTS_WITHIN
        });
        let ended = members.iter().filter_map(|(peer, member)| {
            let token = &member.admission.token;
            let cause = if revocations.revokes(&token.revocation_ids) {
                "the peer's token was revoked"
            } else if token.rights.has_expired(now, tolerance) {
                "the peer's token has expired"
            } else {
                return None;
            };
            is_connected(peer).then_some((*peer, cause))
        });
        ended.collect()
    }

    pub async fn admit(
        self: Arc<Self>,
        (peer, muxer): (PeerId, StreamMuxerBox),
        point: ConnectedPoint,
    ) -> io::Result<(PeerId, StreamMuxerBox)> {
        // Who speaks first is the role, not who dialled: hole punching has two diallers.
        let role = match point {
            ConnectedPoint::Dialer { role_override, .. } => role_override,
            ConnectedPoint::Listener { .. } => Endpoint::Listener,
        };
        let began = Instant::now();
        let hello = async {
            match role {
                Endpoint::Dialer => self.hello_as_dialer(peer, muxer).await,
                Endpoint::Listener => self.hello_as_listener(peer, muxer).await,
            }
        };
        let muxer = tokio::time::timeout(self.entrance.timeout, hello)
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the hello timed out"))??;
        self.hellos.fetch_add(1, Relaxed);
        self.hello_microseconds.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        Ok((peer, muxer))
    }

    async fn hello_as_dialer(
        &self,
        peer: PeerId,
        mut muxer: StreamMuxerBox,
    ) -> io::Result<StreamMuxerBox> {
        let substream = poll_fn(|cx| muxer.poll_outbound_unpin(cx)).await?;
        let talk = async {
            let (_, mut io) =
                dialer_select_proto(substream, [HELLO_PROTOCOL], Version::V1Lazy).await?;
            write_block(&mut io, &[HELLO_VERSION], &self.own_hello()).await?;
            let [version, verdict] = read_bytes(&mut io).await?;
            let answer = read_block(&mut io).await?;
            if verdict != ADMITTED {
                return Err(refused_by_peer(&answer));
            }
            let judged = self.judge(peer, version, &answer);
            write_verdict(&mut io, &judged).await?;
            io.close().await?;
            if judged.is_err() {
                let _ = tokio::time::timeout(LINGER, io.read(&mut [0])).await;
            }
            judged.map_err(io::Error::from)
        };
        // The listener's own streams may come before its swarm's answer is read here.
        drive(&mut muxer, EarlyStreams::Keep, talk).await?;
        Ok(muxer)
    }

    async fn hello_as_listener(
        &self,
        peer: PeerId,
        mut muxer: StreamMuxerBox,
    ) -> io::Result<StreamMuxerBox> {
        let substream: SubstreamBox = poll_fn(|cx| muxer.poll_inbound_unpin(cx)).await?;
        let listen = async {
            let (_, mut io) = listener_select_proto(substream, [HELLO_PROTOCOL]).await?;
            let [version] = read_bytes(&mut io).await?;
            let hello = read_block(&mut io).await?;
            Ok((io, self.judge(peer, version, &hello)))
        };
        // An honest dialer cannot have opened a second stream yet; this also bounds what
        // a stranger can make us hold to one stream's window.
        let (mut io, judged) = drive(&mut muxer, EarlyStreams::Refuse, listen).await?;
        let answer = async {
            match &judged {
                Ok(()) => {
                    let head = [HELLO_VERSION, ADMITTED];
                    write_block(&mut io, &head, &self.own_hello()).await?;
                }
                Err(refusal) => {
                    let head = [HELLO_VERSION, REFUSED];
                    write_block(&mut io, &head, refusal.text.as_bytes()).await?;
                    io.close().await?;
                    let _ = tokio::time::timeout(LINGER, io.read(&mut [0])).await;
                    return Ok(());
                }
            }
            let [verdict] = read_bytes(&mut io).await?;
            let reason = read_block(&mut io).await?;
            if verdict != ADMITTED {
                return Err(refused_by_peer(&reason));
            }
            io.close().await
        };
        drive(&mut muxer, EarlyStreams::Keep, answer).await?;
        judged?;
        Ok(muxer)
    }

    fn own_hello(&self) -> Vec<u8> {
        Hello {
            token: self.entrance.token.clone(),
            wall_ms: Some(clock::wall_milliseconds()),
            revocations: Some(lock(&self.revocations).digest()),
            swarm: Some(self.entrance.swarm.clone()),
            instance: Some(self.instance),
        }
        .encode()
    }

    fn judge(&self, peer: PeerId, version: u8, block: &[u8]) -> Result<(), Refusal> {
        if version != HELLO_VERSION {
            let text =
                format!("hello version {version} is not spoken here, {HELLO_VERSION} is: upgrade");
            return Err(refusal("version", text));
        }
        let Some(hello) = Hello::decode(block) else {
            return Err(refusal("malformed", "the hello is malformed"));
        };
        if let Some(name) = hello.swarm.filter(|name| *name != self.entrance.swarm) {
            let name: String = name.chars().take(64).collect();
            let text = format!("this is the swarm {:?}, not {name:?}", self.entrance.swarm);
            return Err(refusal("swarm", text));
        }
        // Before the token: with a wrong clock its expiry means nothing.
        let clock_skew_seconds = self.skew(hello.wall_ms)?;
        let token = self.verify(&peer, &hello.token)?;
        let known = lock(&self.revocations);
        if known.revokes(&token.revocation_ids) {
            return Err(TokenError::Revoked.into());
        }
        let revocations_differ = hello.revocations.is_some_and(|theirs| theirs != known.digest());
        drop(known);
        let instance = hello.instance.unwrap_or_default();
        self.enter(peer, Admission { token, clock_skew_seconds, revocations_differ, instance })
    }

    fn skew(&self, theirs: Option<u64>) -> Result<f64, Refusal> {
        let Some(theirs) = theirs else { return Ok(0.0) };
        let seconds = (theirs as f64 - clock::wall_milliseconds() as f64) / 1000.0;
        if seconds.abs() <= self.entrance.max_clock_skew.as_secs_f64() {
            return Ok(seconds);
        }
        let side = if seconds > 0.0 { "ahead of" } else { "behind" };
        let off = seconds.abs();
        let text = format!("your clock is {off:.0} s {side} this node's: set it right, by NTP");
        Err(refusal("clock", text))
    }

    fn verify(&self, peer: &PeerId, token: &[u8]) -> Result<Token, TokenError> {
        let now = clock::wall_seconds();
        let token = membership::inspect(&self.owner, &peer.to_base58(), now, token)?;
        if token.rights.swarm != self.entrance.swarm {
            return Err(TokenError::Swarm(token.rights.swarm));
        }
        if !token.is_bound {
            return Err(TokenError::Unbound);
        }
        if token.rights.has_expired(now, self.entrance.tolerance.as_secs()) {
            return Err(TokenError::Expired);
        }
        match token.rights.roles {
            0 => Err(TokenError::NoRole),
            _ => Ok(token),
        }
    }

    fn enter(&self, peer: PeerId, admission: Admission) -> Result<(), Refusal> {
        let mut members = lock(&self.members);
        if members.len() >= self.entrance.max_members && !members.contains_key(&peer) {
            return Err(refusal("full", "too many members are connected here"));
        }
        let mut retired = VecDeque::new();
        if let Some(before) = members.remove(&peer) {
            retired = before.retired;
            if before.admission.instance != admission.instance {
                if retired.contains(&admission.instance) {
                    members.insert(peer, Member { retired, ..before });
                    let text = "another node runs with this identity: two machines must not share \
                                an identity.key; move one of them away";
                    return Err(refusal("duplicate", text));
                }
                retired.push_back(before.admission.instance);
                if retired.len() > RETIRED_MAX {
                    retired.pop_front();
                }
            }
        }
        members.insert(peer, Member { admission, admitted_at: Instant::now(), retired });
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum EarlyStreams {
    /// They wait inside the muxer until the swarm takes them.
    Keep,
    Refuse,
}

/// Runs `talk` to its end while it keeps the muxer moving in the same task.
async fn drive<T>(
    muxer: &mut StreamMuxerBox,
    early: EarlyStreams,
    talk: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let mut talk = pin!(talk);
    poll_fn(|cx| {
        if let Poll::Ready(done) = talk.as_mut().poll(cx) {
            return Poll::Ready(done);
        }
        let failure = match early {
            EarlyStreams::Refuse => match muxer.poll_inbound_unpin(cx) {
                Poll::Ready(Ok(_)) => {
                    refusal("early", "a stream was opened before admission").into()
                }
                Poll::Ready(Err(error)) => error,
                Poll::Pending => return Poll::Pending,
            },
            EarlyStreams::Keep => loop {
                match muxer.poll_unpin(cx) {
                    Poll::Ready(Ok(_address_change)) => {}
                    Poll::Ready(Err(error)) => break error,
                    Poll::Pending => return Poll::Pending,
                }
            },
        };
        // The reason for a refusal may have come together with the connection's end.
        match talk.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(done),
            Poll::Pending => Poll::Ready(Err(failure)),
        }
    })
    .await
}

fn refused_by_peer(reason: &[u8]) -> io::Error {
    const LONGEST: usize = 200;
    let reason: String = String::from_utf8_lossy(reason).chars().take(LONGEST).collect();
    refusal("by_peer", format!("refused by the peer: {reason}")).into()
}

async fn write_verdict(
    io: &mut (impl AsyncWrite + Unpin),
    judged: &Result<(), Refusal>,
) -> io::Result<()> {
    match judged {
        Ok(()) => write_block(io, &[ADMITTED], &[]).await,
        Err(refusal) => write_block(io, &[REFUSED], refusal.text.as_bytes()).await,
    }
}

async fn write_block(
    io: &mut (impl AsyncWrite + Unpin),
    head: &[u8],
    block: &[u8],
) -> io::Result<()> {
    if block.len() > MAX_BLOCK_BYTES {
        return Err(refusal("malformed", "our own hello block is too long").into());
    }
    // One write: each would become a packet of its own.
    let mut message = head.to_vec();
    message.extend_from_slice(&(block.len() as u16).to_be_bytes());
    message.extend_from_slice(block);
    io.write_all(&message).await?;
    io.flush().await
}

async fn read_bytes<const COUNT: usize>(
    io: &mut (impl AsyncRead + Unpin),
) -> io::Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    io.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn read_block(io: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let length = usize::from(u16::from_be_bytes(read_bytes(io).await?));
    if length > MAX_BLOCK_BYTES {
        return Err(refusal("malformed", "the hello block is too long").into());
    }
    let mut block = vec![0; length];
    io.read_exact(&mut block).await?;
    Ok(block)
}
