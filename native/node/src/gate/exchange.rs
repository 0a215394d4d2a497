//! The hello as it goes over a connection: who says what, and when.
//!
//! ```text
//! dialer                                    listener
//!   [version][length][hello]     ───────▶   judge; of a newcomer, count and sign
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
    future::{Future, poll_fn},
    io,
    pin::pin,
    task::Poll,
    time::Duration,
};

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use libp2p::{
    PeerId,
    core::{
        muxing::{StreamMuxerBox, StreamMuxerExt, SubstreamBox},
        upgrade::Version,
    },
};
use multistream_select::{dialer_select_proto, listener_select_proto};

use super::Gate;
use crate::failure::{Refusal, reason_of, refusal};

pub const HELLO_PROTOCOL: &str = "/mycel/hello/1";
/// 2: a newcomer is admitted by a gateway, and nobody takes an invite for a member's token.
pub const HELLO_VERSION: u8 = 2;
pub const MAX_BLOCK_BYTES: usize = 16 * 1024;

/// How long a refusal may take to reach the other end before the connection drops.
const LINGER: Duration = Duration::from_millis(500);

/// A verdict; every other is the number of a reason (see `failure`).
const ADMITTED: u8 = 0;

impl Gate {
    pub(super) async fn hello_as_dialer(
        &self,
        peer: PeerId,
        mut muxer: StreamMuxerBox,
    ) -> io::Result<StreamMuxerBox> {
        let substream = poll_fn(|cx| muxer.poll_outbound_unpin(cx)).await?;
        let talk = async {
            let (_, mut io) =
                dialer_select_proto(substream, [HELLO_PROTOCOL], Version::V1Lazy).await?;
            write_block(&mut io, &[HELLO_VERSION], &self.own_hello(None)).await?;
            let [version, verdict] = read_bytes(&mut io).await?;
            let answer = read_block(&mut io).await?;
            if verdict != ADMITTED {
                return Err(refused_by_peer(verdict, &answer));
            }
            let judged = self.judge_listener(peer, version, &answer);
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

    pub(super) async fn hello_as_listener(
        &self,
        peer: PeerId,
        mut muxer: StreamMuxerBox,
    ) -> io::Result<StreamMuxerBox> {
        let substream: SubstreamBox = poll_fn(|cx| muxer.poll_inbound_unpin(cx)).await?;
        let listen = async {
            let (_, mut io) = listener_select_proto(substream, [HELLO_PROTOCOL]).await?;
            let [version] = read_bytes(&mut io).await?;
            let hello = read_block(&mut io).await?;
            Ok((io, self.judge_dialer(peer, version, &hello).await))
        };
        // An honest dialer cannot have opened a second stream yet; this also bounds what
        // a stranger can make us hold to one stream's window.
        let (mut io, judged) = drive(&mut muxer, EarlyStreams::Refuse, listen).await?;
        let answer = async {
            match &judged {
                Ok(granted) => {
                    let head = [HELLO_VERSION, ADMITTED];
                    write_block(&mut io, &head, &self.own_hello(granted.clone())).await?;
                }
                Err(refusal) => {
                    let head = [HELLO_VERSION, refusal.verdict()];
                    write_block(&mut io, &head, refusal.text.as_bytes()).await?;
                    io.close().await?;
                    let _ = tokio::time::timeout(LINGER, io.read(&mut [0])).await;
                    return Ok(());
                }
            }
            let [verdict] = read_bytes(&mut io).await?;
            let reason = read_block(&mut io).await?;
            if verdict != ADMITTED {
                return Err(refused_by_peer(verdict, &reason));
            }
            io.close().await
        };
        drive(&mut muxer, EarlyStreams::Keep, answer).await?;
        judged?;
        Ok(muxer)
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

fn refused_by_peer(verdict: u8, reason: &[u8]) -> io::Error {
    const LONGEST: usize = 200;
    let reason: String = String::from_utf8_lossy(reason).chars().take(LONGEST).collect();
    let text = format!("refused by the peer: {reason}");
    Refusal { by_peer: true, ..refusal(reason_of(verdict), text) }.into()
}

async fn write_verdict(
    io: &mut (impl AsyncWrite + Unpin),
    judged: &Result<(), Refusal>,
) -> io::Result<()> {
    match judged {
        Ok(()) => write_block(io, &[ADMITTED], &[]).await,
        Err(refusal) => write_block(io, &[refusal.verdict()], refusal.text.as_bytes()).await,
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
