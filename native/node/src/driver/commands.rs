//! What the application asks for.

use std::io;

use libp2p::{
    Multiaddr, PeerId, TransportError,
    gossipsub::IdentTopic,
    multiaddr,
    swarm::{DialError, dial_opts::DialOpts},
};

use super::Driver;
use crate::{
    conduct,
    event::Event,
    failure::{self, DialFailure, chain},
    gossip,
    node::Command,
};

impl Driver {
    /// A command that came while the node stopped still gets its answer.
    pub(super) fn abandon(&self, command: Command) {
        let error = String::from("the node stopped");
        match command {
            Command::Listen { listen, .. } => {
                self.queue.push(Event::ListenFailed { listen, in_use: false, error });
            }
            Command::Dial { text: address, .. } => {
                self.queue.push(Event::DialFailed { address, failure: DialFailure::Other, error });
            }
            Command::OpenStream { peer, protocol } => {
                self.queue.push(Event::StreamFailed { peer, protocol, error });
            }
            Command::DialPeer { peer, .. } => {
                let address = format!("/p2p/{peer}");
                self.queue.push(Event::DialFailed { address, failure: DialFailure::Other, error });
            }
            Command::FindProviders { query, .. } => {
                self.queue.push(Event::ProvidersFound { query, peers: vec![], finished: true });
            }
            Command::GetRecord { query, .. } => {
                self.queue.push(Event::RecordFound { query, record: None });
            }
            Command::Reserve { gateway, .. } => {
                self.queue.push(Event::Reservation { gateway, held: false, error });
            }
            Command::Disconnect { .. }
            | Command::Accuse { .. }
            | Command::Keep { .. }
            | Command::Subscribe { .. }
            | Command::Publish { .. }
            | Command::Provide { .. }
            | Command::StopProviding { .. }
            | Command::PutRecord { .. }
            | Command::WithdrawRecord
            | Command::Sweep => {}
        }
    }

    pub(super) fn command(&mut self, command: Command) {
        match command {
            Command::Listen { listen, address } => self.listen(listen, address),
            Command::Dial { address, text } => self.dial(address, text),
            Command::Disconnect { peer } => self.disconnect(peer, "this node disconnected"),
            Command::Accuse { peer } => {
                self.conduct.strike(peer, conduct::MALFORMED_FRAME);
            }
            Command::OpenStream { peer, protocol } => {
                self.swarm.behaviour_mut().streams.open(peer, protocol);
            }
            Command::Subscribe { topic } => {
                gossip::subscribe(&mut self.swarm.behaviour_mut().gossip, topic);
            }
            Command::Publish { topic, data } => {
                let sealed = self.validator.seal(&topic, &data);
                // Gossip promises nothing: that nobody is there is no error.
                let _ = self.swarm.behaviour_mut().gossip.publish(IdentTopic::new(topic), sealed);
                self.figures.count("gossip_published");
            }
            Command::Sweep => self.sweep(),
            Command::DialPeer { peer, addresses } => self.dial_peer(peer, addresses),
            Command::Reserve { gateway, address } => self.reserve(gateway, address),
            Command::Keep { peer, kept } => {
                match kept {
                    true => self.kept.insert(peer),
                    false => self.kept.remove(&peer),
                };
            }
            Command::Provide { .. }
            | Command::StopProviding { .. }
            | Command::FindProviders { .. }
            | Command::PutRecord { .. }
            | Command::WithdrawRecord
            | Command::GetRecord { .. } => self.dht_command(command),
        }
    }

    fn dht_command(&mut self, command: Command) {
        self.searches();
        let kademlia = &mut self.swarm.behaviour_mut().kademlia;
        match command {
            Command::Provide { key } => self.dht.provide(kademlia, key.into()),
            Command::StopProviding { key } => self.dht.stop_providing(kademlia, &key.into()),
            Command::FindProviders { query, key } => {
                self.dht.find_providers(kademlia, query, key.into());
            }
            Command::PutRecord { payload, sequence, expires_at_ms } => {
                self.dht.put(kademlia, payload, sequence, expires_at_ms);
            }
            Command::WithdrawRecord => self.dht.withdraw(kademlia),
            Command::GetRecord { query, peer } => self.dht.get(kademlia, query, &peer),
            _ => {}
        }
    }

    fn listen(&mut self, listen: u64, address: Multiaddr) {
        let result = match probe(&address) {
            Ok(()) => self.swarm.listen_on(address),
            Err(error) => Err(TransportError::Other(error)),
        };
        let error = match result {
            Ok(listener) => {
                self.listens.insert(listener, listen);
                return;
            }
            Err(TransportError::Other(error)) => error,
            Err(error @ TransportError::MultiaddrNotSupported(_)) => io::Error::other(error),
        };
        let in_use = failure::is_address_in_use(&error);
        self.queue.push(Event::ListenFailed { listen, in_use, error: chain(&error) });
    }

    fn dial(&mut self, address: Multiaddr, text: String) {
        if let Some(multiaddr::Protocol::P2p(peer)) = address.iter().last()
            && self.peers.is_connected(&peer)
        {
            return self.queue.push(Event::DialSucceeded { address: text, peer });
        }
        // Over QUIC our own port is used, so that others can send to where it was seen. Over
        // TCP not: of two who dial each other so at once, neither would be the listener.
        let quic = address.iter().any(|part| part == multiaddr::Protocol::QuicV1);
        let dial = DialOpts::unknown_peer_id().address(address);
        let dial = if quic { dial.build() } else { dial.allocate_new_port().build() };
        self.start_dial(dial, text);
    }

    fn start_dial(&mut self, dial: DialOpts, text: String) {
        let connection = dial.connection_id();
        match self.swarm.dial(dial) {
            Ok(()) => drop(self.dials.insert(connection, text)),
            Err(error) => self.dial_failed(text, &error),
        }
    }

    pub(super) fn dial_failed(&self, address: String, error: &DialError) {
        let (failure, error) = failure::describe(error);
        self.figures.count_by("dials", failure.name());
        self.queue.push(Event::DialFailed { address, failure, error });
    }

    pub(super) fn disconnect(&mut self, peer: PeerId, cause: &'static str) {
        for connection in self.peers.connections(&peer) {
            if self.swarm.close_connection(connection) {
                self.own_causes.insert(connection, cause);
            }
        }
    }
}

/// libp2p listens with SO_REUSEPORT: two nodes could share a port and each get half of
/// the connections. A bind without it tells whether somebody listens already.
fn probe(address: &Multiaddr) -> io::Result<()> {
    let mut parts = address.iter();
    let (ip, port): (std::net::IpAddr, u16) = match (parts.next(), parts.next()) {
        (Some(multiaddr::Protocol::Ip4(ip)), Some(multiaddr::Protocol::Tcp(port))) => {
            (ip.into(), port)
        }
        (Some(multiaddr::Protocol::Ip6(ip)), Some(multiaddr::Protocol::Tcp(port))) => {
            (ip.into(), port)
        }
        _ => return Ok(()),
    };
    match port {
        0 => Ok(()),
        _ => std::net::TcpListener::bind((ip, port)).map(drop),
    }
}
