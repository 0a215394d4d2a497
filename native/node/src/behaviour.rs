//! The behaviours of a node. Relay, hole punching, AutoNAT and mDNS will join here.

use libp2p::{connection_limits, identify, identity::Keypair, ping, swarm::NetworkBehaviour};

use crate::{
    dht,
    figures::Figures,
    gossip, pending,
    settings::{Protocol, Settings},
    streams,
};

#[derive(NetworkBehaviour)]
pub struct Behaviour {
    pub pending: pending::Behaviour,
    pub limits: connection_limits::Behaviour,
    pub identify: identify::Behaviour,
    pub ping: ping::Behaviour,
    pub kademlia: dht::Behaviour,
    pub gossip: gossip::Behaviour,
    pub streams: streams::behaviour::Behaviour,
}

impl Behaviour {
    pub fn new(
        key: &Keypair,
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
        Ok(Behaviour {
            pending: pending::Behaviour::new(
                s.max_pending_incoming,
                s.max_pending_incoming_per_address,
            ),
            limits: connection_limits::Behaviour::new(limits),
            identify: identify::Behaviour::new(identify),
            ping: ping::Behaviour::new(ping),
            kademlia: dht::behaviour(key.public().to_peer_id(), swarm_name, s),
            gossip: gossip::behaviour(s, figures.copies())?,
            streams: streams::behaviour::Behaviour::new(names, s.open_stream_timeout),
        })
    }
}
