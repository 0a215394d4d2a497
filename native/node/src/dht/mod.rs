//! The DHT as this node uses it: what it publishes, and what it looks for.
//!
//! Publishing is ours, not Kademlia's own periodic job, because that publishes anew only by
//! the clock: what a node publishes before it knows anybody would be found minutes later.

pub mod record;
pub mod store;

use std::{
    collections::{HashMap, HashSet},
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use libp2p::{
    PeerId, StreamProtocol,
    kad::{self, QueryId, QueryResult, RecordKey},
};

use crate::{
    clock, envelope::Signer, event::Event, figures::Figures, queue::EventQueue, settings::Settings,
};
use record::{Rules, SignedRecord};
use store::{Bounds, Store};

pub type Behaviour = kad::Behaviour<Store>;

/// The packets are those of `/ipfs/kad/1.0.0`; the name keeps other swarms' DHTs apart.
pub const PROTOCOL: StreamProtocol = StreamProtocol::new("/mycel/kad/1");
const MAX_PACKET_BYTES: usize = 64 * 1024;
/// What was published to a small swarm is published again when this one has grown.
const SETTLE: Duration = Duration::from_secs(1);
/// What could not be published is tried again after this long: nobody finds it before.
const RETRY: Duration = Duration::from_secs(2);
/// What is new is told once more when a swarm that forms has had time to.
const CONFIRM: Duration = Duration::from_secs(15);
/// While fewer peers are known than a bucket holds, this node looks for itself again, after
/// this long at first. A gateway that is too busy to answer in time is all that a newcomer has.
const LOOK_AGAIN: Duration = Duration::from_secs(3);
/// Of so many times as many peers as a search is for, the nearest are near enough.
const ENOUGH: u32 = 2;

pub fn behaviour(peer: PeerId, swarm: String, s: &Settings) -> Behaviour {
    let replication = NonZeroUsize::new(s.kademlia_replication).unwrap_or(NonZeroUsize::MIN);
    let mut config = kad::Config::new(PROTOCOL);
    config
        .set_query_timeout(s.query_timeout)
        .set_replication_factor(replication)
        .set_max_packet_size(MAX_PACKET_BYTES)
        .set_substreams_timeout(Duration::from_secs(3))
        .set_record_filtering(kad::StoreInserts::FilterBoth)
        .set_record_ttl(Some(s.record_ttl))
        .set_provider_record_ttl(Some(s.record_ttl))
        .set_replication_interval(None)
        .set_publication_interval(None)
        .set_provider_publication_interval(None)
        .set_caching(kad::Caching::Disabled)
        // Of a bootstrap only the search for ourselves is done; see `query_progressed`.
        .set_periodic_bootstrap_interval(Some(s.republish));
    let rules = Rules {
        max_bytes: s.record_max_bytes,
        tolerance_ms: s.message_tolerance.as_millis() as u64,
    };
    let bounds = Bounds {
        max_records: s.max_records,
        max_providers_per_key: kad::K_VALUE.get(),
        max_providers: s.max_providers,
        max_keys_per_provider: s.max_provided_keys,
        max_key_bytes: s.max_key_bytes,
        max_addresses: s.max_addresses_per_peer,
    };
    let mut kademlia = Behaviour::with_config(peer, Store::new(peer, swarm, rules, bounds), config);
    kademlia.set_mode(Some(if s.dht_service { kad::Mode::Server } else { kad::Mode::Client }));
    kademlia
}

enum Query {
    Providers {
        query: u64,
        found: HashSet<PeerId>,
    },
    Record {
        query: u64,
        best: Option<SignedRecord>,
        answers: usize,
    },
    /// Where is this peer? Somebody waits to dial it.
    Whereabouts {
        peer: PeerId,
    },
    Publication(Publication),
}

/// What this node tells the others, one at a time.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Publication {
    Key(RecordKey),
    Record,
}

/// This node's own record.
struct Own {
    payload: Vec<u8>,
    sequence: u64,
    expires_at_ms: u64,
}

pub struct Dht {
    signer: Arc<Signer>,
    queue: Arc<EventQueue>,
    figures: Arc<Figures>,
    queries: HashMap<QueryId, Query>,
    provided: HashSet<RecordKey>,
    own: Option<Own>,
    publish_at: Instant,
    /// Not done, or not to those who are nearest.
    failed: HashSet<Publication>,
    /// Publications whose search was ended before its time.
    cut: HashSet<QueryId>,
    retry_at: Instant,
    look_again_at: Instant,
    look_again_after: Duration,
    /// How many peers the routing table had when everything was last published.
    published_to: usize,
    known_peers: usize,
    record_ttl: Duration,
    republish: Duration,
    replication: u32,
    max_queries: usize,
    enough_providers: usize,
    enough_answers: usize,
}

impl Dht {
    pub fn new(
        signer: Arc<Signer>,
        queue: Arc<EventQueue>,
        figures: Arc<Figures>,
        s: &Settings,
    ) -> Dht {
        Dht {
            signer,
            queue,
            figures,
            queries: HashMap::new(),
            provided: HashSet::new(),
            own: None,
            publish_at: Instant::now() + s.republish,
            failed: HashSet::new(),
            cut: HashSet::new(),
            retry_at: Instant::now(),
            look_again_at: Instant::now() + LOOK_AGAIN,
            look_again_after: LOOK_AGAIN,
            published_to: 0,
            known_peers: 0,
            record_ttl: s.record_ttl,
            republish: s.republish,
            replication: s.kademlia_replication as u32,
            max_queries: s.max_queries,
            enough_providers: s.enough_providers,
            enough_answers: s.enough_answers,
        }
    }

    pub fn provide(&mut self, kademlia: &mut Behaviour, key: RecordKey) {
        if self.provided.insert(key.clone()) {
            self.publish_at = self.publish_at.min(Instant::now() + CONFIRM);
            self.announce(kademlia, key);
        }
    }

    /// The others forget it when its time has run out.
    pub fn stop_providing(&mut self, kademlia: &mut Behaviour, key: &RecordKey) {
        self.provided.remove(key);
        kademlia.stop_providing(key);
    }

    fn announce(&mut self, kademlia: &mut Behaviour, key: RecordKey) {
        if let Ok(query) = kademlia.start_providing(key.clone()) {
            self.figures.dht_query("provide");
            self.queries.insert(query, Query::Publication(Publication::Key(key)));
        }
    }

    pub fn put(
        &mut self,
        kademlia: &mut Behaviour,
        payload: Vec<u8>,
        sequence: u64,
        expires_at_ms: u64,
    ) {
        self.own = Some(Own { payload, sequence, expires_at_ms });
        self.publish_own(kademlia);
    }

    /// Leaves an empty record, for as long as the one before it could have been believed.
    pub fn withdraw(&mut self, kademlia: &mut Behaviour) {
        if let Some(own) = &mut self.own
            && !own.payload.is_empty()
        {
            own.payload.clear();
            own.sequence += 1;
            self.publish_own(kademlia);
        }
    }

    fn publish_own(&mut self, kademlia: &mut Behaviour) {
        let Some(own) = &self.own else { return };
        let left_ms = own.expires_at_ms.saturating_sub(clock::wall_milliseconds());
        if left_ms == 0 {
            self.own = None;
            return;
        }
        let mut record = record::seal(&self.signer, &own.payload, own.sequence, own.expires_at_ms);
        record.expires = Some(Instant::now() + self.record_ttl.min(Duration::from_millis(left_ms)));
        if let Ok(query) = kademlia.put_record(record, kad::Quorum::One) {
            self.figures.dht_query("put");
            self.queries.insert(query, Query::Publication(Publication::Record));
        }
    }

    pub fn find_providers(&mut self, kademlia: &mut Behaviour, query: u64, key: RecordKey) {
        if self.is_busy() {
            return self.queue.push(Event::ProvidersFound { query, peers: vec![], finished: true });
        }
        self.figures.dht_query("find");
        let found = HashSet::new();
        self.queries.insert(kademlia.get_providers(key), Query::Providers { query, found });
    }

    pub fn get(&mut self, kademlia: &mut Behaviour, query: u64, peer: &PeerId) {
        if self.is_busy() {
            return self.queue.push(Event::RecordFound { query, record: None });
        }
        self.figures.dht_query("get");
        let started = kademlia.get_record(record::key_of(peer));
        self.queries.insert(started, Query::Record { query, best: None, answers: 0 });
    }

    /// Looks for the addresses of a peer; false if too much is looked for already.
    pub fn locate(&mut self, kademlia: &mut Behaviour, peer: PeerId) -> bool {
        if self.is_busy() {
            return false;
        }
        self.figures.dht_query("locate");
        self.queries.insert(kademlia.get_closest_peers(peer), Query::Whereabouts { peer });
        true
    }

    fn is_busy(&self) -> bool {
        self.queries.len() >= self.max_queries
    }

    /// Ends searches that have asked enough peers. While one of the nearest takes its time
    /// to answer, or to be dead, Kademlia asks ever farther ones, in the end all there are; in
    /// a swarm that forms this alone makes everybody so slow that it feeds itself.
    /// Whether any is left to look at.
    pub fn cut_short(&mut self, kademlia: &mut Behaviour) -> bool {
        let mut running = false;
        for mut query in kademlia.iter_queries_mut() {
            running = true;
            if query.stats().num_successes() >= ENOUGH * self.replication {
                if let Some(Query::Publication(_)) = self.queries.get(&query.id()) {
                    self.cut.insert(query.id());
                }
                query.finish();
            }
        }
        running
    }

    pub fn is_publishing(&self) -> bool {
        self.queries.values().any(|query| matches!(query, Query::Publication(_)))
    }

    /// The routing table has so many peers now.
    pub fn table_changed(&mut self, peers: usize) {
        self.known_peers = peers;
        let grown = peers >= 2 * self.published_to.max(1) || self.published_to == 0;
        if grown && self.published_to < 2 * kad::K_VALUE.get() {
            self.publish_at = self.publish_at.min(Instant::now() + SETTLE);
        }
    }

    /// Called now and then: publishes again what is due, drops what has expired. Whether
    /// searches have begun by that.
    pub fn tick(&mut self, kademlia: &mut Behaviour) -> bool {
        let now = Instant::now();
        kademlia.store_mut().drop_expired(now);
        let store = kademlia.store_mut();
        self.figures.dht_kept(store.record_count(), store.provider_count());
        if now >= self.publish_at {
            self.failed.clear();
            self.publish_at = now + self.republish;
            self.published_to = self.known_peers;
            self.publish_own(kademlia);
            for key in self.provided.clone() {
                self.announce(kademlia, key);
            }
        } else if now >= self.retry_at {
            self.retry(kademlia);
        }
        self.look_again(kademlia, now) || self.is_publishing()
    }

    fn look_again(&mut self, kademlia: &mut Behaviour, now: Instant) -> bool {
        if now < self.look_again_at || self.known_peers >= kad::K_VALUE.get() {
            return false;
        }
        self.look_again_at = now + self.look_again_after;
        self.look_again_after = (2 * self.look_again_after).min(self.republish);
        kademlia.bootstrap().is_ok() // fails only while nobody is known
    }

    fn retry(&mut self, kademlia: &mut Behaviour) {
        for publication in std::mem::take(&mut self.failed) {
            match publication {
                Publication::Record => self.publish_own(kademlia),
                Publication::Key(key) if self.provided.contains(&key) => {
                    self.announce(kademlia, key);
                }
                Publication::Key(_) => {}
            }
        }
    }

    /// What a query has brought. Gives the peer whose whereabouts are known now, or never.
    pub fn progressed(
        &mut self,
        kademlia: &mut Behaviour,
        id: QueryId,
        result: QueryResult,
        last: bool,
    ) -> Option<PeerId> {
        let enough = match (self.queries.get_mut(&id)?, result) {
            (Query::Providers { found, .. }, QueryResult::GetProviders(Ok(result))) => {
                let peers = new_providers(found, result);
                let enough = found.len() >= self.enough_providers;
                self.providers_found(id, peers);
                enough
            }
            (Query::Record { best, answers, .. }, QueryResult::GetRecord(Ok(result))) => {
                if let kad::GetRecordOk::FoundRecord(kad::PeerRecord { record, .. }) = result {
                    let now_ms = clock::wall_milliseconds();
                    match kademlia.store_mut().check(&record.key, &record.value, now_ms) {
                        Ok(found) => {
                            *answers += 1;
                            if best.as_ref().is_none_or(|best| best.sequence < found.sequence) {
                                *best = Some(found);
                            }
                        }
                        Err(error) => self.figures.dht_refused(error),
                    }
                }
                *answers >= self.enough_answers
            }
            (Query::Publication(publication), result) => {
                // Whoever was asked when the search was cut need not be the nearest.
                let failed = matches!(
                    result,
                    QueryResult::StartProviding(Err(_)) | QueryResult::PutRecord(Err(_))
                ) || self.cut.contains(&id);
                self.figures.count_by("dht_published", if failed { "failed" } else { "succeeded" });
                if failed {
                    self.failed.insert(publication.clone());
                    self.retry_at = Instant::now() + RETRY;
                }
                false
            }
            _ => false,
        };
        if last {
            self.cut.remove(&id);
            let query = self.queries.remove(&id)?;
            return self.ended(query);
        }
        if enough && let Some(mut running) = kademlia.query_mut(&id) {
            running.finish();
        }
        None
    }

    fn providers_found(&self, id: QueryId, peers: Vec<PeerId>) {
        if let Some(Query::Providers { query, .. }) = self.queries.get(&id)
            && !peers.is_empty()
        {
            self.queue.push(Event::ProvidersFound { query: *query, peers, finished: false });
        }
    }

    fn ended(&self, query: Query) -> Option<PeerId> {
        match query {
            Query::Providers { query, .. } => {
                self.queue.push(Event::ProvidersFound { query, peers: vec![], finished: true });
            }
            Query::Record { query, best, .. } => {
                self.queue.push(Event::RecordFound { query, record: best });
            }
            Query::Whereabouts { peer } => return Some(peer),
            Query::Publication(_) => {}
        }
        None
    }

    /// The node stops: whoever waits for a result gets his answer.
    pub fn abandon(&mut self) {
        let queries = std::mem::take(&mut self.queries);
        for query in queries.into_values() {
            self.ended(query);
        }
    }
}

fn new_providers(found: &mut HashSet<PeerId>, result: kad::GetProvidersOk) -> Vec<PeerId> {
    let kad::GetProvidersOk::FoundProviders { providers, .. } = result else { return vec![] };
    providers.into_iter().filter(|peer| found.insert(*peer)).collect()
}
