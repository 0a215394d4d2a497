//! A node as Python sees it.

use std::{
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mycel_node::{
    clock, identity as keys,
    libp2p::{Multiaddr, StreamProtocol},
    node::{Command, Node as NodeHandle, Start},
    queue::{Bounds, EventQueue},
    settings::{Liveness, Protocol, Settings},
    streams::frame::MAX_DATA_BYTES,
};
use pyo3::{
    prelude::*,
    types::{PyDict, PyList},
};

use crate::{
    convert::Objects,
    doorbell::EventFd,
    errors::{InvalidAddress, InvalidSetting, not_sent},
    keys::{invalid_key, peer_id},
    runtime,
};

#[pyclass(frozen, module = "mycel._native")]
pub struct Node {
    handle: NodeHandle,
    queue: Arc<EventQueue>,
    doorbell: Arc<EventFd>,
    objects: Mutex<Objects>,
}

/// A protocol as Python passes it: name, longest frame, heartbeats, write and read limit.
type ProtocolArguments = (String, usize, bool, usize, usize);

#[pymethods]
impl Node {
    /// `protocols`: (name, max_frame_bytes, heartbeats, write_high_bytes,
    /// read_high_bytes) each; `liveness`: heartbeat, silence and repeat in seconds.
    #[new]
    #[pyo3(signature = (*, secret, owner_public, token, protocols, liveness, settings))]
    fn new(
        py: Python<'_>,
        secret: &[u8],
        owner_public: &[u8],
        token: Vec<u8>,
        protocols: Vec<ProtocolArguments>,
        liveness: (f64, f64, f64),
        settings: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let start = Start {
            key: keys::keypair(secret).map_err(invalid_key)?,
            owner: keys::public_key(owner_public).map_err(invalid_key)?,
            token,
            protocols: protocols.into_iter().map(protocol).collect::<PyResult<_>>()?,
            liveness: Liveness {
                heartbeat: seconds("heartbeat_seconds", liveness.0)?,
                silence: seconds("silence_seconds", liveness.1)?,
                repeat: seconds("repeat_seconds", liveness.2)?,
            },
            settings: read_settings(settings)?,
        };
        let doorbell = Arc::new(EventFd::new()?);
        let bell = doorbell.clone();
        let queue = Arc::new(EventQueue::new(Bounds::default(), Box::new(move || bell.ring())));
        let handle = py.detach(|| {
            let _runtime = runtime()?.enter();
            NodeHandle::start(start, queue.clone()).map_err(InvalidSetting::new_err)
        })?;
        Ok(Node { handle, queue, doorbell, objects: Mutex::default() })
    }

    #[getter]
    fn peer(&self) -> String {
        self.handle.peer.to_base58()
    }

    /// The descriptor that becomes readable when `drain` has something to give.
    fn fileno(&self) -> i32 {
        self.doorbell.descriptor()
    }

    /// Everything that has happened, in order: (kind, arguments) each.
    fn drain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        // First the bell: a push after it rings again, at worst for an empty drain.
        self.doorbell.clear();
        let (outcomes, notices) = self.queue.drain();
        let mut objects = self.objects();
        let list = PyList::empty(py);
        for event in outcomes.into_iter().chain(notices) {
            list.append(objects.event(py, event)?)?;
        }
        Ok(list)
    }

    /// What was drained has been dealt with: streams that waited read on.
    fn acknowledge(&self) {
        self.objects().acknowledge();
    }

    /// How many notices (gossip, round trips, refusals) were dropped since the start.
    #[getter]
    fn dropped_notices(&self) -> u64 {
        self.queue.dropped_notices()
    }

    fn listen(&self, listen: u64, address: &str) -> PyResult<()> {
        self.send(Command::Listen { listen, address: multiaddr(address)? })
    }

    fn dial(&self, address: &str) -> PyResult<()> {
        self.send(Command::Dial { address: multiaddr(address)?, text: address.to_owned() })
    }

    fn disconnect(&self, peer: &str) -> PyResult<()> {
        self.send(Command::Disconnect { peer: peer_id(peer)? })
    }

    fn open_stream(&self, peer: &str, protocol: String) -> PyResult<()> {
        let protocol = protocol_name(protocol)?;
        self.send(Command::OpenStream { peer: peer_id(peer)?, protocol })
    }

    fn subscribe(&self, topic: String) -> PyResult<()> {
        self.send(Command::Subscribe { topic })
    }

    fn publish(&self, topic: String, data: Vec<u8>) -> PyResult<()> {
        self.send(Command::Publish { topic, data })
    }

    /// The last event of the node tells that it has stopped. Idempotent.
    fn stop(&self) {
        self.handle.stop();
    }
}

impl Node {
    fn send(&self, command: Command) -> PyResult<()> {
        self.handle.send(command).map_err(not_sent)
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.handle.stop();
    }
}

fn multiaddr(text: &str) -> PyResult<Multiaddr> {
    Multiaddr::from_str(text)
        .map_err(|error| InvalidAddress::new_err(format!("{text:?} is no multiaddr: {error}")))
}

fn protocol_name(name: String) -> PyResult<StreamProtocol> {
    StreamProtocol::try_from_owned(name)
        .map_err(|error| InvalidSetting::new_err(format!("no name for a protocol: {error}")))
}

fn protocol(arguments: ProtocolArguments) -> PyResult<Protocol> {
    let (name, max_frame_bytes, heartbeats, write_high_bytes, read_high_bytes) = arguments;
    if max_frame_bytes > MAX_DATA_BYTES {
        return Err(InvalidSetting::new_err(format!("{name}: frames that long cannot be sent")));
    }
    let name = protocol_name(name)?;
    Ok(Protocol { name, max_frame_bytes, heartbeats, write_high_bytes, read_high_bytes })
}

fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    match clock::duration(value) {
        Some(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(InvalidSetting::new_err(format!("{name}: {value} is no length of time"))),
    }
}

/// Overwrites the settings that the dict names.
fn read_settings(options: &Bound<'_, PyDict>) -> PyResult<Settings> {
    let mut s = Settings::default();
    for (name, value) in options {
        let name: String = name.extract()?;
        let time = || seconds(&name, value.extract()?);
        match name.as_str() {
            "connect_timeout_seconds" => s.connect_timeout = time()?,
            "hello_timeout_seconds" => s.hello_timeout = time()?,
            "open_stream_timeout_seconds" => s.open_stream_timeout = time()?,
            "ping_interval_seconds" => s.ping_interval = time()?,
            "ping_timeout_seconds" => s.ping_timeout = time()?,
            "expiry_check_seconds" => s.expiry_check = time()?,
            "clock_tolerance_seconds" => s.clock_tolerance = time()?,
            "stop_timeout_seconds" => s.stop_timeout = time()?,
            "gossip_heartbeat_seconds" => s.gossip_heartbeat = time()?,
            "max_connections" => s.max_connections = value.extract()?,
            "max_pending_incoming" => s.max_pending_incoming = value.extract()?,
            "max_pending_incoming_per_address" => {
                s.max_pending_incoming_per_address = value.extract()?;
            }
            _ => return Err(InvalidSetting::new_err(format!("unknown setting {name}"))),
        }
    }
    Ok(s)
}
