//! How others reach this node, and this node those nearby.

use libp2p::{
    Multiaddr, PeerId, TransportError, core::transport::ListenerId, kad, multiaddr::Protocol,
    relay, swarm::dial_opts::DialOpts,
};

use super::Driver;
use crate::{event::Event, failure::chain, lock, reach};

impl Driver {
    pub(super) fn reserve(&mut self, gateway: PeerId, address: Multiaddr) {
        if self.reservations.values().any(|known| *known == gateway) {
            return; // it is held, or asked for
        }
        let error = match self.swarm.listen_on(address.with(Protocol::P2pCircuit)) {
            Ok(listener) => {
                self.reservations.insert(listener, gateway);
                return;
            }
            Err(TransportError::Other(error)) => chain(&error),
            Err(error) => chain(&error),
        };
        self.queue.push(Event::Reservation { gateway, held: false, error });
    }

    pub(super) fn reservation_ended(&mut self, listener: ListenerId, error: &str) {
        if let Some(gateway) = self.reservations.remove(&listener) {
            let error = error.to_owned();
            self.queue.push(Event::Reservation { gateway, held: false, error });
        }
    }

    /// Told when there is an address, not when the gateway has agreed: whoever hears of it
    /// hands the address on. Each further address and each renewal tells it again.
    pub(super) fn reservation_held(&self, listener: ListenerId) {
        if let Some(&gateway) = self.reservations.get(&listener) {
            self.queue.push(Event::Reservation { gateway, held: true, error: String::new() });
        }
    }

    pub(super) fn relay_event(&mut self, event: relay::Event) {
        let mut carried = lock(&self.carried);
        match event {
            relay::Event::ReservationReqAccepted { src_peer_id, renewed: false } => {
                carried.reserved(src_peer_id, self.gate.family_of(&src_peer_id));
                self.figures.set("relay_reservations", carried.reservations());
            }
            relay::Event::ReservationClosed { src_peer_id }
            | relay::Event::ReservationTimedOut { src_peer_id } => {
                carried.reservation_ended(src_peer_id);
                self.figures.set("relay_reservations", carried.reservations());
            }
            relay::Event::CircuitReqAccepted { src_peer_id, .. } => {
                carried.circuit_opened(src_peer_id, self.gate.family_of(&src_peer_id));
                self.figures.set("relay_circuits", carried.circuits());
                self.figures.count("relay_circuits_total");
            }
            relay::Event::CircuitClosed { src_peer_id, .. } => {
                carried.circuit_closed(src_peer_id);
                self.figures.set("relay_circuits", carried.circuits());
            }
            relay::Event::ReservationReqDenied { .. } => {
                self.figures.count_by("relay_denied", "reservation");
            }
            relay::Event::CircuitReqDenied { .. } => {
                self.figures.count_by("relay_denied", "circuit");
            }
            _ => {}
        }
    }

    pub(super) fn listening(&mut self, address: &Multiaddr) {
        self.reach.listening(address);
        // A gateway can be reached where it listens, or it is none; it must say so, because
        // the addresses of those who listen through it begin with its own.
        if self.settings.gateway && !reach::is_circuit(address) {
            self.swarm.add_external_address(address.clone());
        }
    }

    pub(super) fn reach_changed(&mut self) {
        let reachable = self.settings.gateway || self.reach.is_reachable();
        let mode = match self.settings.dht_service && reachable {
            true => kad::Mode::Server,
            false => kad::Mode::Client,
        };
        let kademlia = &mut self.swarm.behaviour_mut().kademlia;
        if kademlia.mode() != mode {
            kademlia.set_mode(Some(mode));
        }
    }

    /// Somebody on the local network: of this swarm or not, the hello will tell.
    pub(super) fn found_nearby(&mut self, found: Vec<(PeerId, Multiaddr)>) {
        for (peer, address) in found {
            self.addresses.add(peer, address.clone());
            if !self.peers.is_connected(&peer) {
                let dial = DialOpts::peer_id(peer).addresses(vec![address]).allocate_new_port();
                // One that is dialled already is denied, as are too many at once.
                let _ = self.swarm.dial(dial.build());
            }
        }
    }
}
