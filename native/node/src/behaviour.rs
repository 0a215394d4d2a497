//! The behaviours of a node. Relay, hole punching, AutoNAT and mDNS will join here.

use std::{num::NonZeroUsize, time::Duration};

use libp2p::{
    PeerId, StreamProtocol, connection_limits,
    gossipsub::{self, MessageAuthenticity, MessageId, ValidationMode},
    identify,
    identity::Keypair,
    kad::{self, store::MemoryStore},
    ping,
    swarm::NetworkBehaviour,
};

use crate::{
    pending,
    settings::{Protocol, Settings},
    streams,
};

pub const KADEMLIA: StreamProtocol = StreamProtocol::new("/mycel/kad/1");

#[derive(NetworkBehaviour)]
pub struct Behaviour {
    pub pending: pending::Behaviour,
    pub limits: connection_limits::Behaviour,
    pub identify: identify::Behaviour,
    pub ping: ping::Behaviour,
    pub kademlia: kad::Behaviour<MemoryStore>,
    pub gossip: gossipsub::Behaviour,
    pub streams: streams::behaviour::Behaviour,
}

impl Behaviour {
    pub fn new(key: &Keypair, protocols: &[Protocol], s: &Settings) -> Result<Self, String> {
        let limits = connection_limits::ConnectionLimits::default()
            .with_max_established(Some(s.max_connections))
            .with_max_established_per_peer(Some(s.max_connections_per_peer))
            .with_max_pending_outgoing(Some(s.max_pending_dials));
        // No cache: the routing table alone decides where peers are dialled.
        let identify = identify::Config::new("mycel/1".into(), key.public())
            .with_agent_version(concat!("mycel/", env!("CARGO_PKG_VERSION")).into())
            .with_cache_size(0);
        let ping = ping::Config::new().with_interval(s.ping_interval).with_timeout(s.ping_timeout);
        let names = protocols.iter().map(|protocol| protocol.name.clone()).collect();
        Ok(Behaviour {
            pending: pending::Behaviour::new(
                s.max_pending_incoming,
                s.max_pending_incoming_per_address,
            ),
            limits: connection_limits::Behaviour::new(limits),
            identify: identify::Behaviour::new(identify),
            ping: ping::Behaviour::new(ping),
            kademlia: kademlia(key.public().to_peer_id(), s),
            gossip: gossip(s)?,
            streams: streams::behaviour::Behaviour::new(names, s.open_stream_timeout),
        })
    }
}

fn kademlia(peer: PeerId, s: &Settings) -> kad::Behaviour<MemoryStore> {
    let replication = NonZeroUsize::new(s.kademlia_replication).unwrap_or(NonZeroUsize::MIN);
    let mut config = kad::Config::new(KADEMLIA);
    config
        .set_query_timeout(Duration::from_secs(10))
        .set_replication_factor(replication)
        .set_max_packet_size(64 * 1024)
        .set_substreams_timeout(Duration::from_secs(3))
        // One bootstrap follows each new entry of the routing table; the driver shortens it.
        .set_periodic_bootstrap_interval(None);
    let mut kademlia = kad::Behaviour::with_config(peer, MemoryStore::new(peer), config);
    kademlia.set_mode(Some(kad::Mode::Server));
    kademlia
}

/// Unsigned: gossipsub would check the signature of every copy of a message before it
/// drops duplicates, which doubles the CPU; what needs an author is signed inside.
fn gossip(s: &Settings) -> Result<gossipsub::Behaviour, String> {
    let config = gossipsub::ConfigBuilder::default()
        .message_id_fn(content_id)
        .protocol_id_prefix("/mycel/gossip")
        .heartbeat_interval(s.gossip_heartbeat)
        .heartbeat_initial_delay(s.gossip_heartbeat / 2)
        .max_transmit_size(s.gossip_max_bytes)
        .validation_mode(ValidationMode::Anonymous)
        .validate_messages()
        .build()
        .map_err(|error| error.to_string())?;
    gossipsub::Behaviour::new(MessageAuthenticity::Anonymous, config).map_err(str::to_owned)
}

/// Without author and sequence number only the content can name a message; the hash is
/// cryptographic, so that no member can make two messages look like one.
fn content_id(message: &gossipsub::Message) -> MessageId {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&(message.topic.as_str().len() as u64).to_be_bytes());
    hasher.update(message.topic.as_str().as_bytes());
    hasher.update(&message.data);
    MessageId::new(&hasher.finalize().as_bytes()[..20])
}
