//! Peers that have misbehaved stay out for a while.

use std::{
    collections::HashMap,
    convert::Infallible,
    task::{Context, Poll},
    time::Instant,
};

use libp2p::{
    Multiaddr, PeerId,
    core::{Endpoint, transport::PortUse},
    swarm::{
        ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent,
        THandlerOutEvent, ToSwarm, dummy,
    },
};

/// More are never banned at once: the one whose ban would end first is let in.
const MAX_BANS: usize = 4096;

#[derive(Debug, thiserror::Error)]
#[error("the peer has misbehaved and is kept out for a while")]
pub struct Banned;

#[derive(Default)]
pub struct Behaviour {
    until: HashMap<PeerId, Instant>,
}

impl Behaviour {
    pub fn ban(&mut self, peer: PeerId, until: Instant) {
        if self.until.len() >= MAX_BANS
            && let Some(first) = self.until.iter().min_by_key(|(_, until)| **until)
        {
            let first = *first.0;
            self.until.remove(&first);
        }
        self.until.insert(peer, until);
    }

    pub fn is_banned(&self, peer: &PeerId) -> bool {
        self.until.get(peer).is_some_and(|until| *until > Instant::now())
    }

    pub fn forget(&mut self, now: Instant) {
        self.until.retain(|_, until| *until > now);
    }

    fn check(&self, peer: PeerId) -> Result<dummy::ConnectionHandler, ConnectionDenied> {
        match self.is_banned(&peer) {
            true => Err(ConnectionDenied::new(Banned)),
            false => Ok(dummy::ConnectionHandler),
        }
    }
}

impl NetworkBehaviour for Behaviour {
    type ConnectionHandler = dummy::ConnectionHandler;
    type ToSwarm = Infallible;

    fn handle_established_inbound_connection(
        &mut self,
        _: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.check(peer)
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.check(peer)
    }

    fn on_swarm_event(&mut self, _: FromSwarm) {}

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
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_ban_ends_and_their_number_is_bounded() {
        let (mut bans, now) = (Behaviour::default(), Instant::now());
        let first = PeerId::random();
        bans.ban(first, now + Duration::from_secs(10));
        assert!(bans.is_banned(&first));
        assert!(bans.check(first).is_err());
        for _ in 0..MAX_BANS {
            bans.ban(PeerId::random(), now + Duration::from_secs(20));
        }
        assert!(!bans.is_banned(&first));
        assert_eq!(bans.until.len(), MAX_BANS);
        bans.forget(now + Duration::from_secs(20));
        assert!(bans.until.is_empty());
        bans.ban(first, now);
        assert!(!bans.is_banned(&first));
    }
}
