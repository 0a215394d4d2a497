//! Admission inside the transport upgrade.
//!
//! [`Gate::admit`] is given to `Transport::and_then` on the outermost transport. It gets
//! a connection after encryption and multiplexing, and hands it on only when each end
//! has accepted the other's token on one substream. The swarm never hears of a
//! connection that fails here: no behaviour, no handler, no identify.
//!
//! ```text
//! dialer                                    listener
//!   [version][length][token]     ───────▶   judge
//!   judge                        ◀───────   [version][verdict][length][token | reason]
//!   [verdict][length][reason]    ───────▶   hand the connection on
//!   hand the connection on
//! ```
//!
//! A muxer moves bytes only while somebody polls it, so whatever uses the substream runs
//! inside [`drive`], which polls the muxer in the same task.

use std::{
    collections::HashMap,
    future::{Future, poll_fn},
    io,
    pin::pin,
    sync::{Arc, Mutex},
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
    identity::PublicKey,
};
use multistream_select::{dialer_select_proto, listener_select_proto};

use crate::{
    clock,
    failure::refusal,
    lock,
    membership::{self, Membership, TokenError},
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

pub struct Gate {
    owner: PublicKey,
    token: Vec<u8>,
    timeout: Duration,
    tolerance_seconds: u64,
    max_members: usize,
    members: Mutex<HashMap<PeerId, Member>>,
}

struct Member {
    membership: Membership,
    admitted_at: Instant,
}

impl Gate {
    pub fn new(
        owner: PublicKey,
        token: Vec<u8>,
        timeout: Duration,
        tolerance: Duration,
        max_members: usize,
    ) -> Gate {
        Gate {
            owner,
            token,
            timeout,
            tolerance_seconds: tolerance.as_secs(),
            max_members,
            members: Mutex::default(),
        }
    }

    pub fn roles_of(&self, peer: &PeerId) -> u32 {
        lock(&self.members).get(peer).map_or(0, |member| member.membership.roles)
    }

    /// The connected peers whose token has expired. Forgets who is not connected.
    pub fn sweep(&self, is_connected: impl Fn(&PeerId) -> bool) -> Vec<PeerId> {
        let now = clock::wall_seconds();
        let mut members = lock(&self.members);
        members.retain(|peer, member| {
            is_connected(peer) || member.admitted_at.elapsed() < CONNECTS_WITHIN
        });
        let expired = members
            .iter()
            .filter(|(_, member)| member.membership.has_expired(now, self.tolerance_seconds));
        expired.map(|(peer, _)| *peer).filter(is_connected).collect()
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
        let hello = async {
            match role {
                Endpoint::Dialer => self.hello_as_dialer(peer, muxer).await,
                Endpoint::Listener => self.hello_as_listener(peer, muxer).await,
            }
        };
        let muxer = tokio::time::timeout(self.timeout, hello)
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the hello timed out"))??;
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
            write_block(&mut io, &[HELLO_VERSION], &self.token).await?;
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
            judged.map_err(refusal)
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
            let token = read_block(&mut io).await?;
            Ok((io, self.judge(peer, version, &token)))
        };
        // An honest dialer cannot have opened a second stream yet; this also bounds what
        // a stranger can make us hold to one stream's window.
        let (mut io, judged) = drive(&mut muxer, EarlyStreams::Refuse, listen).await?;
        let answer = async {
            match &judged {
                Ok(()) => write_block(&mut io, &[HELLO_VERSION, ADMITTED], &self.token).await?,
                Err(reason) => {
                    write_block(&mut io, &[HELLO_VERSION, REFUSED], reason.as_bytes()).await?;
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
        judged.map_err(refusal)?;
        Ok(muxer)
    }

    fn judge(&self, peer: PeerId, version: u8, token: &[u8]) -> Result<(), String> {
        if version != HELLO_VERSION {
            return Err(format!("hello version {version} is not spoken here, {HELLO_VERSION} is"));
        }
        let membership =
            membership::inspect(&self.owner, &peer, token).map_err(|error| error.to_string())?;
        if membership.has_expired(clock::wall_seconds(), self.tolerance_seconds) {
            return Err(TokenError::Expired.to_string());
        }
        let mut members = lock(&self.members);
        if members.len() >= self.max_members && !members.contains_key(&peer) {
            return Err("too many members are connected here".into());
        }
        members.insert(peer, Member { membership, admitted_at: Instant::now() });
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
                Poll::Ready(Ok(_)) => refusal("a stream was opened before admission"),
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
    refusal(format!("refused by the peer: {reason}"))
}

async fn write_verdict(
    io: &mut (impl AsyncWrite + Unpin),
    judged: &Result<(), String>,
) -> io::Result<()> {
    match judged {
        Ok(()) => write_block(io, &[ADMITTED], &[]).await,
        Err(reason) => write_block(io, &[REFUSED], reason.as_bytes()).await,
    }
}

async fn write_block(
    io: &mut (impl AsyncWrite + Unpin),
    head: &[u8],
    block: &[u8],
) -> io::Result<()> {
    if block.len() > MAX_BLOCK_BYTES {
        return Err(refusal("our own hello block is too long"));
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
        return Err(refusal("the hello block is too long"));
    }
    let mut block = vec![0; length];
    io.read_exact(&mut block).await?;
    Ok(block)
}
