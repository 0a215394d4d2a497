//! QUIC, and circuits through a gateway: the same gate, the same streams.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use common::{
    DEADLINE, LOOPBACK, Member, Owner, QUIC, StrangerEvent, WORK, open_transport, patient, quick,
    relays::reserved,
};
use futures::StreamExt;
use libp2p::{
    Multiaddr, PeerId, Swarm,
    identity::Keypair,
    swarm::{SwarmEvent, dummy},
};
use mycel_node::{
    event::Event,
    settings::{Relay, Settings},
};

fn gateway_settings() -> Settings {
    Settings { gateway: true, ..quick() }
}

/// No hole punching: the path must stay relayed for as long as a test looks at it.
fn relayed_only() -> Settings {
    Settings { hole_punching: false, ..quick() }
}

async fn gateway(owner: &Owner, listen: &str) -> (Member, String) {
    let gateway = owner.member_with(gateway_settings(), 3600);
    let address = gateway.listen_on(listen).await;
    (gateway, address)
}

fn connected(event: &Event) -> Option<(PeerId, bool)> {
    match event {
        Event::Connected { peer, relayed, .. } => Some((*peer, *relayed)),
        _ => None,
    }
}

async fn exchange(one: &Member, other: &Member) {
    let stream = one.open(other.peer, WORK).await;
    let answer = other.opened(false).await;
    stream.write(b"over there").unwrap();
    other.until("the frame", |node| node.frames() == vec![b"over there".to_vec()]).await;
    answer.write(b"and back").unwrap();
    one.until("the answer", |node| node.frames() == vec![b"and back".to_vec()]).await;
}

#[tokio::test]
async fn members_meet_over_quic() {
    let owner = Owner::new();
    let (one, other) = (owner.member(), owner.member());
    let address = one.listen_on(QUIC).await;
    assert_eq!(other.dial(&address).await, Ok(one.peer));
    exchange(&other, &one).await;
    let figures = one.node.shared.figures.snapshot();
    assert_eq!(figures.labelled[&("connections", "quic")], 1);
    assert!(figures.labelled[&("bytes_in", "direct")] > 0);
}

#[tokio::test]
async fn members_meet_through_a_gateway() {
    let owner = Owner::new();
    for listen in [LOOPBACK, QUIC] {
        let (gateway, address) = gateway(&owner, listen).await;
        let hidden = owner.member_with(relayed_only(), 3600);
        let visitor = owner.member_with(relayed_only(), 3600);
        let circuit = reserved(&hidden, &gateway, &address).await.unwrap();
        assert_eq!(visitor.dial(&circuit).await, Ok(hidden.peer));
        let through = |event: &Event| connected(event).filter(|(_, relayed)| *relayed);
        assert_eq!(hidden.wait("the visitor", through).await, (visitor.peer, true));
        assert_eq!(visitor.wait("the hidden one", through).await, (hidden.peer, true));
        exchange(&visitor, &hidden).await;
        let figures = gateway.node.shared.figures.snapshot();
        assert_eq!(figures.plain["relay_circuits"], 1);
        assert_eq!(figures.plain["relay_reservations"], 1);
        let figures = visitor.node.shared.figures.snapshot();
        assert!(figures.labelled[&("bytes_out", "relayed")] > 0);
    }
}

#[tokio::test]
async fn a_direct_connection_is_preferred_and_told() {
    let owner = Owner::new();
    let (gateway, address) = gateway(&owner, LOOPBACK).await;
    let hidden = owner.member_with(relayed_only(), 3600);
    let visitor = owner.member_with(relayed_only(), 3600);
    let circuit = reserved(&hidden, &gateway, &address).await.unwrap();
    visitor.dial(&circuit).await.unwrap();
    hidden.dial(&visitor.listen().await).await.unwrap();
    // It was connected already: the dial is answered, and no second connection made.
    assert_eq!(visitor.count(|event| matches!(event, Event::PathChanged { .. })), 0);
    let bare = visitor.listen_on("/ip4/127.0.0.2/tcp/0").await;
    let bare = bare.split("/p2p/").next().unwrap().to_owned();
    hidden.dial(&bare).await.unwrap();
    let changed = |event: &Event| match event {
        Event::PathChanged { peer, relayed, .. } => Some((*peer, *relayed)),
        _ => None,
    };
    assert_eq!(visitor.take("a better path", changed).await, (hidden.peer, false));
    assert_eq!(hidden.take("a better path", changed).await, (visitor.peer, false));
    let relayed = || visitor.node.shared.figures.snapshot().labelled[&("bytes_out", "relayed")];
    let before = relayed();
    let stream = visitor.open(hidden.peer, WORK).await;
    for _ in 0..50 {
        stream.write(&[7; 4000]).unwrap();
    }
    hidden.until("the frames", |node| node.frames().len() == 50).await;
    // Pings and the like still go over it, the stream's frames do not.
    assert!(relayed() - before < 50_000);
}

#[tokio::test]
async fn hole_punching_makes_the_path_direct() {
    let owner = Owner::new();
    let (gateway, address) = gateway(&owner, LOOPBACK).await;
    // What comes of a punch is tried once: a busy machine must not cut its hello off.
    let hello_timeout = Duration::from_secs(10);
    let member = || owner.member_with(Settings { hello_timeout, ..quick() }, 3600);
    let (hidden, visitor) = (member(), member());
    hidden.listen().await;
    visitor.listen().await;
    visitor.dial(&address).await.unwrap();
    let circuit = reserved(&hidden, &gateway, &address).await.unwrap();
    visitor.dial(&circuit).await.unwrap();
    for node in [&hidden, &visitor] {
        let direct = |event: &Event| match event {
            Event::PathChanged { relayed: false, peer, .. } => Some(*peer),
            _ => None,
        };
        let peer = node.wait("a direct path", direct).await;
        assert!([hidden.peer, visitor.peer].contains(&peer));
    }
    exchange(&visitor, &hidden).await;
}

#[tokio::test]
async fn a_gateway_carries_no_more_than_its_policy_allows() {
    let owner = Owner::new();
    let relay = Relay { max_reservations: 1, max_circuits: 0, ..Relay::default() };
    let gateway = owner.member_with(Settings { relay, ..gateway_settings() }, 3600);
    let address = gateway.listen().await;
    let (first, second) = (owner.member(), owner.member());
    let circuit = reserved(&first, &gateway, &address).await.unwrap();
    assert!(reserved(&second, &gateway, &address).await.is_err());
    assert!(second.dial(&circuit).await.is_err());
    let figures = gateway.node.shared.figures.snapshot();
    assert_eq!(figures.labelled[&("relay_denied", "reservation")], 1);
    assert_eq!(figures.labelled[&("relay_denied", "circuit")], 1);
}

#[tokio::test]
async fn a_lost_gateway_is_told() {
    let owner = Owner::new();
    let (gateway, address) = gateway(&owner, LOOPBACK).await;
    let member = owner.member();
    reserved(&member, &gateway, &address).await.unwrap();
    gateway.node.stop();
    let lost = |event: &Event| match event {
        Event::Reservation { gateway, held: false, .. } => Some(*gateway),
        _ => None,
    };
    assert_eq!(member.wait("the loss", lost).await, gateway.peer);
    let gone = |event: &Event| match event {
        Event::NotListening { address } => address.contains("p2p-circuit").then_some(()),
        _ => None,
    };
    member.wait("the address's end", gone).await;
}

#[tokio::test]
async fn a_member_that_relays_nothing_is_no_gateway() {
    let owner = Owner::new();
    let (plain, member) = (owner.member(), owner.member());
    let address = plain.listen().await;
    assert!(reserved(&member, &plain, &address).await.is_err());
}

#[tokio::test]
async fn a_stranger_can_speak_nothing_over_quic_or_a_circuit() {
    let owner = Owner::new();
    let (gateway, relay) = gateway(&owner, QUIC).await;
    let member = owner.member();
    let quic = member.listen_on(QUIC).await;
    let circuit = reserved(&member, &gateway, &relay).await.unwrap();
    for address in [quic, circuit] {
        let mut stranger = common::stranger();
        stranger.dial(address.parse::<Multiaddr>().unwrap()).unwrap();
        let cut_off = async {
            loop {
                match stranger.select_next_some().await {
                    SwarmEvent::ConnectionEstablished { peer_id, .. } => {
                        stranger.behaviour_mut().streams.open(peer_id, WORK);
                    }
                    SwarmEvent::ConnectionClosed { .. } => return,
                    SwarmEvent::OutgoingConnectionError { .. } => return,
                    SwarmEvent::Behaviour(StrangerEvent::Ping(ping)) => {
                        assert!(ping.result.is_err(), "the stranger's ping was answered");
                    }
                    SwarmEvent::Behaviour(StrangerEvent::Identify(event)) => {
                        let told = matches!(event, libp2p::identify::Event::Received { .. });
                        assert!(!told, "the stranger was told who we are");
                    }
                    _ => {}
                }
            }
        };
        tokio::time::timeout(DEADLINE, cut_off).await.expect("the stranger is cut off");
    }
    let strangers = |event: &Event| matches!(event, Event::Connected { .. });
    assert_eq!(member.count(strangers), 1, "the gateway alone");
}

#[tokio::test]
async fn bad_tokens_are_refused_over_quic_and_circuits() {
    let owner = Owner::new();
    let (gateway, relay) = gateway(&owner, LOOPBACK).await;
    let member = owner.member();
    let quic = member.listen_on(QUIC).await;
    let circuit = reserved(&member, &gateway, &relay).await.unwrap();
    let expired = owner.member_with(quick(), -10);
    let (failure, error) = expired.dial(&quic).await.unwrap_err();
    assert_eq!(failure.name(), "not_admitted", "{error}");
    assert!(error.contains("expired"), "{error}");
    // It does not even get past the gateway.
    assert!(expired.dial(&circuit).await.is_err());
    // A member of the gateway's swarm with another owner's token at the far end.
    let other = Owner::new();
    let thief = other.member();
    assert!(thief.dial(&circuit).await.is_err());
    assert_eq!(expired.connected() + thief.connected(), 0);
}

#[tokio::test]
async fn a_stalled_hello_is_cut_off_over_quic() {
    let owner = Owner::new();
    let member = owner.member();
    let address = member.listen_on(QUIC).await;
    let key = Keypair::generate_ed25519();
    let (transport, _) = open_transport(&key, None);
    let mut silent = Swarm::new(transport, dummy::Behaviour, key.public().to_peer_id(), patient());
    silent.dial(address.parse::<Multiaddr>().unwrap()).unwrap();
    let start = Instant::now();
    let closed = async {
        while !matches!(silent.select_next_some().await, SwarmEvent::ConnectionClosed { .. }) {}
    };
    tokio::time::timeout(DEADLINE, closed).await.expect("it is cut off");
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert_eq!(member.connected(), 0);
}
