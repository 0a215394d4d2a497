//! What a node counts. Names and labels are fixed, so that their number is bounded.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::{dht::record::RecordError, gossip::CountCopies, lock, transport::Meter};

#[derive(Default)]
pub struct Figures {
    plain: Mutex<BTreeMap<&'static str, u64>>,
    labelled: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    copies: Arc<AtomicU64>,
    pub meter: Meter,
}

#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub plain: BTreeMap<&'static str, u64>,
    pub labelled: BTreeMap<(&'static str, &'static str), u64>,
}

impl Figures {
    /// For gossipsub, which alone sees the copies of a message.
    pub fn copies(&self) -> CountCopies {
        CountCopies(self.copies.clone())
    }

    pub fn count(&self, name: &'static str) {
        *lock(&self.plain).entry(name).or_default() += 1;
    }

    pub fn set(&self, name: &'static str, value: usize) {
        lock(&self.plain).insert(name, value as u64);
    }

    pub fn count_by(&self, name: &'static str, label: &'static str) {
        *lock(&self.labelled).entry((name, label)).or_default() += 1;
    }

    /// For numbers of now, which also fall.
    pub fn change_by(&self, name: &'static str, label: &'static str, change: i64) {
        let mut labelled = lock(&self.labelled);
        let value = labelled.entry((name, label)).or_default();
        *value = value.saturating_add_signed(change);
    }

    pub fn dht_query(&self, kind: &'static str) {
        self.count_by("dht_queries", kind);
    }

    pub fn dht_kept(&self, records: usize, providers: usize) {
        self.set("dht_records", records);
        self.set("dht_providers", providers);
    }

    pub fn dht_refused(&self, error: RecordError) {
        let reason = match error {
            RecordError::Key => "key",
            RecordError::TooLong => "too_long",
            RecordError::Malformed => "malformed",
            RecordError::Signature => "signature",
            RecordError::Expiry => "expiry",
            RecordError::Outdated => "outdated",
            RecordError::Full => "full",
        };
        self.count_by("dht_refused", reason);
    }

    pub fn snapshot(&self) -> Snapshot {
        let mut plain = lock(&self.plain).clone();
        // Those that came once went through the validation; the others are copies of them.
        let seen = plain.get("gossip_received").copied().unwrap_or(0);
        let seen = seen + plain.get("gossip_invalid").copied().unwrap_or(0);
        let copies = self.copies.load(Relaxed);
        plain.insert("gossip_duplicates", copies.saturating_sub(seen));
        let mut labelled = lock(&self.labelled).clone();
        for (path, traffic) in [("direct", &self.meter.direct), ("relayed", &self.meter.relayed)] {
            labelled.insert(("bytes_in", path), traffic.bytes_in.load(Relaxed));
            labelled.insert(("bytes_out", path), traffic.bytes_out.load(Relaxed));
        }
        Snapshot { plain, labelled }
    }
}
