//! Who is connected and which streams run on which connection: keeps the order in which
//! the application hears of them.
//!
//! A peer's streams are told closed before the peer is told gone, and a peer that comes
//! back is told gone first.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use libp2p::{
    PeerId, Stream as RawStream, StreamProtocol, core::ConnectedPoint, multiaddr,
    swarm::ConnectionId,
};
use tokio::task::{Id, JoinSet};

use crate::{
    clock,
    conduct::Conduct,
    event::Event,
    facts::{Facts, Heard, PeerFacts},
    figures::Figures,
    gate::Admission,
    invite::Family,
    queue::EventQueue,
    settings::{Liveness, Protocol, Settings},
    streams::stream::{self, Stream},
    tally::Tally,
};

/// One standing connection.
#[derive(Clone, Debug)]
pub struct Path {
    pub connection: ConnectionId,
    pub address: String,
    pub relayed: bool,
    /// Of the connection itself, or of the one to the relay.
    transport: &'static str,
    since: Instant,
}

impl Path {
    pub fn new(connection: ConnectionId, endpoint: &ConnectedPoint) -> Path {
        let address = endpoint.get_remote_address();
        let quic = address.iter().any(|part| part == multiaddr::Protocol::QuicV1);
        Path {
            connection,
            address: address.to_string(),
            relayed: endpoint.is_relayed(),
            transport: if quic { "quic" } else { "tcp" },
            since: Instant::now(),
        }
    }

    fn count(&self, figures: &Figures, change: i64) {
        let path = if self.relayed { "relayed" } else { "direct" };
        figures.change_by("connections", path, change);
        figures.change_by("connections", self.transport, change);
    }
}

pub struct Peers {
    queue: Arc<EventQueue>,
    facts: Arc<Facts>,
    figures: Arc<Figures>,
    conduct: Arc<Conduct>,
    protocols: Vec<Protocol>,
    liveness: Liveness,
    max_streams_per_peer: usize,
    max_connections_per_peer: usize,
    /// Of each invite: streams, and connections beyond the first of each peer.
    streams: Tally,
    further_paths: Tally,
    peers: HashMap<PeerId, Peer>,
    /// The owner of every stream's task: it is told when one ends, even by a panic.
    tasks: JoinSet<()>,
    task_peers: HashMap<Id, PeerId>,
}

#[derive(Default)]
struct Peer {
    /// In the order in which they came.
    paths: Vec<Path>,
    /// With whom it shares limits.
    family: Option<Family>,
    heard: Arc<Heard>,
    streams: HashMap<Id, Running>,
    /// The last connection is gone for this reason, and its streams still read the rest.
    departing: Option<String>,
}

impl Peer {
    fn has(&self, connection: ConnectionId) -> bool {
        self.paths.iter().any(|path| path.connection == connection)
    }

    /// Where new streams go: a direct path rather than one through a relay, and the newest,
    /// since an older one may be dead without our knowing.
    fn best(&self) -> Option<&Path> {
        self.paths.iter().rev().min_by_key(|path| path.relayed)
    }

    fn is_older_than(&self, grace: Duration, now: Instant) -> bool {
        self.paths.iter().all(|path| now.duration_since(path.since) >= grace)
    }

    fn addresses(&self) -> Vec<String> {
        let mut paths: Vec<&Path> = self.paths.iter().rev().collect();
        paths.sort_by_key(|path| path.relayed);
        paths.into_iter().map(|path| path.address.clone()).collect()
    }
}

struct Running {
    stream: Arc<Stream>,
    connection: ConnectionId,
    /// Whom it was counted for: a peer may come back by another invite.
    family: Option<Family>,
}

impl Peers {
    pub fn new(
        queue: Arc<EventQueue>,
        facts: Arc<Facts>,
        figures: Arc<Figures>,
        conduct: Arc<Conduct>,
        protocols: Vec<Protocol>,
        liveness: Liveness,
        settings: &Settings,
    ) -> Peers {
        Peers {
            queue,
            facts,
            figures,
            conduct,
            protocols,
            liveness,
            max_streams_per_peer: settings.max_streams_per_peer,
            max_connections_per_peer: settings.max_connections_per_peer as usize,
            streams: Tally::default(),
            further_paths: Tally::default(),
            peers: HashMap::new(),
            tasks: JoinSet::new(),
            task_peers: HashMap::new(),
        }
    }

    pub fn is_connected(&self, peer: &PeerId) -> bool {
        self.peers.get(peer).is_some_and(|peer| !peer.paths.is_empty())
    }

    pub fn connections(&self, peer: &PeerId) -> Vec<ConnectionId> {
        let paths = self.peers.get(peer).map(|peer| &peer.paths);
        paths.into_iter().flatten().map(|path| path.connection).collect()
    }

    /// Gives back the connection that has to go for this one, if the members of the peer's invite
    /// have all the connections that they may: its oldest, since one that has come back needs
    /// the new one.
    #[must_use]
    pub fn connection_established(
        &mut self,
        id: PeerId,
        path: Path,
        admission: Admission,
    ) -> Option<ConnectionId> {
        let peer = self.peers.entry(id).or_default();
        if let Some(cause) = peer.departing.take() {
            for running in peer.streams.values() {
                running.stream.end(cause.clone());
            }
            self.queue.push(Event::Disconnected { peer: id, cause });
        }
        let before = peer.best().map(|best| best.relayed);
        let Path { address, relayed, .. } = path.clone();
        path.count(&self.figures, 1);
        peer.paths.push(path);
        if before.is_some() {
            let surplus = self.count_further_path(id);
            self.paths_changed(id, before);
            return surplus;
        }
        peer.family = admission.family();
        let facts = PeerFacts {
            roles: admission.token.rights.roles,
            addresses: peer.addresses(),
            relayed,
            connected_at: clock::boot_seconds(),
            heard: peer.heard.clone(),
            ..PeerFacts::default()
        };
        peer.heard.now();
        self.facts.insert(id, facts);
        if let Some(family) = peer.family {
            self.conduct.joined_by(id, family);
        }
        let admission = Box::new(admission);
        self.queue.push(Event::Connected { peer: id, admission, address, relayed });
        None
    }

    fn count_further_path(&mut self, id: PeerId) -> Option<ConnectionId> {
        let peer = self.peers.get(&id)?;
        let each = self.max_connections_per_peer.saturating_sub(1);
        let has_room = self.further_paths.has_room(peer.family, each);
        self.further_paths.take(peer.family);
        let oldest = peer.paths.first()?;
        (!has_room).then_some(oldest.connection)
    }

    pub fn connection_closed(
        &mut self,
        id: PeerId,
        connection: ConnectionId,
        remaining: u32,
        cause: String,
    ) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let before = peer.best().map(|best| best.relayed);
        let mut was_known = false;
        for path in peer.paths.extract_if(.., |path| path.connection == connection) {
            path.count(&self.figures, -1);
            was_known = true;
        }
        if was_known && !peer.paths.is_empty() {
            self.further_paths.give_back(peer.family);
        }
        for running in peer.streams.values().filter(|running| running.connection == connection) {
            running.stream.connection_lost();
        }
        if remaining == 0 {
            self.facts.remove(&id);
            self.conduct.disconnected(&id);
            peer.departing = Some(cause);
            self.depart_if_done(id);
        } else {
            self.paths_changed(id, before);
        }
    }

    fn paths_changed(&self, id: PeerId, relayed_before: Option<bool>) {
        let Some(peer) = self.peers.get(&id) else { return };
        let Some(best) = peer.best() else { return };
        self.facts.change(&id, |facts| {
            facts.addresses = peer.addresses();
            facts.relayed = best.relayed;
        });
        if relayed_before != Some(best.relayed) {
            let Path { address, relayed, .. } = best.clone();
            self.queue.push(Event::PathChanged { peer: id, address, relayed });
        }
    }

    pub fn stream_opened(
        &mut self,
        id: PeerId,
        connection: ConnectionId,
        name: StreamProtocol,
        raw: RawStream,
        ours: bool,
    ) {
        let protocol = self.protocols.iter().find(|protocol| protocol.name == name).cloned();
        let peer = self.peers.get_mut(&id);
        let (Some(protocol), Some(peer)) = (protocol, peer.filter(|peer| peer.has(connection)))
        else {
            if ours {
                let error = "the connection was lost".into();
                self.queue.push(Event::StreamFailed { peer: id, protocol: name, error });
            }
            return;
        };
        let has_room = peer.streams.len() < self.max_streams_per_peer
            && self.streams.has_room(peer.family, self.max_streams_per_peer);
        let is_welcome = ours || (has_room && self.conduct.spend(id, 1));
        if !is_welcome {
            return; // to drop it resets it
        }
        let stream = Stream::new(
            id,
            protocol,
            self.liveness,
            self.queue.clone(),
            peer.heard.clone(),
            self.conduct.clone(),
        );
        // Announced before its task runs, or the first frames would come before it.
        self.queue.push(Event::StreamOpened { stream: stream.clone(), ours });
        let task = self.tasks.spawn(stream::serve(stream.clone(), raw)).id();
        peer.streams.insert(task, Running { stream, connection, family: peer.family });
        self.streams.take(peer.family);
        self.task_peers.insert(task, id);
        self.figures.set("streams", self.tasks.len());
    }

    /// Waits for the end of a stream's task and settles it; for ever if there is none.
    pub async fn stream_ended(&mut self) {
        let (task, panicked) = match self.tasks.join_next_with_id().await {
            None => return std::future::pending().await,
            Some(Ok((task, ()))) => (task, false),
            Some(Err(error)) => (error.id(), error.is_panic()),
        };
        self.figures.set("streams", self.tasks.len());
        let Some(id) = self.task_peers.remove(&task) else { return };
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if let Some(running) = peer.streams.remove(&task) {
            self.streams.give_back(running.family);
            if panicked {
                running.stream.end("a fault of this node ended the stream".into());
            }
        }
        self.depart_if_done(id);
    }

    fn depart_if_done(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.streams.is_empty()
            && let Some(cause) = peer.departing.take()
        {
            self.peers.remove(&id);
            self.queue.push(Event::Disconnected { peer: id, cause });
        }
    }

    pub fn len(&self) -> usize {
        self.peers.len()
    }

    /// Peers that nobody uses now, those first that have been unused for longest.
    pub fn unused(&self, grace: Duration) -> Vec<PeerId> {
        let now = Instant::now();
        let mut unused: Vec<(f64, PeerId)> = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.streams.is_empty() && peer.is_older_than(grace, now))
            .map(|(id, peer)| (peer.heard.seconds(), *id))
            .collect();
        unused.sort_by(|one, other| one.0.total_cmp(&other.0));
        unused.into_iter().map(|(_, id)| id).collect()
    }

    /// Relayed connections that a direct one has replaced, and over which nothing runs.
    pub fn replaced(&self, grace: Duration) -> Vec<ConnectionId> {
        let now = Instant::now();
        let replaced = self.peers.values().flat_map(|peer| {
            let is_direct = peer
                .best()
                .is_some_and(|best| !best.relayed && now.duration_since(best.since) >= grace);
            let relayed = peer.paths.iter().filter(move |path| is_direct && path.relayed);
            relayed.map(|path| path.connection).filter(|connection| {
                !peer.streams.values().any(|running| running.connection == *connection)
            })
        });
        replaced.collect()
    }

    pub fn has_streams(&self) -> bool {
        !self.tasks.is_empty()
    }

    /// Every stream sends what it has queued and ends.
    pub fn close_streams(&self) {
        for running in self.peers.values().flat_map(|peer| peer.streams.values()) {
            running.stream.close();
        }
    }

    /// Tells the end of every stream and peer that is left, and stops their tasks.
    pub fn end_all(&mut self, cause: &str) {
        for (id, peer) in self.peers.drain() {
            self.facts.remove(&id);
            for running in peer.streams.into_values() {
                running.stream.end(cause.to_owned());
            }
            let cause = peer.departing.unwrap_or_else(|| cause.to_owned());
            self.queue.push(Event::Disconnected { peer: id, cause });
        }
        self.tasks.abort_all();
        self.task_peers.clear();
    }
}
