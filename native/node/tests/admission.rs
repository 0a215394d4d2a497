//! Who gets in, and what the others learn.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use common::{
    DEADLINE, Owner, ROLES, StrangerEvent, WORK, open_transport, patient, quick, raw, raw_stream,
};
use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use libp2p::{
    Multiaddr, StreamProtocol, Swarm, identify,
    identity::Keypair,
    swarm::{SwarmEvent, dummy},
};
use mycel_node::{
    event::Event,
    failure::DialFailure,
    gate::{HELLO_PROTOCOL, HELLO_VERSION},
    revocation,
    settings::Settings,
    streams::behaviour::StreamEvent,
};

const HELLO: StreamProtocol = StreamProtocol::new(HELLO_PROTOCOL);

#[tokio::test]
async fn members_meet() {
    let owner = Owner::new();
    let (one, other) = (owner.member(), owner.member());
    let address = one.listen().await;
    assert_eq!(other.dial(&address).await, Ok(one.peer));
    for node in [&one, &other] {
        let roles = |event: &Event| match event {
            Event::Connected { admission, .. } => Some(admission.token.rights.roles),
            _ => None,
        };
        assert_eq!(node.wait("a connection", roles).await, ROLES);
        let round_trip = |event: &Event| match event {
            Event::RoundTrip { seconds, .. } => Some(*seconds),
            _ => None,
        };
        assert!(node.wait("a ping", round_trip).await < 5.0);
    }
}

#[tokio::test]
async fn a_stranger_who_dials_can_speak_nothing() {
    let owner = Owner::new();
    let member = owner.member();
    let address = member.listen().await;
    let mut stranger = common::stranger();
    stranger.dial(address.parse::<Multiaddr>().unwrap()).unwrap();
    let cut_off = async {
        loop {
            match stranger.select_next_some().await {
                // It may believe that it is connected; that is all it gets.
                SwarmEvent::ConnectionEstablished { .. } => {
                    stranger.behaviour_mut().streams.open(member.peer, WORK);
                }
                SwarmEvent::ConnectionClosed { .. } => return,
                SwarmEvent::OutgoingConnectionError { .. } => return,
                event => assert_learns_nothing(event),
            }
        }
    };
    tokio::time::timeout(DEADLINE, cut_off).await.expect("the stranger is cut off");
    member.wait("a refusal", |event| matches!(event, Event::Refused { .. }).then_some(())).await;
    assert_eq!(member.connected(), 0);
}

#[tokio::test]
async fn a_stranger_who_is_dialled_can_speak_nothing() {
    let owner = Owner::new();
    let member = owner.member();
    let mut stranger = common::stranger();
    stranger.listen_on(common::LOOPBACK.parse().unwrap()).unwrap();
    let address = loop {
        if let SwarmEvent::NewListenAddr { address, .. } = stranger.select_next_some().await {
            break address.to_string();
        }
    };
    let meet = async {
        loop {
            let event = stranger.select_next_some().await;
            if !matches!(event, SwarmEvent::ConnectionEstablished { .. }) {
                assert_learns_nothing(event);
            }
        }
    };
    tokio::select! {
        () = meet => {}
        result = member.dial(&address) => assert!(result.is_err()),
    }
    assert_eq!(member.connected(), 0);
}

fn assert_learns_nothing(event: SwarmEvent<StrangerEvent>) {
    match event {
        SwarmEvent::Behaviour(StrangerEvent::Identify(identify::Event::Received { .. })) => {
            panic!("the stranger was told who we are")
        }
        SwarmEvent::Behaviour(StrangerEvent::Ping(ping)) => {
            assert!(ping.result.is_err(), "the stranger's ping was answered");
        }
        SwarmEvent::Behaviour(StrangerEvent::Streams(StreamEvent::Opened { .. })) => {
            panic!("the stranger has a stream")
        }
        _ => {}
    }
}

#[tokio::test]
async fn bad_tokens_are_refused_with_a_reason_on_both_sides() {
    let owner = Owner::new();
    let member = owner.member();
    let address = member.listen().await;
    let key = Keypair::generate_ed25519();
    let peer = key.public().to_peer_id();
    for (token, reason) in [
        (owner.token(&peer, -10), "expired"),
        (Owner::new().token(&peer, 3600), "not signed"),
        (owner.token(&member.peer, 3600), "bound to another peer"),
        (owner.unbound(3600), "not bound to a peer"),
        (owner.bind(&owner.unbound(3600), &peer), "names neither the peer"),
        (owner.user_token(&peer), "no right to be a member"),
        (owner.token_of("elsewhere", &peer), "for the swarm \"elsewhere\""),
        (vec![0; 3], "no token"),
        (vec![0; 300], "no token"),
        (Vec::new(), "no token"),
    ] {
        let node = owner.start(key.clone(), token, quick());
        let (failure, error) = node.dial(&address).await.unwrap_err();
        assert_eq!(failure.name(), "not_admitted", "{error}");
        assert!(error.contains(reason), "{error}");
        let refused = |event: &Event| match event {
            Event::Refused { error, .. } => error.contains(reason).then_some(()),
            _ => None,
        };
        member.take(reason, refused).await;
        assert_eq!(node.connected(), 0);
    }
    assert_eq!(member.connected(), 0);
}

#[tokio::test]
async fn a_dialer_refuses_a_listener_with_a_bad_token() {
    let owner = Owner::new();
    let listener = owner.member_with(quick(), -10);
    let dialer = owner.member();
    let (failure, error) = dialer.dial(&listener.listen().await).await.unwrap_err();
    assert_eq!(failure, DialFailure::NotAdmitted("expired"));
    assert!(error.contains("expired"), "{error}");
    let refused = |event: &Event| match event {
        Event::Refused { error, .. } => Some(error.clone()),
        _ => None,
    };
    let told = listener.wait("a refusal", refused).await;
    assert!(told.contains("refused by the peer: token has expired"), "{told}");
    assert_eq!((dialer.connected(), listener.connected()), (0, 0));
}

#[tokio::test]
async fn nonsense_in_the_hello_is_refused() {
    let owner = Owner::new();
    let member = owner.member();
    let address = member.listen().await;
    for (hello, reason) in [
        (vec![9, 0, 0], "version 9 is not spoken here"),
        (vec![HELLO_VERSION, 0xff, 0xff], "too long"),
        (vec![HELLO_VERSION, 0, 4, 1, 2, 3, 4], "malformed"),
        (vec![HELLO_VERSION, 0, 5, 1, 0, 2, 3, 4], "no token"),
        (vec![HELLO_VERSION, 0, 11, 2, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1], "s behind this node's"),
        (vec![HELLO_VERSION, 0, 5, 4, 0, 2, b'n', b'o'], "this is the swarm \"test\", not \"no\""),
    ] {
        let swarm = raw(&Keypair::generate_ed25519(), None, &[]);
        let mut stream = raw_stream(swarm, &address, member.peer, HELLO).await;
        stream.write_all(&hello).await.unwrap();
        stream.flush().await.unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let refused = |event: &Event| match event {
            Event::Refused { error, .. } => error.contains(reason).then_some(()),
            _ => None,
        };
        member.take(reason, refused).await;
    }
    assert_eq!(member.connected(), 0);
}

#[tokio::test]
async fn a_stalled_hello_is_cut_off() {
    let owner = Owner::new();
    let member = owner.member();
    let address = member.listen().await;
    let key = Keypair::generate_ed25519();
    let (transport, _) = open_transport(&key, None);
    let peer = key.public().to_peer_id();
    let mut silent = Swarm::new(transport, dummy::Behaviour, peer, patient());
    silent.dial(address.parse::<Multiaddr>().unwrap()).unwrap();
    let start = Instant::now();
    let closed = async {
        while !matches!(silent.select_next_some().await, SwarmEvent::ConnectionClosed { .. }) {}
    };
    tokio::time::timeout(DEADLINE, closed).await.expect("it is cut off");
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert_eq!(member.connected(), 0);
}

#[tokio::test]
async fn a_token_that_expires_ends_a_live_connection() {
    let owner = Owner::new();
    let one = owner.member();
    let other = owner.member_with(quick(), 2);
    other.dial(&one.listen().await).await.unwrap();
    let gone = |event: &Event| match event {
        Event::Disconnected { cause, .. } => Some(cause.clone()),
        _ => None,
    };
    assert_eq!(one.wait("the end", gone).await, "the peer's token has expired");
    other.wait("the end", gone).await;
}

#[tokio::test]
async fn dials_fail_in_different_ways() {
    let owner = Owner::new();
    let node = owner
        .member_with(Settings { connect_timeout: Duration::from_millis(300), ..quick() }, 3600);
    let refused = node.dial("/ip4/127.0.0.1/tcp/1").await.unwrap_err();
    assert_eq!(refused.0, DialFailure::Refused, "{}", refused.1);
    // It accepts, and then says nothing.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("/ip4/127.0.0.1/tcp/{}", mute.local_addr().unwrap().port());
    let silent = node.dial(&address).await.unwrap_err();
    assert_eq!(silent.0, DialFailure::Silent, "{}", silent.1);
    let unknown = node.dial("/ip4/127.0.0.1/sctp/1").await.unwrap_err();
    assert_eq!(unknown.0, DialFailure::Other, "{}", unknown.1);
    let own = node.listen().await;
    let itself = node.dial(&own).await.unwrap_err();
    assert_eq!(itself.0, DialFailure::Other, "{}", itself.1);
}

#[tokio::test]
async fn a_revocation_cuts_off_at_once_and_keeps_out() {
    let owner = Owner::new();
    let one = owner.member();
    let address = one.listen().await;
    let (other, bystander) = (owner.member(), owner.member());
    other.dial(&address).await.unwrap();
    bystander.dial(&address).await.unwrap();
    let admission = one.node.gate.admission_of(&other.peer).unwrap();
    assert!(!admission.revocations_differ);
    let id = admission.token.revocation_ids[0];
    let never = u64::MAX;
    let record = revocation::sign(&owner.0, common::SWARM, &id, never).unwrap();
    let forged = revocation::sign(&Owner::new().0, common::SWARM, &id, never).unwrap();
    assert_eq!(one.node.revoke(&[forged, vec![1, 2, 3]]).unwrap(), [false, false]);
    assert_eq!(one.node.revoke(std::slice::from_ref(&record)).unwrap(), [true]);
    assert_eq!(one.node.revoke(&[record]).unwrap(), [false]);
    let gone = |event: &Event| match event {
        Event::Disconnected { peer, cause } => Some((*peer, cause.clone())),
        _ => None,
    };
    let end = one.wait("the end", gone).await;
    assert_eq!(end, (other.peer, "the peer's token was revoked".into()));
    other.wait("the end", gone).await;
    let (failure, error) = other.dial(&address).await.unwrap_err();
    assert_eq!(failure, DialFailure::NotAdmitted("revoked"));
    assert!(error.contains("token was revoked"), "{error}");
    let third = owner.member();
    third.dial(&address).await.unwrap();
    assert!(third.node.gate.admission_of(&one.peer).unwrap().revocations_differ);
}

#[tokio::test]
async fn two_machines_with_one_identity_are_told_so() {
    let owner = Owner::new();
    let one = owner.member();
    let address = one.listen().await;
    let key = Keypair::generate_ed25519();
    let token = owner.token(&key.public().to_peer_id(), 3600);
    let first = owner.start(key.clone(), token.clone(), quick());
    first.dial(&address).await.unwrap();
    let second = owner.start(key.clone(), token.clone(), quick());
    second.dial(&address).await.unwrap();
    let gone = |event: &Event| matches!(event, Event::Disconnected { .. }).then_some(());
    first.wait("the end", gone).await;
    let (failure, error) = first.dial(&address).await.unwrap_err();
    assert_eq!(failure, DialFailure::NotAdmitted("duplicate"));
    assert!(error.contains("another node runs with this identity"), "{error}");
    // A process that starts again is no duplicate.
    let third = owner.start(key, token, quick());
    third.dial(&address).await.unwrap();
}
