//! Nodes whose events are remembered, and strangers without a gate.
// Each test binary uses its own part of this.
#![allow(dead_code, clippy::unwrap_used)]

pub mod invites;
pub mod relays;

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::StreamExt;
use libp2p::{
    Multiaddr, PeerId, StreamProtocol, Swarm,
    core::transport::Boxed,
    identify,
    identity::Keypair,
    ping, relay,
    swarm::{self, NetworkBehaviour, SwarmEvent},
};
use mycel_node::{
    clock,
    event::Event,
    failure::DialFailure,
    gate::{Entrance, Gate},
    membership::{self, Statement},
    node::{Command, Node, Start},
    queue::{Bounds, EventQueue},
    settings::{Liveness, Protocol, Settings},
    streams::{behaviour as streams, stream::Stream},
    transport,
};

pub const DEADLINE: Duration = Duration::from_secs(15);
pub const WORK: StreamProtocol = StreamProtocol::new("/test/work/1");
pub const QUIET: StreamProtocol = StreamProtocol::new("/test/quiet/1");
pub const MAX_FRAME_BYTES: usize = 4096;
pub const READ_HIGH_BYTES: usize = 1 << 20;
pub const SWARM: &str = "test";
pub const ROLES: u32 = 6;
pub const LOOPBACK: &str = "/ip4/127.0.0.1/tcp/0";
pub const QUIC: &str = "/ip4/127.0.0.1/udp/0/quic-v1";

pub fn protocols() -> Vec<Protocol> {
    [(WORK, true), (QUIET, false)]
        .map(|(name, heartbeats)| Protocol {
            name,
            max_frame_bytes: MAX_FRAME_BYTES,
            heartbeats,
            write_high_bytes: 256 * 1024,
            read_high_bytes: READ_HIGH_BYTES,
            limited: !heartbeats,
            in_place: false,
        })
        .to_vec()
}

pub fn liveness() -> Liveness {
    Liveness {
        heartbeat: Duration::from_millis(50),
        silence: Duration::from_millis(300),
        repeat: Duration::from_millis(200),
    }
}

pub fn quick() -> Settings {
    Settings {
        connect_timeout: Duration::from_secs(2),
        hello_timeout: Duration::from_secs(1),
        expiry_check: Duration::from_millis(100),
        clock_tolerance: Duration::ZERO,
        ..Settings::default()
    }
}

/// The swarm's owner.
pub struct Owner(pub Keypair);

impl Owner {
    pub fn new() -> Owner {
        Owner(Keypair::generate_ed25519())
    }

    pub fn secret(&self) -> Vec<u8> {
        self.0.clone().try_into_ed25519().unwrap().secret().as_ref().to_vec()
    }

    pub fn public(&self) -> [u8; 32] {
        self.0.clone().try_into_ed25519().unwrap().public().to_bytes()
    }

    pub fn grant(&self, lifetime_seconds: i64) -> Statement {
        Statement {
            roles: Some(vec!["scheduler".into(), "worker".into()]),
            expires_at: Some(clock::wall_seconds().saturating_add_signed(lifetime_seconds)),
            ..Statement::default()
        }
    }

    pub fn issue(&self, grant: &Statement) -> Vec<u8> {
        membership::issue(&self.secret(), SWARM, grant).unwrap()
    }

    /// Unbound, and of no invite.
    pub fn unbound(&self, lifetime_seconds: i64) -> Vec<u8> {
        self.issue(&self.grant(lifetime_seconds))
    }

    pub fn bind(&self, token: &[u8], peer: &PeerId) -> Vec<u8> {
        membership::bind(&self.public(), token, &peer.to_base58()).unwrap()
    }

    /// As the owner gives to nodes of its own.
    pub fn token(&self, peer: &PeerId, lifetime_seconds: i64) -> Vec<u8> {
        let peer = Some(peer.to_base58());
        self.issue(&Statement { peer, ..self.grant(lifetime_seconds) })
    }

    pub fn token_of(&self, swarm: &str, peer: &PeerId) -> Vec<u8> {
        let grant = Statement { peer: Some(peer.to_base58()), ..self.grant(3600) };
        membership::issue(&self.secret(), swarm, &grant).unwrap()
    }

    /// Bound, and without a role.
    pub fn user_token(&self, peer: &PeerId) -> Vec<u8> {
        let grant = Statement { user: Some("alice".into()), ..Statement::default() };
        self.bind(&membership::issue(&self.secret(), SWARM, &grant).unwrap(), peer)
    }

    pub fn gate(&self, peer: PeerId, token: Vec<u8>) -> Arc<Gate> {
        let gate = Gate::new(Entrance {
            owner: self.0.public(),
            swarm: SWARM.into(),
            peer,
            token,
            porter: None,
            timeout: Duration::from_secs(1),
            tolerance: Duration::ZERO,
            max_clock_skew: Duration::from_secs(60),
            max_members: 100,
            max_per_family: 8192,
            max_revocations: 100,
        });
        Arc::new(gate.unwrap())
    }

    pub fn member(&self) -> Member {
        self.member_with(quick(), 3600)
    }

    pub fn member_with(&self, settings: Settings, lifetime_seconds: i64) -> Member {
        let key = Keypair::generate_ed25519();
        let token = self.token(&key.public().to_peer_id(), lifetime_seconds);
        self.start(key, token, settings)
    }

    pub fn start(&self, key: Keypair, token: Vec<u8>, settings: Settings) -> Member {
        let queue = Arc::new(EventQueue::new(Bounds::default(), Box::new(|| {})));
        let start = Start {
            key,
            swarm_name: SWARM.into(),
            owner: self.0.public(),
            token,
            protocols: protocols(),
            liveness: liveness(),
            settings,
        };
        let node = Node::start(start, queue.clone()).unwrap();
        Member { peer: node.peer, node, queue, seen: Mutex::default() }
    }

    /// A swarm with a good token that speaks raw bytes on any protocol.
    pub fn raw_member(&self, protocols: &[StreamProtocol]) -> Swarm<streams::Behaviour> {
        let key = Keypair::generate_ed25519();
        let peer = key.public().to_peer_id();
        raw(&key, Some(self.gate(peer, self.token(&peer, 3600))), protocols)
    }
}

pub fn raw(
    key: &Keypair,
    gate: Option<Arc<Gate>>,
    protocols: &[StreamProtocol],
) -> Swarm<streams::Behaviour> {
    let (transport, _) = open_transport(key, gate);
    let behaviour = streams::Behaviour::new(protocols.to_vec(), Duration::from_secs(2));
    Swarm::new(transport, behaviour, key.public().to_peer_id(), patient())
}

/// The relay's client is needed only by who uses circuits.
pub fn open_transport(
    key: &Keypair,
    gate: Option<Arc<Gate>>,
) -> (Boxed<transport::Connection>, relay::client::Behaviour) {
    transport::build(key, gate, Duration::from_secs(10), transport::Meter::default()).unwrap()
}

pub fn patient() -> swarm::Config {
    swarm::Config::with_tokio_executor().with_idle_connection_timeout(Duration::from_secs(600))
}

/// Connects, opens one stream and keeps the swarm running behind it.
pub async fn raw_stream(
    mut swarm: Swarm<streams::Behaviour>,
    address: &str,
    peer: PeerId,
    protocol: StreamProtocol,
) -> libp2p::Stream {
    swarm.dial(address.parse::<Multiaddr>().unwrap()).unwrap();
    loop {
        match swarm.select_next_some().await {
            SwarmEvent::ConnectionEstablished { .. } => {
                swarm.behaviour_mut().open(peer, protocol.clone());
            }
            SwarmEvent::Behaviour(streams::StreamEvent::Opened { stream, ours: true, .. }) => {
                tokio::spawn(async move {
                    loop {
                        swarm.select_next_some().await;
                    }
                });
                return stream;
            }
            SwarmEvent::OutgoingConnectionError { error, .. } => panic!("{error}"),
            SwarmEvent::Behaviour(streams::StreamEvent::Failed { error, .. }) => panic!("{error}"),
            _ => {}
        }
    }
}

/// Plain libp2p that greets everybody, without the gate.
#[derive(NetworkBehaviour)]
pub struct Stranger {
    pub relay_client: relay::client::Behaviour,
    pub identify: identify::Behaviour,
    pub ping: ping::Behaviour,
    pub streams: streams::Behaviour,
}

pub fn stranger() -> Swarm<Stranger> {
    let key = Keypair::generate_ed25519();
    let (transport, relay_client) = open_transport(&key, None);
    let behaviour = Stranger {
        relay_client,
        identify: identify::Behaviour::new(identify::Config::new("x".into(), key.public())),
        ping: ping::Behaviour::new(ping::Config::new()),
        streams: streams::Behaviour::new(vec![WORK], Duration::from_secs(2)),
    };
    Swarm::new(transport, behaviour, key.public().to_peer_id(), patient())
}

/// A node with everything that it has told.
pub struct Member {
    pub peer: PeerId,
    pub node: Node,
    pub queue: Arc<EventQueue>,
    seen: Mutex<Vec<Event>>,
}

impl Member {
    pub async fn listen(&self) -> String {
        self.listen_on(LOOPBACK).await
    }

    pub async fn listen_on(&self, address: &str) -> String {
        let address = self.try_listen(address).await.unwrap();
        format!("{address}/p2p/{}", self.peer)
    }

    /// The address, or whether it is in use.
    pub async fn try_listen(&self, address: &str) -> Result<String, bool> {
        let address = address.parse().unwrap();
        self.node.send(Command::Listen { listen: 7, address }).unwrap();
        self.wait("listening", |event| match event {
            Event::Listening { address, .. } => Some(Ok(address.clone())),
            Event::ListenFailed { listen: 7, in_use, .. } => Some(Err(*in_use)),
            _ => None,
        })
        .await
    }

    pub async fn dial(&self, address: &str) -> Result<PeerId, (DialFailure, String)> {
        let text = address.to_owned();
        self.node.send(Command::Dial { address: address.parse().unwrap(), text }).unwrap();
        self.take("the dial's end", |event| match event {
            Event::DialSucceeded { peer, .. } => Some(Ok(*peer)),
            Event::DialFailed { failure, error, .. } => Some(Err((*failure, error.clone()))),
            _ => None,
        })
        .await
    }

    /// Dials until a node whose places for newcomers are taken for the moment has one again.
    pub async fn dial_when_there_is_room(&self, address: &str) -> PeerId {
        let deadline = std::time::Instant::now() + DEADLINE;
        loop {
            match self.dial(address).await {
                Ok(peer) => return peer,
                Err((failure, error)) => {
                    assert_ne!(failure.name(), "not_admitted", "{error}");
                    assert!(std::time::Instant::now() < deadline, "{error}");
                }
            }
        }
    }

    pub async fn open(&self, peer: PeerId, protocol: StreamProtocol) -> Arc<Stream> {
        self.node.send(Command::OpenStream { peer, protocol }).unwrap();
        self.opened(true).await
    }

    pub async fn opened(&self, mine: bool) -> Arc<Stream> {
        self.take("a stream", |event| match event {
            Event::StreamOpened { stream, ours } if *ours == mine => Some(stream.clone()),
            _ => None,
        })
        .await
    }

    pub fn count(&self, pick: impl Fn(&Event) -> bool) -> usize {
        let mut seen = self.seen.lock().unwrap();
        let (outcomes, notices) = self.queue.drain();
        seen.extend(outcomes.into_iter().chain(notices));
        seen.iter().filter(|event| pick(event)).count()
    }

    pub fn frames(&self) -> Vec<Vec<u8>> {
        self.count(|_| false);
        let seen = self.seen.lock().unwrap();
        let frames = seen.iter().filter_map(|event| match event {
            Event::Frames { bytes, frames, .. } => {
                Some(frames.iter().map(|range| bytes[range.clone()].to_vec()))
            }
            _ => None,
        });
        frames.flatten().collect()
    }

    pub fn connected(&self) -> usize {
        self.count(|event| matches!(event, Event::Connected { .. }))
    }

    /// Waits for an event; it stays among those seen.
    pub async fn wait<T>(&self, what: &str, pick: impl Fn(&Event) -> Option<T>) -> T {
        self.find(what, pick).await.1
    }

    /// Waits for an event and forgets it, so that the next one like it is another.
    pub async fn take<T>(&self, what: &str, pick: impl Fn(&Event) -> Option<T>) -> T {
        let (at, found) = self.find(what, pick).await;
        self.seen.lock().unwrap().remove(at);
        found
    }

    async fn find<T>(&self, what: &str, pick: impl Fn(&Event) -> Option<T>) -> (usize, T) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(found) = self.look(&pick) {
                return found;
            }
            assert!(Instant::now() < deadline, "waited in vain for {what}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn look<T>(&self, pick: impl Fn(&Event) -> Option<T>) -> Option<(usize, T)> {
        self.count(|_| false);
        let seen = self.seen.lock().unwrap();
        seen.iter().enumerate().find_map(|(at, event)| Some((at, pick(event)?)))
    }

    pub async fn until(&self, what: &str, condition: impl Fn(&Member) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !condition(self) {
            assert!(Instant::now() < deadline, "waited in vain for {what}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

pub fn port(address: &str) -> u16 {
    address.split('/').nth(4).unwrap().parse().unwrap()
}

/// xorshift: enough for noise, and the same in each run.
pub struct Noise(pub u64);

impl Noise {
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut next = || {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 as u8
        };
        (0..length).map(|_| next()).collect()
    }
}
