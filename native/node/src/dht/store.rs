//! What this node keeps for the DHT: bounded, and only what could be verified.
//!
//! `libp2p_kad`'s own store was rejected: it overwrites a record by whatever comes last,
//! lets one provider take every place, and drops nothing that has expired.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet, hash_map},
    iter,
    time::{Duration, Instant},
};

use libp2p::{
    PeerId,
    kad::{
        KBucketKey, ProviderRecord, Record, RecordKey,
        store::{Error, RecordStore, Result},
    },
};

use super::record::{RecordError, Rules, SignedRecord};
use crate::{
    envelope::Envelope,
    invite::{Family, Serial},
};

type Verdict<T> = std::result::Result<T, RecordError>;

#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub max_records: usize,
    pub max_providers_per_key: usize,
    /// All providers of all keys together.
    pub max_providers: usize,
    /// How many keys one peer may provide here.
    pub max_keys_per_provider: usize,
    pub max_key_bytes: usize,
    pub max_addresses: usize,
}

pub struct Store {
    this: KBucketKey<PeerId>,
    swarm: String,
    rules: Rules,
    bounds: Bounds,
    records: HashMap<RecordKey, Record>,
    providers: HashMap<RecordKey, Vec<ProviderRecord>>,
    keys_of: HashMap<PeerId, usize>,
    /// Of the providers that joined by an invite: which, and how many keys they all provide.
    families: HashMap<PeerId, Serial>,
    keys_of_family: HashMap<Serial, usize>,
    /// The sum of `keys_of`.
    provider_count: usize,
    provided: HashSet<ProviderRecord>,
}

impl Store {
    pub fn new(this: PeerId, swarm: String, rules: Rules, bounds: Bounds) -> Store {
        Store {
            this: this.into(),
            swarm,
            rules,
            bounds,
            records: HashMap::new(),
            providers: HashMap::new(),
            keys_of: HashMap::new(),
            families: HashMap::new(),
            keys_of_family: HashMap::new(),
            provider_count: 0,
            provided: HashSet::new(),
        }
    }

    pub fn check(&self, key: &RecordKey, value: &[u8], now_ms: u64) -> Verdict<SignedRecord> {
        self.rules.check(&self.swarm, key, value, now_ms)
    }

    /// Keeps what another node sent, if it is good and not older than what is known.
    pub fn accept(&mut self, mut record: Record, now_ms: u64) -> Verdict<()> {
        let signed = self.check(&record.key, &record.value, now_ms)?;
        if let Some(known) = self.records.get(&record.key)
            && sequence(known) > Some(signed.sequence)
        {
            return Err(RecordError::Outdated);
        }
        let left = Duration::from_millis(signed.expires_at_ms.saturating_sub(now_ms).max(1));
        let ends_at = Instant::now() + left;
        record.expires = Some(record.expires.map_or(ends_at, |expires| expires.min(ends_at)));
        self.put(record).map_err(|_| RecordError::Full)
    }

    /// Keeps a provider; the caller knows that it was the provider itself who said so.
    /// Those of one family have its shares of keys in all.
    pub fn accept_provider(
        &mut self,
        mut record: ProviderRecord,
        family: Option<Family>,
    ) -> Verdict<()> {
        if record.key.as_ref().len() > self.bounds.max_key_bytes {
            return Err(RecordError::TooLong);
        }
        record.addresses.truncate(self.bounds.max_addresses);
        let known = self.providers.get(&record.key);
        let is_known = known.is_some_and(|all| all.iter().any(|p| p.provider == record.provider));
        let family = family.filter(|_| !is_known);
        if let Some(Family { serial, shares }) = family {
            let keys = self.keys_of_family.get(&serial).copied().unwrap_or(0);
            if keys >= self.bounds.max_keys_per_provider.saturating_mul(shares as usize) {
                return Err(RecordError::Full);
            }
        }
        let provider = record.provider;
        self.add_provider(record).map_err(|_| RecordError::Full)?;
        if let Some(family) = family {
            // A provider that came by another invite meanwhile stays with its first one.
            let serial = *self.families.entry(provider).or_insert(family.serial);
            *self.keys_of_family.entry(serial).or_default() += 1;
        }
        Ok(())
    }

    pub fn record_count(&self) -> usize {
        self.records.len()
    }

    pub fn provider_count(&self) -> usize {
        self.provider_count
    }

    pub fn drop_expired(&mut self, now: Instant) {
        self.records.retain(|_, record| !record.is_expired(now));
        let mut expired = Vec::new();
        self.providers.retain(|_, providers| {
            expired.extend(providers.extract_if(.., |p| p.is_expired(now)).map(|p| p.provider));
            !providers.is_empty()
        });
        for provider in expired {
            self.release(&provider);
        }
    }

    fn release(&mut self, provider: &PeerId) {
        if let hash_map::Entry::Occupied(mut keys) = self.keys_of.entry(*provider) {
            self.provider_count -= 1;
            *keys.get_mut() -= 1;
            let is_last = *keys.get() == 0;
            if is_last {
                keys.remove();
            }
            let Some(serial) = self.families.get(provider).copied() else { return };
            if is_last {
                self.families.remove(provider);
            }
            if let hash_map::Entry::Occupied(mut keys) = self.keys_of_family.entry(serial) {
                *keys.get_mut() -= 1;
                if *keys.get() == 0 {
                    keys.remove();
                }
            }
        }
    }

    /// The kept record whose key is furthest from this node: others keep it, too.
    fn furthest(&self) -> Option<RecordKey> {
        let key = self.records.keys().max_by_key(|key| self.distance(key));
        key.cloned()
    }

    fn distance(&self, key: &RecordKey) -> libp2p::kad::KBucketDistance {
        self.this.distance(&KBucketKey::new(key.clone()))
    }
}

fn sequence(record: &Record) -> Option<u64> {
    Envelope::parse(&record.value).map(|envelope| envelope.sequence)
}

impl RecordStore for Store {
    type RecordsIter<'a> =
        iter::Map<hash_map::Values<'a, RecordKey, Record>, fn(&'a Record) -> Cow<'a, Record>>;
    type ProvidedIter<'a> = iter::Map<
        std::collections::hash_set::Iter<'a, ProviderRecord>,
        fn(&'a ProviderRecord) -> Cow<'a, ProviderRecord>,
    >;

    fn get(&self, key: &RecordKey) -> Option<Cow<'_, Record>> {
        self.records.get(key).map(Cow::Borrowed)
    }

    fn put(&mut self, record: Record) -> Result<()> {
        if self.records.len() >= self.bounds.max_records && !self.records.contains_key(&record.key)
        {
            self.drop_expired(Instant::now());
        }
        if self.records.len() >= self.bounds.max_records && !self.records.contains_key(&record.key)
        {
            match self.furthest() {
                Some(furthest) if self.distance(&furthest) > self.distance(&record.key) => {
                    self.records.remove(&furthest);
                }
                _ => return Err(Error::MaxRecords),
            }
        }
        self.records.insert(record.key.clone(), record);
        Ok(())
    }

    fn remove(&mut self, key: &RecordKey) {
        self.records.remove(key);
    }

    fn records(&self) -> Self::RecordsIter<'_> {
        self.records.values().map(Cow::Borrowed)
    }

    fn add_provider(&mut self, record: ProviderRecord) -> Result<()> {
        let own = record.provider == *self.this.preimage();
        let known = self.providers.get_mut(&record.key);
        let place = known.and_then(|all| all.iter_mut().find(|p| p.provider == record.provider));
        if let Some(place) = place {
            *place = record.clone();
        } else {
            if self.provider_count() >= self.bounds.max_providers {
                self.drop_expired(Instant::now());
            }
            let keys = self.keys_of.get(&record.provider).copied().unwrap_or(0);
            let providers = self.providers.get(&record.key).map_or(0, Vec::len);
            if self.provider_count() >= self.bounds.max_providers
                || keys >= self.bounds.max_keys_per_provider
                || (!own && providers >= self.bounds.max_providers_per_key)
            {
                return Err(Error::MaxProvidedKeys);
            }
            *self.keys_of.entry(record.provider).or_default() += 1;
            self.provider_count += 1;
            self.providers.entry(record.key.clone()).or_default().push(record.clone());
        }
        if own {
            self.provided.replace(record);
        }
        Ok(())
    }

    fn providers(&self, key: &RecordKey) -> Vec<ProviderRecord> {
        let now = Instant::now();
        let kept = self.providers.get(key).into_iter().flatten();
        kept.filter(|record| !record.is_expired(now)).cloned().collect()
    }

    fn provided(&self) -> Self::ProvidedIter<'_> {
        self.provided.iter().map(Cow::Borrowed)
    }

    fn remove_provider(&mut self, key: &RecordKey, provider: &PeerId) {
        let Some(providers) = self.providers.get_mut(key) else { return };
        let Some(at) = providers.iter().position(|record| record.provider == *provider) else {
            return;
        };
        self.provided.remove(&providers.remove(at));
        if providers.is_empty() {
            self.providers.remove(key);
        }
        self.release(provider);
    }
}

#[cfg(test)]
mod tests {
    use libp2p::identity::Keypair;

    use super::*;
    use crate::{dht::record, envelope::Signer};

    const NOW_MS: u64 = 1_000_000;
    const BOUNDS: Bounds = Bounds {
        max_records: 3,
        max_providers_per_key: 2,
        max_providers: 5,
        max_keys_per_provider: 2,
        max_key_bytes: 16,
        max_addresses: 2,
    };

    fn store() -> Store {
        let rules = Rules { max_bytes: 100, tolerance_ms: 0 };
        Store::new(PeerId::random(), "here".into(), rules, BOUNDS)
    }

    fn signer() -> Signer {
        Signer::new(Keypair::generate_ed25519(), "here".into()).expect("a key")
    }

    fn provider(key: &str, provider: PeerId, seconds: u64) -> ProviderRecord {
        let mut record = ProviderRecord::new(RecordKey::new(&key), provider, Vec::new());
        record.expires = Some(Instant::now() + Duration::from_secs(seconds));
        record
    }

    #[test]
    fn the_newest_record_wins() {
        let (mut store, signer) = (store(), signer());
        let seal =
            |payload: &[u8], sequence| record::seal(&signer, payload, sequence, NOW_MS + 500);
        assert_eq!(store.accept(seal(b"two", 2), NOW_MS), Ok(()));
        assert_eq!(store.accept(seal(b"one", 1), NOW_MS), Err(RecordError::Outdated));
        assert_eq!(store.accept(seal(b"two", 2), NOW_MS), Ok(()), "sent again");
        assert_eq!(store.accept(seal(b"three", 3), NOW_MS), Ok(()));
        let kept = store.get(&record::key_of(&signer.peer())).expect("is kept").into_owned();
        assert_eq!(
            store.check(&kept.key, &kept.value, NOW_MS).map(|r| r.payload),
            Ok(b"three".to_vec())
        );
        assert_eq!(store.record_count(), 1);
        store.drop_expired(Instant::now() + Duration::from_secs(1));
        assert_eq!(store.record_count(), 0);
    }

    #[test]
    fn what_is_not_good_is_not_kept() {
        let (mut store, signer) = (store(), signer());
        let expired = record::seal(&signer, b"", 1, NOW_MS);
        assert_eq!(store.accept(expired, NOW_MS), Err(RecordError::Expiry));
        let mut forged = record::seal(&signer, b"x", 1, NOW_MS + 500);
        forged.value[60] ^= 1;
        assert_eq!(store.accept(forged, NOW_MS), Err(RecordError::Signature));
        assert_eq!(store.record_count(), 0);
    }

    #[test]
    fn a_full_store_keeps_the_nearest_records() {
        let mut store = store();
        let mut keys = Vec::new();
        for _ in 0..20 {
            let record = record::seal(&signer(), b"", 1, NOW_MS + 60_000);
            keys.push(record.key.clone());
            let _ = store.accept(record, NOW_MS);
        }
        assert_eq!(store.record_count(), 3);
        keys.sort_by_key(|key| store.distance(key));
        assert!(keys[..3].iter().all(|key| store.get(key).is_some()));
    }

    #[test]
    fn providers_are_bounded_by_key_by_peer_and_in_all() {
        let mut store = store();
        let peers = [(); 6].map(|()| PeerId::random());
        assert!(store.accept_provider(provider("a", peers[0], 9), None).is_ok());
        assert!(store.accept_provider(provider("a", peers[0], 9), None).is_ok(), "again");
        assert!(store.accept_provider(provider("a", peers[1], 9), None).is_ok());
        assert!(store.accept_provider(provider("a", peers[2], 9), None).is_err(), "of this key");
        assert!(store.accept_provider(provider("b", peers[0], 9), None).is_ok());
        assert!(store.accept_provider(provider("c", peers[0], 9), None).is_err(), "of this peer");
        assert!(store.accept_provider(provider("d", peers[3], 9), None).is_ok());
        assert!(store.accept_provider(provider("e", peers[4], 9), None).is_ok());
        assert!(store.accept_provider(provider("f", peers[5], 9), None).is_err(), "in all");
        assert!(
            store.accept_provider(provider(&"k".repeat(17), peers[5], 9), None).is_err(),
            "key"
        );
        assert_eq!(store.provider_count(), 5);
        store.remove_provider(&RecordKey::new(&"b"), &peers[0]);
        assert!(store.accept_provider(provider("c", peers[0], 9), None).is_ok(), "there is room");
        store.drop_expired(Instant::now() + Duration::from_secs(10));
        assert_eq!(store.provider_count(), 0);
        assert!(store.providers(&RecordKey::new(&"a")).is_empty());
    }

    #[test]
    fn providers_of_one_invite_share_a_bound() {
        let mut store = store();
        let peers = [(); 4].map(|()| PeerId::random());
        let family = Some(Family { serial: [1; 16], shares: 1 });
        assert!(store.accept_provider(provider("a", peers[0], 9), family).is_ok());
        assert!(store.accept_provider(provider("b", peers[1], 9), family).is_ok());
        assert!(store.accept_provider(provider("b", peers[1], 9), family).is_ok(), "again");
        assert!(store.accept_provider(provider("c", peers[2], 9), family).is_err(), "in all");
        assert!(store.accept_provider(provider("c", peers[3], 9), None).is_ok(), "another");
        store.remove_provider(&RecordKey::new(&"a"), &peers[0]);
        assert!(store.accept_provider(provider("d", peers[2], 9), family).is_ok());
        store.drop_expired(Instant::now() + Duration::from_secs(10));
        assert!(store.families.is_empty() && store.keys_of_family.is_empty());
    }

    #[test]
    fn what_has_expired_is_not_handed_out() {
        let mut store = store();
        let peer = PeerId::random();
        assert!(store.accept_provider(provider("a", peer, 0), None).is_ok());
        assert!(store.providers(&RecordKey::new(&"a")).is_empty());
    }

    #[test]
    fn what_this_node_provides_is_told_apart() {
        let mut store = store();
        let this = *store.this.preimage();
        let own = ProviderRecord::new(RecordKey::new(&"a"), this, Vec::new());
        assert!(store.add_provider(own.clone()).is_ok());
        assert!(store.accept_provider(provider("a", PeerId::random(), 9), None).is_ok());
        assert_eq!(store.provided().map(Cow::into_owned).collect::<Vec<_>>(), vec![own]);
        store.remove_provider(&RecordKey::new(&"a"), &this);
        assert_eq!(store.provided().count(), 0);
    }
}
