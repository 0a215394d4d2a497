//! Whose connections end by our own will: those nobody needs, and those who misbehave.
//!
//! The swarm's idle time-out cannot trim: gossipsub holds a stream open to every peer, in the
//! mesh or not. A hard limit cannot either: it is hit after a whole handshake, by the peers
//! that are needed as often as by the others.

use std::{collections::HashSet, time::Instant};

use libp2p::PeerId;

use super::Driver;
use crate::{conduct::Offence, event::Event, lock};

impl Driver {
    pub(super) fn trim(&mut self) {
        for connection in self.peers.replaced(self.settings.grace) {
            if self.swarm.close_connection(connection) {
                self.own_causes.insert(connection, "a direct connection has replaced it");
            }
        }
        let connected = self.peers.len();
        if connected <= self.settings.high_water {
            return;
        }
        let mesh: HashSet<PeerId> =
            self.swarm.behaviour().gossip.all_mesh_peers().copied().collect();
        let gateways: HashSet<PeerId> = self.reservations.values().copied().collect();
        let needed = [&self.kept, &mesh, &gateways];
        let carried = lock(&self.carried);
        let unneeded =
            self.peers.unused(self.settings.grace).into_iter().filter(|peer| {
                !needed.iter().any(|set| set.contains(peer)) && !carried.concerns(peer)
            });
        let surplus = connected - self.settings.low_water.min(connected);
        let surplus: Vec<PeerId> = unneeded.take(surplus).collect();
        drop(carried);
        for peer in surplus {
            self.figures.count("trimmed");
            self.disconnect(peer, "there were too many connections");
        }
    }

    pub(super) fn cut_off(&mut self, Offence { peer, reason }: Offence) {
        let bans = &mut self.swarm.behaviour_mut().bans;
        if bans.is_banned(&peer) {
            return;
        }
        bans.ban(peer, Instant::now() + self.settings.ban);
        self.figures.count_by("cut_offs", reason);
        self.queue.push(Event::CutOff { peer, reason });
        self.disconnect(peer, "the peer misbehaved");
    }
}
