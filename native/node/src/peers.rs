//! Who is connected and which streams run on which connection: keeps the order in which
//! the application hears of them.
//!
//! A peer's streams are told closed before the peer is told gone, and a peer that comes
//! back is told gone first.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use libp2p::{PeerId, Stream as RawStream, StreamProtocol, swarm::ConnectionId};
use tokio::task::{Id, JoinSet};

use crate::{
    event::Event,
    queue::EventQueue,
    settings::{Liveness, Protocol},
    streams::stream::{self, Stream},
};

pub struct Peers {
    queue: Arc<EventQueue>,
    protocols: Vec<Protocol>,
    liveness: Liveness,
    max_streams_per_peer: usize,
    peers: HashMap<PeerId, Peer>,
    /// The owner of every stream's task: it is told when one ends, even by a panic.
    tasks: JoinSet<()>,
    task_peers: HashMap<Id, PeerId>,
}

#[derive(Default)]
struct Peer {
    connections: HashSet<ConnectionId>,
    streams: HashMap<Id, Running>,
    /// The last connection is gone for this reason, and its streams still read the rest.
    departing: Option<String>,
}

struct Running {
    stream: Arc<Stream>,
    connection: ConnectionId,
}

impl Peers {
    pub fn new(
        queue: Arc<EventQueue>,
        protocols: Vec<Protocol>,
        liveness: Liveness,
        max_streams_per_peer: usize,
    ) -> Peers {
        Peers {
            queue,
            protocols,
            liveness,
            max_streams_per_peer,
            peers: HashMap::new(),
            tasks: JoinSet::new(),
            task_peers: HashMap::new(),
        }
    }

    pub fn is_connected(&self, peer: &PeerId) -> bool {
        self.peers.get(peer).is_some_and(|peer| !peer.connections.is_empty())
    }

    pub fn connections(&self, peer: &PeerId) -> Vec<ConnectionId> {
        let connections = self.peers.get(peer).map(|peer| &peer.connections);
        connections.into_iter().flatten().copied().collect()
    }

    pub fn connection_established(
        &mut self,
        id: PeerId,
        connection: ConnectionId,
        roles: u32,
        address: String,
    ) {
        let peer = self.peers.entry(id).or_default();
        if let Some(cause) = peer.departing.take() {
            for running in peer.streams.values() {
                running.stream.end(cause.clone());
            }
            self.queue.push(Event::Disconnected { peer: id, cause });
        }
        let first = peer.connections.is_empty();
        peer.connections.insert(connection);
        if first {
            self.queue.push(Event::Connected { peer: id, roles, address });
        }
    }

    pub fn connection_closed(
        &mut self,
        id: PeerId,
        connection: ConnectionId,
        remaining: u32,
        cause: String,
    ) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.connections.remove(&connection);
        for running in peer.streams.values().filter(|running| running.connection == connection) {
            running.stream.connection_lost();
        }
        if remaining == 0 {
            peer.departing = Some(cause);
            self.depart_if_done(id);
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
        let (Some(protocol), Some(peer)) =
            (protocol, peer.filter(|peer| peer.connections.contains(&connection)))
        else {
            if ours {
                let error = "the connection was lost".into();
                self.queue.push(Event::StreamFailed { peer: id, protocol: name, error });
            }
            return;
        };
        if !ours && peer.streams.len() >= self.max_streams_per_peer {
            return; // to drop it resets it
        }
        let stream = Stream::new(id, protocol, self.liveness, self.queue.clone());
        // Announced before its task runs, or the first frames would come before it.
        self.queue.push(Event::StreamOpened { stream: stream.clone(), ours });
        let task = self.tasks.spawn(stream::serve(stream.clone(), raw)).id();
        peer.streams.insert(task, Running { stream, connection });
        self.task_peers.insert(task, id);
    }

    /// Waits for the end of a stream's task and settles it; for ever if there is none.
    pub async fn stream_ended(&mut self) {
        let (task, panicked) = match self.tasks.join_next_with_id().await {
            None => return std::future::pending().await,
            Some(Ok((task, ()))) => (task, false),
            Some(Err(error)) => (error.id(), error.is_panic()),
        };
        let Some(id) = self.task_peers.remove(&task) else { return };
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if let Some(running) = peer.streams.remove(&task)
            && panicked
        {
            running.stream.end("a fault of this node ended the stream".into());
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
