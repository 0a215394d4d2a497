//! TCP, Noise and Yamux, all behind the gate.
//!
//! QUIC and relayed circuits will join here by `or_transport`, below the gate.

use std::{io, sync::Arc, time::Duration};

use libp2p::{
    PeerId, Transport,
    core::{
        muxing::StreamMuxerBox,
        transport::{
            Boxed,
            timeout::{TransportTimeout, TransportTimeoutError},
        },
        upgrade::Version,
    },
    identity::Keypair,
    noise, tcp, yamux,
};

use crate::gate::Gate;

pub type Connection = (PeerId, StreamMuxerBox);

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
) -> io::Result<Boxed<Connection>> {
    let noise = noise::Config::new(key).map_err(io::Error::other)?;
    let open = tcp::tokio::Transport::new(tcp::Config::new().nodelay(true))
        .map_err(SocketError)
        .upgrade(Version::V1Lazy)
        .authenticate(noise)
        .multiplex(yamux::Config::default())
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)))
        .map_err(io::Error::other);
    Ok(match gate {
        Some(gate) => {
            let gated = open
                .and_then(move |connection, point| gate.clone().admit(connection, point))
                .map_err(|either| either.into_inner());
            timed(gated, connect_timeout)
        }
        None => timed(open, connect_timeout),
    })
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
