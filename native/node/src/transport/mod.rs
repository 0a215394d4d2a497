//! Relayed circuits, TCP with TLS or Noise and Yamux, and QUIC: all behind the same gate.
//!
//! ```text
//!   relay client ─────────────────────┐
//!   TCP · TLS or Noise · Yamux ─┬─ DNS ─┴─ gate ─ byte counters ─ time-out
//!   QUIC ───────────────────────┘
//! ```

mod ahead;
mod counted;
mod joined;
mod security;

use std::{io, sync::Arc, time::Duration};

use futures::future::Either;
use libp2p::{
    PeerId, Transport,
    core::{
        ConnectedPoint,
        muxing::StreamMuxerBox,
        transport::{
            Boxed,
            timeout::{TransportTimeout, TransportTimeoutError},
        },
        upgrade::Version,
    },
    dns,
    identity::Keypair,
    quic, relay, tcp, yamux,
};

pub use self::counted::Traffic;
use self::{ahead::Ahead, security::Security};
use crate::gate::Gate;

pub type Connection = (PeerId, StreamMuxerBox);

/// What went over direct and over relayed connections.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    pub direct: Arc<Traffic>,
    pub relayed: Arc<Traffic>,
}

impl Meter {
    fn of(&self, point: &ConnectedPoint) -> Arc<Traffic> {
        match point.is_relayed() {
            true => self.relayed.clone(),
            false => self.direct.clone(),
        }
    }
}

/// What the socket said. The layers above give an error's source for the error itself,
/// so that the socket's own is found only if it is somebody's source.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct SocketError(#[source] io::Error);

/// `gate` is absent only where a test plays the stranger.
pub fn build(
    key: &Keypair,
    gate: Option<Arc<Gate>>,
    connect_timeout: Duration,
    meter: Meter,
) -> io::Result<(Boxed<Connection>, relay::client::Behaviour)> {
    let security = Security::new(key)?;
    let (circuits, relay_client) = relay::client::new(key.public().to_peer_id());
    // The relay client comes first: it alone understands /p2p-circuit.
    let circuits = circuits
        .upgrade(Version::V1Lazy)
        .authenticate(security.noise())
        .multiplex(yamux::Config::default())
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)))
        .map_err(io::Error::other);
    let open = circuits
        .or_transport(direct(key, security))
        .map(|either, _| either.into_inner())
        .map_err(|either| either.into_inner());
    let count = move |(peer, muxer), point: ConnectedPoint| {
        (peer, counted::counted(muxer, meter.of(&point)))
    };
    let transport = match gate {
        Some(gate) => {
            let gated = open
                .and_then(move |connection, point| gate.clone().admit(connection, point))
                .map_err(|either| either.into_inner());
            timed(gated.map(count), connect_timeout)
        }
        None => timed(open.map(count), connect_timeout),
    };
    Ok((transport, relay_client))
}

fn direct(key: &Keypair, security: Security) -> Boxed<Connection> {
    // A machine without a resolver of its own still reaches numeric addresses.
    match dns::tokio::Transport::system(numeric(key, security.clone())) {
        Ok(named) => named.map_err(io::Error::other).boxed(),
        Err(_) => numeric(key, security),
    }
}

fn numeric(key: &Keypair, security: Security) -> Boxed<Connection> {
    let tcp = tcp::tokio::Transport::new(tcp::Config::new().nodelay(true))
        .map_err(SocketError)
        .map(|socket, _| Ahead::new(socket))
        .upgrade(Version::V1Lazy)
        .authenticate(security)
        .multiplex(yamux::Config::default())
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));
    let quic = quic::tokio::Transport::new(quic::Config::new(key))
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));
    tcp.or_transport(quic)
        .map(|either, _| match either {
            Either::Left(connection) | Either::Right(connection) => connection,
        })
        .map_err(io::Error::other)
        .boxed()
}

fn timed<T>(transport: T, timeout: Duration) -> Boxed<Connection>
where
    T: Transport<Output = Connection> + Send + Unpin + 'static,
    T::Dial: Send + 'static,
    T::ListenerUpgrade: Send + 'static,
    T::Error: Send + Sync,
{
    // The kind must stay recognisable: a time-out is silence, not refusal.
    TransportTimeout::new(transport, timeout)
        .map_err(|error| match error {
            TransportTimeoutError::Timeout => {
                io::Error::new(io::ErrorKind::TimedOut, "no answer in time")
            }
            TransportTimeoutError::TimerError(error) => error,
            TransportTimeoutError::Other(error) => io::Error::other(error),
        })
        .boxed()
}
