//! Dialling a peer that is known at several addresses: the best ones first.
//!
//! ```text
//!   TCP ── after a moment, or once it failed ──▶ QUIC ── likewise ──▶ through a relay
//! ```
//!
//! All at once would be simpler, and the relay, which answers soonest behind a slow line,
//! would then carry what could have gone directly.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use libp2p::{
    Multiaddr, PeerId,
    multiaddr::Protocol,
    swarm::{
        ConnectionId, DialError,
        dial_opts::{DialOpts, PeerCondition},
    },
};
use tokio::time::Instant;

use super::Driver;
use crate::{
    event::Event,
    failure::{self, DialFailure},
    reach,
};

/// What a better way gets as a start over a worse one.
const HEAD_START: Duration = Duration::from_millis(300);

/// The way to one peer.
pub struct Approach {
    peer: PeerId,
    /// How often somebody has asked for it: each gets an answer.
    pub askers: usize,
    /// Addresses to be tried, each group not before its time.
    waiting: VecDeque<(Instant, Vec<Multiaddr>)>,
    running: usize,
    failure: Option<(DialFailure, String)>,
}

impl Approach {
    /// QUIC comes second because it carries bulk at half the speed of TCP.
    pub fn new(peer: PeerId, addresses: Vec<Multiaddr>, now: Instant) -> Approach {
        let mut groups = [Vec::new(), Vec::new(), Vec::new()];
        for address in addresses {
            let quic = address.iter().any(|part| part == Protocol::QuicV1);
            let group = if reach::is_circuit(&address) { 2 } else { usize::from(quic) };
            groups[group].push(address);
        }
        let groups = groups.into_iter().filter(|group| !group.is_empty());
        let times = (0..).map(|rank| now + rank * HEAD_START);
        let waiting = times.zip(groups).collect();
        Approach { peer, askers: 1, waiting, running: 0, failure: None }
    }

    /// When the next group is due.
    pub fn due_at(&self) -> Option<Instant> {
        self.waiting.front().map(|(at, _)| *at)
    }

    /// The next group, if it is due.
    pub fn next(&mut self, now: Instant) -> Option<Vec<Multiaddr>> {
        if self.due_at()? > now {
            return None;
        }
        self.waiting.pop_front().map(|(_, addresses)| addresses)
    }

    pub fn started(&mut self) {
        self.running += 1;
    }

    /// As the caller of `DialPeer` knows it.
    pub fn address(&self) -> String {
        format!("/p2p/{}", self.peer)
    }

    /// One group failed: the next need not wait for its time. A failure that tells more about
    /// the peer itself stands: of a direct dial rather than of a relay.
    ///
    /// Where the machine says that nobody listens on TCP, nobody does on QUIC: that would be
    /// found out by silence alone, and who asks would learn seconds later that the peer is dead.
    pub fn failed(
        &mut self,
        failure: DialFailure,
        error: String,
        refused: &[Multiaddr],
        now: Instant,
    ) {
        self.running -= 1;
        for (_, addresses) in &mut self.waiting {
            addresses.retain(|quic| !refused.iter().any(|tcp| reach::are_twins(tcp, quic)));
        }
        self.waiting.retain(|(_, addresses)| !addresses.is_empty());
        if let Some(first) = self.waiting.front_mut() {
            first.0 = now;
        }
        if self.failure.is_none() {
            self.failure = Some((failure, error));
        }
    }

    /// Why it came to nothing, once nothing is left to try.
    pub fn end(&mut self) -> Option<(DialFailure, String)> {
        if self.running > 0 || !self.waiting.is_empty() {
            return None;
        }
        let nowhere = || (DialFailure::Other, "no address of the peer is known".to_owned());
        Some(self.failure.take().unwrap_or_else(nowhere))
    }
}

impl Driver {
    pub(super) fn dial_peer(&mut self, peer: PeerId, hints: Vec<Multiaddr>) {
        for address in hints.into_iter().take(self.settings.max_addresses_per_peer) {
            self.addresses.add(peer, address);
        }
        if self.peers.is_connected(&peer) {
            let address = format!("/p2p/{peer}");
            return self.queue.push(Event::DialSucceeded { address, peer });
        }
        if let Some(approach) = self.approaches.get_mut(&peer) {
            approach.askers += 1;
            return;
        }
        let known: Vec<Multiaddr> = self.addresses.get(&peer).collect();
        let unknown = known.is_empty();
        self.approaches.insert(peer, Approach::new(peer, known, Instant::now()));
        let searches = unknown && self.dht.locate(&mut self.swarm.behaviour_mut().kademlia, peer);
        if searches {
            self.searches();
        } else {
            self.proceed(peer);
        }
    }

    /// The search for a peer's addresses has ended.
    pub(super) fn located(&mut self, peer: PeerId) {
        let known: Vec<Multiaddr> = self.addresses.get(&peer).collect();
        if let Some(approach) = self.approaches.get_mut(&peer) {
            let askers = approach.askers;
            *approach = Approach { askers, ..Approach::new(peer, known, Instant::now()) };
            self.proceed(peer);
        }
    }

    /// Starts what is due, and tells the end if nothing is left.
    pub(super) fn proceed(&mut self, peer: PeerId) {
        loop {
            let Some(approach) = self.approaches.get_mut(&peer) else { return };
            let Some(addresses) = approach.next(Instant::now()) else { break };
            let dial = DialOpts::peer_id(peer)
                .condition(PeerCondition::Always)
                .addresses(addresses)
                .allocate_new_port()
                .build();
            let connection = dial.connection_id();
            approach.started();
            match self.swarm.dial(dial) {
                Ok(()) => drop(self.approaching.insert(connection, peer)),
                Err(error) => {
                    let (failure, text) = failure::describe(&error);
                    approach.failed(failure, text, &failure::refused(&error), Instant::now());
                }
            }
        }
        let ended = self.approaches.get_mut(&peer).and_then(Approach::end);
        if let Some((failure, error)) = ended
            && let Some(approach) = self.approaches.remove(&peer)
        {
            self.figures.count_by("dials", failure.name());
            self.answer(&approach, |address| Event::DialFailed {
                address,
                failure,
                error: error.clone(),
            });
        }
    }

    fn answer(&self, approach: &Approach, event: impl Fn(String) -> Event) {
        for _ in 0..approach.askers {
            self.queue.push(event(approach.address()));
        }
    }

    pub(super) fn approach_failed(&mut self, connection: ConnectionId, error: &DialError) {
        let Some(peer) = self.approaching.remove(&connection) else { return };
        if let Some(approach) = self.approaches.get_mut(&peer) {
            let (failure, text) = failure::describe(error);
            approach.failed(failure, text, &failure::refused(error), Instant::now());
            self.proceed(peer);
        }
    }

    /// The peer is connected, by whichever way.
    pub(super) fn approach_succeeded(&mut self, connection: ConnectionId, peer: PeerId) {
        self.approaching.remove(&connection);
        if let Some(approach) = self.approaches.remove(&peer) {
            self.figures.count_by("dials", "succeeded");
            self.answer(&approach, |address| Event::DialSucceeded { address, peer });
        }
    }

    /// Waits until some group of addresses is due; for ever if there is none.
    pub(super) async fn approach_due(approaches: &HashMap<PeerId, Approach>) -> PeerId {
        let due =
            approaches.iter().filter_map(|(peer, approach)| Some((approach.due_at()?, *peer)));
        match due.min() {
            Some((at, peer)) => {
                tokio::time::sleep_until(at).await;
                peer
            }
            None => std::future::pending().await,
        }
    }

    pub(super) fn abandon_approaches(&mut self) {
        for (_, approach) in std::mem::take(&mut self.approaches) {
            self.answer(&approach, |address| Event::DialFailed {
                address,
                failure: DialFailure::Other,
                error: "the node stopped".into(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses() -> Vec<Multiaddr> {
        let circuit = format!("/ip4/10.0.0.9/tcp/1/p2p/{}/p2p-circuit", PeerId::random());
        [circuit.as_str(), "/ip4/10.0.0.1/udp/1/quic-v1", "/ip4/10.0.0.1/tcp/1"]
            .map(|text| text.parse().expect("an address"))
            .to_vec()
    }

    #[test]
    fn the_best_way_has_a_head_start() {
        let (now, all) = (Instant::now(), addresses());
        let mut approach = Approach::new(PeerId::random(), all.clone(), now);
        assert_eq!(approach.next(now), Some(vec![all[2].clone()]));
        assert_eq!(approach.next(now), None);
        assert_eq!(approach.due_at(), Some(now + HEAD_START));
        assert_eq!(approach.next(now + HEAD_START), Some(vec![all[1].clone()]));
        assert_eq!(approach.next(now + 2 * HEAD_START), Some(vec![all[0].clone()]));
        assert_eq!(approach.due_at(), None);
    }

    #[test]
    fn a_failure_lets_the_next_go_at_once_and_the_first_is_told() {
        let (now, all) = (Instant::now(), addresses());
        let mut approach = Approach::new(PeerId::random(), all, now);
        for failure in [DialFailure::Refused, DialFailure::Silent, DialFailure::Other] {
            assert!(approach.next(now).is_some());
            approach.started();
            assert_eq!(approach.end(), None);
            approach.failed(failure, format!("{failure:?}"), &[], now);
        }
        assert_eq!(approach.end(), Some((DialFailure::Refused, "Refused".into())));
    }

    #[test]
    fn quic_is_not_tried_where_nobody_listens_on_tcp() {
        let (now, all) = (Instant::now(), addresses());
        let mut approach = Approach::new(PeerId::random(), all.clone(), now);
        assert_eq!(approach.next(now), Some(vec![all[2].clone()]));
        approach.started();
        approach.failed(DialFailure::Refused, "Refused".into(), &all[2..], now);
        assert_eq!(approach.next(now), Some(vec![all[0].clone()]), "the relay may know better");
    }

    #[test]
    fn who_is_known_nowhere_cannot_be_dialled() {
        let mut approach = Approach::new(PeerId::random(), vec![], Instant::now());
        assert_eq!(approach.end().map(|(failure, _)| failure), Some(DialFailure::Other));
    }
}
