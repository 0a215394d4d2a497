//! What the network tells the application.

use std::{ops::Range, sync::Arc};

use libp2p::{PeerId, StreamProtocol};

use crate::{
    dht::record::SignedRecord, failure::DialFailure, gate::Admission, streams::stream::Stream,
};

pub enum Event {
    /// A gateway has admitted this node, which is a member by this token from now on. Told before
    /// the connection with that gateway.
    Admitted {
        token: Vec<u8>,
    },
    /// `listen` is absent for a further address of an earlier listener.
    Listening {
        listen: Option<u64>,
        address: String,
    },
    ListenFailed {
        listen: u64,
        in_use: bool,
        error: String,
    },
    /// An interface went away, or a listener failed.
    NotListening {
        address: String,
    },
    /// The first connection with a peer stands.
    Connected {
        peer: PeerId,
        admission: Box<Admission>,
        address: String,
        relayed: bool,
    },
    /// The best connection with a connected peer is another kind of path now.
    PathChanged {
        peer: PeerId,
        address: String,
        relayed: bool,
    },
    /// The last connection with a peer is gone; its streams have been told closed.
    Disconnected {
        peer: PeerId,
        cause: String,
    },
    DialSucceeded {
        address: String,
        peer: PeerId,
    },
    DialFailed {
        address: String,
        failure: DialFailure,
        error: String,
    },
    StreamOpened {
        stream: Arc<Stream>,
        ours: bool,
    },
    StreamFailed {
        peer: PeerId,
        protocol: StreamProtocol,
        error: String,
    },
    /// Whole frames: ranges of one buffer, so that a batch costs one event. The stream waits
    /// until the buffer's length is given to `Stream::consume`.
    Frames {
        stream: Arc<Stream>,
        bytes: Vec<u8>,
        frames: Vec<Range<usize>>,
        arrived_at: f64,
    },
    Heartbeat {
        stream: Arc<Stream>,
        peer_clock: f64,
        arrived_at: f64,
    },
    Silent {
        stream: Arc<Stream>,
        seconds: f64,
    },
    Writable {
        stream: Arc<Stream>,
    },
    /// `error` is empty when one end closed the stream in order.
    StreamClosed {
        stream: Arc<Stream>,
        error: String,
    },
    /// The signature has been checked: `source` wrote it.
    Gossip {
        topic: String,
        source: PeerId,
        data: Vec<u8>,
    },
    /// Repeated, with those not told before; `finished` exactly once, at the end.
    ProvidersFound {
        query: u64,
        peers: Vec<PeerId>,
        finished: bool,
    },
    RecordFound {
        query: u64,
        record: Option<SignedRecord>,
    },
    /// Whether this node can be reached through a gateway now. `error` says why not.
    Reservation {
        gateway: PeerId,
        held: bool,
        error: String,
    },
    /// A misbehaving peer was disconnected, and stays out for a while.
    CutOff {
        peer: PeerId,
        reason: &'static str,
    },
    RoundTrip {
        peer: PeerId,
        seconds: f64,
    },
    /// Somebody who dialled us got no further than the hello.
    Refused {
        address: String,
        error: String,
    },
    /// The last event of a node. `error` is empty unless it died of a fault of its own.
    Stopped {
        error: String,
    },
}

impl Event {
    /// May be lost when the application does not keep up.
    pub fn is_notice(&self) -> bool {
        matches!(self, Event::Gossip { .. } | Event::RoundTrip { .. } | Event::Refused { .. })
    }

    /// Roughly what it holds in memory.
    pub fn bytes(&self) -> usize {
        const OVERHEAD: usize = 128;
        OVERHEAD
            + match self {
                Event::Frames { bytes, frames, .. } => bytes.len() + 16 * frames.len(),
                Event::Gossip { topic, data, .. } => topic.len() + data.len(),
                Event::RecordFound { record: Some(record), .. } => record.payload.len(),
                Event::ProvidersFound { peers, .. } => 80 * peers.len(),
                _ => 0,
            }
    }
}
