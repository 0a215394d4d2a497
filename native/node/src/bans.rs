//! Peers that have misbehaved stay out for a while, and with several of them whoever else comes
//! by the same invite.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::Arc,
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

use crate::{gate::Gate, invite::Serial};

/// So many banned peers of one invite keep out the others that come by it.
const FAMILY_BANS: usize = 3;
/// More are never banned at once: the one whose ban would end first is let in.
const MAX_BANS: usize = 4096;

#[derive(Debug, thiserror::Error)]
pub enum Banned {
    #[error("the peer has misbehaved and is kept out for a while")]
    Alone,
    #[error("several who joined by the peer's invite have misbehaved: it is kept out for a while")]
    WithFamily,
}

#[derive(Default)]
pub struct Behaviour {
    until: HashMap<PeerId, Instant>,
    /// The invites of the banned.
    families: HashMap<PeerId, Serial>,
    /// Who knows by which invite a peer joined.
    gate: Option<Arc<Gate>>,
}

impl Behaviour {
    pub fn new(gate: Option<Arc<Gate>>) -> Behaviour {
        Behaviour { gate, ..Behaviour::default() }
    }

    fn family_of(&self, peer: &PeerId) -> Option<Serial> {
        Some(self.gate.as_ref()?.family_of(peer)?.serial)
    }

    /// Whether so many of the family are out that no other comes in.
    fn is_family_banned(&self, family: &Serial) -> bool {
        let banned =
            self.families.iter().filter(|(peer, serial)| *serial == family && self.is_banned(peer));
        banned.count() >= FAMILY_BANS
    }

    pub fn ban(&mut self, peer: PeerId, until: Instant) {
        if self.until.len() >= MAX_BANS
            && let Some(first) = self.until.iter().min_by_key(|(_, until)| **until)
        {
            let first = *first.0;
            self.until.remove(&first);
            self.families.remove(&first);
        }
        self.until.insert(peer, until);
        if let Some(family) = self.family_of(&peer) {
            self.families.insert(peer, family);
        }
    }

    pub fn is_banned(&self, peer: &PeerId) -> bool {
        self.until.get(peer).is_some_and(|until| *until > Instant::now())
    }

    pub fn forget(&mut self, now: Instant) {
        self.until.retain(|_, until| *until > now);
        self.families.retain(|peer, _| self.until.contains_key(peer));
    }

    fn check(&self, peer: PeerId) -> Result<dummy::ConnectionHandler, ConnectionDenied> {
        if self.is_banned(&peer) {
            return Err(ConnectionDenied::new(Banned::Alone));
        }
        // Most of the time nobody is banned, and nobody's invite is asked for.
        if self.families.len() >= FAMILY_BANS
            && self.family_of(&peer).is_some_and(|family| self.is_family_banned(&family))
        {
            return Err(ConnectionDenied::new(Banned::WithFamily));
        }
        Ok(dummy::ConnectionHandler)
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
