//! Floods, garbage from members, and too many connections.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use common::{Owner, QUIET, WORK, quick, raw, raw_stream};
use futures::AsyncWriteExt;
use libp2p::{PeerId, identity::Keypair};
use mycel_node::{event::Event, node::Command, settings::Settings};

fn cut_off(event: &Event) -> Option<(PeerId, &'static str)> {
    match event {
        Event::CutOff { peer, reason } => Some((*peer, *reason)),
        _ => None,
    }
}

fn lively() -> Settings {
    Settings { gossip_heartbeat: Duration::from_millis(100), ..quick() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_floods_with_gossip_is_cut_off_within_ten_seconds() {
    let owner = Owner::new();
    let (victim, friend) = (owner.member_with(lively(), 3600), owner.member_with(lively(), 3600));
    let flooder = owner.member_with(lively(), 3600);
    let address = victim.listen().await;
    for node in [&friend, &flooder] {
        node.dial(&address).await.unwrap();
    }
    for node in [&victim, &friend, &flooder] {
        node.node.send(Command::Subscribe { topic: "t".into() }).unwrap();
    }
    let heard = |event: &Event| matches!(event, Event::Gossip { .. });
    let mut number = 0_u64;
    while victim.count(heard) == 0 {
        number += 1;
        let data = number.to_be_bytes().to_vec();
        flooder.node.send(Command::Publish { topic: "t".into(), data }).unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let start = Instant::now();
    let mut every = tokio::time::interval(Duration::from_millis(10));
    while victim.count(|event| cut_off(event).is_some()) == 0 {
        every.tick().await;
        for _ in 0..10 {
            number += 1;
            let data = number.to_be_bytes().to_vec();
            let _ = flooder.node.send(Command::Publish { topic: "t".into(), data });
        }
        assert!(start.elapsed() < Duration::from_secs(10), "it still floods");
    }
    assert_eq!(victim.wait("the cut", cut_off).await, (flooder.peer, "flood"));
    // The friend, who only passed it on, is still there; the flooder does not come back.
    victim.open(friend.peer, WORK).await;
    let _ = flooder.dial(&address).await;
    let meetings = victim
        .count(|event| matches!(event, Event::Connected { peer, .. } if *peer == flooder.peer));
    assert_eq!(meetings, 1);
}

#[tokio::test]
async fn who_floods_a_limited_protocol_is_cut_off() {
    let owner = Owner::new();
    let mut settings = quick();
    settings.patience.messages_per_second = 10;
    settings.patience.burst = 100;
    let (victim, flooder) = (owner.member_with(settings, 3600), owner.member());
    flooder.dial(&victim.listen().await).await.unwrap();
    let stream = flooder.open(victim.peer, QUIET).await;
    for _ in 0..50 {
        stream.write(b"one of many").unwrap();
    }
    victim.until("fifty frames", |node| node.frames().len() == 50).await;
    for _ in 0..100 {
        stream.write(b"one of many").unwrap();
    }
    assert_eq!(victim.wait("the cut", cut_off).await, (flooder.peer, "flood"));
    assert!(victim.frames().len() <= 150);
}

#[tokio::test]
async fn a_busy_work_stream_is_no_flood() {
    let owner = Owner::new();
    let mut settings = quick();
    settings.patience.burst = 10;
    let (one, other) = (owner.member_with(settings, 3600), owner.member());
    other.dial(&one.listen().await).await.unwrap();
    let stream = other.open(one.peer, WORK).await;
    for _ in 0..5000 {
        stream.write(b"work").unwrap();
    }
    one.until("all of it", |node| node.frames().len() == 5000).await;
    assert_eq!(one.count(|event| cut_off(event).is_some()), 0);
}

#[tokio::test]
async fn a_member_that_sends_malformed_frames_is_cut_off() {
    let owner = Owner::new();
    let mut settings = quick();
    settings.patience.max_strikes = 3;
    let victim = owner.member_with(settings, 3600);
    let address = victim.listen().await;
    let key = Keypair::generate_ed25519();
    let bad = key.public().to_peer_id();
    for strike in 1..=3 {
        assert_eq!(victim.count(|event| cut_off(event).is_some()), 0, "before {strike}");
        let gate = owner.gate(bad, owner.token(&bad, 3600));
        let swarm = raw(&key, Some(gate), &[WORK]);
        let mut stream = raw_stream(swarm, &address, victim.peer, WORK).await;
        stream.write_all(&[0xff; 64]).await.unwrap();
        stream.flush().await.unwrap();
        let ended = |event: &Event| matches!(event, Event::StreamClosed { .. });
        victim.until("the stream's end", |node| node.count(ended) == strike).await;
    }
    assert_eq!(victim.wait("the cut", cut_off).await, (bad, "malformed_frame"));
}

#[tokio::test]
async fn connections_that_nobody_needs_are_trimmed() {
    let owner = Owner::new();
    let settings = Settings {
        high_water: 6,
        low_water: 4,
        grace: Duration::from_millis(10),
        tick: Duration::from_millis(50),
        ..quick()
    };
    let hub = owner.member_with(settings, 3600);
    let address = hub.listen().await;
    let others: Vec<_> = (0..6).map(|_| owner.member()).collect();
    for other in &others {
        other.dial(&address).await.unwrap();
    }
    // One is kept, one is used; then a seventh comes.
    let (kept, used) = (&others[0], &others[1]);
    hub.node.send(Command::Keep { peer: kept.peer, kept: true }).unwrap();
    hub.open(used.peer, WORK).await;
    let seventh = owner.member();
    seventh.dial(&address).await.unwrap();
    let trimmed = |event: &Event| match event {
        Event::Disconnected { peer, cause } => {
            assert_eq!(cause, "there were too many connections");
            Some(*peer)
        }
        _ => None,
    };
    hub.until("three are gone", |hub| hub.count(|event| trimmed(event).is_some()) == 3).await;
    let gone = |peer| hub.count(|event| trimmed(event) == Some(peer)) > 0;
    assert!(!gone(kept.peer), "it was kept");
    assert!(!gone(used.peer), "it was used");
    assert_eq!(hub.node.shared.facts.all().len(), 4);
    assert_eq!(hub.node.shared.figures.snapshot().plain["trimmed"], 3);
}
