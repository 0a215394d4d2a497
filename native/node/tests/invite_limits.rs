//! What the members of one invite may do together.
#![allow(clippy::unwrap_used)]

mod common;

use common::{
    Member, Owner, QUIET,
    invites::{Gateway, Home, invite, newcomer, public, refused, terms},
    quick,
    relays::reserved,
};
use libp2p::identity::Keypair;
use mycel_node::{
    conduct::Patience,
    event::Event,
    node::Command,
    settings::{Relay, Settings},
};

/// A gateway, and an invite of it for so many.
async fn gateway(owner: &Owner, home: &Home, settings: Settings, joins: u32) -> (Gateway, Vec<u8>) {
    let gateway = Gateway::start_with(owner, home, Keypair::generate_ed25519(), settings).await;
    let invite = invite(owner, terms(1, &[(gateway.public(), 0)], &[(0, joins)]));
    (gateway, invite)
}

/// As many as that have joined.
async fn machines(owner: &Owner, invite: &[u8], gateway: &Gateway, count: usize) -> Vec<Member> {
    let machines: Vec<Member> = (0..count).map(|_| newcomer(owner, invite)).collect();
    for machine in &machines {
        machine.dial(&gateway.address).await.unwrap();
    }
    machines
}

fn ask_for_streams(machine: &Member, gateway: &Gateway, count: usize) {
    for _ in 0..count {
        let peer = gateway.member.peer;
        machine.node.send(Command::OpenStream { peer, protocol: QUIET }).unwrap();
    }
}

fn ends(machine: &Member) -> usize {
    let is_end =
        |event: &Event| matches!(event, Event::StreamClosed { .. } | Event::StreamFailed { .. });
    machine.count(is_end)
}

fn streams_of(gateway: &Gateway, machine: &Member) -> usize {
    let is_theirs = |event: &Event| matches!(event, Event::StreamOpened { stream, ours: false } if stream.peer == machine.peer);
    gateway.member.count(is_theirs)
}

#[tokio::test]
async fn they_share_streams() {
    let (owner, home) = (Owner::new(), Home::new());
    let settings = Settings { max_streams_per_peer: 3, ..quick() };
    let (gateway, invite) = gateway(&owner, &home, settings, 16).await;
    let machines = machines(&owner, &invite, &gateway, 16).await;
    // Each within its own limit of three; together they have four members'.
    for machine in &machines {
        ask_for_streams(machine, &gateway, 3);
    }
    let refused = 16 * 3 - 4 * 3;
    gateway
        .member
        .until("the others' ends", |_| machines.iter().map(ends).sum::<usize>() >= refused)
        .await;
    let opened: usize = machines.iter().map(|machine| streams_of(&gateway, machine)).sum();
    assert_eq!(opened, 4 * 3);
    let another = owner.member();
    another.dial(&gateway.address).await.unwrap();
    ask_for_streams(&another, &gateway, 3);
    gateway.member.until("its streams", |_| streams_of(&gateway, &another) == 3).await;
    // What ends makes room again.
    let leaving = machines.iter().find(|machine| streams_of(&gateway, machine) > 0).unwrap();
    leaving.node.stop();
    let waiting = machines.iter().find(|machine| streams_of(&gateway, machine) == 0).unwrap();
    let gone = |event: &Event| match event {
        Event::Disconnected { peer, .. } if *peer == leaving.peer => Some(()),
        _ => None,
    };
    gateway.member.wait("the end of one", gone).await;
    ask_for_streams(waiting, &gateway, 1);
    gateway.member.until("a stream", |_| streams_of(&gateway, waiting) == 1).await;
}

#[tokio::test]
async fn they_share_connections_beyond_one_each() {
    let (owner, home) = (Owner::new(), Home::new());
    let settings = Settings { max_connections_per_peer: 4, ..quick() };
    let (gateway, invite) = gateway(&owner, &home, settings, 9).await;
    let machines = machines(&owner, &invite, &gateway, 9).await;
    let standing = || {
        let figures = gateway.member.node.shared.figures.snapshot();
        figures.labelled.get(&("connections", "direct")).copied().unwrap_or(0)
    };
    // Without the peer's id nobody knows that there is a connection already.
    let place = gateway.address.split("/p2p/").next().unwrap();
    for machine in &machines {
        for _ in 0..3 {
            machine.dial(place).await.unwrap();
        }
    }
    // One for each of nine, and three members' further three.
    gateway.member.until("the surplus's end", |_| standing() == 9 + 3 * 3).await;
    for machine in &machines {
        ask_for_streams(machine, &gateway, 1);
        gateway.member.until("a stream", |_| streams_of(&gateway, machine) == 1).await;
    }
    let another = owner.member();
    for _ in 0..4 {
        another.dial(place).await.unwrap();
    }
    gateway.member.until("its connections", |_| standing() == 9 + 3 * 3 + 4).await;
}

#[tokio::test]
async fn they_have_half_of_a_nodes_places_at_most() {
    let (owner, home) = (Owner::new(), Home::new());
    let settings = Settings { max_members: 6, ..quick() };
    let (gateway, invite) = gateway(&owner, &home, settings, 100).await;
    let machines = machines(&owner, &invite, &gateway, 3).await;
    let error = refused(&newcomer(&owner, &invite), &gateway.address).await;
    assert!(error.contains("too many who joined by this invite"), "{error}");
    assert!(owner.member().dial(&gateway.address).await.is_ok());
    assert!(machines[0].dial(&gateway.address).await.is_ok(), "whoever is in may come again");
}

#[tokio::test]
async fn they_share_a_gateways_circuits() {
    let (owner, home) = (Owner::new(), Home::new());
    let relay = Relay { max_circuits_per_peer: 2, ..Relay::default() };
    let settings = Settings { gateway: true, relay, ..quick() };
    let (gateway, invite) = gateway(&owner, &home, settings, 4).await;
    let (near, far) = (owner.member(), owner.member());
    let circuits = [
        reserved(&near, &gateway.member, &gateway.address).await.unwrap(),
        reserved(&far, &gateway.member, &gateway.address).await.unwrap(),
    ];
    let machines = machines(&owner, &invite, &gateway, 4).await;
    let mut carried = 0;
    for machine in &machines {
        for circuit in &circuits {
            carried += usize::from(machine.dial(circuit).await.is_ok());
        }
    }
    // Each asks for its own two; together they have two members'.
    assert_eq!(carried, 4);
    let another = owner.member();
    for circuit in &circuits {
        another.dial(circuit).await.unwrap();
    }
}

#[tokio::test]
async fn they_have_half_of_a_gateways_reservations_at_most() {
    let (owner, home) = (Owner::new(), Home::new());
    let relay = Relay { max_reservations: 4, ..Relay::default() };
    let settings = Settings { gateway: true, relay, ..quick() };
    let (gateway, invite) = gateway(&owner, &home, settings, 9).await;
    let machines = machines(&owner, &invite, &gateway, 3).await;
    let mut held = Vec::new();
    for machine in &machines {
        held.push(reserved(machine, &gateway.member, &gateway.address).await.is_ok());
    }
    assert_eq!(held, [true, true, false]);
    assert!(reserved(&owner.member(), &gateway.member, &gateway.address).await.is_ok());
}

#[tokio::test]
async fn with_three_of_an_invite_out_no_other_comes_in_by_it() {
    let (owner, home) = (Owner::new(), Home::new());
    let key = Keypair::generate_ed25519();
    let token = owner.token(&key.public().to_peer_id(), 3600);
    let patience = Patience { burst: 50, ..quick().patience };
    let settings = Settings { joins: Some(home.0.join("joins")), patience, ..quick() };
    let gateway = owner.start(key.clone(), token, settings);
    let address = gateway.listen().await;
    let bad = invite(&owner, terms(1, &[(public(&key), 0)], &[(0, 20)]));
    let good = invite(&owner, terms(2, &[(public(&key), 0)], &[(0, 20)]));
    for _ in 0..3 {
        let machine = newcomer(&owner, &bad);
        machine.dial(&address).await.unwrap();
        for _ in 0..400 {
            let peer = gateway.peer;
            let _ = machine.node.send(Command::OpenStream { peer, protocol: QUIET });
        }
        let who = |event: &Event| match event {
            Event::CutOff { peer, .. } if *peer == machine.peer => Some(()),
            _ => None,
        };
        gateway.wait("the flooder's end", who).await;
    }
    let refused = newcomer(&owner, &bad);
    let _ = refused.dial(&address).await;
    let gone = |event: &Event| {
        matches!(event, Event::Disconnected { .. } | Event::DialFailed { .. }).then_some(())
    };
    if refused.connected() > 0 {
        refused.wait("the end", gone).await;
    }
    let joined =
        |event: &Event| matches!(event, Event::Connected { peer, .. } if *peer == refused.peer);
    assert_eq!(gateway.count(joined), 0);
    assert!(newcomer(&owner, &good).dial(&address).await.is_ok());
}
