//! What is known of each connected peer, for whoever asks from another thread.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use libp2p::PeerId;

use crate::{clock, lock};

/// When a peer was last heard, on CLOCK_BOOTTIME. Stream readers write to it, so it is an
/// atomic and no lock.
#[derive(Debug)]
pub struct Heard(AtomicU64);

impl Default for Heard {
    fn default() -> Self {
        Heard(AtomicU64::new(clock::boot_seconds().to_bits()))
    }
}

impl Heard {
    pub fn now(&self) {
        self.0.store(clock::boot_seconds().to_bits(), Relaxed);
    }

    pub fn seconds(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }
}

#[derive(Clone, Debug, Default)]
pub struct PeerFacts {
    pub roles: u32,
    /// Of the standing connections, the best first.
    pub addresses: Vec<String>,
    pub relayed: bool,
    pub rtt_seconds: Option<f64>,
    pub connected_at: f64,
    pub heard: Arc<Heard>,
    /// What the peer says of itself.
    pub software: String,
}

/// The driver writes, everybody reads.
#[derive(Default)]
pub struct Facts(Mutex<HashMap<PeerId, PeerFacts>>);

impl Facts {
    pub fn insert(&self, peer: PeerId, facts: PeerFacts) {
        lock(&self.0).insert(peer, facts);
    }

    pub fn remove(&self, peer: &PeerId) {
        lock(&self.0).remove(peer);
    }

    /// Nothing happens if the peer is not connected.
    pub fn change(&self, peer: &PeerId, change: impl FnOnce(&mut PeerFacts)) {
        if let Some(facts) = lock(&self.0).get_mut(peer) {
            change(facts);
        }
    }

    pub fn heard(&self, peer: &PeerId) {
        self.change(peer, |facts| facts.heard.now());
    }

    pub fn all(&self) -> Vec<(PeerId, PeerFacts)> {
        lock(&self.0).iter().map(|(peer, facts)| (*peer, facts.clone())).collect()
    }
}
