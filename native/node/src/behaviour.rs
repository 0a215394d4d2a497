//! The behaviours of a node, and which of them are switched on.

use std::sync::Arc;

use libp2p::{
    PeerId, autonat, connection_limits, dcutr, identify,
    identity::Keypair,
    mdns, ping, relay,
    swarm::{NetworkBehaviour, behaviour::toggle::Toggle},
};

use crate::{
    bans,
    carried::{self, SharedCarried},
    dht,
    figures::Figures,
    gate::Gate,
    gossip, pending, reachability,
    settings::{Protocol, Settings},
    streams,
};

/// Those that refuse connections come first. The later the others come, the cheaper they are:
/// whenever a connection moves, all its protocols are compared with those of the time before,
/// and each passes through as many layers as fields follow its own.
#[derive(NetworkBehaviour)]
pub struct Behaviour {
    pub bans: bans::Behaviour,
    pub pending: pending::Behaviour,
    pub limits: connection_limits::Behaviour,
    pub mdns: Toggle<mdns::tokio::Behaviour>,
    pub relay: Toggle<relay::Behaviour>,
    pub hole_punching: Toggle<dcutr::Behaviour>,
    pub reachability_of_others: Toggle<autonat::v2::server::Behaviour>,
    pub reachability: Toggle<reachability::Behaviour>,
    pub relay_client: relay::client::Behaviour,
    pub identify: identify::Behaviour,
    pub ping: ping::Behaviour,
    pub kademlia: dht::Behaviour,
    pub gossip: gossip::Behaviour,
    pub streams: streams::behaviour::Behaviour,
}

/// Both sides of relaying: what others carry for this node, and what it carries for them.
pub struct Relaying {
    pub client: relay::client::Behaviour,
    pub carried: SharedCarried,
}

impl Behaviour {
    pub fn new(
        key: &Keypair,
        relaying: Relaying,
        gate: Option<Arc<Gate>>,
        swarm_name: String,
        protocols: &[Protocol],
        figures: &Figures,
        s: &Settings,
    ) -> Result<Self, String> {
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
        let peer = key.public().to_peer_id();
        Ok(Behaviour {
            bans: bans::Behaviour::new(gate.clone()),
            pending: pending::Behaviour::new(
                s.max_pending_incoming,
                s.max_pending_incoming_per_address,
            ),
            limits: connection_limits::Behaviour::new(limits),
            identify: identify::Behaviour::new(identify),
            ping: ping::Behaviour::new(ping),
            kademlia: dht::behaviour(peer, swarm_name, s),
            gossip: gossip::behaviour(s, figures.copies())?,
            streams: streams::behaviour::Behaviour::new(names, s.open_stream_timeout),
            relay_client: relaying.client,
            relay: (s.gateway && s.relay_service)
                .then(|| carried::relay(peer, s.relay, gate.clone(), relaying.carried))
                .into(),
            hole_punching: s.hole_punching.then(|| dcutr::Behaviour::new(peer)).into(),
            reachability: (!s.gateway).then(|| reachability::Behaviour::new(gate)).into(),
            reachability_of_others: (s.gateway && s.autonat_service)
                .then(autonat::v2::server::Behaviour::default)
                .into(),
            mdns: mdns(peer, s)?.into(),
        })
    }
}

fn mdns(peer: PeerId, s: &Settings) -> Result<Option<mdns::tokio::Behaviour>, String> {
    if !s.mdns {
        return Ok(None);
    }
    let behaviour = mdns::tokio::Behaviour::new(mdns::Config::default(), peer);
    behaviour.map(Some).map_err(|error| format!("cannot look for peers by mDNS: {error}"))
}
