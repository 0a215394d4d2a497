//! Nonsense on every door: the node must stay alive and of service.
#![allow(clippy::unwrap_used)]

mod common;

use std::{io::Write, net::TcpStream, time::Duration};

use common::{Noise, Owner, WORK, port, quick, raw_stream};
use futures::{AsyncReadExt, AsyncWriteExt};
use libp2p::StreamProtocol;
use mycel_node::{event::Event, node::Command, settings::Settings};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_on_the_port_is_survived() {
    let owner = Owner::new();
    let member = owner.member();
    let address = member.listen().await;
    let port = port(&address);
    tokio::task::spawn_blocking(move || {
        let mut noise = Noise(42);
        for round in 0..200 {
            let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
            // garbage behind a proper greeting
            let _ = match round % 3 {
                0 => socket.write_all(b"\x13/multistream/1.0.0\n\x07/noise\n"),
                1 => socket.write_all(b"\x13/multistream/1.0.0\n\x0b/tls/1.0.0\n"),
                _ => Ok(()),
            };
            let _ = socket.write_all(&noise.bytes(1 + round * 97 % 5000));
        }
    })
    .await
    .unwrap();
    // A slow node still has more of the garbage to read than it takes from one address at once.
    assert_eq!(owner.member().dial_when_there_is_room(&address).await, member.peer);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_open_connections_do_not_lock_members_out_for_long() {
    let owner = Owner::new();
    let settings = Settings {
        connect_timeout: Duration::from_millis(500),
        max_pending_incoming: 32,
        max_pending_incoming_per_address: 16,
        ..quick()
    };
    let member = owner.member_with(settings, 3600);
    let address = member.listen().await;
    let target = ("127.0.0.1", port(&address));
    let half_open: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(target).unwrap()).collect();
    let denied = |event: &Event| match event {
        Event::Refused { error, .. } => error.contains("too many").then_some(()),
        _ => None,
    };
    member.wait("the limit", denied).await;
    // They are dropped after the connect time-out; then there is room again.
    assert_eq!(owner.member().dial_when_there_is_room(&address).await, member.peer);
    drop(half_open);
}

/// An admitted peer that sends random bytes on each protocol that the node speaks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_from_a_member_is_survived() {
    let owner = Owner::new();
    let member = owner.member();
    let address = member.listen().await;
    member.node.send(Command::Subscribe { topic: "t".into() }).unwrap();
    let mut noise = Noise(7);
    for protocol in [
        "/ipfs/id/1.0.0",
        "/ipfs/id/push/1.0.0",
        "/ipfs/ping/1.0.0",
        "/mycel/kad/1",
        "/mycel/gossip/1.1.0",
        "/test/work/1",
        "/test/quiet/1",
    ] {
        for round in 0..8 {
            let name = StreamProtocol::new(protocol);
            let gossip = StreamProtocol::new("/mycel/gossip/1.1.0");
            // Gossipsub turns its handler off for a peer that does not speak it.
            let swarm = owner.raw_member(&[gossip]);
            let mut stream = raw_stream(swarm, &address, member.peer, name).await;
            let garbage = match round % 4 {
                0 => noise.bytes(1 + round * 53),
                // a small length first, so that the decoder behind it sees the garbage
                1 => [vec![100], noise.bytes(100)].concat(),
                2 => [vec![0xff, 0xff, 0xff, 0xff, 0x0f], noise.bytes(64)].concat(),
                _ => [vec![0, 0, 0, 60], noise.bytes(60)].concat(),
            };
            let _ = stream.write_all(&garbage).await;
            let _ = stream.close().await;
            let mut answer = [0; 64];
            let read = stream.read(&mut answer);
            let _ = tokio::time::timeout(Duration::from_millis(20), read).await;
        }
    }
    let friend = owner.member();
    assert_eq!(friend.dial(&address).await, Ok(member.peer));
    friend.open(member.peer, WORK).await;
}
