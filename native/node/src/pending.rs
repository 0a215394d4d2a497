//! Limits on connections that have not passed the hello: half-open ones must not lock
//! members out, so one address gets only a share of the places.

use std::{
    collections::HashMap,
    convert::Infallible,
    fmt,
    net::IpAddr,
    task::{Context, Poll},
};

use libp2p::{
    Multiaddr, PeerId,
    core::{Endpoint, transport::PortUse},
    swarm::{
        ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent,
        THandlerOutEvent, ToSwarm, dummy,
    },
};

use crate::reach::ip_of;

pub struct Behaviour {
    max_total: usize,
    max_per_address: usize,
    pending: HashMap<ConnectionId, Option<IpAddr>>,
    per_address: HashMap<Option<IpAddr>, usize>,
}

#[derive(Debug)]
struct TooMany;

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too many connections wait for admission")
    }
}

impl std::error::Error for TooMany {}

impl Behaviour {
    pub fn new(max_total: usize, max_per_address: usize) -> Self {
        Behaviour {
            max_total,
            max_per_address,
            pending: HashMap::new(),
            per_address: HashMap::new(),
        }
    }

    fn settle(&mut self, connection: ConnectionId) {
        let Some(address) = self.pending.remove(&connection) else { return };
        if let Some(count) = self.per_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.per_address.remove(&address);
            }
        }
    }
}

impl NetworkBehaviour for Behaviour {
    type ConnectionHandler = dummy::ConnectionHandler;
    type ToSwarm = Infallible;

    fn handle_pending_inbound_connection(
        &mut self,
        connection: ConnectionId,
        _: &Multiaddr,
        remote: &Multiaddr,
    ) -> Result<(), ConnectionDenied> {
        // Those without an IP (relayed circuits) share one account.
        let address = ip_of(remote);
        let from_there = self.per_address.get(&address).copied().unwrap_or(0);
        if self.pending.len() >= self.max_total || from_there >= self.max_per_address {
            return Err(ConnectionDenied::new(TooMany));
        }
        self.pending.insert(connection, address);
        *self.per_address.entry(address).or_default() += 1;
        Ok(())
    }

    fn handle_established_inbound_connection(
        &mut self,
        connection: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.settle(connection);
        Ok(dummy::ConnectionHandler)
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(dummy::ConnectionHandler)
    }

    fn on_swarm_event(&mut self, event: FromSwarm) {
        if let FromSwarm::ListenFailure(failure) = event {
            self.settle(failure.connection_id);
        }
    }

    fn on_connection_handler_event(
        &mut self,
        _: PeerId,
        _: ConnectionId,
        event: THandlerOutEvent<Self>,
    ) {
        match event {}
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Infallible, THandlerInEvent<Self>>> {
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(behaviour: &mut Behaviour, connection: usize, remote: &str) -> bool {
        let here = "/ip4/127.0.0.1/tcp/1".parse().expect("address");
        let remote = remote.parse().expect("address");
        let connection = ConnectionId::new_unchecked(connection);
        behaviour.handle_pending_inbound_connection(connection, &here, &remote).is_ok()
    }

    #[test]
    fn one_address_cannot_take_every_place() {
        let mut behaviour = Behaviour::new(3, 2);
        assert!(ask(&mut behaviour, 1, "/ip4/10.0.0.1/tcp/5"));
        assert!(ask(&mut behaviour, 2, "/ip4/10.0.0.1/tcp/6"));
        assert!(!ask(&mut behaviour, 3, "/ip4/10.0.0.1/tcp/7"));
        assert!(ask(&mut behaviour, 4, "/ip4/10.0.0.2/tcp/5"));
        assert!(!ask(&mut behaviour, 5, "/ip4/10.0.0.3/tcp/5"));
        behaviour.settle(ConnectionId::new_unchecked(1));
        behaviour.settle(ConnectionId::new_unchecked(1));
        assert!(ask(&mut behaviour, 6, "/ip4/10.0.0.1/tcp/8"));
    }
}
