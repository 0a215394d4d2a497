//! Every limit and time-out of a node in one place.

use std::{path::PathBuf, time::Duration};

use libp2p::StreamProtocol;

use crate::conduct::Patience;

/// One stream protocol of the application, with its limits.
#[derive(Clone, Debug)]
pub struct Protocol {
    pub name: StreamProtocol,
    /// A longer frame is refused before it is read, and ends the stream.
    pub max_frame_bytes: usize,
    pub heartbeats: bool,
    /// Above this much unsent data a stream is full, until a quarter is left.
    pub write_high_bytes: usize,
    /// The reader stops when the application has not taken this much.
    pub read_high_bytes: usize,
    /// Its frames count as messages of the peer, of which it may send only so many.
    pub limited: bool,
    /// Its long frames are read where they arrived, and not copied once more.
    pub in_place: bool,
}

/// When heartbeats go out, and when silence is told.
#[derive(Clone, Copy, Debug)]
pub struct Liveness {
    pub heartbeat: Duration,
    /// Without a byte for this long, silence is told once…
    pub silence: Duration,
    /// …and again each time this much more has passed.
    pub repeat: Duration,
}

impl Default for Liveness {
    fn default() -> Self {
        Liveness {
            heartbeat: Duration::from_secs(2),
            silence: Duration::from_secs(7),
            repeat: Duration::from_secs(5),
        }
    }
}

/// What a gateway carries for others. libp2p's own limits (128 KiB and two minutes a
/// circuit) suit hole punching only, and would cut every real task.
#[derive(Clone, Copy, Debug)]
pub struct Relay {
    pub max_reservations: usize,
    pub max_reservations_per_peer: usize,
    pub reservation: Duration,
    pub max_circuits: usize,
    pub max_circuits_per_peer: usize,
    pub max_circuit: Duration,
    /// 0: as many as there are.
    pub max_circuit_bytes: u64,
}

impl Default for Relay {
    fn default() -> Self {
        Relay {
            max_reservations: 4096,
            max_reservations_per_peer: 4,
            reservation: Duration::from_secs(3600),
            max_circuits: 4096,
            max_circuits_per_peer: 256,
            max_circuit: Duration::from_secs(7 * 24 * 3600),
            max_circuit_bytes: 0,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Settings {
    /// From the first packet to the end of the hello.
    pub connect_timeout: Duration,
    /// The hello alone.
    pub hello_timeout: Duration,
    pub open_stream_timeout: Duration,
    /// Most of what an idle node does. Links have heartbeats of their own.
    pub ping_interval: Duration,
    pub ping_timeout: Duration,
    /// How often live connections are held against their tokens' expiry.
    pub expiry_check: Duration,
    /// Granted beyond a token's expiry, because clocks differ.
    pub clock_tolerance: Duration,
    /// A peer whose clock is farther off is refused.
    pub max_clock_skew: Duration,
    /// How long a stop may take to send what is queued and to say goodbye.
    pub stop_timeout: Duration,
    /// Hard limit: to hit it costs both sides a handshake, so it is far above what a
    /// node works with.
    pub max_connections: u32,
    /// Two that dial each other at once get two connections; a peer that comes back
    /// before its old connection is known to be dead has another.
    pub max_connections_per_peer: u32,
    pub max_pending_dials: u32,
    /// Connections that have not passed the hello yet…
    pub max_pending_incoming: usize,
    /// …and how many of them may come from one IP address.
    pub max_pending_incoming_per_address: usize,
    pub max_members: usize,
    pub max_revocations: usize,
    pub max_streams_per_peer: usize,
    pub max_commands: usize,
    /// How far a message's or a record's time may be off.
    pub message_tolerance: Duration,
    pub gossip_heartbeat: Duration,
    pub gossip_max_bytes: usize,
    pub max_topics_per_peer: usize,
    pub kademlia_replication: usize,
    pub query_timeout: Duration,
    /// For how long others keep what a node has published…
    pub record_ttl: Duration,
    /// …and how often it is published again.
    pub republish: Duration,
    pub record_max_bytes: usize,
    /// What this node keeps for others.
    pub max_records: usize,
    pub max_providers: usize,
    /// How many keys one peer may provide.
    pub max_provided_keys: usize,
    pub max_key_bytes: usize,
    /// Searches of this node at the same time.
    pub max_queries: usize,
    /// A search for providers ends early with so many,
    pub enough_providers: usize,
    /// …one for a record with so many good answers, the newest of which counts.
    pub enough_answers: usize,
    /// Peers whose addresses are remembered…
    pub max_known_peers: usize,
    /// …and how many of each.
    pub max_addresses_per_peer: usize,
    /// This node serves others, and must itself be reachable where it listens.
    pub gateway: bool,
    /// Where a gateway counts whom it admits by invites; without, it admits nobody by them.
    pub joins: Option<PathBuf>,
    /// A gateway passes others' circuits on,
    pub relay_service: bool,
    /// …tells them whether they can be reached,
    pub autonat_service: bool,
    /// …and any node keeps and finds records for others, where it can be reached.
    pub dht_service: bool,
    pub relay: Relay,
    /// Direct connections are tried for where a relayed one stands.
    pub hole_punching: bool,
    /// Looks for peers on the local network.
    pub mdns: bool,
    pub patience: Patience,
    /// For how long a peer stays out that was cut off.
    pub ban: Duration,
    /// Above so many connected peers those that nobody needs are disconnected…
    pub high_water: usize,
    /// …until so many are left,
    pub low_water: usize,
    /// …but none that came so recently.
    pub grace: Duration,
    /// How often what is due is looked for: publications, expiry, trimming.
    pub tick: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            connect_timeout: Duration::from_secs(5),
            hello_timeout: Duration::from_secs(3),
            open_stream_timeout: Duration::from_secs(5),
            ping_interval: Duration::from_secs(120),
            ping_timeout: Duration::from_secs(20),
            expiry_check: Duration::from_secs(5),
            clock_tolerance: Duration::from_secs(60),
            max_clock_skew: Duration::from_secs(60),
            stop_timeout: Duration::from_secs(1),
            max_connections: 1024,
            max_connections_per_peer: 4,
            max_pending_dials: 256,
            max_pending_incoming: 256,
            max_pending_incoming_per_address: 64,
            max_members: 8192,
            max_revocations: 65_536,
            max_streams_per_peer: 256,
            max_commands: 8192,
            message_tolerance: Duration::from_secs(60),
            gossip_heartbeat: Duration::from_secs(1),
            gossip_max_bytes: 64 * 1024,
            max_topics_per_peer: 64,
            // Six did not find everything after losses in a swarm of 300, ten did.
            kademlia_replication: 10,
            query_timeout: Duration::from_secs(10),
            record_ttl: Duration::from_secs(600),
            republish: Duration::from_secs(240),
            record_max_bytes: 16 * 1024,
            max_records: 16_384,
            max_providers: 131_072,
            max_provided_keys: 512,
            max_key_bytes: 256,
            max_queries: 512,
            enough_providers: 20,
            enough_answers: 3,
            max_known_peers: 16_384,
            max_addresses_per_peer: 10,
            gateway: false,
            joins: None,
            relay_service: true,
            autonat_service: true,
            dht_service: true,
            relay: Relay::default(),
            hole_punching: true,
            mdns: false,
            patience: Patience {
                messages_per_second: 500,
                burst: 3000,
                max_strikes: 10,
                strike_forgotten: Duration::from_secs(10),
            },
            ban: Duration::from_secs(600),
            high_water: 64,
            low_water: 48,
            grace: Duration::from_secs(20),
            tick: Duration::from_secs(1),
        }
    }
}
