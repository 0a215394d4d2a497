//! Whether others can reach this node directly, from what they have seen of it.
//!
//! A node that cannot be reached must not be in others' routing tables, or every search
//! would wait for it in vain: it uses the DHT as a client. AutoNAT tells for sure, after a
//! while; until then the address that others see counts. If it is none of this machine's,
//! something in between translates.

use std::{
    collections::{HashSet, VecDeque},
    net::IpAddr,
};

use libp2p::{Multiaddr, multiaddr::Protocol};

/// So many opinions of others count, the latest.
const OPINIONS: usize = 8;
/// So many failed tests in a row, without a good one, tell that nobody gets through.
const FAILED_TESTS: u32 = 3;

#[derive(Default)]
pub struct Reach {
    own: HashSet<IpAddr>,
    /// Whether the address that others saw was one of ours.
    seen_as_own: VecDeque<bool>,
    confirmed: HashSet<Multiaddr>,
    failed_tests: u32,
}

impl Reach {
    pub fn listening(&mut self, address: &Multiaddr) {
        if !is_circuit(address) {
            self.own.extend(ip_of(address));
        }
    }

    /// Another peer says from which address it saw this node dial.
    pub fn observed(&mut self, address: &Multiaddr) {
        let Some(ip) = ip_of(address).filter(|_| !is_circuit(address)) else { return };
        if self.seen_as_own.len() >= OPINIONS {
            self.seen_as_own.pop_front();
        }
        // Nothing translates on the way to oneself, whichever loopback address is dialled from.
        self.seen_as_own.push_back(ip.is_loopback() || self.own.contains(&ip));
    }

    pub fn confirmed(&mut self, address: &Multiaddr) {
        if !is_circuit(address) {
            self.confirmed.insert(address.clone());
            self.failed_tests = 0;
        }
    }

    pub fn expired(&mut self, address: &Multiaddr) {
        self.confirmed.remove(address);
    }

    pub fn test_failed(&mut self) {
        self.failed_tests = self.failed_tests.saturating_add(1);
    }

    pub fn is_reachable(&self) -> bool {
        if !self.confirmed.is_empty() {
            return true;
        }
        let own = self.seen_as_own.iter().filter(|own| **own).count();
        let translated = 2 * own < self.seen_as_own.len();
        !translated && self.failed_tests < FAILED_TESTS
    }
}

pub fn is_circuit(address: &Multiaddr) -> bool {
    address.iter().any(|part| part == Protocol::P2pCircuit)
}

/// A node listens for QUIC at the port of its TCP address.
pub fn are_twins(tcp: &Multiaddr, quic: &Multiaddr) -> bool {
    let port = tcp.iter().find_map(|part| match part {
        Protocol::Tcp(port) => Some(port),
        _ => None,
    });
    let theirs = quic.iter().find_map(|part| match part {
        Protocol::Udp(port) => Some(port),
        _ => None,
    });
    port.is_some() && port == theirs && ip_of(tcp).is_some_and(|ip| ip_of(quic) == Some(ip))
}

pub fn ip_of(address: &Multiaddr) -> Option<IpAddr> {
    address.iter().find_map(|part| match part {
        Protocol::Ip4(ip) => Some(ip.into()),
        Protocol::Ip6(ip) => Some(ip.into()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Multiaddr {
        text.parse().expect("an address")
    }

    fn listening() -> Reach {
        let mut reach = Reach::default();
        reach.listening(&address("/ip4/10.0.0.5/tcp/7"));
        reach
    }

    #[test]
    fn who_is_seen_as_it_is_can_be_reached() {
        let mut reach = listening();
        assert!(reach.is_reachable());
        reach.observed(&address("/ip4/10.0.0.5/tcp/4000"));
        assert!(reach.is_reachable());
    }

    #[test]
    fn who_is_seen_elsewhere_is_behind_a_translator() {
        let mut reach = listening();
        reach.observed(&address("/ip4/198.51.100.1/tcp/4000"));
        assert!(!reach.is_reachable());
        reach.observed(&address("/ip4/10.0.0.5/tcp/4001"));
        assert!(reach.is_reachable(), "as many say the one as the other");
        for _ in 0..OPINIONS {
            reach.observed(&address("/ip4/198.51.100.1/tcp/4000"));
        }
        assert!(!reach.is_reachable());
        reach.confirmed(&address("/ip4/198.51.100.1/tcp/7"));
        assert!(reach.is_reachable(), "a forwarded port");
        reach.expired(&address("/ip4/198.51.100.1/tcp/7"));
        assert!(!reach.is_reachable());
    }

    #[test]
    fn a_loopback_address_is_as_good_as_another() {
        let mut reach = Reach::default();
        reach.listening(&address("/ip4/127.0.0.2/tcp/7"));
        reach.observed(&address("/ip4/127.0.0.1/tcp/4000"));
        assert!(reach.is_reachable());
    }

    #[test]
    fn tests_that_fail_count_until_one_succeeds() {
        let mut reach = listening();
        for _ in 0..FAILED_TESTS {
            reach.test_failed();
        }
        assert!(!reach.is_reachable());
        reach.confirmed(&address("/ip4/10.0.0.5/tcp/7"));
        assert!(reach.is_reachable());
    }

    #[test]
    fn twins_share_machine_and_port() {
        let quic = address("/ip4/10.0.0.5/udp/7/quic-v1");
        assert!(are_twins(&address("/ip4/10.0.0.5/tcp/7"), &quic));
        assert!(!are_twins(&address("/ip4/10.0.0.5/tcp/8"), &quic));
        assert!(!are_twins(&address("/ip4/10.0.0.6/tcp/7"), &quic));
        assert!(!are_twins(&quic, &quic));
    }

    #[test]
    fn a_circuit_proves_nothing() {
        let mut reach = Reach::default();
        let circuit = format!("/ip4/10.0.0.9/tcp/1/p2p/{}/p2p-circuit", libp2p::PeerId::random());
        reach.listening(&address(&circuit));
        reach.confirmed(&address(&circuit));
        reach.observed(&address(&circuit));
        reach.observed(&address("/ip4/198.51.100.1/tcp/4000"));
        assert!(!reach.is_reachable());
    }
}
