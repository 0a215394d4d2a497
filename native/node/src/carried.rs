//! What a gateway carries for others: their reservations, and the circuits that they open.
//!
//! The relay's own limits count per peer. Each of them has a second one here for the members of
//! one invite. The relay asks before it accepts, and tells when a circuit stands: within one round
//! trip a few more may come, at most ten a connection.

use std::{
    collections::{HashMap, hash_map},
    sync::{Arc, Mutex},
};

use libp2p::{PeerId, relay};

use crate::{
    gate::Gate,
    invite::Family,
    lock, settings,
    tally::{Tally, half_of},
};

#[derive(Default)]
pub struct Carried {
    reservations: Places,
    circuits: Places,
}

/// Shared by the driver, which counts, and the relay, which asks.
pub type SharedCarried = Arc<Mutex<Carried>>;

#[derive(Default)]
struct Places {
    /// How many each peer has, and by which invite it joined.
    of: HashMap<PeerId, (usize, Option<Family>)>,
    tally: Tally,
}

impl Places {
    fn take(&mut self, peer: PeerId, family: Option<Family>) {
        let (held, family) = self.of.entry(peer).or_insert((0, family));
        *held += 1;
        self.tally.take(*family);
    }

    fn give_back(&mut self, peer: PeerId) {
        if let hash_map::Entry::Occupied(mut place) = self.of.entry(peer) {
            let (held, family) = place.get_mut();
            *held -= 1;
            self.tally.give_back(*family);
            if *held == 0 {
                place.remove();
            }
        }
    }

    fn count(&self) -> usize {
        self.of.values().map(|(held, _)| held).sum()
    }
}

impl Carried {
    /// Of a reservation that is not one renewed.
    pub fn reserved(&mut self, peer: PeerId, family: Option<Family>) {
        self.reservations.take(peer, family);
    }

    pub fn reservation_ended(&mut self, peer: PeerId) {
        self.reservations.give_back(peer);
    }

    pub fn circuit_opened(&mut self, from: PeerId, family: Option<Family>) {
        self.circuits.take(from, family);
    }

    pub fn circuit_closed(&mut self, from: PeerId) {
        self.circuits.give_back(from);
    }

    pub fn reservations(&self) -> usize {
        self.reservations.count()
    }

    pub fn circuits(&self) -> usize {
        self.circuits.count()
    }

    /// Whether others reach the peer through this node, or it reaches others.
    pub fn concerns(&self, peer: &PeerId) -> bool {
        self.reservations.of.contains_key(peer) || self.circuits.of.contains_key(peer)
    }

    /// A reservation takes a connection, of which the members of an invite have one each and few
    /// more. So only the places in all are shared out here.
    fn may_reserve(&self, peer: &PeerId, family: Option<Family>, limits: &settings::Relay) -> bool {
        let held = self.reservations.tally.held(family);
        held < half_of(limits.max_reservations) || self.reservations.of.contains_key(peer)
    }

    fn may_call(&self, family: Option<Family>, limits: &settings::Relay) -> bool {
        let circuits = &self.circuits.tally;
        circuits.has_room(family, limits.max_circuits_per_peer)
            && circuits.held(family) < half_of(limits.max_circuits)
    }
}

pub fn relay(
    this: PeerId,
    limits: settings::Relay,
    gate: Option<Arc<Gate>>,
    carried: SharedCarried,
) -> relay::Behaviour {
    let family_of = move |peer: &PeerId| gate.as_ref().and_then(|gate| gate.family_of(peer));
    let (caller, known) = (family_of.clone(), carried.clone());
    let config = relay::Config {
        max_reservations: limits.max_reservations,
        max_reservations_per_peer: limits.max_reservations_per_peer,
        reservation_duration: limits.reservation,
        // Asked like rate limiters: members only come this far, and their number is limited.
        reservation_rate_limiters: vec![Box::new(move |peer: PeerId, _: &_, _: _| {
            lock(&carried).may_reserve(&peer, family_of(&peer), &limits)
        })],
        max_circuits: limits.max_circuits,
        max_circuits_per_peer: limits.max_circuits_per_peer,
        max_circuit_duration: limits.max_circuit,
        max_circuit_bytes: limits.max_circuit_bytes,
        circuit_src_rate_limiters: vec![Box::new(move |peer: PeerId, _: &_, _: _| {
            lock(&known).may_call(caller(&peer), &limits)
        })],
    };
    relay::Behaviour::new(this, config)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: settings::Relay = settings::Relay {
        max_reservations: 5,
        max_reservations_per_peer: 4,
        reservation: std::time::Duration::from_secs(1),
        max_circuits: 100,
        max_circuits_per_peer: 2,
        max_circuit: std::time::Duration::from_secs(1),
        max_circuit_bytes: 0,
    };

    fn family(serial: u8, shares: u32) -> Option<Family> {
        Some(Family { serial: [serial; 16], shares })
    }

    #[test]
    fn the_members_of_an_invite_share_circuits() {
        let mut carried = Carried::default();
        let peers: Vec<PeerId> = (0..4).map(|_| PeerId::random()).collect();
        for peer in &peers {
            assert!(carried.may_call(family(1, 2), &LIMITS));
            carried.circuit_opened(*peer, family(1, 2));
        }
        assert!(!carried.may_call(family(1, 2), &LIMITS));
        assert!(carried.may_call(family(2, 2), &LIMITS) && carried.may_call(None, &LIMITS));
        carried.circuit_closed(peers[0]);
        carried.circuit_closed(peers[0]); // told twice
        assert!(carried.may_call(family(1, 2), &LIMITS));
        assert_eq!(carried.circuits(), 3);
    }

    #[test]
    fn one_invite_holds_half_of_the_reservations_at_most() {
        let mut carried = Carried::default();
        let peers: Vec<PeerId> = (0..4).map(|_| PeerId::random()).collect();
        for peer in &peers[..3] {
            assert!(carried.may_reserve(peer, family(1, 9), &LIMITS));
            carried.reserved(*peer, family(1, 9));
        }
        assert!(!carried.may_reserve(&peers[3], family(1, 9), &LIMITS));
        assert!(carried.may_reserve(&peers[0], family(1, 9), &LIMITS), "renewed");
        assert!(carried.may_reserve(&peers[3], family(2, 9), &LIMITS));
        assert!(carried.concerns(&peers[0]) && !carried.concerns(&peers[3]));
        carried.reservation_ended(peers[0]);
        assert!(carried.may_reserve(&peers[3], family(1, 9), &LIMITS));
    }
}
