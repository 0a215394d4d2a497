//! What a stream promises.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::{MAX_FRAME_BYTES, Member, Owner, QUIET, READ_HIGH_BYTES, WORK, raw_stream};
use futures::{AsyncReadExt, AsyncWriteExt};
use libp2p::{PeerId, StreamProtocol};
use mycel_node::{
    event::Event,
    node::{Command, SendError},
    streams::{
        frame::PREFIX_BYTES,
        stream::{Stream, WriteError},
    },
};

async fn pair(protocol: StreamProtocol) -> (Member, Member, Arc<Stream>) {
    let owner = Owner::new();
    let (one, other) = (owner.member(), owner.member());
    let address = other.listen().await;
    one.dial(&address).await.unwrap();
    let stream = one.open(other.peer, protocol).await;
    (one, other, stream)
}

fn closed(event: &Event) -> Option<String> {
    match event {
        Event::StreamClosed { error, .. } => Some(error.clone()),
        _ => None,
    }
}

fn gone(event: &Event) -> Option<(PeerId, String)> {
    match event {
        Event::Disconnected { peer, cause } => Some((*peer, cause.clone())),
        _ => None,
    }
}

#[tokio::test]
async fn frames_arrive_in_order_and_a_close_is_orderly() {
    let (one, other, stream) = pair(QUIET).await;
    let sent: Vec<Vec<u8>> =
        (0..500usize).map(|n| vec![n as u8; n * 7 % MAX_FRAME_BYTES]).collect();
    for frame in &sent {
        stream.write(frame).unwrap();
    }
    stream.close();
    assert_eq!(other.wait("the end", closed).await, "");
    assert_eq!(one.wait("the end", closed).await, "");
    assert_eq!(other.frames(), sent);
}

#[tokio::test]
async fn a_file_goes_out_in_frames_as_far_as_there_is_room() {
    let (_one, other, stream) = pair(QUIET).await;
    let content: Vec<u8> = (0..600_000u32).map(|n| (n % 251) as u8).collect();
    let path = std::env::temp_dir().join(format!("mycel-file-{}", stream.id));
    std::fs::write(&path, &content).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(stream.write_file(&file, content.len() as u64, 1, 4000).is_err(), "behind the end");
    let (mut offset, mut turns) = (5, 0);
    while offset < content.len() {
        // At most what may be unsent, and a frame.
        let queued = stream.write_file(&file, offset as u64, content.len() - offset, 4000).unwrap();
        assert!(queued <= stream.protocol.write_high_bytes + 4000);
        offset += queued;
        turns += usize::from(queued > 0);
        tokio::task::yield_now().await;
    }
    assert!(turns > 1, "it was all queued at once");
    stream.close();
    assert_eq!(other.wait("the end", closed).await, "");
    assert_eq!(other.frames().concat(), content[5..]);
}

#[tokio::test]
async fn a_frame_over_the_cap_is_not_written() {
    let (_one, _other, stream) = pair(QUIET).await;
    let (length, limit) = (MAX_FRAME_BYTES + 1, MAX_FRAME_BYTES);
    let error = WriteError::FrameTooLong { length, limit };
    assert_eq!(stream.write(&vec![0; length]), Err(error));
}

#[tokio::test]
async fn a_frame_over_the_cap_ends_the_stream_and_only_the_stream() {
    let owner = Owner::new();
    let member = owner.member();
    let address = member.listen().await;
    let mut raw = raw_stream(owner.raw_member(&[]), &address, member.peer, QUIET).await;
    let too_long = (MAX_FRAME_BYTES as u32 + 1).to_be_bytes();
    raw.write_all(&[&[0, 0, 0, 1, 7], &too_long[..]].concat()).await.unwrap();
    raw.flush().await.unwrap();
    assert_eq!(member.wait("the end", closed).await, "a frame over the limit");
    assert_eq!(member.count(|event| gone(event).is_some()), 0);
    assert_eq!(raw.read(&mut [0; 8]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn heartbeats_come_from_both_ends_and_are_no_frames() {
    let (one, other, _stream) = pair(WORK).await;
    for node in [&one, &other] {
        let beats = |node: &Member| node.count(|event| matches!(event, Event::Heartbeat { .. }));
        node.until("heartbeats", |node| beats(node) >= 3).await;
        let on_one_clock = |event: &Event| match event {
            Event::Heartbeat { peer_clock, arrived_at, .. } => peer_clock > arrived_at,
            _ => false,
        };
        assert_eq!(node.count(on_one_clock), 0, "both use this machine's clock");
        assert!(node.frames().is_empty());
        assert_eq!(node.count(|event| matches!(event, Event::Silent { .. })), 0);
    }
}

#[tokio::test]
async fn silence_is_told_again_and_again_until_a_byte_comes() {
    let owner = Owner::new();
    let member = owner.member();
    let address = member.listen().await;
    let mut raw = raw_stream(owner.raw_member(&[]), &address, member.peer, WORK).await;
    let silent = |event: &Event| match event {
        Event::Silent { seconds, .. } => Some(*seconds),
        _ => None,
    };
    let first = member.take("silence", silent).await;
    let second = member.take("more silence", silent).await;
    assert!((0.3..2.0).contains(&first), "{first}");
    assert!(second >= first + 0.19, "{second}");
    // Half a prefix is a byte, too.
    raw.write_all(&[0]).await.unwrap();
    raw.flush().await.unwrap();
    let deadline = std::time::Instant::now() + common::DEADLINE;
    while member.take("silence", silent).await > second {
        assert!(std::time::Instant::now() < deadline, "silence goes on after a byte");
    }
}

#[tokio::test]
async fn a_reader_waits_for_the_application() {
    let (one, other, stream) = pair(QUIET).await;
    let far = other.opened(false).await;
    let frame = vec![1; MAX_FRAME_BYTES];
    let total = 4 * READ_HIGH_BYTES / frame.len();
    let mut written = 0;
    while written < total && !stream.is_full() {
        stream.write(&frame).unwrap();
        written += 1;
    }
    let told = |node: &Member| node.frames().len() * (PREFIX_BYTES + MAX_FRAME_BYTES);
    let writable = |event: &Event| matches!(event, Event::Writable { .. }).then_some(());
    let mut consumed = 0;
    while written < total {
        tokio::select! {
            () = one.take("room", writable) => {
                while written < total && !stream.is_full() {
                    stream.write(&frame).unwrap();
                    written += 1;
                }
            }
            () = other.until("the limit", |node| told(node) - consumed >= READ_HIGH_BYTES) => {
                let waiting = told(&other) - consumed;
                // One batch may go beyond, then the reader stops.
                assert!(waiting <= 2 * READ_HIGH_BYTES, "{waiting}");
                far.consume(waiting);
                consumed += waiting;
            }
        }
    }
    other
        .until("everything", |node| {
            let waiting = told(node) - consumed;
            waiting >= READ_HIGH_BYTES || node.frames().len() == total
        })
        .await;
    far.consume(told(&other) - consumed);
    other.until("everything", |node| node.frames().len() == total).await;
}

#[tokio::test]
async fn our_own_disconnect_ends_waiting_reads() {
    let (one, other, _stream) = pair(WORK).await;
    one.node.send(Command::Disconnect { peer: other.peer }).unwrap();
    let (peer, cause) = one.wait("the end", gone).await;
    assert_eq!((peer, cause.as_str()), (other.peer, "this node disconnected"));
    assert_ne!(one.wait("the stream's end", closed).await, "");
    other.wait("the end", gone).await;
    assert_ne!(other.wait("the stream's end", closed).await, "");
}

#[tokio::test]
async fn streams_that_cannot_be_opened_say_so() {
    let (one, other, _stream) = pair(WORK).await;
    let failed = |event: &Event| match event {
        Event::StreamFailed { error, .. } => Some(error.clone()),
        _ => None,
    };
    let unknown = StreamProtocol::new("/test/unknown/1");
    one.node.send(Command::OpenStream { peer: other.peer, protocol: unknown }).unwrap();
    assert!(one.take("a failure", failed).await.contains("does not speak"));
    let nobody = PeerId::random();
    one.node.send(Command::OpenStream { peer: nobody, protocol: WORK }).unwrap();
    assert!(one.take("a failure", failed).await.contains("not connected"));
}

#[tokio::test]
async fn a_stop_sends_what_is_queued_and_frees_the_port() {
    let owner = Owner::new();
    let (one, other) = (owner.member(), owner.member());
    let address = one.listen().await;
    other.dial(&address).await.unwrap();
    let stream = other.open(one.peer, QUIET).await;
    drop(stream);
    let far = one.opened(false).await;
    for _ in 0..100 {
        far.write(&[5; 1000]).unwrap();
    }
    let bare = address.split("/p2p/").next().unwrap();
    assert_eq!(owner.member().try_listen(bare).await, Err(true), "the port is in use");
    one.node.stop();
    one.wait("the stop", |event| matches!(event, Event::Stopped { .. }).then_some(())).await;
    assert_eq!(one.wait("the stream's end", closed).await, "");
    one.wait("the peer's end", gone).await;
    assert_eq!(one.node.send(Command::Disconnect { peer: other.peer }), Err(SendError::Stopped));
    other.wait("the end", gone).await;
    assert_eq!(other.frames().len(), 100);
    assert!(owner.member().try_listen(bare).await.is_ok(), "the port is free");
}
