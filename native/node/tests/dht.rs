//! Records and providers: what is found, what is kept, what is refused.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use common::{Member, Owner, SWARM, open_transport, patient, quick};
use futures::StreamExt;
use libp2p::{
    Multiaddr, PeerId, Swarm,
    identity::Keypair,
    kad::{self, store::MemoryStore},
    swarm::SwarmEvent,
};
use mycel_node::{
    clock,
    dht::{
        self,
        record::{self, SignedRecord},
    },
    envelope::Signer,
    event::Event,
    node::Command,
    settings::Settings,
};

fn impatient() -> Settings {
    let mut settings = Settings { tick: Duration::from_millis(50), ..quick() };
    settings.patience.max_strikes = 1_000_000;
    settings
}

async fn get(member: &Member, peer: PeerId) -> Option<SignedRecord> {
    member.node.send(Command::GetRecord { query: 1, peer }).unwrap();
    let found = |event: &Event| match event {
        Event::RecordFound { query: 1, record } => Some(record.clone()),
        _ => None,
    };
    member.take("a record", found).await
}

async fn wait_for_record(member: &Member, peer: PeerId, payload: &[u8]) -> SignedRecord {
    let deadline = Instant::now() + common::DEADLINE;
    loop {
        if let Some(record) = get(member, peer).await
            && record.payload == payload
        {
            return record;
        }
        assert!(Instant::now() < deadline, "the record was not found");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn providers(member: &Member, key: &[u8]) -> Vec<PeerId> {
    member.node.send(Command::FindProviders { query: 2, key: key.to_vec() }).unwrap();
    let mut all = Vec::new();
    let found = |event: &Event| match event {
        Event::ProvidersFound { query: 2, peers, finished } => Some((peers.clone(), *finished)),
        _ => None,
    };
    loop {
        let (peers, finished) = member.take("providers", found).await;
        all.extend(peers);
        if finished {
            return all;
        }
    }
}

fn put(member: &Member, payload: &[u8], sequence: u64) {
    let expires_at_ms = clock::wall_milliseconds() + 60_000;
    let payload = payload.to_vec();
    member.node.send(Command::PutRecord { payload, sequence, expires_at_ms }).unwrap();
}

#[tokio::test]
async fn what_was_published_before_anybody_was_there_is_found_soon() {
    let owner = Owner::new();
    let (hub, worker) =
        (owner.member_with(impatient(), 3600), owner.member_with(impatient(), 3600));
    worker.node.send(Command::Provide { key: b"gpu".to_vec() }).unwrap();
    put(&worker, b"a record", 1);
    let address = hub.listen().await;
    worker.listen().await;
    worker.dial(&address).await.unwrap();
    let seeker = owner.member_with(impatient(), 3600);
    seeker.listen().await;
    seeker.dial(&address).await.unwrap();
    wait_for_record(&seeker, worker.peer, b"a record").await;
    let deadline = Instant::now() + common::DEADLINE;
    while providers(&seeker, b"gpu").await != vec![worker.peer] {
        assert!(Instant::now() < deadline, "the provider was not found");
    }
    // Its addresses came along.
    seeker.node.send(Command::DialPeer { peer: worker.peer, addresses: vec![] }).unwrap();
    let dialled = |event: &Event| match event {
        Event::DialSucceeded { peer, address } => address.starts_with("/p2p/").then_some(*peer),
        _ => None,
    };
    assert_eq!(seeker.wait("the worker", dialled).await, worker.peer);
}

#[tokio::test]
async fn a_withdrawn_record_is_empty_everywhere_even_when_the_node_stops_at_once() {
    let owner = Owner::new();
    let (hub, worker) = (owner.member(), owner.member());
    worker.dial(&hub.listen().await).await.unwrap();
    put(&worker, b"a record", 1);
    wait_for_record(&hub, worker.peer, b"a record").await;
    worker.node.send(Command::WithdrawRecord).unwrap();
    // Sent before the stop is asked for: commands are done in order.
    get(&worker, worker.peer).await;
    worker.node.stop();
    assert_eq!(wait_for_record(&hub, worker.peer, b"").await.sequence, 2);
}

/// A member that puts whatever it likes.
struct Liar {
    swarm: Swarm<kad::Behaviour<MemoryStore>>,
    signer: Signer,
    victim: PeerId,
}

impl Liar {
    async fn meet(owner: &Owner, victim: &Member) -> Liar {
        let key = Keypair::generate_ed25519();
        let peer = key.public().to_peer_id();
        let token = owner.token(&peer, 3600);
        let (transport, _) = open_transport(&key, Some(owner.gate(peer, token)));
        let config = kad::Config::new(dht::PROTOCOL);
        let behaviour = kad::Behaviour::with_config(peer, MemoryStore::new(peer), config);
        let mut swarm = Swarm::new(transport, behaviour, peer, patient());
        swarm.dial(victim.listen().await.parse::<Multiaddr>().unwrap()).unwrap();
        while !matches!(swarm.select_next_some().await, SwarmEvent::ConnectionEstablished { .. }) {}
        let signer = Signer::new(key, SWARM.into()).unwrap();
        Liar { swarm, signer, victim: victim.peer }
    }

    async fn put(&mut self, record: kad::Record) {
        let to = [self.victim].into_iter();
        self.swarm.behaviour_mut().put_record_to(record, to, kad::Quorum::One);
        let done = async {
            loop {
                let event = self.swarm.select_next_some().await;
                if let SwarmEvent::Behaviour(kad::Event::OutboundQueryProgressed { .. }) = event {
                    return;
                }
            }
        };
        tokio::time::timeout(common::DEADLINE, done).await.expect("the put ends");
    }

    fn record(&self, payload: &[u8], sequence: u64, lifetime_ms: i64) -> kad::Record {
        let expires_at_ms = clock::wall_milliseconds().saturating_add_signed(lifetime_ms);
        record::seal(&self.signer, payload, sequence, expires_at_ms)
    }
}

fn refused(member: &Member, reason: &'static str) -> u64 {
    let figures = member.node.shared.figures.snapshot();
    figures.labelled.get(&("dht_refused", reason)).copied().unwrap_or(0)
}

#[tokio::test]
async fn forged_replayed_and_expired_records_are_not_kept() {
    let owner = Owner::new();
    let victim = owner.member_with(impatient(), 3600);
    let mut liar = Liar::meet(&owner, &victim).await;
    let own = liar.signer.peer();
    liar.put(liar.record(b"control", 5, 60_000)).await;
    wait_for_record(&victim, own, b"control").await;

    liar.put(liar.record(b"replayed", 4, 60_000)).await;
    victim.until("it is refused", |node| refused(node, "outdated") == 1).await;
    liar.put(liar.record(b"expired", 6, -120_000)).await;
    victim.until("it is refused", |node| refused(node, "expiry") == 1).await;
    let mut forged = liar.record(b"forged", 6, 60_000);
    forged.value[60] ^= 1;
    liar.put(forged).await;
    victim.until("it is refused", |node| refused(node, "signature") == 1).await;
    let mut foreign = liar.record(b"foreign", 6, 60_000);
    foreign.key = record::key_of(&PeerId::random());
    liar.put(foreign).await;
    victim.until("it is refused", |node| refused(node, "signature") == 2).await;
    liar.put(kad::Record::new(b"/other/key".to_vec(), b"x".to_vec())).await;
    victim.until("it is refused", |node| refused(node, "key") == 1).await;
    liar.put(liar.record(&[0; 17 * 1024], 6, 60_000)).await;
    victim.until("it is refused", |node| refused(node, "too_long") == 1).await;

    wait_for_record(&victim, own, b"control").await;
    liar.put(liar.record(b"newer", 7, 60_000)).await;
    wait_for_record(&victim, own, b"newer").await;
}

#[tokio::test]
async fn who_keeps_forging_records_is_cut_off_and_stays_out() {
    let owner = Owner::new();
    let mut settings = quick();
    settings.patience.max_strikes = 5;
    let victim = owner.member_with(settings, 3600);
    let mut liar = Liar::meet(&owner, &victim).await;
    for sequence in 0..5 {
        let mut forged = liar.record(b"forged", sequence, 60_000);
        forged.value[60] ^= 1;
        liar.put(forged).await;
    }
    let cut_off = |event: &Event| match event {
        Event::CutOff { peer, reason } => Some((*peer, *reason)),
        _ => None,
    };
    let told = victim.wait("the cut", cut_off).await;
    assert_eq!(told, (liar.signer.peer(), "forged_record"));
    let gone = |event: &Event| match event {
        Event::Disconnected { cause, .. } => Some(cause.clone()),
        _ => None,
    };
    assert_eq!(victim.wait("the end", gone).await, "the peer misbehaved");
    assert_eq!(victim.node.shared.figures.snapshot().labelled[&("cut_offs", "forged_record")], 1);
}
