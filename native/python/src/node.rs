//! A node as Python sees it.

use std::{
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mycel_node::{
    clock, identity as keys,
    libp2p::{Multiaddr, StreamProtocol, multiaddr::Protocol as Part},
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

/// A protocol as Python passes it: name, longest frame, heartbeats, write and read limit,
/// whether its frames are counted, and whether long ones stay where they arrived.
type ProtocolArguments = (String, usize, bool, usize, usize, bool, bool);

#[pymethods]
impl Node {
    /// `protocols`: (name, max_frame_bytes, heartbeats, write_high_bytes,
    /// read_high_bytes, limited, in_place) each; `liveness`: heartbeat, silence and repeat in
    /// seconds.
    #[new]
    #[pyo3(signature = (*, secret, swarm_name, owner_public, token, protocols, liveness, settings))]
    #[expect(clippy::too_many_arguments, reason = "Python passes them by name")]
    fn new(
        py: Python<'_>,
        secret: &[u8],
        swarm_name: String,
        owner_public: &[u8],
        token: Vec<u8>,
        protocols: Vec<ProtocolArguments>,
        liveness: (f64, f64, f64),
        settings: &Bound<'_, PyDict>,
    ) -> PyResult<Self> {
        let start = Start {
            key: keys::keypair(secret).map_err(invalid_key)?,
            swarm_name,
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

    fn listen(&self, listen: u64, address: &str) -> PyResult<()> {
        self.send(Command::Listen { listen, address: multiaddr(address)? })
    }

    fn dial(&self, address: &str) -> PyResult<()> {
        self.send(Command::Dial { address: multiaddr(address)?, text: address.to_owned() })
    }

    fn dial_peer(&self, peer: &str, addresses: Vec<String>) -> PyResult<()> {
        let addresses = addresses.iter().map(|text| multiaddr(text)).collect::<PyResult<_>>()?;
        self.send(Command::DialPeer { peer: peer_id(peer)?, addresses })
    }

    /// `gateway` is an address that ends in `/p2p/<peer id>`.
    fn reserve(&self, gateway: &str) -> PyResult<()> {
        let address = multiaddr(gateway)?;
        let Some(Part::P2p(peer)) = address.iter().last() else {
            let error = format!("{gateway:?} does not end in the gateway's peer id");
            return Err(InvalidAddress::new_err(error));
        };
        self.send(Command::Reserve { gateway: peer, address })
    }

    fn keep(&self, peer: &str, kept: bool) -> PyResult<()> {
        self.send(Command::Keep { peer: peer_id(peer)?, kept })
    }

    fn provide(&self, key: Vec<u8>) -> PyResult<()> {
        self.send(Command::Provide { key })
    }

    fn stop_providing(&self, key: Vec<u8>) -> PyResult<()> {
        self.send(Command::StopProviding { key })
    }

    fn find_providers(&self, query: u64, key: Vec<u8>) -> PyResult<()> {
        self.send(Command::FindProviders { query, key })
    }

    /// `expires_at` in seconds since 1970.
    fn put_record(&self, payload: Vec<u8>, sequence: u64, expires_at: f64) -> PyResult<()> {
        let expires_at_ms = seconds("expires_at", expires_at)?.as_millis() as u64;
        self.send(Command::PutRecord { payload, sequence, expires_at_ms })
    }

    fn withdraw_record(&self) -> PyResult<()> {
        self.send(Command::WithdrawRecord)
    }

    fn get_record(&self, query: u64, peer: &str) -> PyResult<()> {
        self.send(Command::GetRecord { query, peer: peer_id(peer)? })
    }

    /// (peer, roles, addresses, relayed, round trip, connected at, heard at, software) of
    /// every connected peer.
    fn peers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for (peer, facts) in self.handle.shared.facts.all() {
            let heard_at = facts.heard.seconds();
            list.append((
                peer.to_base58(),
                facts.roles,
                facts.addresses,
                facts.relayed,
                facts.rtt_seconds,
                facts.connected_at,
                heard_at,
                facts.software,
            ))?;
        }
        Ok(list)
    }

    /// Numbers by name; those with labels are dicts of numbers.
    fn figures<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let snapshot = self.handle.shared.figures.snapshot();
        let figures = PyDict::new(py);
        for (name, value) in snapshot.plain {
            figures.set_item(name, value)?;
        }
        for ((name, label), value) in snapshot.labelled {
            let by_label = match figures.get_item(name)? {
                Some(known) => known.cast_into::<PyDict>()?,
                None => PyDict::new(py),
            };
            by_label.set_item(label, value)?;
            figures.set_item(name, by_label)?;
        }
        let (hellos, microseconds) = self.handle.gate.hellos();
        figures.set_item("hellos", hellos)?;
        figures.set_item("hello_microseconds", microseconds)?;
        figures.set_item("dropped_notices", self.queue.dropped_notices())?;
        Ok(figures)
    }

    fn disconnect(&self, peer: &str) -> PyResult<()> {
        self.send(Command::Disconnect { peer: peer_id(peer)? })
    }

    fn accuse(&self, peer: &str) -> PyResult<()> {
        self.send(Command::Accuse { peer: peer_id(peer)? })
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

    /// Takes in revocations of the owner's; says which of them were good and news. Peers whom
    /// they concern are cut off.
    fn revoke(&self, py: Python<'_>, records: Vec<Vec<u8>>) -> PyResult<Vec<bool>> {
        py.detach(|| self.handle.revoke(&records)).map_err(not_sent)
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
    let (name, max_frame_bytes, heartbeats, write_high_bytes, read_high_bytes, limited, in_place) =
        arguments;
    if max_frame_bytes > MAX_DATA_BYTES {
        return Err(InvalidSetting::new_err(format!("{name}: frames that long cannot be sent")));
    }
    let name = protocol_name(name)?;
    Ok(Protocol {
        name,
        max_frame_bytes,
        heartbeats,
        write_high_bytes,
        read_high_bytes,
        limited,
        in_place,
    })
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
            "max_clock_skew_seconds" => s.max_clock_skew = time()?,
            "stop_timeout_seconds" => s.stop_timeout = time()?,
            "gossip_heartbeat_seconds" => s.gossip_heartbeat = time()?,
            "message_tolerance_seconds" => s.message_tolerance = time()?,
            "query_timeout_seconds" => s.query_timeout = time()?,
            "record_ttl_seconds" => s.record_ttl = time()?,
            "republish_seconds" => s.republish = time()?,
            "kademlia_replication" => s.kademlia_replication = value.extract()?,
            "gateway" => s.gateway = value.extract()?,
            "joins_path" => {
                let path: String = value.extract()?;
                s.joins = (!path.is_empty()).then(|| path.into());
            }
            "relay_service" => s.relay_service = value.extract()?,
            "autonat_service" => s.autonat_service = value.extract()?,
            "dht_service" => s.dht_service = value.extract()?,
            "hole_punching" => s.hole_punching = value.extract()?,
            "mdns" => s.mdns = value.extract()?,
            "relay_max_reservations" => s.relay.max_reservations = value.extract()?,
            "relay_max_circuits" => s.relay.max_circuits = value.extract()?,
            "relay_max_circuits_per_peer" => s.relay.max_circuits_per_peer = value.extract()?,
            "relay_max_circuit_seconds" => s.relay.max_circuit = time()?,
            "relay_max_circuit_bytes" => s.relay.max_circuit_bytes = value.extract()?,
            "relay_reservation_seconds" => s.relay.reservation = time()?,
            "messages_per_second" => s.patience.messages_per_second = value.extract()?,
            "message_burst" => s.patience.burst = value.extract()?,
            "max_strikes" => s.patience.max_strikes = value.extract()?,
            "ban_seconds" => s.ban = time()?,
            "high_water" => s.high_water = value.extract()?,
            "low_water" => s.low_water = value.extract()?,
            "grace_seconds" => s.grace = time()?,
            "max_records" => s.max_records = value.extract()?,
            "max_providers" => s.max_providers = value.extract()?,
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
