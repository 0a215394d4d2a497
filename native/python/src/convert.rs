//! Events become tuples: the number of the event's kind, and the arguments of the method
//! that `mycel.swarm.libp2p` calls for it.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use mycel_node::{event::Event, libp2p::PeerId, streams::stream::Stream as NodeStream};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyList, PyString, PyTuple},
};

use crate::{slice::Slice, stream::Stream, tokens::described};

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
    pub const PATH_CHANGED: u8 = 18;
    pub const PROVIDERS_FOUND: u8 = 19;
    pub const RECORD_FOUND: u8 = 20;
    pub const RESERVATION: u8 = 21;
    pub const CUT_OFF: u8 = 22;
    pub const ADMITTED: u8 = 23;
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
/// From here on a copy costs more than an object that spares it.
const LONG_BYTES: usize = 32 * 1024;

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
            Event::Connected { peer, admission, address, relayed } => {
                let told = (
                    described(py, &admission.token)?,
                    admission.clock_skew_seconds,
                    admission.revocations_differ,
                    admission.family().map(|one| (PyBytes::new(py, &one.serial), one.shares)),
                );
                let arguments = (self.peer(py, &peer), told, address, relayed);
                (kind::CONNECTED, arguments).into_pyobject(py)
            }
            Event::PathChanged { peer, address, relayed } => {
                (kind::PATH_CHANGED, (self.peer(py, &peer), address, relayed)).into_pyobject(py)
            }
            Event::Disconnected { peer, cause } => {
                (kind::DISCONNECTED, (self.peer(py, &peer), cause)).into_pyobject(py)
            }
            Event::DialSucceeded { address, peer } => {
                (kind::DIAL_SUCCEEDED, (address, self.peer(py, &peer))).into_pyobject(py)
            }
            Event::DialFailed { address, failure, error } => {
                (kind::DIAL_FAILED, (address, failure.name(), error, failure.refusal()))
                    .into_pyobject(py)
            }
            Event::StreamOpened { stream, ours } => {
                (kind::STREAM_OPENED, (self.stream(py, &stream)?, ours)).into_pyobject(py)
            }
            Event::StreamFailed { peer, protocol, error } => {
                let arguments = (self.peer(py, &peer), protocol.as_ref(), error);
                (kind::STREAM_FAILED, arguments).into_pyobject(py)
            }
            Event::Frames { stream, bytes, frames, arrived_at } => {
                self.handed_out.push((stream.clone(), bytes.len()));
                let bytes = Arc::new(bytes);
                let list = PyList::empty(py);
                for range in frames {
                    match stream.protocol.in_place && range.len() >= LONG_BYTES {
                        true => list.append(Slice::new(bytes.clone(), range))?,
                        false => list.append(PyBytes::new(py, &bytes[range]))?,
                    }
                }
                let arguments = (self.stream(py, &stream)?, list, arrived_at);
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
            Event::Gossip { topic, source, data } => {
                let arguments = (topic, self.peer(py, &source), PyBytes::new(py, &data));
                (kind::GOSSIP, arguments).into_pyobject(py)
            }
            Event::ProvidersFound { query, peers, finished } => {
                let peers = PyList::new(py, peers.iter().map(|peer| self.peer(py, peer)))?;
                (kind::PROVIDERS_FOUND, (query, peers, finished)).into_pyobject(py)
            }
            Event::RecordFound { query, record } => {
                let record = record.map(|record| {
                    let payload = PyBytes::new(py, &record.payload);
                    let expires_at = record.expires_at_ms as f64 / 1000.0;
                    (self.peer(py, &record.peer), payload, record.sequence, expires_at)
                });
                (kind::RECORD_FOUND, (query, record)).into_pyobject(py)
            }
            Event::Reservation { gateway, held, error } => {
                (kind::RESERVATION, (self.peer(py, &gateway), held, error)).into_pyobject(py)
            }
            Event::CutOff { peer, reason } => {
                (kind::CUT_OFF, (self.peer(py, &peer), reason)).into_pyobject(py)
            }
            Event::Admitted { token } => {
                (kind::ADMITTED, (PyBytes::new(py, &token),)).into_pyobject(py)
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
