//! Events become tuples: the number of the event's kind, and the arguments of the method
//! that `mycel.swarm.libp2p` calls for it.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use mycel_node::{
    event::Event, failure::DialFailure, libp2p::PeerId, streams::stream::Stream as NodeStream,
};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyList, PyString, PyTuple},
};

use crate::stream::Stream;

/// Kinds, as `mycel.swarm.libp2p` numbers them.
mod kind {
    pub const LISTENING: u8 = 0;
    pub const LISTEN_FAILED: u8 = 1;
    pub const NOT_LISTENING: u8 = 2;
    pub const CONNECTED: u8 = 3;
    pub const DISCONNECTED: u8 = 4;
    pub const DIAL_SUCCEEDED: u8 = 5;
    pub const DIAL_FAILED: u8 = 6;
    pub const STREAM_OPENED: u8 = 7;
    pub const STREAM_FAILED: u8 = 8;
    pub const FRAMES: u8 = 9;
    pub const HEARTBEAT: u8 = 10;
    pub const SILENT: u8 = 11;
    pub const WRITABLE: u8 = 12;
    pub const STREAM_CLOSED: u8 = 13;
    pub const GOSSIP: u8 = 14;
    pub const ROUND_TRIP: u8 = 15;
    pub const REFUSED: u8 = 16;
    pub const STOPPED: u8 = 17;
}

/// The Python objects that live longer than one event.
#[derive(Default)]
pub struct Objects {
    /// From the stream's announcement to its end.
    streams: HashMap<u64, Py<Stream>>,
    /// Base58 of a peer id costs more than the rest of an event.
    peers: HashMap<PeerId, Py<PyString>>,
    /// What was handed out since the last acknowledgement.
    handed_out: Vec<(Arc<NodeStream>, usize)>,
}

const MAX_KNOWN_PEERS: usize = 4096;

impl Objects {
    /// The application is done with everything that was handed out.
    pub fn acknowledge(&mut self) {
        for (stream, bytes) in self.handed_out.drain(..) {
            stream.consume(bytes);
        }
    }

    fn peer<'py>(&mut self, py: Python<'py>, peer: &PeerId) -> Bound<'py, PyString> {
        if let Some(known) = self.peers.get(peer) {
            return known.bind(py).clone();
        }
        if self.peers.len() >= MAX_KNOWN_PEERS {
            self.peers.clear();
        }
        let text = PyString::new(py, &peer.to_base58());
        self.peers.insert(*peer, text.clone().unbind());
        text
    }

    fn stream<'py>(
        &mut self,
        py: Python<'py>,
        stream: &Arc<NodeStream>,
    ) -> PyResult<Bound<'py, Stream>> {
        let peer = self.peer(py, &stream.peer);
        Ok(match self.streams.entry(stream.id) {
            Entry::Occupied(known) => known.get().bind(py).clone(),
            Entry::Vacant(place) => {
                let made = Bound::new(py, Stream::new(py, stream.clone(), peer))?;
                place.insert(made.clone().unbind());
                made
            }
        })
    }

    pub fn event<'py>(&mut self, py: Python<'py>, event: Event) -> PyResult<Bound<'py, PyTuple>> {
        match event {
            Event::Listening { listen, address } => {
                (kind::LISTENING, (listen, address)).into_pyobject(py)
            }
            Event::ListenFailed { listen, in_use, error } => {
                (kind::LISTEN_FAILED, (listen, in_use, error)).into_pyobject(py)
            }
            Event::NotListening { address } => (kind::NOT_LISTENING, (address,)).into_pyobject(py),
            Event::Connected { peer, roles, address } => {
                (kind::CONNECTED, (self.peer(py, &peer), roles, address)).into_pyobject(py)
            }
            Event::Disconnected { peer, cause } => {
                (kind::DISCONNECTED, (self.peer(py, &peer), cause)).into_pyobject(py)
            }
            Event::DialSucceeded { address, peer } => {
                (kind::DIAL_SUCCEEDED, (address, self.peer(py, &peer))).into_pyobject(py)
            }
            Event::DialFailed { address, failure, error } => {
                let failure = match failure {
                    DialFailure::Refused => "refused",
                    DialFailure::Silent => "silent",
                    DialFailure::NotAdmitted => "not_admitted",
                    DialFailure::Other => "other",
                };
                (kind::DIAL_FAILED, (address, failure, error)).into_pyobject(py)
            }
            Event::StreamOpened { stream, ours } => {
                (kind::STREAM_OPENED, (self.stream(py, &stream)?, ours)).into_pyobject(py)
            }
            Event::StreamFailed { peer, protocol, error } => {
                let arguments = (self.peer(py, &peer), protocol.as_ref(), error);
                (kind::STREAM_FAILED, arguments).into_pyobject(py)
            }
            Event::Frames { stream, bytes, frames, arrived_at } => {
                let frames = frames.into_iter().map(|range| PyBytes::new(py, &bytes[range]));
                let frames = PyList::new(py, frames)?;
                let arguments = (self.stream(py, &stream)?, frames, arrived_at);
                self.handed_out.push((stream, bytes.len()));
                (kind::FRAMES, arguments).into_pyobject(py)
            }
            Event::Heartbeat { stream, peer_clock, arrived_at } => {
                let arguments = (self.stream(py, &stream)?, peer_clock, arrived_at);
                (kind::HEARTBEAT, arguments).into_pyobject(py)
            }
            Event::Silent { stream, seconds } => {
                (kind::SILENT, (self.stream(py, &stream)?, seconds)).into_pyobject(py)
            }
            Event::Writable { stream } => {
                (kind::WRITABLE, (self.stream(py, &stream)?,)).into_pyobject(py)
            }
            Event::StreamClosed { stream, error } => {
                let object = self.stream(py, &stream)?;
                self.streams.remove(&stream.id);
                (kind::STREAM_CLOSED, (object, error)).into_pyobject(py)
            }
            Event::Gossip { topic, data } => {
                (kind::GOSSIP, (topic, PyBytes::new(py, &data))).into_pyobject(py)
            }
            Event::RoundTrip { peer, seconds } => {
                (kind::ROUND_TRIP, (self.peer(py, &peer), seconds)).into_pyobject(py)
            }
            Event::Refused { address, error } => {
                (kind::REFUSED, (address, error)).into_pyobject(py)
            }
            Event::Stopped { error } => (kind::STOPPED, (error,)).into_pyobject(py),
        }
    }
}
